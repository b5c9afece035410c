//! The exact optimum of the Markov model, and the exact cost of any stationary rule on it.
//!
//! # The model
//! k lanes. Small requests arrive in a Poisson stream of rate lambda_s and take one lane for an exponential time of rate mu_s; large ones
//! arrive with lambda_l and take every lane at once for an exponential time of rate mu_l. Nothing is interrupted. The cost of a policy is
//! `W_w`, the long-run mean of (smalls in the system) + w (larges in the system); by Little's law, w = 1 is the mean response time of
//! all requests times the rate at which they arrive.
//!
//! The state is (i, j, s): i smalls and j larges wait, and s smalls run, or the large does. It holds after a decision. Three things happen: a
//! small arrives, a large arrives, a service ends. Then, in no time, the policy starts any number of smalls on free lanes, or the large if
//! all of them are free, or holds. Which of these states it moves to is the whole decision, and the optimality equation is
//!
//! ```text
//! g = c(x) + sum over events e of rate_e(x) ( min over y reachable by starts from e(x) of h(y)  -  h(x) )      for every x
//! ```
//!
//! with c = smalls + w larges in the system, g the least average cost and h the relative value of a state. Holding with lanes free is what
//! a drain is; nothing about when it pays is assumed, not even that a node with work never idles.
//!
//! # The edge
//! The queues are cut at a [`Truncation`]. A model that drops arrivals for free at its edge learns to hold everything until it is there.
//! Here one that is turned away pays about what it would have cost: the marginal cost in the fluid limit (smalls drain at k mu_s -
//! lambda_s, larges with what is left, in the order of the c-mu rule), twice at first, later times the ratio that the box before measured.
//! The box grows by about 1.7 in the longer queue until the cost stands still within [`Settings::truncation_tolerance`].
//!
//! # How it is solved
//! By policy iteration from the square-root rule. A policy's chain is evaluated by GMRES with a multigrid preconditioner (see `chain.rs`); the improved
//! policy follows in one pass. Whatever h the algorithm ended with, the least and greatest right side of the equation above
//! bound the optimum from below and the table's own cost from above; [`Solution::span_bound`] is their distance, and a
//! [`Solution`] whose bound or truncation did not meet the settings has [`Solution::converged`] false. The bounds hold for the truncated model;
//! [`Solution::truncation_change`] says how far it is from the whole one.
//!
//! # What comes out
//! - [`solve()`]: the optimum, and the [`Table`] of its decisions for a simulator to run.
//! - [`solve_preemptive`]: the optimum if service may be stopped and resumed free of charge, about half of the former.
//! - [`evaluate`]: the cost of a [`Rule`] on the same chain, without a simulator's noise. A rule may keep a small mode of its own
//!   ([`SquareRoot`]: closed or not; [`Quickswap`]: closed or serving larges). Ages, deadlines and predictions are outside this model.
//!
//! ```
//! use phalanx_sim::optimum::{Choice, Model, Settings, solve};
//!
//! let model = Model::new(2, 0.4, 0.5, 0.05, 0.1, 1.0)?;
//! let (solution, table) = solve(&model, &Settings::default())?;
//! assert!(solution.converged && solution.lower <= solution.cost && solution.cost <= solution.upper);
//! assert_eq!(table.decide(0, 1, 0, false), Choice::StartLarge);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Sources: uniformisation and average-cost policy iteration, Puterman, Markov Decision Processes (1994), chapters 8 and 11; the bounds,
//! Odoni, On finding the maximal gain for Markov decision processes (1969); the one-or-all model, Chen et al., arXiv 2509.01893.

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
