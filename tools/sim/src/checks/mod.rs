//! The numbers that are promised, each as a function that measures it and says PASS or what is short.
//!
//! Every check comes in two sizes. The full one holds the mean itself to the target. The quick one, for continuous integration, runs
//! a fraction of it; its targets are the same, and it fails only where the 95 % confidence interval over the seeds leaves no room for
//! them: it can miss a small shortfall, and never calls one good that it could tell.
//!
//! `cargo run --release -p phalanx-sim --example check -- NAME [--quick]`

mod closed_forms;
mod cost;
mod near_optimum;
mod overload;
mod published;
mod report;
mod server_filling;
mod solver;
mod traces;
mod yields;

pub use report::{Report, Row, Want};

use crate::engine::{RunResult, SimError, SimOptions, across_seeds, simulate};
use crate::optimum::SolveError;
use crate::{InputError, Source, TraceRequest, WorkloadSpec};
use phalanx::Nanos;

/// One promised number, or a table of them.
#[derive(Debug)]
pub struct Check {
    /// What `--check` takes.
    pub name: &'static str,
    /// What is promised, in a line.
    pub about: &'static str,
    /// Measures it; `true` is the quick size.
    pub run: fn(bool) -> Result<Report, CheckError>,
}

/// Every check, in the order in which to trust them: the simulator before what it says.
pub static CHECKS: &[Check] = &[
    Check { name: "closed-forms", about: "M/M/8 and M/G/1 mean waits within 1 %", run: closed_forms::check },
    Check { name: "msfq-paper", about: "the published k = 32 setting within 3 joint standard errors", run: published::check },
    Check { name: "solver", about: "the exact optimum within 1 % of values found independently", run: solver::check },
    Check { name: "solver-preemptive", about: "the same if service may be stopped free of charge", run: solver::preemptive },
    Check {
        name: "optimum",
        about: "balance within 3 % of the exact optimum in 16 cells, W_1 and W_8",
        run: near_optimum::check,
    },
    Check {
        name: "predictions",
        about: "balance with perfect predictions: W_8 at most 0.97 of the optimum",
        run: near_optimum::perfect,
    },
    Check {
        name: "prediction-factor",
        about: "a constant factor on all predictions moves balance by under 2 %",
        run: near_optimum::factor,
    },
    Check {
        name: "overload",
        about: "1.5 times the node in small requests: throughput, on time, no starvation",
        run: overload::check,
    },
    Check {
        name: "traces",
        about: "w3 and w4 at load 0.7: a quarter of msfq's small mean, and undominated points",
        run: traces::check,
    },
    Check {
        name: "yields",
        about: "small requests that stop at 20 ms steps: W_8 at most 0.9 of the optimum of those that do not",
        run: yields::near_optimum,
    },
    Check {
        name: "yields-overload",
        about: "the overload with small requests that stop at steps: throughput, on time, larges",
        run: yields::overload,
    },
    Check {
        name: "yields-traces",
        about: "w2, w3 and w4 at load 0.7 with small requests that stop at steps",
        run: yields::traces,
    },
    Check { name: "swap", about: "swap on 16 cells beside the optimum with free preemption", run: yields::swap },
    Check {
        name: "swap-means",
        about: "swap by class means alone, one request parked a lane, beside balance",
        run: yields::means,
    },
    Check { name: "swap-on-time", about: "swap on 16 lognormal cells: on time, stops, idleness", run: yields::on_time },
    Check { name: "swap-traces", about: "swap on w2, w3 and w4 at load 0.7", run: yields::swap_traces },
    Check { name: "swap-overload", about: "swap at 1.5 times the node in small requests", run: yields::swap_overload },
    Check {
        name: "decision-cost",
        about: "a decision with 100000 queued within 1.5 times one with 10, at p99",
        run: cost::check,
    },
];

/// Why a check could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A simulation was not run to its end.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The optimum could not be solved.
    #[error(transparent)]
    Solve(#[from] SolveError),
    /// The solution is no optimum yet.
    #[error("the optimum at load {load}, share {share}, w {weight} did not converge: its span bound is {span_bound:.2e}")]
    NotConverged {
        /// Load of the cell.
        load: f64,
        /// Share of large work.
        share: f64,
        /// W's weight.
        weight: f64,
        /// How sure the solution is.
        span_bound: f64,
    },
}

impl From<InputError> for CheckError {
    fn from(error: InputError) -> Self {
        Self::Sim(error.into())
    }
}

/// A named policy over `seeds` runs of a workload, `requests` each, the first tenth not measured.
fn runs(policy: &str, workload: &str, requests: u64, seeds: u64) -> Result<Vec<RunResult>, CheckError> {
    runs_of(policy, workload, requests, seeds, 1.0, |_| {})
}

fn runs_of(
    policy: &str,
    workload: &str,
    requests: u64,
    seeds: u64,
    factor: f64,
    change: impl Fn(&mut SimOptions) + Sync,
) -> Result<Vec<RunResult>, CheckError> {
    let workload: WorkloadSpec = workload.parse()?;
    let spec = policy.parse().map_err(SimError::from)?;
    let mut options = SimOptions { requests: Some(requests), warm_up: requests / 10, ..SimOptions::new(workload.lanes(), spec) };
    change(&mut options);
    let seeds: Vec<u64> = (1..=seeds).collect();
    let results = across_seeds(&seeds, |&seed| simulate(&mut Off { source: workload.source(seed), factor }, &options));
    Ok(results.into_iter().collect::<Result<_, _>>()?)
}

/// A source whose predictions are all off by one factor.
#[derive(Debug)]
struct Off<S> {
    source: S,
    factor: f64,
}

impl<S: Source> Source for Off<S> {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, InputError> {
        let mut request = self.source.next_request()?;
        if let Some(expected) = request.as_mut().and_then(|request| request.expected.as_mut()) {
            *expected = Nanos((expected.0 as f64 * self.factor).round() as u64);
        }
        Ok(request)
    }

    fn lanes(&self) -> usize {
        self.source.lanes()
    }

    fn tenants(&self) -> &crate::Names {
        self.source.tenants()
    }

    fn models(&self) -> &crate::Names {
        self.source.models()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that take seconds; the others are the program's.
    #[test]
    fn the_quick_ones_pass() {
        for name in ["closed-forms", "overload"] {
            let check = CHECKS.iter().find(|check| check.name == name).unwrap();
            let report = (check.run)(true).unwrap();
            assert!(report.passed(), "{report}");
        }
    }
}
