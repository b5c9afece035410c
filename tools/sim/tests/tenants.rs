//! The small queue shared between tenants: a flood of one keeps the others waiting no longer than `phalanx::scheduler::Sharing` says.

use std::collections::HashMap;

use phalanx::scheduler::{Decision, Event, PolicySpec, Sharing};
use phalanx::{Class, Nanos, RequestId, TenantKey};
use phalanx_sim::engine::{SimOptions, simulate_with};
use phalanx_sim::{InputError, Names, Source, TraceRequest};

const LANES: usize = 8;
/// What every small request runs for, in ms.
const RUN_MS: u64 = 100;
const FLOODS: u32 = 7;
/// One tenant that asks now and then.
const QUIET: u32 = 8;

/// The tenants 1 to 7 together ask for twice of what the node can do; tenant 8 for a hundredth.
struct Flood {
    number: u64,
    until: u64,
    target: Option<Nanos>,
    none: Names,
}

impl Source for Flood {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, InputError> {
        let at = self.number * 1_000 / 160;
        if at > self.until {
            return Ok(None);
        }
        let number = self.number;
        self.number += 1;
        let tenant = if number % 100 == 99 { QUIET } else { 1 + number as u32 % FLOODS };
        let service = Nanos::from_millis(RUN_MS);
        Ok(Some(TraceRequest {
            number,
            arrival: Nanos::from_millis(at),
            class: Class::Small,
            service,
            expected: Some(service),
            deadline: None,
            target: self.target,
            tenant,
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

/// By tenant: how many started, and the longest wait of those in ms.
fn run(policy: &str, target: Option<Nanos>, sharing: Option<Sharing>) -> HashMap<TenantKey, (u64, u64)> {
    let policy: PolicySpec = policy.parse().unwrap();
    let options = SimOptions { sharing, queue: [2_000, 10], ..SimOptions::new(LANES, policy.clone()) };
    let mut of: HashMap<RequestId, (TenantKey, Nanos)> = HashMap::new();
    let mut waits: HashMap<TenantKey, (u64, u64)> = HashMap::new();
    let mut watch = |now: Nanos, event: &Event, decisions: &[Decision]| {
        if let Event::Arrive(job) = event {
            of.insert(job.id, (job.tenant, job.arrival));
        }
        for decision in decisions {
            if let Decision::StartSmall { job, .. } = decision {
                let (tenant, arrival) = of[&job.id];
                let (started, longest) = waits.entry(tenant).or_default();
                *started += 1;
                *longest = (*longest).max((now - arrival).0 / 1_000_000);
            }
        }
    };
    let mut source = Flood { number: 0, until: 40_000, target, none: Names::new() };
    let result = simulate_with(&mut source, &options, policy.build(LANES), &mut watch).unwrap();
    assert_eq!(result.policy_faults, 0);
    waits
}

#[test]
fn a_flood_keeps_nobody_else_waiting() {
    let sharing = Sharing { lines: 64, most: 250 };
    let key = |tenant: u32| TenantKey(u64::from(tenant));
    let line = |tenant| sharing.line(key(tenant));
    assert!((1..=FLOODS).all(|tenant| line(tenant) != line(QUIET)), "the test's tenants fall into other lines");
    for policy in ["balance", "drain", "easy", "fcfs", "msf", "msfq", "small-first"] {
        // Those ahead, and one from each other line, at eight lanes; and what runs.
        let bound = ((Sharing::AHEAD as u64 + u64::from(FLOODS)).div_ceil(LANES as u64) + 1) * RUN_MS;
        let quiet = |target| {
            let shared = run(policy, target, Some(sharing));
            let (started, longest) = shared[&key(QUIET)];
            assert!(started >= 63, "{policy}: the quiet tenant asked 64 times, and got {started}");
            assert!(longest <= bound, "{policy}: the quiet tenant waited {longest} ms");
            (shared, longest)
        };
        // With targets most of what floods is late, and stands behind.
        quiet(Some(Nanos::from_millis(10 * RUN_MS)));
        let (shared, longest) = quiet(None);
        let of_floods: Vec<u64> = (1..=FLOODS).map(|tenant| shared[&key(tenant)].0).collect();
        let (least, most) = (of_floods.iter().min().unwrap(), of_floods.iter().max().unwrap());
        assert!(*most <= least + least / 10, "{policy}: equal floods got {of_floods:?}");
        // Else it waits behind them all.
        let (_, behind) = run(policy, None, None)[&key(QUIET)];
        assert!(behind > 10 * longest, "{policy}: without sharing it waited {behind} ms");
    }
}
