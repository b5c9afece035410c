//! Long texts.

#[doc = include_str!("admission.md")]
pub mod admission {}

#[doc = include_str!("faults.md")]
pub mod faults {}

#[doc = include_str!("scheduling.md")]
pub mod scheduling {}

#[doc = include_str!("testing.md")]
pub mod testing {}
