use super::*;
use crate::WorkloadSpec;
use phalanx::scheduler::{Action, Decision, Event, Policy, View};
use phalanx::{Class, Nanos};
use std::fmt::Write as _;

fn options(policy: &str, requests: u64) -> SimOptions {
    SimOptions { requests: Some(requests), ..SimOptions::new(8, policy.parse().unwrap()) }
}

fn source(workload: &str, seed: u64) -> crate::MixSource {
    workload.parse::<WorkloadSpec>().unwrap().source(seed)
}

const POLICIES: [&str; 11] = [
    "balance",
    "balance:max_wait=1s:order_large=on-time:targets=urgent",
    "drain",
    "drain:batch=all:backfill=on",
    "easy",
    "fcfs",
    "msf",
    "msfq",
    "small-first",
    "swap",
    "swap:parked=1:w=1:max_stops=2",
];

#[test]
fn the_same_seed_gives_the_same_bytes_and_every_invariant_holds() {
    for policy in POLICIES {
        let log = |seed| {
            let mut text = String::new();
            let options = SimOptions { check_invariants: true, queue: [256; 2], ..options(policy, 2_000) };
            let mut observer = |now: Nanos, event: &Event, decisions: &[Decision]| {
                writeln!(text, "{now:?} {event:?} {decisions:?}").unwrap();
            };
            let spec = options.policy.build(8);
            let mut source = source("mix:load=0.9,share=0.4,error=0.5,service=lognormal", seed);
            let result = simulate_with(&mut source, &options, spec, &mut observer).unwrap();
            text + &serde_json::to_string(&result).unwrap()
        };
        let first = log(1);
        assert_eq!(first, log(1), "{policy}");
        assert_ne!(first, log(2), "{policy}");
    }
}

#[test]
fn every_request_is_accounted_for() {
    for policy in POLICIES {
        let workload = "mix:load=1.2,share=0.3,error=0.3,slo_small=5x,slo_large=20x";
        let adapt = crate::Adapt { hard_deadlines: true, ..crate::Adapt::default() };
        let mut source = adapt.apply(source(workload, 3), None).unwrap();
        let options = SimOptions { queue: [100, 20], warm_up: 1_000, ..options(policy, 20_000) };
        let result = simulate(&mut source, &options).unwrap();
        assert_eq!(result.policy_faults, 0, "{policy}");
        assert_eq!(result.requests, 20_000);
        let mut submitted = 0;
        for class in [result.small, result.large] {
            assert_eq!(class.submitted, class.completed + class.expired + class.rejected, "{policy}");
            submitted += class.submitted;
        }
        assert_eq!(submitted, 19_000);
        assert!(result.small.expired + result.small.rejected + result.large.expired > 0, "{policy} at an overload");
        assert!(result.utilization <= 1.0 && result.drain_idle_fraction <= result.idle_while_waiting_fraction + 1e-9);
    }
}

#[test]
fn littles_law_holds_for_each_class() {
    let options = SimOptions { warm_up: 20_000, ..options("balance", 300_000) };
    let result = simulate(&mut source("mix:load=0.7,share=0.5", 5), &options).unwrap();
    for class in [result.small, result.large] {
        let by_law = class.completed as f64 / result.span_s * class.response_ms.mean * 1e-3;
        assert!((by_law / class.in_system - 1.0).abs() < 0.01, "{by_law} {}", class.in_system);
    }
    assert!((result.utilization - 0.7).abs() < 0.02);
}

#[test]
fn what_grows_is_called_unstable() {
    for (policy, load, stable) in [
        ("balance", 0.9, true),
        ("balance", 1.1, false),
        ("small-first", 0.95, false),
        ("fcfs", 0.5, true),
        ("fcfs", 0.95, false),
    ] {
        let result = simulate(&mut source(&format!("mix:load={load},share=0.5"), 2), &options(policy, 200_000)).unwrap();
        assert_eq!(result.stability.is_stable(), stable, "{policy} at {load}: {:?}", result.stability);
    }
}

#[test]
fn what_cannot_be_simulated_is_said_in_a_line() {
    let four = SimOptions { lanes: 4, ..options("fcfs", 10) };
    let error = simulate(&mut source("mix", 1), &four).unwrap_err().to_string();
    assert!(error.contains("need 8 lanes, and the node has 4"), "{error}");
    let error = simulate(&mut source("mix", 1), &options("msfq:l=9", 10)).unwrap_err().to_string();
    assert!(error.contains("0 to 7"), "{error}");
    let error = simulate(&mut source("mix", 1), &SimOptions { queue: [0, 1], ..options("fcfs", 10) }).unwrap_err().to_string();
    assert!(error.contains("a queue of 0 small"), "{error}");
    let error = simulate(&mut source("mix", 1), &options("fcfs", 0)).unwrap_err().to_string();
    assert!(error.contains("no request arrived"), "{error}");
}

/// Wakes always in the past, and never starts a large request.
#[derive(Debug)]
struct Lazy;

impl Policy for Lazy {
    fn name(&self) -> &'static str {
        "lazy"
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        match view.oldest(Class::Small) {
            Some(small) if !view.free().is_empty() => Action::small(small.job),
            _ => Action::Hold(phalanx::scheduler::Hold { drain: true, wake_at: Some(Nanos::ZERO) }),
        }
    }
}

#[test]
fn a_policy_that_leaves_requests_for_ever_is_told_from_a_finished_run() {
    let error = simulate_with(&mut source("mix", 1), &options("fcfs", 1_000), Box::new(Lazy), &mut ()).unwrap_err();
    assert!(error.to_string().contains("lazy starts nothing"), "{error}");
}

#[test]
fn server_filling_meets_a_queue_that_can_be_solved() {
    // Larges alone: M/M/1 with load 0.5, E[T] = 400 / 0.5 ms.
    let result = server_filling(&mut source("mix:load=0.5,share=1", 1), &options("fcfs", 200_000)).unwrap();
    assert!((result.large.response_ms.mean / 800.0 - 1.0).abs() < 0.03, "{}", result.large.response_ms.mean);
    assert!((result.utilization - 0.5).abs() < 0.01);
    // Both: arrival order without the drains is better than arrival order with them, for either class.
    let run = |load| format!("mix:load={load},share=0.3");
    let preemptive = server_filling(&mut source(&run(0.8), 1), &options("fcfs", 100_000)).unwrap();
    let arrival = simulate(&mut source(&run(0.8), 1), &options("fcfs", 100_000)).unwrap();
    for class in Class::ALL {
        assert!(preemptive.class(class).response_ms.mean < arrival.class(class).response_ms.mean);
    }
    assert!(preemptive.stability.is_stable());
}

/// With steps: the same bytes, every invariant, and each request runs for as long as it must: its service, and what its stops cost.
#[test]
fn what_stops_at_steps_runs_no_less_and_on_the_lanes_it_had() {
    use phalanx::observe::What;
    use std::collections::BTreeMap;

    let workload = "mix:load=0.8,share=0.5,error=0.3,service=lognormal,step_small=20ms,step_large=20ms";
    let services: Vec<Nanos> = crate::Source::iter(&mut source(workload, 5)).take(3_000).map(|r| r.unwrap().service).collect();
    for policy in POLICIES {
        let mut log = String::new();
        for again in [false, true] {
            let cost = Nanos::from_millis(1);
            let options = SimOptions { check_invariants: true, queue: [512; 2], stop_cost: cost, ..options(policy, 3_000) };
            let mut spans: BTreeMap<u64, Vec<(usize, Nanos, Nanos)>> = BTreeMap::new();
            let mut text = String::new();
            let mut stops: BTreeMap<u64, u64> = BTreeMap::new();
            let mut scribe = Scribe::new(8, |record| {
                writeln!(text, "{record:?}").unwrap();
                match record.what {
                    What::Span(s) => spans.entry(s.id.0).or_default().push((s.lane.index(), s.started, s.ended)),
                    What::Event(Event::Parked { job, .. }) => *stops.entry(job.id.0).or_default() += 1,
                    _ => {}
                }
            });
            let result = simulate_with(&mut source(workload, 5), &options, options.policy.build(8), &mut scribe).unwrap();
            assert_eq!(result.policy_faults, 0, "{policy}");
            assert_eq!(result.small.completed + result.large.completed, 3_000, "{policy}");
            let stopping = policy.starts_with("balance") || policy.starts_with("swap");
            assert_eq!(stopping, !stops.is_empty(), "{policy}");
            for (id, spans) in spans {
                let stops = stops.get(&id).copied().unwrap_or(0);
                let lanes: std::collections::BTreeSet<usize> = spans.iter().map(|span| span.0).collect();
                assert_eq!(spans.len() as u64, (stops + 1) * lanes.len() as u64, "{policy}: request {id} left its lanes");
                let ran: u64 = spans.iter().map(|(_, from, to)| (*to - *from).0).sum();
                // Numbers begin at 1 here.
                let must = services[id as usize - 1].0 + 2 * stops * cost.0;
                assert_eq!(ran, must * lanes.len() as u64, "{policy}: request {id} with {stops} stops");
            }
            if again {
                assert_eq!(log, text, "{policy}");
            }
            log = text;
        }
    }
}
