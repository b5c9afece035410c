//! The solver beside values that were found independently: small mean 50 ms, large 400 ms, 8 lanes.

use super::{CheckError, Report, Want};
use crate::engine::{Estimate, across_seeds};
use crate::optimum::{Model, Settings, Solution, SolveError, solve, solve_preemptive};

/// Load, share of large work, W_1 and W_8.
const EXACT: [(f64, f64, [f64; 2]); 7] = [
    (0.5, 0.5, [7.59, 11.83]),
    (0.8, 0.3, [26.24, 37.61]),
    (0.8, 0.5, [24.62, 44.79]),
    (0.8, 0.9, [11.35, 43.44]),
    (0.9, 0.3, [43.2, 73.2]),
    (0.9, 0.5, [42.7, 93.7]),
    (0.9, 0.9, [24.7, 99.0]),
];

/// The same if service may be stopped and resumed free of charge.
const PREEMPTIVE: [(f64, f64, [f64; 2]); 12] = [
    (0.5, 0.1, [3.97, 4.76]),
    (0.5, 0.3, [3.78, 6.12]),
    (0.5, 0.5, [3.50, 7.42]),
    (0.5, 0.9, [2.02, 9.14]),
    (0.8, 0.1, [7.65, 10.62]),
    (0.8, 0.3, [7.59, 16.13]),
    (0.8, 0.5, [7.89, 21.94]),
    (0.8, 0.9, [7.63, 33.47]),
    (0.9, 0.1, [10.63, 17.34]),
    (0.9, 0.3, [10.46, 29.65]),
    (0.9, 0.5, [11.49, 43.06]),
    (0.9, 0.9, [13.84, 70.39]),
];

pub(super) fn check(quick: bool) -> Result<Report, CheckError> {
    // Half-filled with smalls a chain of load 0.9 takes minutes.
    let cells = EXACT.into_iter().filter(|&(load, share, _)| !quick || load == 0.5 || share == 0.9);
    compare(quick, cells, |model| solve(model, &Settings::default()).map(|(solution, _)| solution))
}

pub(super) fn preemptive(quick: bool) -> Result<Report, CheckError> {
    compare(quick, PREEMPTIVE.into_iter(), |model| solve_preemptive(model, &Settings::default()))
}

fn compare(
    quick: bool,
    cells: impl Iterator<Item = (f64, f64, [f64; 2])>,
    solve: impl Fn(&Model) -> Result<Solution, SolveError> + Sync,
) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let inputs: Vec<_> =
        cells.flat_map(|(load, share, costs)| [(load, share, 1.0, costs[0]), (load, share, 8.0, costs[1])]).collect();
    let solved = across_seeds(&inputs, |&(load, share, weight, _)| {
        solve(&Model::new(8, load, share, 0.05, 0.4, weight).map_err(SolveError::from)?)
    });
    for ((load, share, weight, cost), solution) in inputs.into_iter().zip(solved) {
        let solution = solution?;
        if !solution.converged {
            return Err(CheckError::NotConverged { load, share, weight, span_bound: solution.span_bound });
        }
        let ratio = Estimate::of(&[solution.cost / cost]);
        report.hold(format!("load {load} share {share}: W_{weight} over {cost}"), ratio, Want::Near(1.0, 0.01));
    }
    Ok(report)
}
