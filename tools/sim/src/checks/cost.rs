//! What an event costs with few and with very many requests queued. The one check that reads a clock: on a busy machine, try again.

use super::{CheckError, Report, Want};
use crate::engine::{Estimate, SimError};
use hdrhistogram::Histogram;
use phalanx::scheduler::{Decision, Decisions, End, Event, Job, Limits, PolicySpec, Scheduler};
use phalanx::{Class, Nanos, RequestId};
use std::time::Instant;

/// Events timed as one, since reading the clock costs as much as an event.
const BATCH: usize = 8;

/// Nanoseconds an event at p50 and p99 with about so many smalls queued, beside one waiting large for each hundred of them.
fn cost_ns(policy: &PolicySpec, told: bool, queued: usize, batches: usize) -> Result<(f64, f64), CheckError> {
    let sized = Limits::new(8).and_then(|l| l.queue(Class::Small, 1 << 18)).and_then(|l| l.queue(Class::Large, 1 << 14));
    let mut scheduler = Scheduler::new(sized.map_err(SimError::from)?, policy.build(8));
    let mut decisions = Decisions::new();
    let mut running = Vec::new();
    let (mut id, mut now) = (0_u64, Nanos::ZERO);
    let mut step = |scheduler: &mut Scheduler, event: Option<Class>| {
        // Time goes on as at the load that the averages will then see.
        now += Nanos::from_micros(500);
        id += 1;
        let event = match event {
            Some(class) => Event::Arrive(Job {
                target: Some(now + Nanos::from_secs(3_600)),
                expected: told.then(|| Nanos::from_millis(1 + id % 7)),
                ..Job::new(RequestId(id), class, now)
            }),
            None if running.is_empty() => Event::Tick,
            None => Event::Finish { job: running.remove(0), end: End::Completed, ran: Nanos::from_millis(1 + id % 7) },
        };
        scheduler.on(now, event, &mut decisions);
        for decision in &decisions {
            if let Decision::StartSmall { job, .. } | Decision::StartLarge(job) = *decision {
                running.push(job);
            }
        }
    };
    let fill = |scheduler: &Scheduler, i: usize| {
        let large = i.is_multiple_of(100) && scheduler.queued(Class::Large) * 100 < queued;
        let short = scheduler.queued(Class::Small) < queued;
        if large { Some(Class::Large) } else { short.then_some(Class::Small) }
    };
    let mut i = 0;
    while scheduler.queued(Class::Small) < queued {
        i += 1;
        let next = if i % 3 == 0 { None } else { fill(&scheduler, i) };
        step(&mut scheduler, next);
    }
    let mut histogram: Histogram<u64> = Histogram::new(3).expect("three digits are within what the histogram takes");
    for batch in 0..batches {
        let start = Instant::now();
        for i in 0..BATCH {
            let next = fill(&scheduler, batch * BATCH + i);
            step(&mut scheduler, next);
        }
        // It grows as far as half of the range: `saturating_record` would stop where it is.
        let _ = histogram.record(start.elapsed().as_nanos() as u64);
    }
    let at = |q| histogram.value_at_quantile(q) as f64 / BATCH as f64;
    Ok((at(0.5), at(0.99)))
}

pub(super) fn check(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let batches = if quick { 20_000 } else { 200_000 };
    let runs = if quick { 5 } else { 15 };
    // With predictions a drain scans up to 64 requests for backfill, which ten queued ones cannot show.
    for (policy, told) in [("balance", false), ("fcfs", false), ("balance", true), ("drain:backfill=on", true), ("easy", true)] {
        let spec: PolicySpec = policy.parse().map_err(SimError::from)?;
        let (mut few, mut many) = ((f64::MAX, f64::MAX), (f64::MAX, f64::MAX));
        for _ in 0..runs {
            // The least of the runs: a neighbour on the machine only adds.
            let least = |best: (f64, f64), new: (f64, f64)| (best.0.min(new.0), best.1.min(new.1));
            few = least(few, cost_ns(&spec, told, 10, batches)?);
            many = least(many, cost_ns(&spec, told, 100_000, batches)?);
        }
        let policy = format!("{policy}, {} predictions", if told { "with" } else { "without" });
        let what = format!("{policy}: p99 of an event with 100000 queued over that with 10");
        report.hold(what, Estimate::of(&[many.1 / few.1]), Want::AtMost(1.5));
        report.note(format!(
            "{policy}: p50 and p99 of an event, {BATCH} at a time: {:.0} and {:.0} ns with 10 queued, {:.0} and {:.0} ns with 100000",
            few.0, few.1, many.0, many.1
        ));
    }
    Ok(report)
}
