//! Stress.
fn main() {}
