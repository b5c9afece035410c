//! What a lane runs on.
//!
//! A [`Device`] is shared by the node; what it opens for a lane is that lane's alone: opened, used and dropped on the lane's worker
//! thread, so it need be neither `Send` nor `Sync`. Bodies of requests get it as `&mut D::Lane`.

mod emulated;

pub use emulated::{Emulated, EmulatedLane};

use crate::types::{LaneId, RequestId};
use std::fmt;

/// Makes lanes, and brackets each request on them.
pub trait Device: Send + Sync + 'static {
    /// One opened lane.
    type Lane: 'static;

    /// What it is, in a few words, for people: "emulated GPU", a card's name.
    fn describe(&self) -> String;

    /// Opens a lane. Called once, on the lane's own worker thread, before the node takes requests.
    ///
    /// # Errors
    /// If there is no such GPU or it cannot be used: the node is then not built.
    fn open(&self, lane: LaneId) -> Result<Self::Lane, DeviceError>;

    /// A request is about to run on the lane, alone.
    ///
    /// # Errors
    /// If the lane cannot take it: the request fails with this.
    fn begin(&self, lane: &mut Self::Lane, request: RequestId) -> Result<(), DeviceError>;

    /// The request's body has returned or panicked: waits until all that it launched has ended, and reports what went wrong with
    /// it, so that it is blamed on this request and on no other.
    ///
    /// # Errors
    /// If something did: the request fails with this.
    fn finish(&self, lane: &mut Self::Lane, request: RequestId) -> Result<(), DeviceError>;

    /// The lane is out of service, and nothing runs on it: makes it usable again, if that can be done, and tries whether it is. Called on
    /// the lane's worker thread, again and again with growing waits, until it succeeds; then the lane goes back into service.
    ///
    /// By default the lane is opened anew and the old one dropped, which is what a GPU's sticky error asks for. A device that can have a
    /// lane open only once, or can tell more cheaply, has a probe of its own.
    ///
    /// # Errors
    /// If the lane is of no use yet: it stays out of service and is probed again later, unless the fault is [`DeviceFault::Lost`].
    fn probe(&self, id: LaneId, lane: &mut Self::Lane) -> Result<(), DeviceError> {
        *lane = self.open(id)?;
        Ok(())
    }
}

/// What a device's error means for its lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeviceFault {
    /// Only the request failed; the lane goes on.
    Request,
    /// Work of two requests met on one GPU: the rule that everything else rests on is broken. A bug, of the device or of Phalanx.
    Isolation,
    /// The lane is of no use any more: it is taken out of service, and probed until it is usable again.
    Lane,
    /// The lane's GPU is gone for good: it is taken out of service, and never tried again.
    Lost,
}

/// Something went wrong on a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceError {
    lane: LaneId,
    fault: DeviceFault,
    message: String,
}

impl DeviceError {
    /// An error of this lane. The message says what happened and, where there is one, the remedy.
    #[must_use]
    pub fn new(lane: LaneId, fault: DeviceFault, message: impl Into<String>) -> Self {
        Self { lane, fault, message: message.into() }
    }

    /// On which lane.
    #[must_use]
    pub const fn lane(&self) -> LaneId {
        self.lane
    }

    /// What it means for the lane.
    #[must_use]
    pub const fn fault(&self) -> DeviceFault {
        self.fault
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}: {}", self.lane, self.message)
    }
}

impl std::error::Error for DeviceError {}
