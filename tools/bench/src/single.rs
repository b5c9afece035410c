//! On one thread: what deciding costs, without any hop.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use phalanx::scheduler::{Decision, Decisions, End, Event, Job, Limits, PolicySpec, Scheduler};
use phalanx::word::new_word;
use phalanx::{Class, LaneMask, Nanos, RequestId};

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
struct Arrivals {
    next: u64,
}

impl Arrivals {
    fn job(&mut self, now: Nanos) -> Job {
        self.next += 1;
        let class = if self.next.is_multiple_of(100) { Class::Large } else { Class::Small };
        Job {
            deadline: Some(now + Nanos::from_secs(60)),
            target: Some(now + Nanos::from_millis(500)),
            ..Job::new(RequestId(self.next), class, now)
        }
    }
}

fn balance() -> Scheduler {
    let limits = Limits::new(LANES).unwrap_or_else(|error| panic!("{error}"));
    Scheduler::new(limits, PolicySpec::default().build(LANES))
}

fn scheduler(n: u32, samples: &mut [Samples]) {
    let mut scheduler = balance();
    let mut decisions = Decisions::new();
    let mut arrivals = Arrivals { next: 0 };
    let mut running = std::collections::VecDeque::with_capacity(2 * LANES);
    let mut now = Nanos::ZERO;
    let batches = (n / BATCH).max(4);
    for batch in 0..batches {
        let began = Instant::now();
        for _ in 0..BATCH / 2 {
            now = now + Nanos::from_micros(100);
            let job = arrivals.job(now);
            scheduler.on(now, Event::Arrive(job), &mut decisions);
            started(&decisions, &mut running);
            now = now + Nanos::from_micros(100);
            if let Some(job) = running.pop_front() {
                scheduler.on(now, Event::Finish { job, end: End::Completed, ran: Nanos::from_millis(1) }, &mut decisions);
                started(&decisions, &mut running);
            }
        }
        let ns = began.elapsed().as_nanos() as u64;
        if batch >= batches / 10 {
            samples[0].add(ns / u64::from(BATCH));
        }
    }
    black_box(scheduler.queued(Class::Small));
}

fn started(decisions: &Decisions, running: &mut std::collections::VecDeque<phalanx::scheduler::JobRef>) {
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
    let mut arrivals = Arrivals { next: 0 };
    let mut running: std::collections::VecDeque<(phalanx::scheduler::JobRef, LaneMask)> =
        std::collections::VecDeque::with_capacity(64);
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

fn reserve(
    word: &dyn phalanx::word::Word,
    decisions: &Decisions,
    running: &mut std::collections::VecDeque<(phalanx::scheduler::JobRef, LaneMask)>,
) {
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
