//! Audits an event log: whether the run that it tells of kept the rules.
//!
//! It shares no code with the runtime, the scheduler or the simulator, and reads the log by its documented schema
//! (`phalanx.events/1`) alone: a mistake in their types or their arithmetic is not repeated here. It keeps what it read in memory,
//! some 200 bytes a request.
//!
//! | check | rule |
//! |---|---|
//! | `order` | `now` never decreases; in a span reserved ≤ started ≤ ended; in an outcome submitted ≤ started ≤ ended |
//! | `complete` | no record was lost |
//! | `running alone` | no two spans of one lane overlap from started to ended |
//! | `holding alone` | nor from reserved to ended |
//! | `decided alone` | a start takes a lane that by the decisions and ends before it is free and in service; a large one, all lanes |
//! | `gang at once` | the spans of a completed large request cover every lane once and have a common interval; if it was resumed, so many times more |
//! | `one lane` | a completed small request has exactly one span, and one more for each time it was resumed, on the lane that was decided |
//! | `stops asked` | only a request with steps that runs, and was asked to since it took its lanes, stops; it goes on on the same lanes, which are free and in service |
//! | `admitted first` | only a request that is queued is started: admitted before, and not started, expired or taken back |
//! | `never ran` | an expired, cancelled, rejected or shut-down request has no span |
//! | `one end` | every request has exactly one outcome, and no request but a refused one is left out of the events |
//! | `books` | submitted = completed + failed + expired + cancelled + shut down + rejected; every start has a finish |
//! | `agreement` | an outcome says of its class, start and end what the spans say; one that was given up over a lane that hangs ends later |
//! | `probed first` | a lane comes back into service only by a probe that passed, that began after the lane's last fault, and while nobody held it |
//!
//! A log with no request, or in which nothing ran, proves nothing: it does not pass.
//!
//! ```
//! let log = concat!(
//!     r#"{"schema":"phalanx.events/1","mode":"real","lanes":1,"policy":"fcfs","queue":[8,8],"workload":"mix","load":1,"speed":1,"seed":1}"#, "\n",
//!     r#"{"now":1,"event":"arrive","id":0,"class":"small","arrival":1,"model":0}"#, "\n",
//!     r#"{"now":1,"decision":"admit","slot":0,"id":0}"#, "\n",
//!     r#"{"now":1,"decision":"start_small","slot":0,"id":0,"lane":0,"backfill":false}"#, "\n",
//!     r#"{"now":9,"span":0,"class":"small","lane":0,"reserved":2,"started":3,"ended":8}"#, "\n",
//!     r#"{"now":9,"event":"finish","slot":0,"id":0,"end":"completed","ran":5}"#, "\n",
//!     r#"{"now":9,"outcome":"completed","id":0,"class":"small","submitted":1,"started":3,"ended":8}"#, "\n",
//! );
//! let report = phalanx_audit::audit(log.as_bytes()).unwrap();
//! assert!(report.passed(), "{report}");
//! ```

#![forbid(unsafe_code)]

mod audit;
mod read;
mod report;

pub use audit::audit;
pub use read::Unreadable;
pub use report::{Check, Report, Skew, Violation};
