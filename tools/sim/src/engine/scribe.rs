//! A simulated run as the records of an event log.

use super::run::Observer;
use phalanx::observe::{LaneSpan, Outcome, Record, Terminal, What};
use phalanx::scheduler::{Decision, Event, Job, JobRef};
use phalanx::{LaneMask, Nanos};

/// Hands on what an [`Observer`] sees as the records that a node in real time would have logged, spans and outcomes included: what
/// reads an event log reads a simulated run too.
///
/// ```
/// use phalanx_sim::WorkloadSpec;
/// use phalanx_sim::engine::{Scribe, SimOptions, simulate_with};
/// use phalanx_sim::record::{Header, Mode, Summary};
///
/// let options = SimOptions { requests: Some(1_000), ..SimOptions::new(8, "balance".parse()?) };
/// let header = Header {
///     mode: Mode::Virtual, lanes: 8, policy: "balance".into(), queue: options.queue, workload: "mix".into(),
///     load: Some(0.8), speed: 1.0, seed: 1, device: None,
/// };
/// let mut summary = Summary::new(header);
/// let mut scribe = Scribe::new(8, |record| summary.add(record));
/// let simulated = simulate_with(&mut WorkloadSpec::default().source(1), &options, options.policy.build(8), &mut scribe)?;
/// let counted = summary.result();
/// assert_eq!(simulated.small.completed, counted.classes.small.completed);
/// assert!((simulated.large.wait_ms.mean - counted.classes.large.wait_ms.mean.unwrap()).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Scribe<F> {
    take: F,
    lanes: usize,
    /// What is queued or runs, at the place of its slot.
    held: Vec<Held>,
    arriving: Option<Job>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    job: Job,
    /// When it first ran.
    started: Nanos,
    /// When it last took its lanes.
    since: Nanos,
    on: LaneMask,
}

impl<F: FnMut(&Record)> Scribe<F> {
    /// Gives the records of a node of so many lanes to `take`, one by one.
    pub const fn new(lanes: usize, take: F) -> Self {
        Self { take, lanes, held: Vec::new(), arriving: None }
    }

    fn put(&mut self, now: Nanos, what: What) {
        (self.take)(&Record { now, what });
    }

    fn held(&mut self, job: JobRef) -> &mut Held {
        &mut self.held[job.slot as usize]
    }

    fn outcome(&mut self, now: Nanos, job: &Job, outcome: Terminal, started: Option<Nanos>) {
        let due = job.target.or(job.deadline);
        let slo_met = due.map(|due| outcome == Terminal::Completed && now <= due);
        let outcome = Outcome { outcome, id: job.id, class: job.class, submitted: job.arrival, started, ended: now, slo_met };
        self.put(now, What::Outcome(outcome));
    }

    fn decision(&mut self, now: Nanos, decision: Decision) {
        self.put(now, What::Decision(decision));
        match decision {
            Decision::Admit(job_ref) => {
                let job = self.arriving.expect("only an arrival is admitted");
                let held = Held { job, started: now, since: now, on: LaneMask::NONE };
                let slot = job_ref.slot as usize;
                if slot >= self.held.len() {
                    self.held.resize(slot + 1, held);
                }
                self.held[slot] = held;
            }
            Decision::Refuse { .. } => {
                let job = self.arriving.expect("only an arrival is refused");
                self.outcome(now, &job, Terminal::Rejected, None);
            }
            Decision::Expire(job) | Decision::Shed { job, .. } => {
                let job = self.held(job).job;
                self.outcome(now, &job, Terminal::Expired, None);
            }
            Decision::StartSmall { job, lane, .. } => {
                let held = self.held(job);
                (held.started, held.since, held.on) = (now, now, lane.mask());
            }
            Decision::StartLarge(job) => {
                let all = LaneMask::first(self.lanes);
                let held = self.held(job);
                (held.started, held.since, held.on) = (now, now, all);
            }
            Decision::Resume { job, .. } => self.held(job).since = now,
            Decision::Ask { .. } | Decision::Unask { .. } | Decision::DrainOn { .. } | Decision::DrainOff => {}
        }
    }
}

impl<F: FnMut(&Record)> Observer for Scribe<F> {
    fn event(&mut self, now: Nanos, event: &Event, decisions: &[Decision]) {
        self.arriving = match event {
            Event::Arrive(job) => Some(*job),
            _ => None,
        };
        let left = match *event {
            Event::Finish { job, .. } | Event::Parked { job, .. } => Some(*self.held(job)),
            _ => None,
        };
        // As in real time: the lanes have been left before the dispatcher hears of it.
        if let Some(Held { job, since, on, .. }) = left {
            let span = |lane| LaneSpan { id: job.id, class: job.class, lane, reserved: since, started: since, ended: now };
            for lane in on {
                self.put(now, What::Span(span(lane)));
            }
        }
        self.put(now, What::Event(*event));
        if let (Some(Held { job, started, .. }), Event::Finish { .. }) = (left, event) {
            self.outcome(now, &job, Terminal::Completed, Some(started));
        }
        for &decision in decisions {
            self.decision(now, decision);
        }
    }
}
