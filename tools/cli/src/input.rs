//! What arrives: the flags that every command with requests shares, checked before anything starts.

use std::path::PathBuf;

use phalanx::types::MAX_LANES;
use phalanx::{Class, Nanos};
use phalanx_sim::units::Span;
use phalanx_sim::{Adapt, InputError, Names, ServiceModels, Source, TraceFile, TraceOptions, TraceRequest, WorkloadSpec};

use crate::args::InputArgs;
use crate::fail::Fail;

/// A trace or a workload, ready to give its requests any number of times.
#[derive(Debug)]
pub(crate) struct Input {
    from: From,
    adapt: Adapt,
    /// The load before it is changed.
    native: Option<f64>,
    /// How many lanes the requests are made for.
    pub(crate) lanes: usize,
    /// The workload's text or the trace's name.
    pub(crate) workload: String,
    /// The load as it will be, where it can be told.
    pub(crate) load: Option<f64>,
    /// What the user should know before the numbers are believed.
    pub(crate) notes: Vec<String>,
    /// From the start to about the last arrival.
    pub(crate) span: Nanos,
    /// About how many requests there will be.
    pub(crate) requests: u64,
}

#[derive(Debug)]
enum From {
    Trace(Box<TraceFile>),
    Mix(WorkloadSpec),
}

/// Where a workload, which has no end of its own, ends unless the user says so.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    After(Nanos),
    Requests(u64),
}

impl Input {
    /// `lanes` as the user gave them, at most `most`; `requests` likewise.
    pub(crate) fn new(
        args: &InputArgs,
        lanes: Option<usize>,
        most: usize,
        requests: Option<u64>,
        end: End,
    ) -> Result<Self, Fail> {
        if let Some(lanes) = lanes {
            lanes_fit(lanes, most, "--lanes")?;
        }
        let mut adapt = Adapt {
            load: args.load,
            speed: args.speed,
            duration: args.duration.map(Nanos::from),
            requests,
            prediction_error: args.prediction_error,
            seed: args.seed,
            step: args.step,
            hard_deadlines: args.hard_deadlines,
        };
        adapt.check()?;
        let mut notes = Vec::new();
        if let Some(path) = &args.trace {
            let service = match &args.service_model {
                Some(arg) => {
                    let (file, small, large) = arg.parts();
                    ServiceModels::read(&file, small, large)?
                }
                None => ServiceModels::default(),
            };
            let lanes = lanes.unwrap_or(MAX_LANES);
            let options = TraceOptions { format: args.format, lanes, large_if: args.large_if.clone(), service };
            let trace = TraceFile::open(path, options)?;
            // The whole of it, so that what is wrong with its last line is said now.
            let summary = trace.summary()?;
            notes.extend(summary.warnings.iter().map(ToString::to_string));
            if summary.skipped > 0 {
                notes.push(format!("{} requests of the trace never ran, and are left out", summary.skipped));
            }
            let native = summary.native_load();
            // So that a load that cannot be had is refused before the run.
            drop(adapt.apply(trace.requests()?, native)?);
            let stretch = args.load.and_then(|load| Some(native? / load)).unwrap_or(1.0) / args.speed;
            let whole = Nanos((summary.span.0 as f64 * stretch) as u64);
            let span = adapt.duration.map_or(whole, |duration| duration.min(whole));
            let count: u64 = summary.classes.iter().map(|class| class.count).sum();
            let part = if whole.0 > 0 { span.0 as f64 / whole.0 as f64 } else { 1.0 };
            let count = ((count as f64 * part) as u64).max(1);
            return Ok(Self {
                adapt,
                native,
                lanes,
                workload: trace.name().to_owned(),
                load: args.load.or(native),
                notes,
                span,
                requests: adapt.requests.map_or(count, |most| most.min(count)),
                from: From::Trace(Box::new(trace)),
            });
        }
        let mut spec = args.workload.unwrap_or_default();
        if let Some(lanes) = lanes {
            spec = spec.with_lanes(lanes)?;
        }
        lanes_fit(spec.lanes(), most, "workload mix: lanes")?;
        if adapt.duration.is_none() && adapt.requests.is_none() {
            match end {
                End::After(duration) => adapt.duration = Some(duration),
                End::Requests(requests) => adapt.requests = Some(requests),
            }
        }
        let native = spec.load();
        drop(adapt.apply(spec.source(args.seed), native)?);
        let rate: f64 = Class::ALL.into_iter().map(|class| spec.rate(class)).sum();
        let rate = rate * args.load.map_or(1.0, |load| load / native) * args.speed;
        let by_time = adapt.duration.map_or(f64::INFINITY, |duration| duration.as_secs_f64() * rate);
        let requests = by_time.min(adapt.requests.map_or(f64::INFINITY, |requests| requests as f64)).max(1.0);
        Ok(Self {
            from: From::Mix(spec),
            adapt,
            native: Some(native),
            lanes: spec.lanes(),
            workload: spec.to_string(),
            // The sum of the classes' loads, less the dust of adding them.
            load: Some(args.load.unwrap_or((native * 1e9).round() / 1e9)),
            notes,
            span: Nanos((requests / rate * 1e9) as u64),
            requests: requests as u64,
        })
    }

    /// The requests, from the first on.
    pub(crate) fn source(&self, seed: u64) -> Result<Box<dyn Source + Send>, InputError> {
        let adapt = Adapt { seed, ..self.adapt };
        let source: Box<dyn Source + Send> = match &self.from {
            From::Trace(trace) => Box::new(adapt.apply(trace.requests()?, self.native)?),
            From::Mix(spec) => Box::new(adapt.apply(spec.source(seed), self.native)?),
        };
        Ok(if adapt.hard_deadlines { Box::new(Counted(source)) } else { source })
    }

    /// From the start to about the last arrival, where there is more than one moment.
    pub(crate) fn expected(&self) -> Option<Nanos> {
        (self.span > Nanos::ZERO).then_some(self.span)
    }

    /// Whether another seed gives other requests.
    pub(crate) fn draws(&self) -> bool {
        matches!(self.from, From::Mix(_)) || self.adapt.prediction_error.is_some()
    }

    /// The workload, where it is no trace.
    pub(crate) const fn mix(&self) -> Option<&WorkloadSpec> {
        match &self.from {
            From::Mix(spec) => Some(spec),
            From::Trace(_) => None,
        }
    }

    /// Where the arrivals end, if it is not where the trace does.
    pub(crate) const fn ends(&self) -> (Option<Nanos>, Option<u64>) {
        (self.adapt.duration, self.adapt.requests)
    }
}

fn lanes_fit(lanes: usize, most: usize, setting: &str) -> Result<(), Fail> {
    if (1..=most).contains(&lanes) {
        return Ok(());
    }
    let node = if most == MAX_LANES { "a node in real time" } else { "a simulated node" };
    Err(Fail::new(format!("{setting}: {lanes} is out of range; {node} has 1 to {most} lanes")))
}

/// Two outputs in one file, or one over the trace, would leave neither.
pub(crate) fn outputs_differ(named: &[(&'static str, Option<&PathBuf>)]) -> Result<(), Fail> {
    let resolved: Vec<_> = named
        .iter()
        .filter_map(|&(flag, path)| {
            let path = path?;
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

/// The words of a command that does the same again: what was given, and the seed. Where its results go is left out.
#[derive(Debug)]
pub(crate) struct Command {
    words: Vec<String>,
}

impl Command {
    /// The command `phalanx name`.
    pub(crate) fn new(name: &str) -> Self {
        Self { words: vec!["phalanx".to_owned(), name.to_owned()] }
    }

    pub(crate) fn put(&mut self, flag: &str, value: Option<impl ToString>) -> &mut Self {
        if let Some(value) = value {
            self.words.push(flag.to_owned());
            self.words.push(quoted(&value.to_string()));
        }
        self
    }

    /// What arrives; `input` says where it ends.
    pub(crate) fn input(&mut self, args: &InputArgs, input: &Input) -> &mut Self {
        let (duration, requests) = input.ends();
        self.put("--trace", args.trace.as_ref().map(|path| path.display().to_string()))
            .put("--format", args.format)
            .put("--large-if", args.large_if.as_ref())
            .put("--service-model", args.service_model.as_ref().map(|model| &model.text))
            .put("--workload", args.trace.is_none().then(|| args.workload.unwrap_or_default()))
            .put("--load", args.load)
            .put("--speed", (args.speed != 1.0).then_some(args.speed))
            .put("--duration", duration.map(Span))
            .put("--requests", requests)
            .put("--prediction-error", args.prediction_error)
            .put("--step", args.step)
            .put("--seed", Some(args.seed));
        if args.hard_deadlines {
            self.flag("--hard-deadlines");
        }
        self
    }

    /// A flag without a value.
    pub(crate) fn flag(&mut self, flag: &str) -> &mut Self {
        self.words.push(flag.to_owned());
        self
    }

    /// As a shell reads it.
    pub(crate) fn text(&self) -> String {
        self.words.join(" ")
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_a_shell_reads_them() {
        assert_eq!(quoted("it's input>8"), r"'it'\''s input>8'");
        assert_eq!(quoted("mix:load=0.5"), "mix:load=0.5");
        assert_eq!(quoted(""), "''");
    }
}
