//! The program `phalanx`.
fn main() {}
