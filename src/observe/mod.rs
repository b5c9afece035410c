//! What a run leaves behind: the event log, and a record for every request.

mod record;

pub use record::{Care, LaneCare, LaneSpan, Outcome, Record, Terminal, What};
