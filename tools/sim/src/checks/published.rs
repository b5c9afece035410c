//! The setting of Chen et al. 2025 (arXiv 2509.01893): 32 lanes, 90 % of the jobs on one and 10 % on all of them, all means 1. The
//! values are those of an independent simulator, 8 runs of 7 million jobs, with their 95 % intervals.

use super::server_filling::EXACT;
use super::{CheckError, Report, Want};
use crate::WorkloadSpec;
use crate::engine::{Estimate, RunResult, SimError, SimOptions, across_seeds, server_filling, simulate, student_t};

/// Policy, arrivals in a mean service time, mean response in mean service times, half of its interval.
const PUBLISHED: [(&str, f64, f64, f64); 12] = [
    ("msf", 6.5, 137.5, 3.4),
    ("msf", 7.0, 331.0, 10.0),
    ("msf", 7.5, 1194.0, 57.0),
    ("msfq:l=1", 6.5, 38.0, 0.6),
    ("msfq:l=1", 7.0, 80.1, 1.1),
    ("msfq:l=1", 7.5, 268.0, 13.0),
    ("msfq:l=31", 6.5, 15.7, 0.2),
    ("msfq:l=31", 7.0, 26.1, 0.4),
    ("msfq:l=31", 7.5, 70.0, 3.6),
    ("server-filling", 6.5, 6.83, 0.06),
    ("server-filling", 7.0, 10.09, 0.07),
    ("server-filling", 7.5, 22.6, 0.6),
];

pub(super) fn check(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let (requests, seeds) = if quick { (400_000_u64, 4) } else { (7_000_000, 8) };
    for (policy, lambda, mean, half_width) in PUBLISHED {
        // A mean service of 100 ms, so that a nanosecond is nothing.
        let workload = format!(
            "mix:lanes=32,small=100ms,large=100ms,rate_small={},rate_large={},slo_small=none,slo_large=none",
            lambda * 9.0,
            lambda
        );
        let workload: WorkloadSpec = workload.parse()?;
        let spec = if policy == "server-filling" { "fcfs" } else { policy };
        let spec = spec.parse().map_err(SimError::from)?;
        let options = SimOptions { requests: Some(requests), queue: [1 << 20; 2], ..SimOptions::new(32, spec) };
        let seeds: Vec<u64> = (1..=seeds).collect();
        let results = across_seeds(&seeds, |&seed| {
            let mut source = workload.source(seed);
            if policy == "server-filling" { server_filling(&mut source, &options) } else { simulate(&mut source, &options) }
        });
        let results: Vec<RunResult> = results.into_iter().collect::<Result<_, _>>()?;
        let measured = Estimate::of(&results.iter().map(mean_response).collect::<Vec<_>>());
        let published_error = half_width / student_t(7);
        // The quick size's own interval is its room already.
        let own = if quick { 0.0 } else { measured.standard_error };
        let joint = (published_error * published_error + own * own).sqrt();
        report.hold(format!("{policy} at {lambda}: E[T]"), measured, Want::Near(mean, 3.0 * joint));
        // The published values are simulated; these need no belief in any simulator.
        if policy == "server-filling"
            && !quick
            && let Some((_, exact)) = EXACT.into_iter().find(|&(at, _)| at == lambda)
        {
            let what = format!("{policy} at {lambda}: E[T], beside its exact value");
            report.hold(what, measured, Want::Near(exact, 3.0 * measured.standard_error));
        }
    }
    if quick {
        report.note("shorter runs come out lower, msf most of all: its cycles are long");
    }
    Ok(report)
}

/// Over both classes, in mean service times.
fn mean_response(result: &RunResult) -> f64 {
    let (small, large) = (&result.small, &result.large);
    let sum = small.response_ms.mean * small.completed as f64 + large.response_ms.mean * large.completed as f64;
    sum / (small.completed + large.completed) as f64 / 100.0
}
