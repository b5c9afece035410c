//! One page of pictures of one or more runs: self-contained, so that it opens anywhere and can be sent to anyone.
//!
//! The page is fixed; what it draws is a JSON document within it, which the script reads.

use std::io::Write as _;

use phalanx::Nanos;
use phalanx_sim::record::{Profile, Profiler, ResultDocument, RunResult};
use serde::Serialize;

use crate::fail::Fail;
use crate::output::Output;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// What both scripts draw with.
const COMMON: &str = include_str!("common.js");
const BENCH_PAGE: &str = include_str!("bench.html");
const BENCH_SCRIPT: &str = include_str!("bench.js");

/// The part of a run whose lanes are drawn.
const MINUTE: Nanos = Nanos::from_secs(60);

/// What a page draws.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    /// What `--json` writes.
    #[serde(flatten)]
    pub(crate) document: ResultDocument,
    /// Of the first run of each policy; null where there is nothing to draw.
    pub(crate) profiles: Vec<Option<Profile>>,
    /// One policy over its settings, for the trade-off.
    pub(crate) curve: Vec<RunResult>,
}

/// What a page is drawn from, for a run of about this length; the minute begins where it says, or is in the middle of the run.
pub(crate) fn profiler(lanes: usize, run: Nanos, minute: Option<Nanos>) -> Profiler {
    let from = minute.unwrap_or(Nanos((run.0 / 2).saturating_sub(MINUTE.0 / 2)));
    Profiler::new(lanes, run, from, MINUTE)
}

/// Writes the page.
pub(crate) fn write(file: Output, page: &Page) -> Result<(), Fail> {
    fill(file, PAGE, SCRIPT, page)
}

/// Writes the page of `phalanx bench`.
pub(crate) fn write_bench(file: Output, page: &impl Serialize) -> Result<(), Fail> {
    fill(file, BENCH_PAGE, BENCH_SCRIPT, page)
}

fn fill(mut file: Output, page: &str, script: &str, data: &impl Serialize) -> Result<(), Fail> {
    // Within a script element only `</` could end it: in JSON a `<` may be written otherwise.
    let data = serde_json::to_string(data).map(|text| text.replace('<', "\\u003c")).map_err(std::io::Error::from);
    let written = data.and_then(|data| {
        for (n, part) in page.split("@@").enumerate() {
            let part = match part {
                "STYLE" => STYLE,
                "COMMON" => COMMON,
                "SCRIPT" => script,
                "DATA" => &data,
                _ if n % 2 == 0 => part,
                _ => "",
            };
            file.write_all(part.as_bytes())?;
        }
        Ok(())
    });
    written.map_err(|error| Fail::write(file.path(), &error))?;
    file.finish()
}
