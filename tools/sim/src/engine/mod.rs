//! The discrete-event simulator: the library's own scheduler under a virtual clock.
//!
//! # What is simulated
//! Requests of a [`Source`](crate::Source) arrive at a [`Scheduler`](phalanx::scheduler::Scheduler), the very code that a node runs; what it starts
//! ends after its service time. Starting and ending cost nothing. Time is whole nanoseconds. Events are taken in the order of
//! `(time, kind, sequence)`: at one instant first what ends, in the order in which it was started, then what arrives, in the order of
//! the source, then the scheduler's timer. There is nothing else that could differ between two runs: the same source and options
//! give the same bytes.
//!
//! One request is read ahead, and what waits or runs is kept: memory does not grow with the trace.
//!
//! # What is measured
//! The first [`SimOptions::warm_up`] requests, and the time until the last of them arrived, are left out. Every other request is
//! followed to its end, also past the last arrival, so that none is lost from a mean. What is a share of time (utilization, drain
//! idleness, numbers in system) is measured from there to the last arrival.
//!
//! # Unstable runs
//! A mean over a queue that grows for ever says only how long one looked. A run is [`Stability::Unstable`] if for some class
//! 1. more than 3 % of all its requests, and at least 32, were still there at the last arrival, and the time average of their number
//!    in the last quarter of the run is over 1.4 times that of the second (a queue that grows at a constant rate has 7/3); or
//! 2. any was refused by a queue of at least [`Limits::DEFAULT_QUEUE`](phalanx::scheduler::Limits::DEFAULT_QUEUE): a smaller one
//!    sheds load by intent.
//!
//! Heavy tails and bursts can make a short stable run look unstable, and a run that is barely unstable looks stable for long; both
//! are a matter of its length.

mod optimum;
mod preemptive;
mod run;
mod scribe;
mod seeds;
mod stats;

pub use optimum::OptimumPolicy;
pub use preemptive::server_filling;
pub use run::{Observer, SimError, SimOptions, simulate, simulate_with};
pub use scribe::Scribe;
pub use seeds::{Estimate, across_seeds, student_t};
pub use stats::{ClassResult, Percentiles, PredictionResult, RunResult, Stability};

#[cfg(test)]
mod tests;
