//! What each policy must do, in virtual time: jobs in, `(start, end)` of each out.

use super::*;
use crate::scheduler::{Decision, Decisions, End, Event, Job, Limits, Scheduler};
use crate::types::{Class, LaneMask, RequestId};

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
    assert!(error("drian").contains("balance, drain, easy, fcfs, msf, msfq, small-first"), "{}", error("drian"));
    assert!(error("drain:batch=some").contains("one, all"));
    assert!(error("drain:foo=1").contains("batch=one, backfill=off"));
    assert!(error("fcfs:l=1").contains("no settings"));
    assert!(error("drain:batch").contains("key=value"));
    assert!(error("drain:batch=all:batch=one").contains("twice"));
    assert!(error("").contains("no policy"));
    assert!(error("msfq:l=x").contains("l=x: it is a whole number from 0 to 63"), "{}", error("msfq:l=x"));
    assert!(error("msfq:l=64").contains("0 to 63"));
    assert!(error("balance:w=-1").contains("w=-1: it is a number from 0 to 1000000"));
    assert!(error("balance:w=nan").contains("number"));
    for bad in ["", "1", "x", "0x", "0s", "-1s", "1e3s", "1 s", "5d", "infs", "999999999h", "1..5s", "infx", "\u{b5}s"] {
        assert!(error(&format!("balance:max_wait={bad}")).contains("such as 1.5s"), "{bad}");
    }
    for good in
        ["max_wait=1s", "max_wait=1.5ms", "max_wait=100x", "w=0", "order=arrival:order_large=on-time:targets=urgent:backfill=off"]
    {
        let text = format!("balance:{good}");
        assert_eq!(text.parse::<PolicySpec>().unwrap().to_string(), text);
    }
}

#[test]
fn a_setting_too_large_for_the_lanes_is_told_and_then_clamped() {
    let spec: PolicySpec = "msfq:l=31".parse().unwrap();
    assert!(spec.check(32).is_ok());
    let error = spec.check(8).unwrap_err().to_string();
    assert!(error.contains("l=31: it is a whole number from 0 to 7"), "{error}");
    assert_eq!(spec.build(8).name(), "msfq");
    assert!(spec.check(0).is_err() && spec.check(65).is_err());
}

#[test]
fn msf_lets_small_ones_pass_until_none_is_left() {
    let jobs = [(0, Small, 10, None), (1, Large, 10, None), (1, Large, 10, None), (2, Small, 30, None), (35, Small, 1, None)];
    assert_eq!(starts("msf", 2, &jobs, 1_000), [Some(0), Some(32), Some(42), Some(2), Some(52)]);
    assert_eq!(starts("msfq:l=0", 2, &jobs, 1_000), starts("msf", 2, &jobs, 1_000));
}

#[test]
fn msfq_closes_once_no_more_than_l_are_in_the_system() {
    let jobs = [(0, Small, 10, None), (0, Small, 20, None), (1, Large, 10, None), (5, Small, 5, None), (16, Small, 1, None)];
    assert_eq!(starts("msfq:l=1", 2, &jobs, 1_000), [Some(0), Some(0), Some(20), Some(10), Some(30)]);
    assert_eq!(starts("msf", 2, &jobs, 1_000)[4], Some(16));
    // The lanes are filled first and the threshold is tested then: one small phase, though both fit under it.
    let jobs = [(0, Large, 10, None), (1, Small, 5, None), (1, Small, 6, None), (12, Large, 10, None), (13, Small, 1, None)];
    assert_eq!(starts("msfq:l=2", 3, &jobs, 1_000), [Some(0), Some(10), Some(10), Some(16), Some(26)]);
}

/// A node on which each class has completed `n` requests, small ones of 10 ms and large ones of 20, one of either every 100 ms: load
/// 0.2125, 15 / 17 of it large. Then nothing runs and nothing waits.
fn seasoned(policy: &str, n: u64) -> Bench {
    let mut bench = Bench::new(policy, 8);
    for i in 0..n {
        bench.arrive(i * 100, Small, None);
        bench.finish_all(i * 100 + 10);
        bench.arrive(i * 100 + 50, Large, None);
        bench.finish_all(i * 100 + 70);
    }
    bench
}

/// A scheduler, and what runs on it.
struct Bench {
    scheduler: Scheduler,
    decisions: Decisions,
    running: Vec<(JobRef, u64)>,
    admitted: Vec<JobRef>,
    next: u64,
}

impl Bench {
    fn new(policy: &str, lanes: usize) -> Self {
        let spec: PolicySpec = policy.parse().expect("a policy");
        let limits = Limits::new(lanes).unwrap().queue(Small, 1_024).unwrap().queue(Large, 1_024).unwrap();
        let scheduler = Scheduler::new(limits, spec.build(lanes));
        Self { scheduler, decisions: Decisions::new(), running: Vec::new(), admitted: Vec::new(), next: 0 }
    }

    fn on(&mut self, at_ms: u64, event: Event) {
        let now = Nanos::from_millis(at_ms);
        self.scheduler.on(now, event, &mut self.decisions);
        self.scheduler.check_invariants();
        for decision in &self.decisions {
            if let Decision::StartSmall { job, .. } | Decision::StartLarge(job) | Decision::Resume { job, .. } = *decision {
                self.running.push((job, at_ms));
            }
            if let Decision::Admit(job) = *decision {
                self.admitted.push(job);
            }
        }
    }

    fn job(&mut self, at_ms: u64, class: Class) -> Job {
        self.next += 1;
        Job::new(RequestId(self.next), class, Nanos::from_millis(at_ms))
    }

    fn arrive(&mut self, at_ms: u64, class: Class, expected_ms: Option<u64>) -> RequestId {
        let job = Job { expected: expected_ms.map(Nanos::from_millis), ..self.job(at_ms, class) };
        self.on(at_ms, Event::Arrive(job));
        job.id
    }

    /// Ends one that runs: the one that started first.
    fn finish(&mut self, at_ms: u64) {
        let (job, started) = self.running.remove(0);
        self.on(at_ms, Event::Finish { job, end: End::Completed, ran: Nanos::from_millis(at_ms - started) });
    }

    /// Ends those that run now.
    fn finish_all(&mut self, at_ms: u64) {
        for _ in 0..self.running.len() {
            self.finish(at_ms);
        }
    }

    fn runs(&self) -> Vec<u64> {
        self.running.iter().map(|(job, _)| job.id.0).collect()
    }

    /// Theta as the page says, with D at its first value.
    fn theta(&self, w: f64, larges: f64) -> f64 {
        let averages = self.scheduler.averages();
        let (ms, ml) = (averages.mean_service_ns(Small).unwrap(), averages.mean_service_ns(Large).unwrap());
        let (rho_s, rho_l) = (averages.load(Small, 8).unwrap(), averages.load(Large, 8).unwrap());
        let d = (1..=8).map(|n| 1.0 / f64::from(n)).sum::<f64>() * ms;
        let beta = w * ms / (8.0 * ml);
        let rho = (rho_s + rho_l).min(0.97);
        let mix = (rho_s / (rho_s + rho_l)).sqrt() * (8.0 * ms / ml).sqrt();
        let root = (4.0 * mix * w * larges * (d / ms) / ((1.0 - rho) * (1.0 - beta).max(0.001))).sqrt();
        (root - 1.0).max(0.0)
    }
}

#[test]
fn balance_prefers_a_large_up_to_theta_queued_smalls() {
    let threshold = |larges: u64| {
        for smalls in 1..200 {
            let mut bench = seasoned("balance", 10);
            let first = bench.arrive(1_000, Large, None);
            for _ in 0..larges {
                bench.arrive(1_000, Large, None);
            }
            for _ in 0..smalls {
                bench.arrive(1_000, Small, None);
            }
            let theta = bench.theta(8.0, larges as f64);
            assert_eq!(bench.runs(), [first.0]);
            bench.finish(1_020);
            if bench.runs().len() == 8.min(smalls) && bench.runs()[0] > first.0 + larges {
                return (smalls - 1, theta.floor() as usize);
            }
            assert_eq!(bench.runs(), [first.0 + 1]);
        }
        panic!("no threshold below 200");
    };
    let (one, theta_one) = threshold(1);
    // The first large of the run has completed a moment ago, and the arrivals of this moment count: theta moves a little.
    assert!(one.abs_diff(theta_one) <= 1, "{one} {theta_one}");
    let (four, theta_four) = threshold(4);
    assert!(four.abs_diff(theta_four) <= 1, "{four} {theta_four}");
    assert!(four > one);
}

#[test]
fn balance_closes_at_half_the_lanes_and_reopens_only_on_a_queue_worth_it() {
    let mut bench = seasoned("balance", 10);
    for _ in 0..6 {
        bench.arrive(1_000, Small, None);
    }
    let large = bench.arrive(1_001, Large, None);
    let small = bench.arrive(1_002, Small, None);
    assert_eq!(bench.runs().len(), 7, "six run: the phase is open");
    assert!(!bench.scheduler.draining());
    bench.finish(1_003);
    bench.finish(1_004);
    assert!(!bench.scheduler.draining(), "five run");
    bench.finish(1_004);
    assert!(bench.scheduler.draining(), "four run, none is queued, a large waits");
    let mut held = 0;
    while bench.scheduler.draining() {
        bench.arrive(1_005, Small, None);
        held += 1;
        assert!(held < 100, "the soft drain never reopens");
    }
    assert!(held > 1, "it reopened on the first");
    assert_eq!(bench.runs().len(), 4 + held.min(4), "reopened: those that were held fill the lanes");
    assert!(bench.runs().contains(&small.0) && !bench.runs().contains(&large.0));
}

#[test]
fn balance_starts_exactly_one_large_after_a_drain() {
    let mut bench = seasoned("balance:w=0.01", 10);
    bench.arrive(1_000, Small, None);
    let large = bench.arrive(1_001, Large, None);
    bench.arrive(1_001, Large, None);
    assert!(bench.scheduler.draining());
    // At this w theta is 0, so that a soft drain reopens on any small one: it must come when nothing runs any more.
    bench.finish(1_010);
    let small = bench.arrive(1_011, Small, None);
    assert_eq!(bench.runs(), [large.0]);
    bench.finish(1_030);
    assert_eq!(bench.runs(), [small.0], "the drain is over: the rule decides again");
}

#[test]
fn balance_is_urgent_by_the_clock_and_then_serves_every_large() {
    let mut bench = seasoned("balance:max_wait=100ms:w=0", 10);
    for _ in 0..8 {
        bench.arrive(1_000, Small, None);
    }
    let large = bench.arrive(1_001, Large, None);
    let mut at = 1_001;
    let wake = loop {
        // Smalls saturate the node, so that a phase never runs dry.
        for _ in 0..2 {
            bench.arrive(at, Small, None);
        }
        let wake = bench.scheduler.wake_at().expect("a large waits: there is a latest start");
        if bench.scheduler.draining() || Nanos::from_millis(at + 1) > wake {
            break wake;
        }
        at += 1;
        bench.finish(at);
    };
    assert!(!bench.scheduler.draining());
    // age + H_8 ms + ml = bound: some 100 - 27 - 20 ms after its arrival (ms has moved a little since).
    assert!((Nanos::from_millis(1_040)..Nanos::from_millis(1_090)).contains(&wake), "{wake}");
    let now_ms = wake.0.div_ceil(1_000_000);
    bench.on(now_ms, Event::Tick);
    assert!(bench.scheduler.draining(), "the timer alone makes it urgent");
    let queued = bench.scheduler.queued(Small);
    let second = bench.arrive(now_ms, Large, None);
    for _ in 0..8 {
        bench.finish(now_ms + 5);
    }
    assert_eq!(bench.runs(), [large.0]);
    let third = bench.arrive(now_ms + 6, Large, None);
    bench.finish(now_ms + 25);
    assert_eq!(bench.runs(), [second.0], "no reopening while the latch is on");
    bench.finish(now_ms + 45);
    assert_eq!(bench.runs(), [third.0], "arrivals during the batch included");
    assert_eq!(bench.scheduler.queued(Small), queued);
    bench.finish(now_ms + 65);
    assert_eq!(bench.runs().len(), 8, "no large is queued: the latch has ended");
}

#[test]
fn balance_has_a_bound_before_it_has_seen_a_large() {
    // Nothing known of either class: the large is urgent at once. Known smalls: 200 times what eight of them take.
    let mut bench = Bench::new("balance", 8);
    for _ in 0..20 {
        bench.arrive(0, Small, None);
    }
    bench.arrive(1, Large, None);
    assert!(bench.scheduler.draining());
    let mut bench = Bench::new("balance", 8);
    bench.arrive(0, Small, None);
    bench.finish(10);
    for _ in 0..20 {
        bench.arrive(10, Small, None);
    }
    bench.arrive(10, Large, None);
    assert!(!bench.scheduler.draining());
    let wake = bench.scheduler.wake_at().expect("there is a bound");
    assert!(wake > Nanos::from_secs(10) && wake < Nanos::from_secs(17), "{wake}");
}

#[test]
fn balance_obeys_a_hard_deadline_and_targets_if_told() {
    for (policy, soft, urgent) in [("balance", false, true), ("balance", true, false), ("balance:targets=urgent", true, true)] {
        let mut bench = seasoned(policy, 10);
        for _ in 0..20 {
            bench.arrive(1_000, Small, None);
        }
        let due = Some(Nanos::from_millis(1_060));
        let job = bench.job(1_001, Large);
        let job = if soft { Job { target: due, ..job } } else { Job { deadline: due, ..job } };
        bench.on(1_001, Event::Arrive(job));
        bench.on(1_012, Event::Tick);
        assert!(!bench.scheduler.draining());
        bench.on(1_014, Event::Tick);
        assert_eq!(bench.scheduler.draining(), urgent, "{policy}: latest start 1060 - 27.2 - 20 ms");
    }
}

#[test]
fn balance_backfills_by_own_predictions_only() {
    for (expected, passes) in [(Some(5), true), (Some(50), false), (None, false)] {
        let mut bench = seasoned("balance", 10);
        bench.arrive(1_000, Small, Some(30));
        bench.arrive(1_001, Large, None);
        assert!(bench.scheduler.draining());
        let small = bench.arrive(1_002, Small, expected);
        assert_eq!(bench.runs().contains(&small.0), passes, "{expected:?}");
        assert!(bench.scheduler.draining());
    }
}

#[test]
fn balance_serves_those_first_that_can_be_in_time() {
    for (policy, first) in [("balance", 1), ("balance:order=arrival", 0)] {
        let mut bench = Bench::new(policy, 1);
        bench.arrive(0, Small, None);
        let jobs = [10, 100].map(|due| Job { target: Some(Nanos::from_millis(due)), ..bench.job(1, Small) });
        jobs.iter().for_each(|&job| bench.on(1, Event::Arrive(job)));
        bench.finish(20);
        assert_eq!(bench.runs(), [jobs[first].id.0], "{policy}");
    }
}

#[test]
fn a_late_one_goes_first_when_it_is_very_old_and_only_one_in_so_many() {
    let mut bench = Bench::new("balance", 1);
    bench.arrive(0, Small, None);
    // Two that are late when the lane is free, by a target of 10 ms, and any number that have none.
    let late = [1, 2].map(|at| Job { target: Some(Nanos::from_millis(at + 10)), ..bench.job(at, Small) });
    late.iter().for_each(|&job| bench.on(job.arrival.0 / 1_000_000, Event::Arrive(job)));
    let mut at = 100;
    let mut starts_before = 0;
    for job in late {
        loop {
            bench.arrive(at, Small, None);
            bench.finish(at);
            at += 100;
            if bench.runs() == [job.id.0] {
                break;
            }
            assert!(bench.runs()[0] > late[1].id.0, "the first late one before the second");
            starts_before += 1;
            assert!(starts_before < 200, "it starves");
        }
        // One start of 32: the one that was running from the beginning is among the first 31 others.
        assert_eq!(starts_before, if job.id == late[0].id { 30 } else { 61 });
    }
}

/// A bench whose requests have steps of 20 ms; `stop` answers what the scheduler asked.
fn stepped(bench: &mut Bench, at_ms: u64, class: Class, expected_ms: Option<u64>) -> RequestId {
    let expected = expected_ms.map(Nanos::from_millis);
    let job = Job { step: Some(Nanos::from_millis(20)), expected, ..bench.job(at_ms, class) };
    bench.on(at_ms, Event::Arrive(job));
    job.id
}

impl Bench {
    /// Those that are asked to stop, of what runs.
    fn asked(&self) -> Vec<u64> {
        let asked = self.scheduler.asked();
        let mut ids: Vec<u64> = asked.into_iter().filter_map(|lane| self.scheduler.running(lane)).map(|job| job.id.0).collect();
        ids.dedup();
        ids
    }

    /// All that are asked stop.
    fn stop(&mut self, at_ms: u64) {
        for id in self.asked() {
            let at = self.running.iter().position(|(job, _)| job.id.0 == id).unwrap();
            let (job, started) = self.running.remove(at);
            self.on(at_ms, Event::Parked { job, ran: Nanos::from_millis(at_ms - started) });
        }
    }
}

#[test]
fn balance_stops_smalls_at_their_steps_and_resumes_each_on_its_lane() {
    let mut bench = seasoned("balance", 10);
    for _ in 0..8 {
        stepped(&mut bench, 1_000, Small, None);
    }
    let smalls = bench.runs();
    let homes: Vec<_> = LaneMask::first(8).into_iter().map(|lane| bench.scheduler.running(lane)).collect();
    let large = bench.arrive(1_001, Large, None);
    assert!(bench.asked().is_empty(), "every lane is busy: the phase is open");
    bench.finish(1_002);
    assert_eq!(bench.asked().len(), 7, "a lane idles, none is queued and a large waits: closed at seven");
    bench.stop(1_022);
    assert_eq!(bench.runs(), [large.0]);
    assert_eq!((bench.scheduler.parked(Small), bench.scheduler.queued(Small)), (7, 0));
    bench.finish(1_042);
    let back: Vec<_> = LaneMask::first(8).into_iter().map(|lane| bench.scheduler.running(lane)).collect();
    assert_eq!(back[1..], homes[1..], "each on its own lane");
    assert_eq!(bench.scheduler.parked(Small), 0);
    // Both stretches are its service: 22 ms and 18 more.
    let before = bench.scheduler.averages().mean_service_ns(Small).unwrap();
    let at = bench.running.iter().position(|(job, _)| job.id.0 == smalls[1]).unwrap();
    let (job, started) = bench.running.remove(at);
    assert_eq!(started, 1_042);
    bench.on(1_060, Event::Finish { job, end: End::Completed, ran: Nanos::from_millis(18) });
    let after = bench.scheduler.averages().mean_service_ns(Small).unwrap();
    let samples = 10.0 + 2.0;
    assert!((after - before - (40e6 - before) / samples).abs() < 1.0, "{before} {after}");
}

#[test]
fn balance_takes_stops_back_when_it_reopens_and_never_asks_what_has_no_steps() {
    let mut bench = seasoned("balance", 10);
    for _ in 0..3 {
        stepped(&mut bench, 1_000, Small, None);
    }
    let plain = bench.arrive(1_000, Small, None);
    bench.arrive(1_001, Large, None);
    assert_eq!(bench.asked().len(), 3, "one has no steps");
    assert!(!bench.asked().contains(&plain.0));
    let mut held = 0;
    while bench.scheduler.draining() {
        stepped(&mut bench, 1_002, Small, None);
        held += 1;
        assert!(held < 100, "the soft drain never reopens");
    }
    assert!(bench.asked().is_empty() && bench.scheduler.parked(Small) == 0);
    assert_eq!(bench.runs().len(), 4 + held.min(4));
}

#[test]
fn swap_lets_smalls_run_while_they_fill_the_node_and_larges_otherwise() {
    let mut bench = seasoned("swap", 10);
    let large = stepped(&mut bench, 1_000, Large, Some(400));
    for _ in 0..6 {
        stepped(&mut bench, 1_001, Small, Some(10));
    }
    assert!(bench.asked().is_empty(), "six do not fill it");
    let mut smalls = 6;
    while bench.asked().is_empty() {
        stepped(&mut bench, 1_002, Small, Some(10));
        smalls += 1;
        assert!(smalls < 100, "it never swaps");
    }
    assert!(smalls > 8, "there is a hysteresis: {smalls}");
    assert_eq!(bench.asked(), [large.0]);
    bench.stop(1_020);
    assert_eq!((bench.runs().len(), bench.scheduler.parked(Large)), (8, 1));
    // As soon as they do not fill it any more, those left are asked, and the large goes on.
    let mut at = 1_030;
    while bench.asked().is_empty() {
        bench.finish(at);
        at += 1;
    }
    assert_eq!(bench.runs().len(), 6);
    bench.stop(at);
    assert_eq!(bench.runs(), [large.0]);
    assert_eq!((bench.scheduler.parked(Small), bench.scheduler.parked(Large)), (6, 0));
}

#[test]
fn swap_takes_a_stop_back_and_starts_a_shorter_large_first() {
    let mut bench = seasoned("swap", 10);
    let long = stepped(&mut bench, 1_000, Large, Some(1_000));
    let short = stepped(&mut bench, 1_001, Large, Some(100));
    assert_eq!(bench.asked(), [long.0], "100 of 1000 ms is worth a stop");
    bench.on(1_002, Event::Cancel(bench.scheduler_queued(short)));
    assert!(bench.asked().is_empty(), "the reason is gone");
    let middle = stepped(&mut bench, 1_003, Large, Some(900));
    assert!(bench.asked().is_empty(), "900 of 1000 ms is not");
    let short = stepped(&mut bench, 1_004, Large, Some(100));
    bench.stop(1_020);
    assert_eq!(bench.runs(), [short.0]);
    bench.finish(1_120);
    // The one that has run has less left than the one that has not.
    assert_eq!(bench.runs(), [middle.0], "980 of it are left");
    bench.finish(2_020);
    assert_eq!(bench.runs(), [long.0]);
}

impl Bench {
    /// The reference of a request that is queued: the latest admitted.
    fn scheduler_queued(&self, id: RequestId) -> JobRef {
        let admitted = self.admitted.iter().rev().find(|job| job.id == id);
        *admitted.unwrap()
    }
}

#[test]
fn what_is_taken_back_while_parked_goes_on_as_soon_as_it_can() {
    let mut bench = seasoned("balance", 10);
    let small = stepped(&mut bench, 1_000, Small, None);
    let large = bench.arrive(1_001, Large, None);
    bench.stop(1_020);
    assert_eq!(bench.runs(), [large.0]);
    let job = bench.scheduler_queued(small);
    bench.on(1_021, Event::Cancel(job));
    bench.on(1_022, Event::Close);
    assert_eq!(bench.scheduler.parked(Small), 1);
    bench.finish(1_040);
    assert_eq!(bench.runs(), [small.0], "to be dropped where it lives, though the node starts nothing any more");
    bench.finish(1_041);
    assert!(bench.scheduler.busy().is_empty());
}
