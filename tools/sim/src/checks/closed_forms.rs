//! One class alone is a queue that has been solved: the smalls M/M/8 (Erlang 1917), the larges M/G/1 (Pollaczek 1930, Khinchine 1932).

use super::{CheckError, Report, Want, runs};
use crate::engine::{Estimate, RunResult};

/// Mean wait of M/M/k in mean service times.
fn erlang_c_wait(lanes: u32, load: f64) -> f64 {
    let k = f64::from(lanes);
    let offered = load * k;
    // Erlang B by its recursion, which neither overflows nor cancels.
    let blocking = (1..=lanes).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    let waits = blocking / (1.0 - load * (1.0 - blocking));
    waits / (k * (1.0 - load))
}

/// Mean wait of M/G/1 in mean service times.
fn pollaczek_khinchine_wait(load: f64, cv: f64) -> f64 {
    load / (1.0 - load) * (1.0 + cv * cv) / 2.0
}

pub(super) fn check(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let (requests, seeds) = if quick { (200_000, 4) } else { (6_000_000, 8) };
    for load in [0.5, 0.7, 0.9] {
        let exact = 50.0 * erlang_c_wait(8, load);
        for policy in ["fcfs", "balance"] {
            let results = runs(policy, &format!("mix:load={load},share=0"), requests, seeds)?;
            let waits = waits(&results, |r| r.small.wait_ms.mean);
            report.hold(format!("M/M/8 at {load}, {policy}: mean wait, ms"), waits, Want::Near(exact, 0.01 * exact));
        }
        for (service, cv) in [("exp", 1.0), ("fixed", 0.0), ("lognormal", 1.0)] {
            let exact = 400.0 * pollaczek_khinchine_wait(load, cv);
            let workload = format!("mix:load={load},share=1,service={service}");
            let waits = waits(&runs("balance", &workload, requests, seeds)?, |r| r.large.wait_ms.mean);
            let what = format!("M/G/1 at {load}, {service} service: mean wait, ms");
            report.hold(what, waits, Want::Near(exact, 0.01 * exact));
        }
    }
    Ok(report)
}

fn waits(results: &[RunResult], of: impl Fn(&RunResult) -> f64) -> Estimate {
    Estimate::of(&results.iter().map(of).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_are_right_where_they_are_simple() {
        // M/M/1, and M/M/2: rho^2 / (1 - rho^2).
        assert!((erlang_c_wait(1, 0.5) - 1.0).abs() < 1e-12);
        assert!((erlang_c_wait(2, 0.6) - 0.36 / 0.64).abs() < 1e-12);
        assert!((pollaczek_khinchine_wait(0.5, 1.0) - 1.0).abs() < 1e-12);
    }
}
