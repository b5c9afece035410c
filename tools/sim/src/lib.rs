//! Traces, workloads, the discrete-event simulator and the exact optimum.
//!
//! # What arrives
//! A [`Source`] yields [`TraceRequest`]s in the order of their arrival, one at a time: neither a trace nor a generated workload is
//! ever held in memory. There are two kinds, and one way to change them:
//!
//! | | made from | gives |
//! |---|---|---|
//! | [`TraceFile`] | a file: Mooncake JSONL and a superset of it, Azure, BurstGPT, Vidur and Splitwise CSV, SWF; plain or gzip | [`Summary`] (one pass), [`trace::Requests`] (a pass each) |
//! | [`WorkloadSpec`] | `mix:load=0.8,share=0.3,…` | [`MixSource`], endless |
//! | [`Adapt`] | any source | [`Adapted`]: load, speed, duration, predictions, steps, hard deadlines |
//!
//! # What is left behind
//! [`record`] writes and reads the event log, counts the figures of a result, and draws a run as a trace.
//!
//! Everything that can be wrong with what a user gave is one [`InputError`], whose text is one line.
//!
//! ```
//! use phalanx_sim::{Adapt, Source, WorkloadSpec};
//!
//! let spec: WorkloadSpec = "mix:load=0.7,share=0.5,service=lognormal".parse()?;
//! let adapt = Adapt { requests: Some(1_000), prediction_error: Some(0.3), ..Adapt::default() };
//! let mut source = adapt.apply(spec.source(42), spec.load())?;
//! let mut count = 0;
//! while let Some(request) = source.next_request()? {
//!     assert!(request.expected.is_some());
//!     count += 1;
//! }
//! assert_eq!(count, 1_000);
//! # Ok::<(), phalanx_sim::InputError>(())
//! ```

mod adapt;
pub mod checks;
pub mod engine;
mod error;
mod random;
pub mod record;
mod request;
mod summary;
pub mod trace;
pub mod units;
pub mod workload;

pub use adapt::{Adapt, Adapted, Step};
pub use error::InputError;
pub use request::{Iter, Names, Source, TraceRequest};
pub use summary::{ClassSummary, Summary, Warning};
pub use trace::{Format, LargeIf, ServiceModel, ServiceModels, TraceFile, TraceOptions};
pub use workload::{MixSource, WorkloadSpec};

pub mod optimum;
