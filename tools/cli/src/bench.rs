//! `phalanx bench`: scheduling latency beside the rivals and the machine's own limit.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use phalanx_bench::{Entry, Figures, Machine, Samples, Scaling, Settings, document, machine, measure, open_loop, scaling};
use serde::Serialize;
use std::collections::BTreeMap;

use crate::args::BenchArgs;
use crate::fail::Fail;
use crate::input::outputs_differ;
use crate::interrupt;
use crate::output::{self, Output};
use crate::report;
use crate::sim::jobs;
use crate::table::aligned;

/// What is promised: a figure over another, and at most or at least this.
struct Promise {
    what: &'static str,
    of: fn(&BTreeMap<String, Figures>) -> Option<f64>,
    most: f64,
    unit: &'static str,
}

fn p50(figures: &BTreeMap<String, Figures>, name: &str) -> Option<f64> {
    figures.get(name).map(|figures| figures.p50 as f64)
}

fn ratio(figures: &BTreeMap<String, Figures>, above: &str, below: &str) -> Option<f64> {
    Some(p50(figures, above)? / p50(figures, below)?)
}

const PROMISES: &[Promise] = &[
    Promise {
        what: "turn_rtt p50 over the bare ping-pong's p50",
        of: |figures| ratio(figures, "turn_rtt", "pingpong_rtt"),
        most: 2.5,
        unit: "x",
    },
    Promise {
        what: "turn_rtt p99 over the bare ping-pong's p50",
        of: |figures| Some(figures.get("turn_rtt")?.p99 as f64 / p50(figures, "pingpong_rtt")?),
        most: 4.0,
        unit: "x",
    },
    Promise {
        what: "turn_rtt p50 over the tokio semaphore's",
        of: |figures| ratio(figures, "turn_rtt", "rivals.tokio_semaphore"),
        most: 0.05,
        unit: "x",
    },
    Promise {
        what: "turn_rtt p50 over crossbeam-channel's, spinning",
        of: |figures| ratio(figures, "turn_rtt", "rivals.crossbeam_spin"),
        most: 1.0,
        unit: "x",
    },
    Promise { what: "decision p50", of: |figures| p50(figures, "decision"), most: 150.0, unit: "ns" },
    Promise { what: "scheduler_event p50", of: |figures| p50(figures, "scheduler_event"), most: 60.0, unit: "ns" },
    Promise {
        what: "gang_start p50 over the bare ping-pong's p50",
        of: |figures| ratio(figures, "gang_start", "pingpong_rtt"),
        most: 3.0,
        unit: "x",
    },
];

/// What `--json` writes.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    command: &'a str,
    machine: &'a Machine,
    bench: Bench<'a>,
    /// One entry a promise.
    targets: Vec<Target>,
    /// Why a figure is not what it could be here, by name.
    notes: BTreeMap<&'static str, &'a str>,
    /// With `--scaling`.
    #[serde(skip_serializing_if = "Option::is_none")]
    scaling: Option<&'a Scaling>,
}

/// What the page of `--report` draws.
#[derive(Serialize)]
struct Page<'a> {
    #[serde(flatten)]
    document: &'a Document<'a>,
    /// What each figure is, by name.
    about: BTreeMap<&'static str, &'static str>,
    /// The distributions, by name: shares above, and nanoseconds.
    curves: BTreeMap<&'static str, Vec<(f64, u64)>>,
}

const OPEN_LOOP: &str = "turn_rtt's job at a fixed rate, each request counted from the moment it was due";

#[derive(Serialize)]
struct Bench<'a> {
    #[serde(flatten)]
    own: BTreeMap<&'a str, &'a Figures>,
    rivals: BTreeMap<&'a str, &'a Figures>,
}

#[derive(Serialize)]
struct Target {
    what: &'static str,
    value: Option<f64>,
    at_most: f64,
    met: bool,
}

pub(crate) fn bench(args: &BenchArgs) -> Result<ExitCode, Fail> {
    outputs_differ(&[("--json", args.json.as_ref()), ("--report", args.report.as_ref())])?;
    for (flag, value, range) in [("--rounds", args.rounds, 1..=10_000), ("--samples", args.samples, 100..=10_000_000)] {
        if !range.contains(&value) {
            return Err(Fail::new(format!("{flag}: {value} is out of range; give {} to {}", range.start(), range.end())));
        }
    }
    if !(args.rate >= 1.0 && args.rate <= 1e7) {
        return Err(Fail::new(format!("--rate: {} is out of range; give 1 to 10000000 requests a second", args.rate)));
    }
    let json = args.json.as_deref().map(Output::create).transpose()?;
    let page = args.report.as_deref().map(Output::create).transpose()?;
    interrupt::listen();
    let machine = machine();
    let settings = Settings { rounds: args.rounds, samples: args.samples };
    let bar = jobs::bar(args.quiet, u64::from(args.rounds), "measuring in turn");
    let entries = measure(settings, |done, all| {
        bar.set_length(u64::from(all));
        bar.set_position(u64::from(done));
        !interrupt::asked()
    });
    bar.finish_and_clear();
    if interrupt::asked() {
        return Ok(ExitCode::from(interrupt::STATUS));
    }
    let open = open_loop(args.rate, Duration::from_secs(1));
    let mut figures = document(&entries);
    if let Some(open) = open.figures() {
        figures.insert("open_loop".to_owned(), open);
    }
    let targets: Vec<Target> = PROMISES
        .iter()
        .map(|promise| {
            let value = (promise.of)(&figures);
            Target { what: promise.what, value, at_most: promise.most, met: value.is_some_and(|value| value <= promise.most) }
        })
        .collect();
    let grows = args.scaling.then(scaling);
    let mut command = format!("phalanx bench --rounds {} --samples {} --rate {}", args.rounds, args.samples, args.rate);
    if args.scaling {
        command.push_str(" --scaling");
    }
    let split = |rivals: bool| {
        let all = figures.iter().map(|(name, figures)| (name.as_str(), figures));
        all.filter_map(move |(name, figures)| match name.strip_prefix("rivals.") {
            Some(name) => rivals.then_some((name, figures)),
            None => (!rivals).then_some((name, figures)),
        })
    };
    let document = Document {
        schema: "phalanx.bench/2",
        command: &command,
        machine: &machine,
        bench: Bench { own: split(false).collect(), rivals: split(true).collect() },
        targets,
        notes: entries.iter().filter_map(|entry| Some((entry.name, entry.note.as_deref()?))).collect(),
        scaling: grows.as_ref(),
    };
    if let Some(file) = json {
        output::write_json(file, &document)?;
    }
    if let Some(file) = page {
        let all =
            || entries.iter().map(|entry| (entry.name, entry.about, &entry.samples)).chain([("open_loop", OPEN_LOOP, &open)]);
        let curves = all().map(|(name, _, samples): (_, _, &Samples)| (name, samples.curve())).collect();
        let page = Page { document: &document, about: all().map(|(name, about, _)| (name, about)).collect(), curves };
        report::write_bench(file, &page)?;
    }
    if !args.quiet {
        say(&table(&entries, &figures, &machine, args.rate, &document.targets, &command));
        if let Some(grows) = &grows {
            say(&growth(grows));
        }
    }
    Ok(status(args, &document.targets))
}

/// How costs grow, as tables.
fn growth(grows: &Scaling) -> String {
    let mut out = String::new();
    for (what, points) in [
        ("scheduler event, by lanes", &grows.lanes),
        ("scheduler event, by queued", &grows.queued),
        ("a request's turns, by lanes", &grows.turns_by_lanes),
        ("on one lane, by queued", &grows.turns_by_queued),
        ("a submit, by threads", &grows.submitters),
    ] {
        let mut rows = vec![vec![what.to_owned()], vec!["  ns p50".to_owned()], vec!["  ns p99".to_owned()]];
        for point in points {
            rows[0].push(point.of.to_string());
            rows[1].push(point.ns_p50.to_string());
            rows[2].push(point.ns_p99.to_string());
        }
        out.push('\n');
        out.push_str(&aligned(&rows));
    }
    let mut rows = vec![
        vec!["derived: eight lanes of smalls of".to_owned()],
        vec!["  requests a second".to_owned()],
        vec!["  keep the dispatcher busy for".to_owned()],
    ];
    for saturation in &grows.saturation {
        rows[0].push(format!("{} us", saturation.request_us));
        rows[1].push(format!("{:.0}", saturation.requests_per_s));
        rows[2].push(format!("{:.1} %", saturation.dispatcher_busy * 100.0));
    }
    out.push('\n');
    out.push_str(&aligned(&rows));
    out.push_str(&format!(
        "  one dispatcher keeps eight lanes busy with requests of {:.1} us or more\n",
        grows.saturates_below_us
    ));
    out
}

fn say(text: &str) {
    // A reader that went away takes nothing from the run.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn status(args: &BenchArgs, targets: &[Target]) -> ExitCode {
    let short = targets.iter().any(|target| !target.met);
    if args.check && short { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn table(
    entries: &[Entry],
    figures: &BTreeMap<String, Figures>,
    machine: &Machine,
    rate: f64,
    targets: &[Target],
    command: &str,
) -> String {
    let words = |row: [&str; 8]| row.map(str::to_owned).to_vec();
    let mut rows = vec![words(["nanoseconds", "p50", "p90", "p99", "p99.9", "p99.99", "max", "x ping-pong"])];
    let limit = p50(figures, "pingpong_rtt");
    let mut notes = Vec::new();
    let open = [("open_loop", None)];
    for (name, note) in entries.iter().map(|entry| (entry.name, entry.note.as_deref())).chain(open) {
        let Some(of) = figures.get(name) else { continue };
        let mark = match note {
            Some(note) => {
                if !notes.contains(&note) {
                    notes.push(note);
                }
                let n = notes.iter().position(|known| *known == note).unwrap_or_default() + 1;
                format!(" [{n}]")
            }
            None => String::new(),
        };
        let times = limit.map_or_else(String::new, |limit| format!("{:.2}", of.p50 as f64 / limit));
        let mut row = vec![format!("{name}{mark}")];
        row.extend([of.p50, of.p90, of.p99, of.p999, of.p9999, of.max].map(|ns| ns.to_string()));
        row.push(times);
        rows.push(row);
    }
    let mut out = aligned(&rows);
    out.push('\n');
    for entry in entries {
        out.push_str(&format!("  {:<28} {}\n", entry.name, entry.about));
    }
    out.push_str(&format!(
        "  {:<28} turn_rtt's job at {rate} requests a second, each counted from the moment it was due\n",
        "open_loop"
    ));
    for (n, note) in notes.iter().enumerate() {
        out.push_str(&format!("[{}] {note}\n", n + 1));
    }
    out.push('\n');
    for (target, promise) in targets.iter().zip(PROMISES) {
        let value = target.value.map_or_else(|| "not measured".to_owned(), |value| format!("{value:.3} {}", promise.unit));
        let verdict = if target.met { "PASS" } else { "SHORT" };
        out.push_str(&format!("{verdict:<6}{}: {value}, at most {} {}\n", target.what, target.at_most, promise.unit));
    }
    let governor = machine.governor.as_deref().unwrap_or("not told");
    out.push_str(&format!(
        "{:<12}{}; {}; CPUs allowed: {:?}, pinned to {:?}; governor {governor}\n{:<12}{command}\n",
        "machine", machine.cpu, machine.system, machine.allowed_cpus, machine.pinned, "again"
    ));
    out
}
