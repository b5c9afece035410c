//! The event log's records.
//!
//! One log serves replay, audit, reports and live views. It holds, in the order in which the dispatcher met them, every event that the
//! scheduler was told and every decision that it answered, with the `now` that the decision used; and, as the workers
//! measured them, the spans for which each lane was held, and the end of every request.
//!
//! As JSON lines (feature `serde`) each record is one object with `now` and one of these keys, whose value tells the kinds apart:
//!
//! | key | record | further fields |
//! |---|---|---|
//! | `event` | [`Event`]: `arrive`, `refused`, `cancel`, `finish`, `lane_down`, `lane_up`, `close`, `tick` | the event's own |
//! | `decision` | [`Decision`]: `admit`, `refuse`, `expire`, `shed`, `start_small`, `start_large`, `drain_on`, `drain_off` | the decision's own |
//! | `span` | [`LaneSpan`]: the request that held a lane | `class`, `lane`, `reserved`, `started`, `ended` |
//! | `outcome` | [`Outcome`]: `completed`, `failed`, `expired`, `cancelled`, `shut_down`, `rejected` | `id`, `class`, `submitted`, `started`, `ended`, `slo_met` |
//! | `lane_care` | [`LaneCare`]: `fault`, `probe`, `passed`, `failed`, `let_go` | `lane`, `fault` (why, for a fault and a failed probe) |
//! | `lost` | how many records did not fit because the reader was too slow | none |
//!
//! All times are nanoseconds since the node's start.

use crate::runtime::Fault;
use crate::scheduler::{Decision, Event};
use crate::types::{Class, LaneId, Nanos, RequestId};

/// One entry of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Record {
    /// When the dispatcher dealt with it: for an event and its decisions, the time that the scheduler was given.
    pub now: Nanos,
    /// What it was.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub what: What,
}

/// What a [`Record`] is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(untagged))]
pub enum What {
    /// The scheduler was told this.
    Event(Event),
    /// The scheduler answered this to the event before it.
    Decision(Decision),
    /// A lane was held by a request.
    Span(LaneSpan),
    /// A request came to its end.
    Outcome(Outcome),
    /// A lane went wrong, or was looked after.
    Lane(LaneCare),
    /// Records are missing here: the log's reader was slower than the node for too long.
    Lost {
        /// How many.
        lost: u64,
    },
}

/// What befell a lane, or was done for it. The scheduler is told apart, by [`Event::LaneDown`] and [`Event::LaneUp`]; the latter comes only
/// after a probe that passed and began after the last fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LaneCare {
    /// What.
    #[cfg_attr(feature = "serde", serde(rename = "lane_care"))]
    pub care: Care,
    /// Which lane.
    pub lane: LaneId,
    /// Why, for a fault and a failed probe.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub fault: Option<Fault>,
}

/// See [`LaneCare`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Care {
    /// It is of no use, whoever holds it.
    Fault,
    /// A probe began.
    Probe,
    /// The probe passed.
    Passed,
    /// The probe failed.
    Failed,
    /// Whoever was given up on it let it go: a request, or a probe, whose outcome is of no account.
    LetGo,
}

/// A lane held by one request, as the lane's worker measured it. A large request that ran leaves one of these for every lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LaneSpan {
    /// Who held it.
    #[cfg_attr(feature = "serde", serde(rename = "span"))]
    pub id: RequestId,
    /// As one lane, or as a gang member.
    pub class: Class,
    /// Which lane.
    pub lane: LaneId,
    /// When the dispatcher reserved it.
    pub reserved: Nanos,
    /// When it began: for a small request when its lane was told to, for a gang member after all had arrived.
    pub started: Nanos,
    /// When the body and what it launched had ended. The lane was released after this.
    pub ended: Nanos,
}

/// How a request ended: exactly one of these for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Terminal {
    /// It ran to its end.
    Completed,
    /// It ran, and a panic, a device error or a broken gang ended it.
    Failed,
    /// Its deadline passed before it started, or it could not end in time any more.
    Expired,
    /// Its owner took it back before it started.
    Cancelled,
    /// The node was shut down before it started.
    ShutDown,
    /// It was not taken.
    Rejected,
}

impl Terminal {
    /// All, in the order in which tables print them.
    pub const ALL: [Self; 6] = [Self::Completed, Self::Failed, Self::Expired, Self::Cancelled, Self::ShutDown, Self::Rejected];
}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Outcome {
    /// How.
    pub outcome: Terminal,
    /// Whose.
    pub id: RequestId,
    /// One lane or all.
    pub class: Class,
    /// When it was submitted.
    pub submitted: Nanos,
    /// When its body began, if it did; for a gang, when its first member did.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub started: Option<Nanos>,
    /// When its body ended (for a gang, its last member's), or when it was given up.
    pub ended: Nanos,
    /// Whether it completed by its target, if it had one.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub slo_met: Option<bool>,
}
