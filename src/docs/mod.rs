//! Long texts.

#[doc = include_str!("testing.md")]
pub mod testing {}
