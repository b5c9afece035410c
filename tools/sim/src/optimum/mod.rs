//! The exact optimum.

mod chain;
mod model;
mod rule;
mod solve;
mod table;

pub use model::{MAX_LANES, Model, ModelError, harmonic};
pub use rule::{Choice, Quickswap, Rule, RuleCost, SquareRoot, SquareRootShape, View, evaluate};
pub use solve::{Settings, Solution, SolveError, Truncation, solve, solve_preemptive};
pub use table::{Table, TableError};

#[cfg(test)]
mod tests;
