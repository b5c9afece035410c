//! The loop.

use super::stats::{ClassAreas, ClassTally, PredictionResult, RunResult, Stability, Trail};
use crate::{InputError, Source, TraceRequest};
use phalanx::scheduler::{
    Decision, Decisions, End, Event, Job, JobRef, Limits, LimitsError, Policy, PolicyError, PolicySpec, PredictionSource,
    Scheduler, Sharing,
};
use phalanx::types::MAX_SIM_LANES;
use phalanx::{Class, LaneMask, ModelKey, Nanos, RequestId, TenantKey};

/// What to simulate besides the requests.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Lanes of the node: at least those that the source is made for.
    pub lanes: usize,
    /// Who decides.
    pub policy: PolicySpec,
    /// How many requests of each class may be queued, small first.
    pub queue: [usize; 2],
    /// How the small queue is shared between tenants, if it is.
    pub sharing: Option<Sharing>,
    /// What it costs to stop a request at a step, and again what it costs to resume it: its lanes are held for so long.
    pub stop_cost: Nanos,
    /// So many requests, of both classes, are not measured.
    pub warm_up: u64,
    /// The source ends after so many requests.
    pub requests: Option<u64>,
    /// The source ends before the first request that arrives later than this.
    pub until: Option<Nanos>,
    /// Check the scheduler's invariants after every event: O(queue) each, for tests.
    pub check_invariants: bool,
}

impl SimOptions {
    /// This policy on so many lanes: queues of the default size, no warm-up, the whole source.
    #[must_use]
    pub fn new(lanes: usize, policy: PolicySpec) -> Self {
        Self {
            lanes,
            policy,
            queue: [Limits::DEFAULT_QUEUE; 2],
            sharing: None,
            stop_cost: Nanos::ZERO,
            warm_up: 0,
            requests: None,
            until: None,
            check_invariants: false,
        }
    }

    pub(super) fn limits(&self, source_lanes: usize) -> Result<Limits, SimError> {
        let mut limits = Limits::new(self.lanes)?.queue(Class::Small, self.queue[0])?.queue(Class::Large, self.queue[1])?;
        if let Some(sharing) = self.sharing {
            limits = limits.sharing(sharing)?;
        }
        if source_lanes > self.lanes {
            return Err(SimError::Lanes { needed: source_lanes, lanes: self.lanes });
        }
        Ok(limits)
    }
}

/// Why a simulation was not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The trace or workload is wrong somewhere.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The sizes cannot be.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The policy's settings do not fit the node.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The requests need more lanes than there are.
    #[error("the requests need {needed} lanes, and the node has {lanes}; give it at least {needed}")]
    Lanes {
        /// What the source is made for.
        needed: usize,
        /// What the node has.
        lanes: usize,
    },
    /// No request came at all.
    #[error("no request arrived: the trace is empty, or ends before its first request")]
    Empty,
    /// Nothing runs, nothing comes any more, and the policy starts none of those that wait.
    #[error("policy {policy} starts nothing though every lane is free and {waiting} requests wait: it has a bug")]
    Stuck {
        /// Its name.
        policy: String,
        /// How many wait.
        waiting: usize,
    },
}

/// Sees every event of a run with what was decided, in order: for logs, timelines and tests. `()` looks away.
pub trait Observer {
    /// The scheduler took `event` in at `now`, and decided this.
    fn event(&mut self, now: Nanos, event: &Event, decisions: &[Decision]);
}

impl Observer for () {
    #[inline]
    fn event(&mut self, _: Nanos, _: &Event, _: &[Decision]) {}
}

impl<F: FnMut(Nanos, &Event, &[Decision])> Observer for F {
    fn event(&mut self, now: Nanos, event: &Event, decisions: &[Decision]) {
        self(now, event, decisions);
    }
}

/// Simulates a source under a policy.
///
/// ```
/// use phalanx_sim::engine::{SimOptions, simulate};
/// use phalanx_sim::WorkloadSpec;
///
/// let workload: WorkloadSpec = "mix:load=0.7,share=0.3".parse()?;
/// let options = SimOptions { requests: Some(20_000), ..SimOptions::new(8, "balance".parse()?) };
/// let result = simulate(&mut workload.source(1), &options)?;
/// assert!(result.stability.is_stable());
/// assert_eq!(result.small.completed + result.large.completed, 20_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// What is wrong with the input or the options; a trace is read as the run goes on, so that an error in it may come late.
pub fn simulate<S: Source + ?Sized>(source: &mut S, options: &SimOptions) -> Result<RunResult, SimError> {
    options.limits(source.lanes())?;
    options.policy.check(options.lanes)?;
    let policy = options.policy.build(options.lanes);
    let mut result = simulate_with(source, options, policy, &mut ())?;
    result.policy = options.policy.to_string();
    Ok(result)
}

/// The same with a policy that has no name in [`PolicySpec`] (`options.policy` is not looked at), and with an observer.
///
/// # Errors
/// As [`simulate`], and [`SimError::Stuck`] for a policy that leaves requests for ever.
pub fn simulate_with<S: Source + ?Sized, O: Observer>(
    source: &mut S,
    options: &SimOptions,
    policy: Box<dyn Policy>,
    observer: &mut O,
) -> Result<RunResult, SimError> {
    let limits = options.limits(source.lanes())?;
    let name = policy.name().to_owned();
    let mut run = Run {
        scheduler: Scheduler::new(limits, policy),
        decisions: Decisions::new(),
        check: options.check_invariants,
        lanes: options.lanes as u64,
        stop_cost: options.stop_cost.0,
        held: Vec::new(),
        ends: Ends::new(),
        tallies: [ClassTally::new(), ClassTally::new()],
        now: 0,
        measured: options.warm_up == 0,
        closed: false,
        areas: [ClassAreas::default(); 2],
        all_present: [0; 2],
        drain_idle: 0,
        waiting_idle: 0,
        stopped_idle: 0,
        trail: Trail::new(),
        events: 0,
        offered: 0,
        warm_up: options.warm_up,
        from: 0,
        arrived_measured: false,
    };
    let mut next = next_request(source, options, 0)?;
    if next.is_none() {
        return Err(SimError::Empty);
    }
    let mut left_at_end = None;
    loop {
        let end = run.ends.next();
        let arrival = next.map(|request| request.arrival);
        if arrival.is_none() && left_at_end.is_none() {
            // The last has arrived: the measured time is over.
            left_at_end = Some((run.now, [run.tallies[0].present, run.tallies[1].present]));
            run.closed = true;
        }
        let wake = run.scheduler.wake_at();
        let Some(now) = sooner(sooner(end, arrival), wake) else { break };
        run.pass(now);
        if end == Some(now) {
            let Ending { job, parks, .. } = run.ends.pop();
            let ran = now - Nanos(run.held[job.slot as usize].stretch);
            let event = if parks { Event::Parked { job, ran } } else { Event::Finish { job, end: End::Completed, ran } };
            run.feed(event, None, observer);
        } else if arrival == Some(now) {
            let request = next.take().expect("there was an arrival");
            next = next_request(source, options, run.offered + 1)?;
            run.arrive(&request, observer);
        } else {
            run.feed(Event::Tick, None, observer);
        }
    }
    let waiting = run.waiting();
    if waiting > 0 {
        return Err(SimError::Stuck { policy: name, waiting });
    }
    let (last, left) = left_at_end.unwrap_or((run.now, [0; 2]));
    Ok(run.result(name, options, last, left))
}

#[inline]
fn sooner(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn next_request<S: Source + ?Sized>(
    source: &mut S,
    options: &SimOptions,
    taken: u64,
) -> Result<Option<TraceRequest>, InputError> {
    if options.requests.is_some_and(|most| taken >= most) {
        return Ok(None);
    }
    let next = source.next_request()?;
    Ok(next.filter(|request| options.until.is_none_or(|until| request.arrival <= until)))
}

/// A request between its arrival and its end, at the place of its slot.
#[derive(Clone, Copy, Debug)]
struct Held {
    arrival: u64,
    service: u64,
    started: u64,
    /// The end is in time up to here.
    due: u64,
    class: Class,
    measured: bool,
    /// The length of its steps; 0: it has none.
    step: u64,
    /// How much of its service it had when it was last started or resumed.
    done: u64,
    /// When it last took its lanes, and when it went on: later by what a resumption costs.
    stretch: u64,
    works_from: u64,
    /// Where it last ran.
    lanes: LaneMask,
    stops: u64,
}

/// What runs, by end and then by start: a sorted array, since no more than the lanes run, and the end of an exponential or fixed
/// service that starts now is near the far side of it.
#[derive(Debug)]
struct Ends {
    /// The soonest last.
    sorted: Vec<Ending>,
    started: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    at: Nanos,
    sequence: u64,
    job: JobRef,
    /// It does not end, but stops at a step.
    parks: bool,
}

impl Ends {
    fn new() -> Self {
        Self { sorted: Vec::with_capacity(MAX_SIM_LANES), started: 0 }
    }

    #[inline]
    fn next(&self) -> Option<Nanos> {
        self.sorted.last().map(|ending| ending.at)
    }

    fn push(&mut self, at: Nanos, job: JobRef, parks: bool) {
        self.started += 1;
        // Among equals the one that started first ends first: it stays nearer to the back.
        // All are compared, since no processor can foresee where a search would stop, and there are only as many as lanes.
        let place = self.sorted.iter().map(|other| usize::from(other.at > at)).sum();
        self.sorted.insert(place, Ending { at, sequence: self.started, job, parks });
        debug_assert!(self.sorted.is_sorted_by(|a, b| (a.at, a.sequence) > (b.at, b.sequence)));
    }

    fn pop(&mut self) -> Ending {
        self.sorted.pop().expect("something ends now")
    }

    /// Takes out the end of one that runs.
    fn remove(&mut self, job: JobRef) -> Ending {
        let place = self.sorted.iter().position(|other| other.job == job).expect("what is asked to stop runs");
        self.sorted.remove(place)
    }
}

#[derive(Debug)]
struct Run {
    scheduler: Scheduler,
    decisions: Decisions,
    check: bool,
    lanes: u64,
    stop_cost: u64,
    held: Vec<Held>,
    ends: Ends,
    tallies: [ClassTally; 2],
    now: u64,
    /// The warm-up is over.
    measured: bool,
    /// The last has arrived.
    closed: bool,
    areas: [ClassAreas; 2],
    /// As `areas`, of the whole run.
    all_present: [u128; 2],
    drain_idle: u128,
    waiting_idle: u128,
    /// As `waiting_idle`, also while nothing but parked requests wait.
    stopped_idle: u128,
    trail: Trail,
    events: u64,
    offered: u64,
    warm_up: u64,
    from: u64,
    arrived_measured: bool,
}

impl Run {
    /// Lets time pass, with everything as it is.
    #[inline]
    fn pass(&mut self, to: Nanos) {
        let dt = to.0 - self.now;
        self.now = to.0;
        if dt == 0 || self.closed {
            return;
        }
        for class in 0..2 {
            self.all_present[class] += u128::from(self.tallies[class].present) * u128::from(dt);
        }
        if !self.measured {
            return;
        }
        let mut idle = self.lanes;
        for ((tally, areas), width) in self.tallies.iter().zip(&mut self.areas).zip([1, self.lanes]) {
            areas.present += u128::from(tally.present) * u128::from(dt);
            let busy = tally.running * width;
            areas.busy += u128::from(busy) * u128::from(dt);
            idle -= busy;
        }
        if idle > 0 {
            let idle = u128::from(idle) * u128::from(dt);
            if self.scheduler.draining() {
                self.drain_idle += idle;
            }
            if self.scheduler.queued(Class::Small) + self.scheduler.queued(Class::Large) > 0 {
                self.waiting_idle += idle;
            }
            if self.waiting() > 0 {
                self.stopped_idle += idle;
            }
        }
    }

    /// How many are queued or parked.
    fn waiting(&self) -> usize {
        Class::ALL.iter().map(|&class| self.scheduler.queued(class) + self.scheduler.parked(class)).sum()
    }

    /// It has taken its lanes, for the first time or again.
    fn go_on(&mut self, job: JobRef, lanes: LaneMask, cost: u64) {
        let held = &mut self.held[job.slot as usize];
        debug_assert!(held.lanes.is_empty() || held.lanes == lanes, "{job:?} goes on elsewhere than where it stopped");
        held.lanes = lanes;
        (held.stretch, held.works_from) = (self.now, self.now + cost);
        let end = Nanos(held.works_from) + Nanos(held.service - held.done);
        self.tallies[held.class.index()].running += 1;
        self.ends.push(end, job, false);
    }

    /// It is asked to stop: at the end of the step that it is in, and at least of one, unless it ends before.
    fn ask(&mut self, job: JobRef) {
        let held = &self.held[job.slot as usize];
        assert!(held.step > 0, "{job:?} has no steps and is asked to stop");
        let done = held.done + self.now.saturating_sub(held.works_from);
        let stops_at = (done / held.step + 1).saturating_mul(held.step);
        if stops_at < held.service {
            let at = held.works_from + (stops_at - held.done) + self.stop_cost;
            self.ends.remove(job);
            self.ends.push(Nanos(at), job, true);
        }
    }

    /// It need not stop any more; too late if it is stopping already.
    fn unask(&mut self, job: JobRef) {
        let ending = self.ends.remove(job);
        let held = &self.held[job.slot as usize];
        let in_time = ending.parks && self.now + self.stop_cost < ending.at.0;
        let end = if in_time { Nanos(held.works_from) + Nanos(held.service - held.done) } else { ending.at };
        self.ends.push(end, job, ending.parks && !in_time);
    }

    fn arrive<O: Observer>(&mut self, request: &TraceRequest, observer: &mut O) {
        self.trail.arrival(self.now, self.all_present);
        self.offered += 1;
        if !self.measured && self.offered > self.warm_up {
            self.measured = true;
        }
        if self.measured && !self.arrived_measured {
            self.arrived_measured = true;
            self.from = self.now;
        }
        let due = request.target.or(request.deadline).map_or(Nanos::MAX, |span| request.arrival + span);
        let held = Held {
            arrival: request.arrival.0,
            service: request.service.0,
            started: 0,
            due: due.0,
            class: request.class,
            measured: self.measured,
            step: request.step.map_or(0, |step| step.0.max(1)),
            done: 0,
            stretch: 0,
            works_from: 0,
            lanes: LaneMask::NONE,
            stops: 0,
        };
        let job = Job {
            id: RequestId(self.offered),
            class: request.class,
            arrival: request.arrival,
            deadline: request.deadline.map(|span| request.arrival + span),
            finish_by: None,
            target: request.target.map(|span| request.arrival + span),
            expected: request.expected,
            // Key 0 is the absent name, in both.
            model: ModelKey(u64::from(request.model)),
            tenant: TenantKey(u64::from(request.tenant)),
            step: request.step,
        };
        let tally = &mut self.tallies[request.class.index()];
        tally.offered += 1;
        tally.submitted += u64::from(self.measured);
        tally.with_due += u64::from(self.measured && due != Nanos::MAX);
        self.feed(Event::Arrive(job), Some(held), observer);
    }

    #[inline]
    fn feed<O: Observer>(&mut self, event: Event, arriving: Option<Held>, observer: &mut O) {
        let now = Nanos(self.now);
        self.events += 1;
        self.scheduler.on(now, event, &mut self.decisions);
        if self.check {
            self.scheduler.check_invariants();
        }
        observer.event(now, &event, self.decisions.as_slice());
        match event {
            Event::Finish { job, .. } => self.ended(job),
            Event::Parked { job, .. } => self.parked(job),
            _ => {}
        }
        for at in 0..self.decisions.as_slice().len() {
            match self.decisions.as_slice()[at] {
                Decision::Admit(job) => {
                    let held = arriving.expect("only an arrival is admitted");
                    let slot = job.slot as usize;
                    if slot >= self.held.len() {
                        self.held.resize(slot + 1, held);
                    }
                    self.held[slot] = held;
                    self.tallies[held.class.index()].present += 1;
                }
                Decision::Refuse { .. } => {
                    let held = arriving.expect("only an arrival is refused");
                    let tally = &mut self.tallies[held.class.index()];
                    tally.refused += 1;
                    tally.rejected += u64::from(held.measured);
                }
                Decision::Expire(job) | Decision::Shed { job, .. } => {
                    let held = &self.held[job.slot as usize];
                    let tally = &mut self.tallies[held.class.index()];
                    tally.present -= 1;
                    tally.expired += u64::from(held.measured);
                }
                Decision::StartSmall { job, lane, .. } => {
                    self.held[job.slot as usize].started = self.now;
                    self.go_on(job, lane.mask(), 0);
                }
                Decision::StartLarge(job) => {
                    self.held[job.slot as usize].started = self.now;
                    self.go_on(job, LaneMask::first(self.lanes as usize), 0);
                }
                Decision::Resume { job, lanes } => self.go_on(job, lanes, self.stop_cost),
                Decision::Ask { job, .. } => self.ask(job),
                Decision::Unask { job, .. } => self.unask(job),
                Decision::DrainOn { .. } | Decision::DrainOff => {}
            }
        }
    }

    fn parked(&mut self, job: JobRef) {
        let held = &mut self.held[job.slot as usize];
        held.done += self.now - self.stop_cost - held.works_from;
        held.stops += 1;
        debug_assert!(held.done.is_multiple_of(held.step) && held.done < held.service, "{job:?} stops within a step");
        let tally = &mut self.tallies[held.class.index()];
        tally.running -= 1;
        if self.measured && !self.closed {
            tally.stops_inside += 1;
        }
    }

    #[inline]
    fn ended(&mut self, job: JobRef) {
        let held = &self.held[job.slot as usize];
        let tally = &mut self.tallies[held.class.index()];
        tally.present -= 1;
        tally.running -= 1;
        let met = self.now <= held.due;
        if self.measured && !self.closed {
            tally.ended_inside += 1;
            tally.met_inside += u64::from(met);
        }
        if held.measured {
            tally.completed += 1;
            tally.stops += held.stops;
            tally.met += u64::from(met);
            tally.wait.add(held.started - held.arrival);
            tally.response.add(self.now - held.arrival);
        }
    }

    fn result(&self, policy: String, options: &SimOptions, last: u64, left: [u64; 2]) -> RunResult {
        let span_ns = last.saturating_sub(self.from);
        let capacity_ns = span_ns as f64 * self.lanes as f64;
        let share = |area: u128| if capacity_ns > 0.0 { area as f64 / capacity_ns } else { 0.0 };
        let stability =
            if self.offered > 0 { self.trail.stability(&self.tallies, left, options.queue) } else { Stability::Stable };
        let mut predictions = Vec::new();
        for source in PredictionSource::ALL {
            for class in Class::ALL {
                if let Some(error) = self.scheduler.prediction_error(source, class) {
                    predictions.push(PredictionResult::new(source, class, error));
                }
            }
        }
        let [small, large] = [0, 1].map(|i| self.tallies[i].result(&self.areas[i], span_ns, capacity_ns));
        let lanes_stopped = self.tallies[0].stops_inside + self.tallies[1].stops_inside * self.lanes;
        let stopping_any = lanes_stopped > 0;
        let stopping = 2 * u128::from(self.stop_cost) * u128::from(lanes_stopped);
        RunResult {
            policy,
            lanes: options.lanes,
            span_s: span_ns as f64 * 1e-9,
            stability,
            utilization: small.utilization + large.utilization,
            drain_idle_fraction: share(self.drain_idle),
            idle_while_waiting_fraction: share(self.waiting_idle),
            goodput_per_s: small.on_time_per_s + large.on_time_per_s,
            stopping_fraction: share(stopping),
            idle_while_waiting_or_parked_fraction: if stopping_any { share(self.stopped_idle) } else { 0.0 },
            small,
            large,
            predictions,
            events: self.events,
            requests: self.offered,
            policy_faults: self.scheduler.policy_faults(),
        }
    }
}
