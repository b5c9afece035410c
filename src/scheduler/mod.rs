//! The scheduler: `(now, event)` in, decisions out.
//!
//! It reads no clock, spawns nothing, shares nothing, allocates nothing after construction and contains no unsafe code. Whoever
//! drives it supplies the time: the runtime's dispatcher in real time, the simulator in virtual time. The same events at the same
//! times give the same decisions, so a recorded run can be replayed into it.
//!
//! ```
//! use phalanx::scheduler::{Decision, Decisions, Event, Job, Limits, PolicySpec, Scheduler};
//! use phalanx::{Class, Nanos, RequestId};
//!
//! let policy: PolicySpec = "drain".parse().unwrap();
//! let mut scheduler = Scheduler::new(Limits::new(8).unwrap(), policy.build(8));
//! let mut decisions = Decisions::new();
//!
//! let job = Job::new(RequestId(1), Class::Large, Nanos::ZERO);
//! scheduler.on(Nanos::ZERO, Event::Arrive(job), &mut decisions);
//! assert!(matches!(decisions.as_slice(), [Decision::Admit(_), Decision::StartLarge(_)]));
//! ```
//!
//! # What lives where
//! | file | holds |
//! |---|---|
//! | `event` | the values that go in and come out |
//! | `table` | the jobs held, the queues, the deadlines |
//! | `lanes` | the lane book: what runs where, since when, until when |
//! | `averages` | moving averages of arrivals and service |
//! | `estimate` | when a request that came now would start |
//! | `predict` | how long a job will run |
//! | `ranks` | the queued jobs by size and urgency, for policies that ask for it |
//! | `share` | how the small queue is shared between tenants |
//! | `view` | what a policy may see |
//! | `policy/` | the policies, one file each: who starts next |
//!
//! # Bounds
//! Queues are as long as [`Limits`] says; a refused job is answered at once. An event costs O(log n) for the deadlines and at most
//! [`SCAN`] looks into a queue for each lane that it fills; [`EXPIRE_BATCH`] jobs are expired by one event, and if more are due
//! [`Scheduler::wake_at`] is now.

#![forbid(unsafe_code)]

mod averages;
mod estimate;
mod event;
mod lanes;
pub mod policy;
mod predict;
mod ranks;
mod share;
mod table;
mod view;

pub use averages::{Average, Averages};
pub use event::{Decision, Decisions, End, Event, Job, JobRef, Refusal};
pub use policy::{Action, Hold, Policy, PolicyError, PolicySpec};
pub use predict::{PredictionError, PredictionSource};
pub use share::Sharing;
pub use table::Part;
pub use view::{LATE_AGE, LATE_SHARE, Order, Parked, Ranking, Running, View, Waiting};

use crate::types::{Class, LaneId, LaneMask, MAX_SIM_LANES, Nanos};
use lanes::{Lanes, Run};
use predict::{Prediction, Predictor};
use ranks::Key;
use table::{Place, Table};

/// How far a policy looks into a queue for one decision. The cost of a decision does not grow with the queue.
pub const SCAN: usize = 64;

/// How many jobs one event expires at the most.
pub const EXPIRE_BATCH: usize = 64;

/// The most small jobs that are parked on one lane, and the most large ones on the node: what they need to go on lives on their GPUs, whose
/// memory is finite. A policy may keep to less; none can have more.
pub const MAX_PARKED: usize = 4;

/// The margin with which a prediction is taken that a job must end by: so many mean relative errors.
const FINISH_ERRORS: f64 = 1.0;

/// One in 2^4 jobs is not shed for its prediction.
const PROBE_BITS: u32 = 4;

/// The sizes of a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    lanes: usize,
    queue: [usize; 2],
    sharing: Option<Sharing>,
}

/// A size that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitsError {
    /// A node has between 1 and [`MAX_SIM_LANES`] lanes.
    #[error("{0} lanes: a scheduler has 1 to {MAX_SIM_LANES}")]
    Lanes(usize),
    /// A queue that holds nothing refuses everything; one over the limit would not fit its 32-bit slots.
    #[error("a queue of {0} {1} requests: it holds 1 to {max}", max = Limits::MAX_QUEUE)]
    Queue(usize, Class),
    /// Tenants share the small queue in 1 to [`Sharing::MAX_LINES`] lines.
    #[error("{0} lines of tenants: there are 1 to {max}", max = Sharing::MAX_LINES)]
    Lines(usize),
    /// A line that holds nothing refuses everything.
    #[error("a line of tenants that holds 0 requests: it holds at least 1")]
    Line,
}

impl Limits {
    /// Queue capacity by default, for each class.
    pub const DEFAULT_QUEUE: usize = 16_384;
    /// The largest queue.
    pub const MAX_QUEUE: usize = 1 << 24;

    /// This many lanes, and queues of [`Limits::DEFAULT_QUEUE`].
    ///
    /// # Errors
    /// [`LimitsError::Lanes`] unless there are 1 to [`MAX_SIM_LANES`].
    pub const fn new(lanes: usize) -> Result<Self, LimitsError> {
        if lanes == 0 || lanes > MAX_SIM_LANES {
            return Err(LimitsError::Lanes(lanes));
        }
        Ok(Self { lanes, queue: [Self::DEFAULT_QUEUE; 2], sharing: None })
    }

    /// The same with another capacity of one class's queue.
    ///
    /// # Errors
    /// [`LimitsError::Queue`] unless it is 1 to [`Limits::MAX_QUEUE`].
    pub const fn queue(mut self, class: Class, capacity: usize) -> Result<Self, LimitsError> {
        if capacity == 0 || capacity > Self::MAX_QUEUE {
            return Err(LimitsError::Queue(capacity, class));
        }
        self.queue[class.index()] = capacity;
        Ok(self)
    }

    /// The same with the small queue shared between tenants.
    ///
    /// # Errors
    /// [`LimitsError::Lines`] and [`LimitsError::Line`] for sizes that cannot be.
    pub const fn sharing(mut self, sharing: Sharing) -> Result<Self, LimitsError> {
        if sharing.lines == 0 || sharing.lines > Sharing::MAX_LINES {
            return Err(LimitsError::Lines(sharing.lines));
        }
        if sharing.most == 0 {
            return Err(LimitsError::Line);
        }
        self.sharing = Some(sharing);
        Ok(self)
    }

    /// How the small queue is shared between tenants, if it is.
    #[must_use]
    pub const fn shared(&self) -> Option<Sharing> {
        self.sharing
    }

    /// How many lanes.
    #[must_use]
    pub const fn lanes(&self) -> usize {
        self.lanes
    }

    /// How many jobs of a class may be queued.
    #[must_use]
    pub const fn queue_capacity(&self, class: Class) -> usize {
        self.queue[class.index()]
    }

    /// How many jobs the scheduler holds at the most, queued, running and parked: every [`JobRef::slot`] is below it.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.queue[0] + self.queue[1] + self.lanes + (self.lanes + 1) * MAX_PARKED
    }
}

/// Decides who runs where and when. See the module's page.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    policy: Box<dyn Policy>,
    now: Nanos,
    table: Table,
    lanes: Lanes,
    averages: Averages,
    predictor: Predictor,
    draining: bool,
    closed: bool,
    wake_at: Option<Nanos>,
    policy_faults: u64,
}

impl Scheduler {
    /// A scheduler with nothing queued and every lane free. All the memory it will ever use is allocated here: some 200 bytes for
    /// each queue place, and 300 kB.
    #[must_use]
    pub fn new(limits: Limits, policy: Box<dyn Policy>) -> Self {
        let mut table = Table::new(limits.slots(), limits.sharing);
        if policy.ranks() {
            table.rank();
        }
        Self {
            limits,
            policy,
            now: Nanos::ZERO,
            table,
            lanes: Lanes::new(limits.lanes),
            averages: Averages::new(),
            predictor: Predictor::new(),
            draining: false,
            closed: false,
            wake_at: None,
            policy_faults: 0,
        }
    }

    /// Takes in what happened at `now`, and writes what is to be done into `out`, which it empties first.
    ///
    /// A `now` before an earlier one counts as that earlier one: time does not run backwards here.
    pub fn on(&mut self, now: Nanos, event: Event, out: &mut Decisions) {
        out.clear();
        self.now = self.now.max(now);
        match event {
            Event::Arrive(job) => self.arrive(&job, out),
            Event::Refused { class, count } => self.averages.offered_and_refused(class, count.max(1), self.now),
            Event::Cancel(job) => match self.table.find(job) {
                Some(Place::Queued(_) | Place::InLine) => self.table.remove(job.slot),
                Some(Place::Parked) => self.lanes.cancel(job.slot),
                _ => {}
            },
            Event::Parked { job, ran } => self.park(job, ran),
            Event::Finish { job, end, ran } => self.finish(job, end, ran),
            Event::LaneDown { lane } => self.lanes.set_offline(lane, true),
            Event::LaneUp { lane } => self.lanes.set_offline(lane, false),
            Event::Close => self.closed = true,
            Event::Tick => {}
        }
        let more_due = self.expire(out);
        let hold = self.start(out);
        // One that came is watched for its latest start only if it waits: most start at once.
        if let Event::Arrive(_) = event {
            self.table.watch_newest();
        }
        let draining = hold.drain && self.larges_wait() && self.lanes.gang().is_none();
        if draining != self.draining {
            self.draining = draining;
            out.push(if draining { Decision::DrainOn { shadow: self.lanes.shadow(self.now) } } else { Decision::DrainOff });
        }
        let deadline = if more_due { Some(self.now) } else { self.table.first_latest_start().map(|(_, at)| at) };
        // A moment that has passed is no moment to be woken at: a policy's mistake there would have its driver spin.
        let asked = hold.wake_at.filter(|&at| at > self.now);
        self.wake_at = match (deadline, asked) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        #[cfg(debug_assertions)]
        self.lanes.check();
    }

    fn arrive(&mut self, job: &Job, out: &mut Decisions) {
        // Refused ones are offered load too: a rate that left them out would call an overloaded node half idle.
        self.averages.offered(job.class, job.arrival);
        if let Some(step) = job.step {
            self.averages.offered_step(step);
        }
        let room = self.table.queued(job.class) < self.limits.queue_capacity(job.class);
        let tenant_full = self.table.is_tenant_full(job);
        let prediction = self.predictor.predict(job);
        let admitted = if room && !tenant_full {
            let latest_start = self.latest_start(job, prediction);
            let (predictor, averages) = (&self.predictor, &self.averages);
            self.table.set_next_key(|| {
                let size = predictor.run_time(prediction, job.class, averages.mean_service_ns(job.class)).unwrap_or(Nanos::ZERO);
                let due = job.target.unwrap_or(Nanos::MAX).min(job.deadline.unwrap_or(Nanos::MAX));
                let own = if prediction.source() == PredictionSource::Class { Nanos::ZERO } else { size };
                Key { size, due, latest: if due == Nanos::MAX { due } else { due - own } }
            });
            let admitted = self.table.insert(*job, prediction, latest_start);
            if latest_start <= self.now {
                // It is too late before it has begun.
                self.table.watch_newest();
            }
            admitted
        } else {
            None
        };
        out.push(match admitted {
            Some(job) => Decision::Admit(job),
            None => {
                let reason = if room && tenant_full { Refusal::TenantFull } else { Refusal::QueueFull };
                Decision::Refuse { id: job.id, reason }
            }
        });
    }

    /// How long a job will hardly exceed: its prediction, with the mean error of what predicts it for its own. 0 as long as nothing is known.
    fn cautious_run(&self, job: &Job, prediction: Prediction) -> Nanos {
        match prediction.source() {
            PredictionSource::Class => Nanos(self.averages.mean_service_ns(job.class).unwrap_or(0.0) as u64),
            source => {
                let factor = self.predictor.cautious_factor(source, job.class, FINISH_ERRORS);
                Nanos((prediction.raw().0 as f64 * factor) as u64)
            }
        }
    }

    /// The moment past which a job is not started any more.
    fn latest_start(&self, job: &Job, prediction: Prediction) -> Nanos {
        let deadline = job.deadline.unwrap_or(Nanos::MAX);
        let Some(finish_by) = job.finish_by else { return deadline };
        // What is shed teaches nothing: a prediction that has become too long would shed all that it predicts for ever. So some are let
        // through, by a hash of their numbers, which no pattern of arrivals can evade.
        let probe = job.id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PROBE_BITS) == 0;
        deadline.min(if probe { finish_by } else { finish_by - self.cautious_run(job, prediction) })
    }

    fn finish(&mut self, job: JobRef, end: End, ran: Nanos) {
        let place = self.table.find(job);
        if !matches!(place, Some(Place::Running | Place::Parked)) {
            return;
        }
        let entry = self.table.entry(job.slot);
        let (class, model, prediction) = (entry.job.class, entry.job.model, self.table.prediction(job.slot));
        if place == Some(Place::Parked) {
            let stopped = self.lanes.unpark(job.slot, class);
            debug_assert!(stopped.is_some(), "a parked job is in the lane book");
            self.table.remove(job.slot);
            return;
        }
        let run = self.lanes.finish(job.slot, class, self.table.lane(job.slot));
        debug_assert!(run.is_some(), "a running job is in the lane book");
        // All of its stretches: what was parked in between has run no less for it.
        let ran = ran + run.map_or(Nanos::ZERO, |run| run.served);
        if end == End::Completed {
            let mean = self.averages.mean_service_ns(class);
            self.predictor.completed(class, model, prediction, mean, ran);
            self.averages.completed(class, ran);
            if let (Class::Small, Some(mean)) = (class, self.averages.mean_service_ns(Class::Small)) {
                self.table.set_mean_run(Nanos(mean as u64));
            }
        }
        self.table.remove(job.slot);
    }

    fn park(&mut self, job: JobRef, ran: Nanos) {
        if self.table.find(job) != Some(Place::Running) {
            return;
        }
        let entry = &self.table.entry(job.slot).job;
        // Only what has steps can have stopped, and it was asked only if there was a place for what it leaves.
        if entry.step.is_some() && self.lanes.park(job.slot, entry.class, ran, self.now) {
            self.table.park(job.slot);
        } else {
            debug_assert!(false, "{job:?} has no steps, or no place to be parked in");
        }
    }

    /// Whether a large job is queued or parked.
    fn larges_wait(&self) -> bool {
        self.table.queued(Class::Large) > 0 || !self.lanes.parked_larges().is_empty()
    }

    fn resume(&mut self, job: JobRef, out: &mut Decisions) -> bool {
        if self.table.find(job) != Some(Place::Parked) {
            return false;
        }
        let class = self.table.entry(job.slot).job.class;
        let lanes = self.lanes.home(job.slot, class);
        if lanes.is_empty() || !self.lanes.free().covers(lanes) {
            return false;
        }
        let Some(stopped) = self.lanes.unpark(job.slot, class) else { return false };
        self.table.resume(job.slot);
        let run = Run {
            slot: job.slot,
            started: self.now,
            predicted_end: self.now + lanes::remaining(stopped.predicted, stopped.served),
            predicted: stopped.predicted,
            served: stopped.served,
            step: stopped.step,
            stops: stopped.stops,
            asked: None,
        };
        match class {
            Class::Large => self.lanes.start_gang(run),
            Class::Small => {
                for lane in lanes {
                    self.lanes.start_small(lane, run);
                    self.table.set_lane(job.slot, lane);
                }
            }
        }
        out.push(Decision::Resume { job, lanes });
        true
    }

    /// Expires what is due; whether more is.
    fn expire(&mut self, out: &mut Decisions) -> bool {
        for _ in 0..EXPIRE_BATCH {
            match self.table.first_latest_start() {
                Some((slot, latest_start)) if latest_start <= self.now => {
                    let (job, entry) = (self.table.job_ref(slot), &self.table.entry(slot).job);
                    let over = entry.deadline.into_iter().chain(entry.finish_by).any(|due| due <= self.now);
                    let run = self.cautious_run(entry, self.table.prediction(slot));
                    out.push(if over { Decision::Expire(job) } else { Decision::Shed { job, run } });
                    self.table.remove(slot);
                }
                _ => return false,
            }
        }
        self.table.first_latest_start().is_some_and(|(_, latest_start)| latest_start <= self.now)
    }

    /// Asks the policy until it holds, or nothing waits any more. Each of its answers but the last takes a free lane, or asks a lane's job to
    /// stop, or not to.
    fn start(&mut self, out: &mut Decisions) -> Hold {
        // What was taken back is dropped where it lives, also when nothing else starts any more.
        while let Some((slot, _)) = self.lanes.cancelled() {
            if !self.resume(self.table.job_ref(slot), out) {
                debug_assert!(false, "a parked job on free lanes can go on");
                break;
            }
        }
        if self.closed {
            return Hold::default();
        }
        // A start or a resumption takes a lane, of which none becomes free here; a job is asked at most once, and that taken back once.
        let most = 3 * self.limits.lanes;
        for turn in 0.. {
            let mut view = View {
                now: self.now,
                table: &mut self.table,
                lanes: &self.lanes,
                averages: &self.averages,
                predictor: &self.predictor,
            };
            match self.policy.next(&mut view) {
                Action::Hold(hold) => return hold,
                _ if turn >= most => break,
                Action::StartSmall { job, backfill } => {
                    let lane = self.lanes.for_new();
                    let (Some(lane), true) = (lane, self.startable(job, Class::Small)) else { break };
                    let run = self.run(job);
                    self.lanes.start_small(lane, run);
                    self.table.set_lane(job.slot, lane);
                    out.push(Decision::StartSmall { job, lane, backfill });
                    // Nothing is left to ask about.
                    if self.table.is_empty() && !self.lanes.any_parked() && self.lanes.asked().is_empty() {
                        return Hold::default();
                    }
                }
                Action::StartSmallOn { job, lane } => {
                    if !self.lanes.free().contains(lane) || !self.startable(job, Class::Small) {
                        break;
                    }
                    let run = self.run(job);
                    self.lanes.start_small(lane, run);
                    self.table.set_lane(job.slot, lane);
                    out.push(Decision::StartSmall { job, lane, backfill: false });
                }
                Action::Resume(job) => {
                    if !self.resume(job, out) {
                        break;
                    }
                }
                Action::Ask(job) => {
                    let class = self.running_class(job);
                    let Some(class) = class.filter(|&class| self.lanes.can_ask(job.slot, class)) else { break };
                    let lanes = self.lanes.set_asked(job.slot, class, Some(self.now));
                    out.push(Decision::Ask { job, lanes });
                }
                Action::Unask(job) => {
                    let class = self.running_class(job);
                    let asked = |class| self.lanes.asked().covers(self.lanes.lanes_of(job.slot, class));
                    let Some(class) = class.filter(|&class| asked(class)) else { break };
                    let lanes = self.lanes.set_asked(job.slot, class, None);
                    out.push(Decision::Unask { job, lanes });
                }
                Action::StartLarge(job) => {
                    if !self.lanes.all_free() || !self.startable(job, Class::Large) {
                        break;
                    }
                    let run = self.run(job);
                    self.lanes.start_gang(run);
                    out.push(Decision::StartLarge(job));
                }
            }
        }
        self.fault()
    }

    /// The class of a job, if it runs.
    fn running_class(&self, job: JobRef) -> Option<Class> {
        (self.table.find(job) == Some(Place::Running)).then(|| self.table.entry(job.slot).job.class)
    }

    fn startable(&self, job: JobRef, class: Class) -> bool {
        matches!(self.table.find(job), Some(Place::Queued(_))) && self.table.entry(job.slot).job.class == class
    }

    fn run(&mut self, job: JobRef) -> Run {
        let entry = self.table.entry(job.slot);
        let mean = self.averages.mean_service_ns(entry.job.class);
        let step = entry.job.step;
        let predicted = self.predictor.run_time(self.table.prediction(job.slot), entry.job.class, mean).unwrap_or(Nanos::ZERO);
        self.table.start(job.slot);
        Run {
            slot: job.slot,
            started: self.now,
            predicted_end: self.now + predicted,
            predicted,
            served: Nanos::ZERO,
            step,
            stops: 0,
            asked: None,
        }
    }

    /// A policy asked for what cannot be. Ours never do; one of a user's must not break the node: it is taken as holding, and counted.
    fn fault(&mut self) -> Hold {
        self.policy_faults += 1;
        Hold::default()
    }

    /// When to call [`on`](Self::on) with [`Event::Tick`], unless another event comes first.
    #[inline]
    #[must_use]
    pub const fn wake_at(&self) -> Option<Nanos> {
        self.wake_at
    }

    /// How many jobs of a class are queued.
    #[inline]
    #[must_use]
    pub fn queued(&self, class: Class) -> usize {
        self.table.queued(class)
    }

    /// How many jobs of a class are parked: started, and stopped between two steps.
    #[must_use]
    pub fn parked(&self, class: Class) -> usize {
        self.lanes.parked(class)
    }

    /// The lanes whose job is asked to stop at its next step.
    #[inline]
    #[must_use]
    pub fn asked(&self) -> LaneMask {
        self.lanes.asked()
    }

    /// The lanes on which something runs.
    #[inline]
    #[must_use]
    pub fn busy(&self) -> LaneMask {
        self.lanes.busy()
    }

    /// The lanes that are in service.
    #[inline]
    #[must_use]
    pub fn in_service(&self) -> LaneMask {
        self.lanes.in_service()
    }

    /// Whether a large job runs.
    #[inline]
    #[must_use]
    pub fn gang_running(&self) -> bool {
        self.lanes.gang().is_some()
    }

    /// Whether lanes are kept free for a waiting large job.
    #[inline]
    #[must_use]
    pub const fn draining(&self) -> bool {
        self.draining
    }

    /// The small job that runs on a lane, or the large one that runs on all.
    #[must_use]
    pub fn running(&self, lane: LaneId) -> Option<JobRef> {
        if !self.lanes.busy().contains(lane) {
            return None;
        }
        let run = self.lanes.gang().or_else(|| self.lanes.small(lane))?;
        Some(self.table.job_ref(run.slot))
    }

    /// How long what runs on a lane was predicted to run, when it was started, if anything was known.
    #[inline]
    #[must_use]
    pub fn predicted_run(&self, lane: LaneId) -> Option<Nanos> {
        let run = self.lanes.gang().or_else(|| self.lanes.small(lane))?;
        Some(run.predicted_end - run.started).filter(|&predicted| predicted > Nanos::ZERO)
    }

    /// The moving averages that the policy works with.
    #[must_use]
    pub const fn averages(&self) -> &Averages {
        &self.averages
    }

    /// How well a source has predicted a class, once it has.
    #[must_use]
    pub fn prediction_error(&self, source: PredictionSource, class: Class) -> Option<PredictionError> {
        self.predictor.error(source, class)
    }

    /// The sizes it was made with.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The policy that decides.
    #[must_use]
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// How often the policy asked for something impossible, which was then not done. Above 0 the policy has a bug.
    #[must_use]
    pub const fn policy_faults(&self) -> u64 {
        self.policy_faults
    }

    /// Checks every invariant of queues, deadlines, lanes and slots, in O(queue): for tests, simulators and fuzzers.
    ///
    /// # Panics
    /// If one is broken, which is a bug in this crate.
    pub fn check_invariants(&self) {
        assert_eq!(
            self.policy_faults,
            0,
            "policy {} asked for a job that is not queued, or a lane that is not free",
            self.policy.name()
        );
        self.table.check();
        self.lanes.check();
        for class in Class::ALL {
            assert!(self.table.queued(class) <= self.limits.queue_capacity(class), "the {class} queue is over its capacity");
        }
        for lane in self.lanes.busy() {
            let run = self.lanes.gang().or_else(|| self.lanes.small(lane));
            let run = run.expect("a busy lane has a run");
            assert!(run.started <= self.now, "{lane:?} runs what has not started yet");
        }
        for lane in self.lanes.parked_on() {
            for stopped in self.lanes.parked_smalls(lane) {
                let entry = self.table.entry(stopped.slot);
                assert_eq!((entry.place, entry.job.class), (Place::Parked, Class::Small), "{lane:?} keeps what is not parked");
            }
        }
        for stopped in self.lanes.parked_larges() {
            let entry = self.table.entry(stopped.slot);
            assert_eq!((entry.place, entry.job.class), (Place::Parked, Class::Large), "a parked large one is none");
        }
        let parked = Class::ALL.map(|class| self.lanes.parked(class)).iter().sum::<usize>();
        assert_eq!(parked, self.table.parked(), "a parked job is in no book");
        assert!(!self.draining || self.larges_wait(), "a drain for nobody");
    }
}

#[cfg(test)]
mod tests;
