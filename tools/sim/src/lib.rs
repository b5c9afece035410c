//! Traces, workloads, the discrete-event simulator and the exact optimum.

pub mod optimum;
