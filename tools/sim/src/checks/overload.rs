//! Small requests offered at 1.5 times what the node can do, beside a stable load of large ones: 8 lanes, a small queue of 256,
//! lognormal service (cv 1.5 and 1), predictions with a 30 % error, SLAs of 0.5 s and 4 s, a bound of 1 s on a large request's wait.

use super::{CheckError, Report, Want, runs_of};
use crate::engine::{Estimate, RunResult};
use phalanx::scheduler::Limits;

/// Smalls in a second that the node could do alone.
pub(super) const SMALL_CAPACITY_PER_S: f64 = 8.0 / 0.050;

/// Load of the larges; of the ideal in %: small throughput, small on time; large mean response in seconds.
const TARGETS: [(f64, f64, f64, f64); 2] = [(0.2, 98.3, 94.0, 1.35), (0.5, 97.8, 91.0, 1.5)];

pub(super) fn check(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let (requests, seeds) = if quick { (100_000, 4) } else { (3_000_000, 8) };
    for (large_load, throughput, on_time, large_mean) in TARGETS {
        let workload = format!(
            "mix:rate_small={},rate_large={},service=lognormal,error=0.3,slo_small=500ms,slo_large=4s",
            1.5 * SMALL_CAPACITY_PER_S,
            large_load / 0.4
        );
        let small_queue = |options: &mut crate::engine::SimOptions| options.queue = [256, Limits::DEFAULT_QUEUE];
        let results = runs_of("balance:max_wait=1s", &workload, requests, seeds, 1.0, small_queue)?;
        // What the larges leave, by what they really took.
        let ideal = |r: &RunResult| SMALL_CAPACITY_PER_S * (1.0 - r.large.utilization);
        let estimate = |of: &dyn Fn(&RunResult) -> f64| Estimate::of(&results.iter().map(of).collect::<Vec<_>>());
        let at = format!("large load {large_load}");
        let small = estimate(&|r| 100.0 * r.small.throughput_per_s / ideal(r));
        report.hold(format!("{at}: small throughput, % of ideal"), small, Want::AtLeast(throughput));
        let small = estimate(&|r| 100.0 * r.small.on_time_per_s / ideal(r));
        report.hold(format!("{at}: small on time, % of ideal"), small, Want::AtLeast(on_time));
        let large = estimate(&|r| r.large.response_ms.mean * 1e-3);
        report.hold(format!("{at}: large mean response, s"), large, Want::AtMost(large_mean));
        let starved = estimate(&|r| f64::from(u8::from(!r.stability.is_stable())));
        report.hold(format!("{at}: runs in which a class starves"), starved, Want::AtMost(0.0));
        report.note(format!("{at}: large on time {:.1} %", estimate(&|r| 100.0 * r.large.slo_met.unwrap_or_default()).mean));
    }
    Ok(report)
}
