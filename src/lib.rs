//! Phalanx schedules inference requests on the GPUs of one node.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod observe;
pub mod scheduler;
#[doc(hidden)]
pub mod sync;
pub mod types;
pub mod word;

pub use types::{Class, Epoch, LaneId, LaneMask, ModelKey, Nanos, RequestId};
