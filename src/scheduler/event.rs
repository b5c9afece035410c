//! What the scheduler is told, and what it answers.

use crate::types::{Class, LaneId, LaneMask, ModelKey, Nanos, RequestId, TenantKey};

/// A request as the scheduler sees it: everything that a decision may depend on, and nothing that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Job {
    /// Its number, unique in the scheduler's life.
    pub id: RequestId,
    /// Whether it needs one lane or all.
    pub class: Class,
    /// When it was submitted: its age counts from here.
    pub arrival: Nanos,
    /// The moment past which it must not start any more: if it is still queued then, it is expired.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub deadline: Option<Nanos>,
    /// The moment by which it must have ended, as far as its prediction can tell: once it could not any more, it is not started, but shed.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub finish_by: Option<Nanos>,
    /// The moment by which it should have ended. It orders requests and is counted; nothing is dropped for it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub target: Option<Nanos>,
    /// How long its owner expects it to run.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub expected: Option<Nanos>,
    /// What it runs: requests of one key share a history of run times.
    #[cfg_attr(feature = "serde", serde(default))]
    pub model: ModelKey,
    /// Whose it is.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "TenantKey::is_none"))]
    pub tenant: TenantKey,
    /// About how long one of its steps takes: it can stop between two, and go on later on the lanes it had. `None`: it runs to its end, and
    /// is never asked to stop.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub step: Option<Nanos>,
}

impl Job {
    /// A job without deadline, target, prediction, key, tenant or steps.
    #[must_use]
    pub const fn new(id: RequestId, class: Class, arrival: Nanos) -> Self {
        Self {
            id,
            class,
            arrival,
            deadline: None,
            finish_by: None,
            target: None,
            expected: None,
            model: ModelKey::NONE,
            tenant: TenantKey::NONE,
            step: None,
        }
    }
}

/// Names a job that the scheduler holds: its slot in the table, and its number, so that a stale reference is recognised.
///
/// Slots are dense (0 .. [`Limits::slots`](super::Limits::slots)) and reused: an owner of payloads can keep them in an array.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct JobRef {
    /// Its place in the table.
    pub slot: u32,
    /// Its number.
    pub id: RequestId,
}

/// How a job that was started came to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum End {
    /// It ran to its end: its time trains the predictor.
    Completed,
    /// It ran and failed: its time says nothing about the next one.
    Failed,
    /// It was withdrawn between the decision and the hand-over: it never ran, its lanes were never taken.
    Withdrawn,
}

/// What happened, in the order in which the dispatcher learned of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(tag = "event", rename_all = "snake_case"))]
pub enum Event {
    /// A request arrived.
    Arrive(Job),
    /// Requests of a class were turned away at the node's door since this was last told. They are offered load, which policies weigh.
    Refused {
        /// Small or large.
        class: Class,
        /// How many.
        count: u64,
    },
    /// The owner of a queued job took it back, or that of a parked one, which is then resumed as soon as its lanes are free, so that what it
    /// left there can be dropped where it lives: the driver, which knows that it is cancelled, ends it there. A reference to a job that is
    /// neither is ignored.
    Cancel(JobRef),
    /// A started job stopped between two of its steps, as it was asked to (maybe just before it was not asked any more); all of its lanes
    /// are free again, and what it needs to go on stays where it is.
    Parked {
        /// Which.
        #[cfg_attr(feature = "serde", serde(flatten))]
        job: JobRef,
        /// For how long it held its lanes since its start or its latest resumption (for a gang: the longest of its members).
        ran: Nanos,
    },
    /// A started job ended, also one that is parked (its lane went out of service, or the node shuts down); all of its lanes are free again.
    Finish {
        /// Which.
        #[cfg_attr(feature = "serde", serde(flatten))]
        job: JobRef,
        /// How.
        end: End,
        /// For how long it held its lanes since its start or its latest resumption, as its workers measured it (for a gang: the longest of
        /// its members); 0 for one that is parked.
        ran: Nanos,
    },
    /// A lane was taken out of service. What ran or was parked on it is reported by events of its own.
    LaneDown {
        /// Which.
        lane: LaneId,
    },
    /// A lane is in service again.
    LaneUp {
        /// Which.
        lane: LaneId,
    },
    /// No job is started any more: the node shuts down and gives up what is queued.
    Close,
    /// The moment of [`Scheduler::wake_at`](super::Scheduler::wake_at) has come. At any other moment it does no harm.
    Tick,
}

/// Why a job was not even queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Refusal {
    /// The queue of its class is full.
    QueueFull,
    /// Its tenant has as many requests in the small queue as one may have.
    TenantFull,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(tag = "decision", rename_all = "snake_case"))]
pub enum Decision {
    /// The job that arrived is queued under this reference.
    Admit(JobRef),
    /// The job that arrived is not taken.
    Refuse {
        /// Which.
        id: RequestId,
        /// Why.
        reason: Refusal,
    },
    /// A queued job's deadline has passed: it is out of the queue.
    Expire(JobRef),
    /// A queued job could not end by its [`finish_by`](Job::finish_by) any more, were it started now: it is out of the queue.
    Shed {
        /// Which.
        #[cfg_attr(feature = "serde", serde(flatten))]
        job: JobRef,
        /// How long it would run, by its prediction and the error of that.
        run: Nanos,
    },
    /// Start this small job on this lane, which is free.
    StartSmall {
        /// Which.
        #[cfg_attr(feature = "serde", serde(flatten))]
        job: JobRef,
        /// Where.
        lane: LaneId,
        /// Whether it passes a large one that waits for the lanes, since it is predicted to end in time.
        backfill: bool,
    },
    /// Start this large job on every lane, all of which are free.
    StartLarge(JobRef),
    /// Ask this running job, which has steps, to stop between two of them. It answers by [`Event::Parked`], or by [`Event::Finish`] if it
    /// ends before.
    Ask {
        /// Which.
        #[cfg_attr(feature = "serde", serde(flatten))]
        job: JobRef,
        /// Where it runs: one lane, or all.
        lanes: LaneMask,
    },
    /// It need not stop any more. If it already has, its [`Event::Parked`] is on the way.
    Unask {
        /// Which.
        #[cfg_attr(feature = "serde", serde(flatten))]
        job: JobRef,
        /// Where it runs: one lane, or all.
        lanes: LaneMask,
    },
    /// Let this parked job go on where it stopped: its lane, or all of them, are free.
    Resume {
        /// Which.
        #[cfg_attr(feature = "serde", serde(flatten))]
        job: JobRef,
        /// Where: one lane, or all.
        lanes: LaneMask,
    },
    /// From now on lanes are kept free for a waiting large job.
    DrainOn {
        /// When the last lane is predicted to be free.
        shadow: Nanos,
    },
    /// Small jobs are admitted to the lanes again.
    DrainOff,
}

/// The decisions that one event brought, in order: a buffer of the caller's, made once, which never grows.
#[derive(Clone, Debug)]
pub struct Decisions {
    items: Vec<Decision>,
}

impl Decisions {
    /// One event brings at most its own admission, [`EXPIRE_BATCH`](super::EXPIRE_BATCH) expiries, for each lane a start or a resumption, a
    /// request to stop and one taken back, and one change of the drain.
    pub const CAPACITY: usize = 1 + super::EXPIRE_BATCH + 3 * crate::types::MAX_SIM_LANES + 1;

    /// An empty buffer. The one allocation it will ever make.
    #[must_use]
    pub fn new() -> Self {
        Self { items: Vec::with_capacity(Self::CAPACITY) }
    }

    /// The decisions of the latest event.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Decision] {
        &self.items
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    #[inline]
    pub(super) fn push(&mut self, decision: Decision) {
        // The bound is a theorem about `Scheduler::on`; a buffer that grew would be a hidden allocation on the hot path.
        assert!(self.items.len() < Self::CAPACITY, "one event brought more decisions than it can");
        self.items.push(decision);
    }
}

impl Default for Decisions {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> IntoIterator for &'a Decisions {
    type Item = &'a Decision;
    type IntoIter = std::slice::Iter<'a, Decision>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}
