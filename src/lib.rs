//! Phalanx schedules inference requests on the GPUs of one node.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod observe;
pub mod scheduler;
pub mod types;

pub use types::{Class, Epoch, LaneId, LaneMask, ModelKey, Nanos, RequestId};
