//! On one thread: what deciding costs, without any hop.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use phalanx::scheduler::{Decision, Decisions, End, Event, Job, JobRef, Limits, Policy, PolicySpec, Scheduler};
use phalanx::word::new_word;
use phalanx::{Class, LaneMask, ModelKey, Nanos, RequestId};

use crate::{Bench, Measure, Samples};

const LANES: usize = 8;

/// So many in a batch are timed together: one is as short as the clock's own reading.
const BATCH: u32 = 64;

pub(crate) const SCHEDULER: Measure = Measure {
    figures: &[("scheduler_event", "the pure scheduler: one event to its decision, balance, half arrivals and half ends")],
    slow: 1,
    note: |_| Some(format!("means of batches of {BATCH}: a single one is as short as reading the clock")),
    run: |_, n, samples| scheduler(n, samples),
};

/// Smalls with a large among every hundred, at a load that keeps some queued.
#[derive(Debug)]
struct Arrivals {
    next: u64,
    models: u64,
    told: bool,
}

impl Arrivals {
    fn job(&mut self, now: Nanos) -> Job {
        self.next += 1;
        let class = if self.next.is_multiple_of(100) { Class::Large } else { Class::Small };
        Job {
            deadline: Some(now + Nanos::from_secs(60)),
            target: Some(now + Nanos::from_millis(500)),
            expected: self.told.then_some(Nanos::from_millis(1)),
            model: ModelKey(self.next.checked_rem(self.models).map_or(0, |key| key + 1)),
            ..Job::new(RequestId(self.next), class, now)
        }
    }
}

fn balance() -> Scheduler {
    let limits = Limits::new(LANES).unwrap_or_else(|error| panic!("{error}"));
    Scheduler::new(limits, PolicySpec::default().build(LANES))
}

fn scheduler(n: u32, samples: &mut [Samples]) {
    let mut events = Events::new(PolicySpec::default().build(LANES), 8);
    let batches = (n / BATCH).max(4);
    for batch in 0..batches {
        let began = Instant::now();
        for _ in 0..BATCH {
            events.next_event();
        }
        let ns = began.elapsed().as_nanos() as u64;
        if batch >= batches / 10 {
            samples[0].add(ns / u64::from(BATCH));
        }
    }
    black_box(&events);
}

/// A scheduler that is told of arrivals and ends for ever, with about so many smalls queued.
#[derive(Debug)]
pub struct Events {
    scheduler: Scheduler,
    decisions: Decisions,
    arrivals: Arrivals,
    running: VecDeque<JobRef>,
    now: Nanos,
    queued: usize,
}

impl Events {
    /// Of eight lanes under this policy.
    ///
    /// # Panics
    /// If more are to be queued than a queue holds.
    #[must_use]
    pub fn new(policy: Box<dyn Policy>, queued: usize) -> Self {
        Self::of(LANES, policy, queued)
    }

    /// Of so many lanes.
    ///
    /// # Panics
    /// If a scheduler cannot have so many, or more are to be queued than a queue holds.
    #[must_use]
    pub fn of(lanes: usize, policy: Box<dyn Policy>, queued: usize) -> Self {
        let limits = Limits::new(lanes).unwrap_or_else(|error| panic!("{error}"));
        assert!(queued < limits.queue_capacity(Class::Small), "a queue holds fewer");
        Self {
            scheduler: Scheduler::new(limits, policy),
            decisions: Decisions::new(),
            arrivals: Arrivals { next: 0, models: 0, told: false },
            running: VecDeque::with_capacity(2 * lanes),
            now: Nanos::ZERO,
            queued,
        }
    }

    /// The requests name so many models in turn, and bring predictions or not.
    #[must_use]
    pub fn with_models(mut self, models: u64, told: bool) -> Self {
        (self.arrivals.models, self.arrivals.told) = (models, told);
        self
    }

    /// The next event: an arrival while fewer are queued than there should be, else an end.
    #[inline]
    pub fn next_event(&mut self) {
        // As at the load that the averages then see: eight lanes, a millisecond each.
        self.now += Nanos::from_micros(80);
        let event = match self.running.front() {
            Some(&job) if self.scheduler.queued(Class::Small) >= self.queued => {
                self.running.pop_front();
                Event::Finish { job, end: End::Completed, ran: Nanos::from_millis(1) }
            }
            _ => Event::Arrive(self.arrivals.job(self.now)),
        };
        self.scheduler.on(self.now, event, &mut self.decisions);
        started(&self.decisions, &mut self.running);
    }
}

fn started(decisions: &Decisions, running: &mut VecDeque<JobRef>) {
    for decision in decisions {
        if let Decision::StartSmall { job, .. } | Decision::StartLarge(job) = *decision {
            running.push_back(job);
        }
    }
}

pub(crate) const DECISION: Measure = Measure {
    figures: &[(
        "decision",
        "on one thread: a request into the ring and out, decided, its lanes reserved on the word, released, its end told",
    )],
    slow: 1,
    note: |_| Some(format!("means of batches of {BATCH}; balance, with deadlines, targets and averages; no worker thread")),
    run: |bench, n, samples| decision(bench, n, samples),
};

/// A request as the ring holds it: shared, since its submitter keeps a ticket.
struct Shared {
    job: Job,
}

fn decision(_: &Bench, n: u32, samples: &mut [Samples]) {
    let ring: ArrayQueue<Arc<Shared>> = ArrayQueue::new(1024);
    let Some(word) = new_word(LANES) else { panic!("a word has room for {LANES} lanes") };
    let mut scheduler = balance();
    let mut decisions = Decisions::new();
    let mut arrivals = Arrivals { next: 0, models: 0, told: false };
    let mut running: VecDeque<(JobRef, LaneMask)> = VecDeque::with_capacity(64);
    let origin = Instant::now();
    let clock = || Nanos::from(origin.elapsed());
    let batches = (n / BATCH).max(4);
    for batch in 0..batches {
        let began = Instant::now();
        for _ in 0..BATCH {
            let request = Arc::new(Shared { job: arrivals.job(clock()) });
            let ticket = Arc::clone(&request);
            assert!(ring.push(request).is_ok(), "the ring has room: each is taken at once");
            let Some(request) = ring.pop() else { panic!("it was put there") };
            let now = clock().max(request.job.arrival);
            scheduler.on(now, Event::Arrive(request.job), &mut decisions);
            reserve(&*word, &decisions, &mut running);
            if let Some((job, lanes)) = running.pop_front() {
                for lane in lanes {
                    let _ = black_box(word.release(lane));
                }
                if lanes.count() == LANES {
                    let _ = black_box(word.end_gang());
                }
                scheduler.on(
                    now,
                    Event::Finish { job, end: End::Completed, ran: Nanos::from(Duration::from_micros(1)) },
                    &mut decisions,
                );
                reserve(&*word, &decisions, &mut running);
            }
            drop(black_box((request, ticket)));
        }
        let ns = began.elapsed().as_nanos() as u64;
        if batch >= batches / 10 {
            samples[0].add(ns / u64::from(BATCH));
        }
    }
}

fn reserve(word: &dyn phalanx::word::Word, decisions: &Decisions, running: &mut VecDeque<(JobRef, LaneMask)>) {
    for decision in decisions {
        match *decision {
            Decision::StartSmall { job, lane, .. } => {
                assert!(word.reserve(lane).is_ok(), "the scheduler's book says that the lane is free");
                running.push_back((job, lane.mask()));
            }
            Decision::StartLarge(job) => {
                assert!(word.reserve_gang().is_ok(), "the scheduler's book says that every lane is free");
                running.push_back((job, LaneMask::first(LANES)));
            }
            _ => {}
        }
    }
}
