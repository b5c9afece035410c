//! Phalanx schedules inference requests on the GPUs of one node: a *small* request needs exactly one GPU, a *large* one needs all of
//! them at the same instant and shares none while it runs.
//!
//! ```
//! use phalanx::{EmulatedLane, Gang, Phalanx, Request};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Phalanx::builder().lanes(8).policy("drain".parse()?).build()?;
//! let small = node.submit(Request::small(|lane: &mut EmulatedLane| lane.launch(Duration::from_millis(1))))?;
//! let large = node.submit(Request::large(|_: &mut EmulatedLane, gang: &Gang| {
//!     gang.barrier()?;
//!     Ok(gang.rank())
//! }))?;
//! small.wait()??;
//! assert_eq!(large.wait()?.len(), 8);
//! # Ok(())
//! # }
//! ```
//!
//! # The words
//! | word | meaning |
//! |---|---|
//! | lane | one GPU with its pinned worker thread and its mailbox |
//! | worker | the thread that owns a lane's device: it alone touches it |
//! | dispatcher | the one thread that reserves lanes |
//! | request, ticket | what a user submits; what the user waits on |
//! | small, large | the two classes; a large request runs as a gang: one body on every lane, with its rank |
//! | reserve, release | a lane's busy bit, set by the dispatcher and cleared by its holder |
//! | arrive, epoch | a worker at the gang barrier; the barrier's generation |
//! | drain | letting lanes run empty so that a gang can start |
//! | shadow time | the earliest time at which the waiting gang is predicted to find every lane free |
//! | backfill | a small request started during a drain because it is predicted to end by the shadow time |
//! | quarantine | a lane taken out of service by a fault |
//!
//! # The layers
//! | module | is | may use |
//! |---|---|---|
//! | [`types`] | the words as types | nothing |
//! | [`word`] | the state word: the only truth about who holds what | atomics |
//! | [`scheduler`] | who runs where and when: pure, events in, decisions out | neither clock, thread, atomic nor unsafe code |
//! | [`runtime`] | threads, mailboxes, tickets, the node | all of the above |
//! | [`device`] | what a lane runs on | |
//! | [`observe`] | what a run leaves behind | |
//!
//! The simulator in tools/sim drives the same [`scheduler`] under a virtual clock.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod device;
pub mod docs;
pub mod observe;
mod os;
pub mod runtime;
pub mod scheduler;
#[doc(hidden)]
pub mod sync;
pub mod types;
pub mod word;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use device::{Device, DeviceError, DeviceFault, Emulated, EmulatedLane};
pub use runtime::{
    Admission, BuildError, Builder, Cancel, CancelOnDrop, Drive, Fault, Gang, GangBroken, Health, LaneHealth, LaneState, Phalanx,
    Phase, Recovery, RejectReason, Rejected, Request, RequestError, Running, Shutdown, Step, Ticket, Turn, Wait, Watchdog,
};
pub use types::{Class, Epoch, LaneId, LaneMask, ModelKey, Nanos, RequestId, TenantKey};
