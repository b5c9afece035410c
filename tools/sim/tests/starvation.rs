//! The bounds on both classes' waits that `phalanx::docs::scheduling` proves, driven by floods of the other class.

use phalanx::{Class, Nanos};
use phalanx_sim::engine::{RunResult, SimOptions, simulate};
use phalanx_sim::{InputError, Names, Source, TraceRequest};

const LANES: usize = 8;
/// Longest services, in ms.
const S: u64 = 1_000;
const G: u64 = 2_000;
/// Places in the queues.
const SMALLS: usize = 32;
const LARGES: usize = 4;

/// Requests of both classes at fixed gaps, the longest that there may be and shorter ones in turn, each with its exact prediction.
struct Flood {
    gaps: [u64; 2],
    next: [u64; 2],
    given: u64,
    until: u64,
    none: Names,
}

impl Flood {
    /// A small one every `small` ms and a large one every `large` ms.
    fn new(small: u64, large: u64) -> Self {
        Self { gaps: [small, large], next: [0, 7], given: 0, until: 3_600_000, none: Names::new() }
    }
}

impl Source for Flood {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, InputError> {
        let class = if self.next[0] <= self.next[1] { Class::Small } else { Class::Large };
        let at = self.next[class.index()];
        if at > self.until {
            return Ok(None);
        }
        self.next[class.index()] += self.gaps[class.index()];
        let number = self.given;
        self.given += 1;
        let longest = [S, G][class.index()];
        // Three of four are as long as can be; the others end while those run, so that lanes never fall free together.
        let service = Nanos::from_millis(if number % 4 == 3 { longest * 3 / 10 } else { longest });
        Ok(Some(TraceRequest {
            number,
            arrival: Nanos::from_millis(at),
            class,
            service,
            expected: Some(service),
            deadline: None,
            target: None,
            tenant: Names::NONE,
            model: Names::NONE,
            prefill: None,
            input_tokens: None,
            output_tokens: None,
            step: None,
        }))
    }

    fn lanes(&self) -> usize {
        LANES
    }

    fn tenants(&self) -> &Names {
        &self.none
    }

    fn models(&self) -> &Names {
        &self.none
    }
}

/// Smalls at ten times what the node can do, and now and then a large one.
const OF_SMALLS: (u64, u64) = (12, 5_003);
/// Larges at ten times what the node can do, and now and then a small one.
const OF_LARGES: (u64, u64) = (1_009, 199);
/// Both.
const OF_BOTH: (u64, u64) = (12, 199);

fn run(policy: &str, (small, large): (u64, u64)) -> RunResult {
    let options = SimOptions {
        queue: [SMALLS, LARGES],
        check_invariants: true,
        ..SimOptions::new(LANES, policy.parse().unwrap_or_else(|error| panic!("{policy}: {error}")))
    };
    let result = simulate(&mut Flood::new(small, large), &options).unwrap_or_else(|error| panic!("{policy}: {error}"));
    assert_eq!(result.policy_faults, 0);
    result
}

/// The longest waits in all floods, in ms.
fn longest(policy: &str, class: Class) -> u64 {
    let floods = [OF_SMALLS, OF_LARGES, OF_BOTH];
    let waits = floods.map(|flood| {
        let result = run(policy, flood);
        let of = result.class(class);
        assert!(of.completed > 0, "{policy}: not one {class} ran of {}", of.submitted);
        of.wait_ms.max.ceil() as u64
    });
    waits.into_iter().max().unwrap_or_default()
}

/// Fills that it takes to reach the last place of the small queue.
const FILLS: u64 = SMALLS.div_ceil(LANES) as u64;
/// Larges ahead of the last place of the large queue.
const AHEAD: u64 = LARGES as u64 - 1;

/// The wait is within its bound, and the flood is one that makes use of at least a part of it.
fn holds(policy: &str, class: Class, bound: u64, part: f64) {
    let wait = longest(policy, class);
    assert!(wait <= bound, "{policy}: a {class} request waited {wait} ms, its bound is {bound}");
    assert!(wait as f64 >= part * bound as f64, "{policy}: no {class} request waited more than {wait} ms of {bound}: no flood");
}

#[test]
fn drain_bounds_both() {
    for policy in ["drain", "drain:backfill=on"] {
        holds(policy, Class::Large, (AHEAD + 1) * (G + S), 0.5);
        holds(policy, Class::Small, FILLS * (S + G), 0.5);
    }
    for policy in ["drain:batch=all", "drain:batch=all:backfill=on"] {
        holds(policy, Class::Large, (AHEAD + 1) * (G + S), 0.4);
        holds(policy, Class::Small, FILLS * (S + LARGES as u64 * G), 0.5);
    }
}

#[test]
fn easy_and_fcfs_bound_both_by_what_came_before() {
    let behind = |larges: u64, smalls: u64| (larges + 1) * G + (smalls.div_ceil(LANES as u64) + larges + 1) * S;
    for policy in ["fcfs", "easy"] {
        holds(policy, Class::Large, behind(AHEAD, SMALLS as u64), 0.3);
        holds(policy, Class::Small, behind(LARGES as u64, SMALLS as u64 - 1), 0.3);
    }
}

/// The bound on a large's wait for this `max_wait`.
fn balance(max_wait: u64) -> u64 {
    max_wait + S.max(G) + S + AHEAD * (G + S)
}

#[test]
fn balance_bounds_both() {
    let (large_bound, small_bound) = (10_000, 15_000);
    for more in ["", ":backfill=off", ":w=1", ":w=1000"] {
        let policy = format!("balance:order=arrival:max_wait=10s:max_wait_small=15s{more}");
        holds(&policy, Class::Large, balance(large_bound), 0.3);
        holds(&policy, Class::Small, small_bound + FILLS * (S + G), 0.3);
    }
}

#[test]
fn without_its_bounds_balance_starves_each_class_under_a_flood_of_the_other() {
    let far = "balance:order=arrival:max_wait=1000000000x:max_wait_small=1000000000x";
    // Those that ran did so after the last arrival, when the flood was over.
    let large = run(far, OF_SMALLS);
    assert!(large.large.wait_ms.max > 100.0 * balance(0) as f64, "{:?}", large.large.wait_ms);
    let small = run(far, OF_LARGES);
    assert!(small.small.wait_ms.max > 100.0 * (FILLS * (S + G)) as f64, "{:?}", small.small.wait_ms);
}

#[test]
fn the_default_has_both_bounds() {
    // The mean service of larges is at most the longest.
    assert!(longest("balance", Class::Large) <= balance(200 * G));
    assert!(longest("balance", Class::Small) <= 200 * G + FILLS * (S + G));
}
