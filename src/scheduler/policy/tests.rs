//! What each policy must do, in virtual time: jobs in, `(start, end)` of each out.

use super::*;
use crate::scheduler::{Decision, Decisions, End, Event, Job, Limits, Scheduler};
use crate::types::{Class, RequestId};

/// Arrival, class, service time and the prediction given with it, in milliseconds.
type Spec = (u64, Class, u64, Option<u64>);

use Class::{Large, Small};

/// Runs jobs through a policy; the start of each in milliseconds, `None` for one that never started.
fn starts(policy: &str, lanes: usize, jobs: &[Spec], until_ms: u64) -> Vec<Option<u64>> {
    let spec: PolicySpec = policy.parse().expect("a policy");
    let limits = Limits::new(lanes).unwrap().queue(Small, 1_024).unwrap().queue(Large, 1_024).unwrap();
    let mut scheduler = Scheduler::new(limits, spec.build(lanes));
    let mut decisions = Decisions::new();
    let mut arrivals: Vec<usize> = (0..jobs.len()).collect();
    arrivals.sort_by_key(|&i| std::cmp::Reverse((jobs[i].0, i)));
    let mut ends: Vec<(Nanos, JobRef)> = Vec::new();
    let mut started = vec![None; jobs.len()];
    loop {
        ends.sort_by_key(|(at, job)| std::cmp::Reverse((*at, job.id)));
        let next_end = ends.last().map(|(at, _)| *at);
        let next_arrival = arrivals.last().map(|&i| Nanos::from_millis(jobs[i].0));
        let next = [next_end, next_arrival, scheduler.wake_at()].into_iter().flatten().min();
        let Some(now) = next.filter(|&at| at <= Nanos::from_millis(until_ms)) else { return started };
        let event = if next_end == Some(now) {
            let (_, job) = ends.pop().unwrap();
            Event::Finish { job, end: End::Completed, ran: Nanos::from_millis(jobs[job.id.0 as usize].2) }
        } else if next_arrival == Some(now) {
            let i = arrivals.pop().unwrap();
            let expected = jobs[i].3.map(Nanos::from_millis);
            Event::Arrive(Job { expected, ..Job::new(RequestId(i as u64), jobs[i].1, now) })
        } else {
            Event::Tick
        };
        scheduler.on(now, event, &mut decisions);
        scheduler.check_invariants();
        for decision in &decisions {
            if let Decision::StartSmall { job, .. } | Decision::StartLarge(job) = *decision {
                let i = job.id.0 as usize;
                assert_eq!(started[i].replace(now.0 / 1_000_000), None, "job {i} started twice");
                ends.push((now + Nanos::from_millis(jobs[i].2), job));
            }
        }
    }
}

#[test]
fn fcfs_never_passes() {
    let jobs = [(0, Small, 50, None), (1, Large, 10, None), (2, Small, 1, None)];
    assert_eq!(starts("fcfs", 8, &jobs, 1_000), [Some(0), Some(50), Some(60)]);
}

#[test]
fn small_first_starves_a_large_under_a_stream_of_smalls() {
    let mut jobs = vec![(5, Large, 10, None)];
    jobs.extend((0..1_000).map(|i| (i, Small, 10, None)));
    assert_eq!(starts("small-first", 8, &jobs, 900)[0], None);
    assert_eq!(starts("drain", 8, &jobs, 900)[0], Some(14), "drain starts it once those in flight have ended");
}

#[test]
fn drain_gives_the_smalls_one_fill_between_two_larges() {
    let mut jobs = vec![(0, Large, 10, None), (1, Large, 10, None), (1, Large, 10, None)];
    jobs.extend(std::iter::repeat_n((2, Small, 5, None), 20));
    let started = starts("drain", 8, &jobs, 1_000);
    assert_eq!(&started[..3], [Some(0), Some(15), Some(30)]);
    let of_smalls = |at| started[3..].iter().filter(|&&s| s == Some(at)).count();
    assert_eq!((of_smalls(10), of_smalls(25), of_smalls(40)), (8, 8, 4));
}

#[test]
fn drain_batch_all_serves_those_that_waited_and_then_a_fill() {
    let mut jobs = vec![(0, Small, 10, None), (1, Large, 10, None), (2, Large, 10, None), (15, Large, 10, None)];
    jobs.extend(std::iter::repeat_n((3, Small, 5, None), 9));
    let started = starts("drain:batch=all", 8, &jobs, 1_000);
    assert_eq!(&started[..4], [Some(0), Some(10), Some(20), Some(35)], "the one that came during the batch is in the next");
    assert_eq!(started[4..].iter().filter(|&&s| s == Some(30)).count(), 8);
}

#[test]
fn drain_backfills_the_longest_that_ends_in_time() {
    let jobs = [
        (0, Small, 50, Some(50)),
        (1, Large, 10, Some(10)),
        (2, Small, 10, Some(10)),
        (2, Small, 40, Some(40)),
        (2, Small, 60, Some(60)),
    ];
    let started = starts("drain:backfill=on", 2, &jobs, 1_000);
    assert_eq!(started, [Some(0), Some(50), Some(2), Some(60), Some(60)], "one lane is free at 2: 10 is first in line then");
    let jobs = [jobs[0], jobs[1], (2, Small, 60, Some(60)), (3, Small, 10, Some(10)), (3, Small, 40, Some(40))];
    let started = starts("drain:backfill=on", 2, &jobs, 1_000);
    assert_eq!((started[2], started[3], started[4]), (Some(60), Some(3), Some(60)));
}

#[test]
fn easy_passes_only_what_ends_by_the_shadow_time() {
    let jobs = [(0, Small, 50, Some(50)), (1, Large, 10, Some(10)), (2, Small, 48, Some(48)), (2, Small, 49, Some(49))];
    let started = starts("easy", 8, &jobs, 1_000);
    assert_eq!(started, [Some(0), Some(50), Some(2), Some(60)]);
    assert_eq!(starts("fcfs", 8, &jobs, 1_000)[2], Some(60));
}

#[test]
fn easy_without_predictions_passes_nothing_before_it_has_seen_a_class() {
    let jobs = [(0, Small, 50, None), (1, Large, 10, None), (2, Small, 1, None)];
    assert_eq!(starts("easy", 8, &jobs, 1_000), [Some(0), Some(50), Some(60)]);
}

#[test]
fn easy_head_of_line_idling_is_filled() {
    // One lane busy for 50 ms, a large waiting, 200 smalls of 2 ms told so: seven lanes, 24 rounds.
    let mut jobs = vec![(0, Small, 50, Some(50)), (0, Large, 20, Some(20))];
    jobs.extend(std::iter::repeat_n((1, Small, 2, Some(2)), 200));
    let started = starts("easy", 8, &jobs, 10_000);
    assert_eq!(started[1], Some(50));
    assert!(started[2..].iter().filter(|&&s| s < Some(50)).count() >= 150);
}

#[test]
fn every_policy_serves_everything_in_the_end() {
    let mut jobs = Vec::new();
    let mut x = 12_345_u64;
    for i in 0..500 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let class = if (x >> 33).is_multiple_of(10) { Large } else { Small };
        jobs.push((i * 2, class, 1 + (x >> 40) % 20, (x >> 50 & 1 == 1).then_some(5)));
    }
    for info in POLICIES {
        for lanes in [1, 2, 8, 64] {
            let started = starts(info.name, lanes, &jobs, u64::MAX / 2_000_000);
            assert!(started.iter().all(Option::is_some), "{} with {lanes} lanes left a job", info.name);
        }
    }
}

#[test]
fn bad_policies_are_named_with_what_there_is() {
    let error = |text: &str| text.parse::<PolicySpec>().unwrap_err().to_string();
    assert!(error("drian").contains("drain, easy, fcfs, small-first"), "{}", error("drian"));
    assert!(error("drain:batch=some").contains("one, all"));
    assert!(error("drain:foo=1").contains("batch=one, backfill=off"));
    assert!(error("fcfs:l=1").contains("no settings"));
    assert!(error("drain:batch").contains("key=value"));
    assert!(error("drain:batch=all:batch=one").contains("twice"));
    assert!(error("").contains("no policy"));
}
