//! Loom and shuttle models of Phalanx's shared-memory protocols.
//!
//! The models are in `tests/`, over the real code of the crate `phalanx`; here is what they share. Run them by `tools/ci/loom.sh`,
//! `tools/ci/shuttle.sh` and `tools/ci/mutants.sh`, which set the cfgs that they need. Without a cfg this crate is empty.

#[cfg(any(loom, shuttle))]
mod harness;

#[cfg(any(loom, shuttle))]
pub use harness::*;
