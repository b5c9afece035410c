//! What a run leaves behind, read and written: the event log, the figures of a result, a trace for viewers.
//!
//! Everything here is fed [`Record`]s one at a time, from the log ring of a live node, from the simulator or from a file, and keeps
//! only what is open at the moment and some histograms: a run may last for days.
//!
//! | | gives |
//! |---|---|
//! | [`LogWriter`], [`LogReader`] | the event log `phalanx.events/1`: JSON lines |
//! | [`Summary`] | the figures of one run of the document `phalanx.result/1` |
//! | [`Profile`] | what a report draws of a run |
//! | [`ChromeTrace`] | a trace that Perfetto and `chrome://tracing` open |
//! | [`replay()`] | whether the scheduler decides again as the log says |
//! | [`Book`] | who is queued and who runs where, after any record |
//!
//! # The event log
//! The first line is a [`Header`]:
//!
//! ```json
//! {"schema":"phalanx.events/1","mode":"real","lanes":8,"policy":"drain","queue":[65536,65536],"workload":"mix","load":0.8,"speed":1.0,"seed":1}
//! ```
//!
//! | field | means |
//! |---|---|
//! | `schema` | `phalanx.events/1`; it changes when a reader of old logs would misread new ones |
//! | `mode` | `real`: threads and a clock; `virtual`: the simulator |
//! | `lanes` | how many there are; a large request holds all |
//! | `policy` | as `--policy` takes it |
//! | `queue` | the capacity of each class's queue, small first |
//! | `workload` | the workload as `--workload` takes it, or the name of the trace |
//! | `load` | GPU time asked for, over GPU time there is; null where it cannot be told |
//! | `speed` | by what time and service were divided |
//! | `seed` | of everything that was drawn |
//! | `device` | what the lanes were, if they were anything |
//!
//! Each further line is one [`Record`], as [`phalanx::observe`] documents them; `now` never decreases from line to line.

mod book;
mod chrome;
mod document;
mod log;
mod profile;
mod replay;
mod summary;

pub use book::Book;
pub use chrome::ChromeTrace;
pub use document::{
    ClassEstimate, ClassResult, Classes, ClassesEstimate, Figures, MsFigures, OptimumResult, PolicyEstimate, RESULT_SCHEMA,
    ResultDocument, RunResult, Simulated,
};
pub use log::{Header, LogReader, LogWriter, Mode, SCHEMA};
pub use phalanx::observe::Record;
pub use profile::{Profile, Profiler, Series, Timeline};
pub use replay::{ReplayError, Replayed, replay};
pub use summary::{Stage, Summary};
