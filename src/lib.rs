//! Phalanx schedules inference requests on the GPUs of one node.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod device;
pub mod observe;
mod os;
pub mod runtime;
pub mod scheduler;
#[doc(hidden)]
pub mod sync;
pub mod types;
pub mod word;

pub use device::{Device, DeviceError, DeviceFault, Emulated, EmulatedLane};
pub use runtime::{
    BuildError, Builder, Cancel, CancelOnDrop, Drive, Gang, GangBroken, Phalanx, Phase, RejectReason, Rejected, Request,
    RequestError, Shutdown, Ticket, Turn, Wait,
};
pub use types::{Class, Epoch, LaneId, LaneMask, ModelKey, Nanos, RequestId};
