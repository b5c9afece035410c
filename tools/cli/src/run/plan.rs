//! What will be run: everything that the user gave, checked before anything starts.

use phalanx::types::MAX_LANES;
use phalanx::{Class, Nanos};
use phalanx_sim::record::{Header, Mode};
use phalanx_sim::units::Span;
use phalanx_sim::{Adapt, InputError, Names, ServiceModels, Source, TraceFile, TraceOptions, TraceRequest};

use crate::args::{DeviceArg, RunArgs};
use crate::fail::Fail;

/// How long a workload arrives unless it is said: a workload has no end of its own.
const DURATION: Nanos = Nanos::from_secs(10);

/// A run, ready to start.
pub(crate) struct Plan {
    pub(crate) source: Box<dyn Source + Send>,
    pub(crate) header: Header,
    /// What the user should know before the numbers are believed.
    pub(crate) notes: Vec<String>,
    /// From the start to about the last arrival.
    pub(crate) expected: Option<Nanos>,
    /// Which device, and why.
    pub(crate) device_note: String,
}

pub(crate) fn plan(args: &RunArgs) -> Result<Plan, Fail> {
    outputs_differ(args)?;
    let device_note = match args.device {
        DeviceArg::Auto => "emulated GPUs, since this build has no CUDA",
        DeviceArg::Emulated => "emulated GPUs, as asked for",
        DeviceArg::Cuda => {
            let text = "--device: this build has no CUDA; give `emulated`, or leave it out";
            return Err(Fail::new(text));
        }
    };
    if let Some(lanes) = args.lanes {
        lanes_fit(lanes, "--lanes")?;
    }
    let mut adapt = Adapt {
        load: args.load,
        speed: args.speed,
        duration: args.duration.map(Nanos::from),
        requests: None,
        prediction_error: args.prediction_error,
        seed: args.seed,
        step: args.step.map(Nanos::from),
        hard_deadlines: args.hard_deadlines,
    };
    adapt.check()?;
    let mut notes = Vec::new();
    if args.step.is_some() {
        notes.push("--step: no policy of this version stops a request at a step".to_owned());
    }
    let (source, workload, load, expected): (Box<dyn Source + Send>, _, _, _) = if let Some(path) = &args.trace {
        let service = match &args.service_model {
            Some(arg) => {
                let (file, small, large) = arg.parts();
                ServiceModels::read(&file, small, large)?
            }
            None => ServiceModels::default(),
        };
        let lanes = args.lanes.unwrap_or(MAX_LANES);
        let options = TraceOptions { format: args.format, lanes, large_if: args.large_if.clone(), service };
        let trace = TraceFile::open(path, options)?;
        // The whole of it, so that what is wrong with its last line is said now.
        let summary = trace.summary()?;
        notes.extend(summary.warnings.iter().map(ToString::to_string));
        if summary.skipped > 0 {
            notes.push(format!("{} requests of the trace never ran, and are left out", summary.skipped));
        }
        let native = summary.native_load();
        let stretch = args.load.and_then(|load| Some(native? / load)).unwrap_or(1.0) / args.speed;
        let span = Nanos((summary.span.0 as f64 * stretch) as u64);
        let expected = adapt.duration.map_or(span, |duration| duration.min(span));
        let source = adapt.apply(trace.requests()?, native)?;
        (Box::new(source), trace.name().to_owned(), args.load.or(native), Some(expected))
    } else {
        let mut spec = args.workload.unwrap_or_default();
        if let Some(lanes) = args.lanes {
            spec = spec.with_lanes(lanes)?;
        }
        lanes_fit(spec.lanes(), "workload mix: lanes")?;
        adapt.duration = adapt.duration.or(Some(DURATION));
        let source = adapt.apply(spec.source(args.seed), spec.load())?;
        // The sum of the classes' loads, less the dust of adding them.
        let load = args.load.unwrap_or((spec.load() * 1e9).round() / 1e9);
        (Box::new(source), spec.to_string(), Some(load), adapt.duration)
    };
    let source: Box<dyn Source + Send> = if args.hard_deadlines { Box::new(Counted(source)) } else { source };
    let header = Header {
        mode: Mode::Real,
        lanes: source.lanes(),
        policy: args.policy.to_string(),
        queue: args.queue.0,
        workload,
        load,
        speed: args.speed,
        seed: args.seed,
        device: Some("emulated".to_owned()),
    };
    Ok(Plan { source, header, notes, expected, device_note: device_note.to_owned() })
}

fn lanes_fit(lanes: usize, setting: &str) -> Result<(), Fail> {
    if (1..=MAX_LANES).contains(&lanes) {
        return Ok(());
    }
    Err(Fail::new(format!("{setting}: {lanes} is out of range; a node in real time has 1 to {MAX_LANES} lanes")))
}

/// Two outputs in one file, or one over the trace, would leave neither.
fn outputs_differ(args: &RunArgs) -> Result<(), Fail> {
    let named =
        [("--trace", &args.trace), ("--json", &args.json), ("--events", &args.events), ("--chrome-trace", &args.chrome_trace)];
    let resolved: Vec<_> = named
        .into_iter()
        .filter_map(|(flag, path)| {
            let path = path.as_ref()?;
            let file = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            // A terminal or /dev/null takes any number of outputs.
            let shared = std::fs::metadata(&file).is_ok_and(|there| !there.is_file() && !there.is_dir());
            (!shared).then_some((flag, file))
        })
        .collect();
    for (n, (flag, file)) in resolved.iter().enumerate() {
        if let Some((other, _)) = resolved[..n].iter().find(|(_, other)| other == file) {
            return Err(Fail::new(format!("{flag}: {} is given to {other} as well; name another file", file.display())));
        }
    }
    Ok(())
}

/// Deadlines that were targets are still counted as targets: `slo_met` says how many ended in time, not only how many started.
struct Counted<S>(S);

impl<S: Source> Source for Counted<S> {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, InputError> {
        let request = self.0.next_request()?;
        Ok(request.map(|request| TraceRequest { target: request.target.or(request.deadline), ..request }))
    }

    fn lanes(&self) -> usize {
        self.0.lanes()
    }

    fn tenants(&self) -> &Names {
        self.0.tenants()
    }

    fn models(&self) -> &Names {
        self.0.models()
    }
}

/// The command that does the same again: what was given, and the seed. Where its results go is left out.
pub(crate) fn command(args: &RunArgs) -> String {
    let mut words = vec!["phalanx".to_owned(), "run".to_owned()];
    let mut put = |flag: &str, value: Option<String>| {
        if let Some(value) = value {
            words.push(flag.to_owned());
            words.push(quoted(&value));
        }
    };
    put("--trace", args.trace.as_ref().map(|path| path.display().to_string()));
    put("--format", args.format.map(|format| format.to_string()));
    put("--large-if", args.large_if.as_ref().map(ToString::to_string));
    put("--service-model", args.service_model.as_ref().map(|model| model.text.clone()));
    put("--workload", args.trace.is_none().then(|| args.workload.unwrap_or_default().to_string()));
    put("--load", args.load.map(|load| load.to_string()));
    put("--speed", (args.speed != 1.0).then(|| args.speed.to_string()));
    let duration = args.duration.or(args.trace.is_none().then_some(Span(DURATION)));
    put("--duration", duration.map(|span| span.to_string()));
    put("--prediction-error", args.prediction_error.map(|cv| cv.to_string()));
    put("--step", args.step.map(|step| step.to_string()));
    put("--policy", Some(args.policy.to_string()));
    put("--lanes", args.lanes.map(|lanes| lanes.to_string()));
    put("--queue", (args.queue != Default::default()).then(|| args.queue.to_string()));
    put("--seed", Some(args.seed.to_string()));
    if args.hard_deadlines {
        words.push("--hard-deadlines".to_owned());
    }
    words.join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

// The header of a log and the tables have one entry a class, in this order.
const _: () = assert!(Class::Small.index() == 0 && Class::Large.index() == 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};

    fn parsed(words: &[&str]) -> RunArgs {
        let Command::Run(args) = Args::parsed(words).unwrap();
        *args
    }

    #[test]
    fn the_command_gives_the_same_run_again() {
        let words = [
            "phalanx",
            "run",
            "--workload",
            "mix:load=0.5,error=0.3",
            "--policy",
            "drain:batch=all",
            "--speed",
            "2.5",
            "--seed",
            "9",
            "--load",
            "0.25",
            "--step",
            "20ms",
            "--queue",
            "10,20",
            "--lanes",
            "4",
            "--hard-deadlines",
            "--prediction-error",
            "0.5",
        ];
        let again = command(&parsed(&words));
        let reparsed = parsed(&again.split(' ').collect::<Vec<_>>());
        assert_eq!(command(&reparsed), again);
        assert_eq!(reparsed.queue.0, [10, 20]);
        assert!(again.contains("--duration 10s") && reparsed.hard_deadlines);
        assert_eq!(quoted("it's input>8"), r"'it'\''s input>8'");
    }
}
