//! `phalanx tune`: the policy and settings that meet SLAs, by simulation.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;
use std::str::FromStr;

use phalanx::types::MAX_SIM_LANES;
use phalanx::{Class, Nanos};
use phalanx_sim::record::{Header, Mode, PolicyEstimate, ResultDocument, RunResult};
use phalanx_sim::units::Span;

use crate::args::TuneArgs;
use crate::fail::Fail;
use crate::input::{Command, End, Input, outputs_differ};
use crate::interrupt;
use crate::output::{self, Output};
use crate::policy::{Ready, SimPolicy};
use crate::sim::jobs::{self, Done, Job, Setting};
use crate::sim::{count, seeds};
use crate::table::{aligned, percent, time};

const REQUESTS: u64 = 100_000;
const SEEDS: u64 = 3;
/// By how many in a hundred an SLA is to be met unless it says so.
const PERCENT: f64 = 95.0;

/// What is to be met, by class.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Slo([Option<Goal>; 2]);

#[derive(Clone, Copy, PartialEq, Debug)]
struct Goal {
    response: Span,
    /// Of a hundred submitted.
    percent: f64,
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "give `small=500ms,large=4s`, or with how many in a hundred as `small=500ms@99,large=4s@90`";
        let mut goals = [None; 2];
        for part in text.split(',') {
            let (class, goal) = part.split_once('=').ok_or_else(|| format!("'{part}' is no SLA; {FORM}"))?;
            let class = Class::ALL
                .into_iter()
                .find(|known| known.to_string() == class.trim())
                .ok_or_else(|| format!("'{class}' is no class; {FORM}"))?;
            let (response, percent) = match goal.split_once('@') {
                Some((response, percent)) => (response, percent),
                None => (goal, ""),
            };
            let response: Span = response.trim().parse().map_err(|error| format!("{class}: {error}"))?;
            if Nanos::from(response) == Nanos::ZERO {
                return Err(format!("{class}: a response of 0 cannot be had; {FORM}"));
            }
            let percent =
                match percent.trim() {
                    "" => PERCENT,
                    text => text.parse().ok().filter(|&percent| percent > 0.0 && percent <= 100.0).ok_or_else(|| {
                        format!("{class}: '{text}' is no share; give a number above 0 and up to 100 after the @")
                    })?,
                };
            if goals[class.index()].replace(Goal { response, percent }).is_some() {
                return Err(format!("{class} is given twice; {FORM}"));
            }
        }
        Ok(Self(goals))
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goals = Class::ALL.into_iter().filter_map(|class| Some((class, self.0[class.index()]?)));
        for (n, (class, Goal { response, percent })) in goals.enumerate() {
            write!(f, "{}{class}={response}@{percent}", if n > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl Slo {
    /// Targets for the requests; one that is never missed where nothing is asked for.
    fn targets(&self) -> [Nanos; 2] {
        self.0.map(|goal| goal.map_or(Nanos::MAX, |goal| goal.response.into()))
    }
}

/// A choice, simulated.
#[derive(Debug)]
struct Choice {
    policy: String,
    estimate: PolicyEstimate,
}

impl Choice {
    /// How much of the SLA of a class is met: 1 is all.
    fn met(&self, slo: &Slo, class: Class) -> f64 {
        let Some(goal) = slo.0[class.index()] else { return 1.0 };
        // Without one request of the class there is nothing to miss.
        let share = self.estimate.classes.of(class).slo_met.as_ref().map_or(1.0, |share| share.mean);
        (100.0 * share / goal.percent).min(1.0)
    }

    fn meets(&self, slo: &Slo) -> bool {
        self.stable() && Class::ALL.into_iter().all(|class| self.met(slo, class) >= 1.0)
    }

    fn stable(&self) -> bool {
        self.estimate.unstable == 0
    }

    /// The higher the better: what meets more, then what completes more in time, then what is faster.
    fn score(&self, slo: &Slo) -> [f64; 3] {
        let met = Class::ALL.into_iter().map(|class| self.met(slo, class)).fold(1.0, f64::min);
        let met = if self.stable() { met } else { met - 1.0 };
        let slowness: f64 = Class::ALL.into_iter().map(|class| self.mean(class) / slo_unit(slo, class)).sum();
        // To a thousandth: a difference that another seed would turn is none.
        [(met * 1e3).round(), (self.estimate.goodput_per_s.mean * 1e3).round(), -slowness]
    }

    fn mean(&self, class: Class) -> f64 {
        self.estimate.classes.of(class).response_ms_mean.as_ref().map_or(0.0, |mean| mean.mean)
    }

    /// What counts of a class on the front: the share in time to a tenth of a percent, then the mean response.
    fn rank(&self, class: Class) -> (i64, f64) {
        let share = self.estimate.classes.of(class).slo_met.as_ref().map_or(1.0, |share| share.mean);
        ((share * 1e3).round() as i64, -self.mean(class))
    }

    fn beats(&self, other: &Self) -> bool {
        let better = |class| self.rank(class).partial_cmp(&other.rank(class));
        let by_class = Class::ALL.map(better);
        by_class.iter().all(|by| by.is_some_and(std::cmp::Ordering::is_ge))
            && by_class.iter().any(|by| by.is_some_and(std::cmp::Ordering::is_gt))
    }
}

fn slo_unit(slo: &Slo, class: Class) -> f64 {
    slo.0[class.index()].map_or(1e12, |goal| Nanos::from(goal.response).as_millis_f64())
}

pub(crate) fn tune(args: &TuneArgs) -> Result<ExitCode, Fail> {
    outputs_differ(&[("--trace", args.input.trace.as_ref()), ("--json", args.json.as_ref())])?;
    let input = Input::new(&args.input, args.lanes, MAX_SIM_LANES, args.requests, End::Requests(REQUESTS))?;
    let seeds = seeds(args.seeds, args.input.seed, SEEDS, &input)?;
    let json = args.json.as_deref().map(Output::create).transpose()?;
    if !args.quiet {
        for note in &input.notes {
            eprintln!("note: {note}");
        }
    }
    interrupt::listen();
    let mut search = Search { args, input: &input, seeds: &seeds, choices: Vec::new(), runs: Vec::new() };
    // Every policy over a grid of its settings, then `balance` near its best, then its other settings there.
    let Some(()) = search.simulate("1 of 3: every policy", every_policy(input.lanes))? else { return Ok(interrupted()) };
    let near = search.best_weights().iter().flat_map(|w| [w / 1.5, w * 1.5]).map(|w| format!("balance:w={w:.3}")).collect();
    let Some(()) = search.simulate("2 of 3: weights near the best", near)? else { return Ok(interrupted()) };
    let rest = search.best_weights().into_iter().chain([8.0]).flat_map(|w| orders(w, &args.slo)).collect();
    let Some(()) = search.simulate("3 of 3: bounds and orders", rest)? else { return Ok(interrupted()) };
    let Search { mut choices, runs, .. } = search;

    let command = command(args, &input, seeds.len());
    if let Some(file) = json {
        let mut document = ResultDocument::new(runs);
        document.command = Some(command.clone());
        document.estimates = choices.iter().map(|choice| choice.estimate.clone()).collect();
        output::write_json(file, &document)?;
    }
    choices.sort_by(|a, b| b.score(&args.slo).partial_cmp(&a.score(&args.slo)).unwrap_or(std::cmp::Ordering::Equal));
    let best = &choices[0];
    let meets = best.meets(&args.slo);
    let mut out = String::new();
    if args.quiet {
        if meets {
            out = format!("{}\n", best.policy);
        }
    } else {
        out.push_str(&front(&choices, &args.slo));
        let requests = input.requests;
        out.push_str(&format!(
            "{:<12}{} simulated, {requests} requests each, {}; {}\n{:<12}{}\n{:<12}{command}\n",
            "searched",
            count(choices.len(), "choice", "choices"),
            count(seeds.len(), "seed", "seeds"),
            input.workload,
            "SLO",
            args.slo,
            "again"
        ));
        if meets {
            out.push_str(&format!("{:<12}--policy {}\n", "choose", best.policy));
        }
    }
    // A reader that went away takes nothing from the search.
    let _ = std::io::stdout().write_all(out.as_bytes());
    if meets {
        return Ok(ExitCode::SUCCESS);
    }
    let why =
        if best.stable() { "no choice meets the SLAs" } else { "every choice is unstable: more is asked for than the node has" };
    eprintln!("phalanx: {why}; nearest is --policy {}; lower the load, or loosen --slo", best.policy);
    Ok(ExitCode::from(1))
}

fn interrupted() -> ExitCode {
    ExitCode::from(interrupt::STATUS)
}

struct Search<'a> {
    args: &'a TuneArgs,
    input: &'a Input,
    seeds: &'a [u64],
    choices: Vec<Choice>,
    runs: Vec<RunResult>,
}

impl Search<'_> {
    /// Simulates those that have not been. `None` if Ctrl-C ended it.
    fn simulate(&mut self, message: &str, policies: Vec<String>) -> Result<Option<()>, Fail> {
        let mut new: Vec<String> = Vec::new();
        for policy in policies {
            if !new.contains(&policy) && self.choices.iter().all(|choice| choice.policy != policy) {
                new.push(policy);
            }
        }
        let ready = |policy: &String| {
            let parsed: SimPolicy = policy.parse().map_err(|error| Fail::new(format!("policy {policy}: {error}")))?;
            parsed.ready(self.input, self.args.quiet)
        };
        let ready = new.iter().map(ready).collect::<Result<Vec<Ready>, Fail>>()?;
        let targets = Some(self.args.slo.targets());
        let seeds = self.seeds;
        let jobs: Vec<Job<'_>> =
            ready.iter().flat_map(|policy| seeds.iter().map(move |&seed| Job { policy, seed, profile: None, targets })).collect();
        let warm_up = if self.input.mix().is_some() { self.input.requests / 10 } else { 0 };
        let setting = Setting { input: self.input, queue: self.args.queue.0, warm_up, stop_cost: Nanos::from_millis(1) };
        let bar = jobs::bar(self.args.quiet, self.input.requests * jobs.len() as u64, message);
        let Some(done) = jobs::run(setting, &jobs, &bar)? else { return Ok(None) };
        for (policy, of_policy) in new.into_iter().zip(done.chunks(seeds.len())) {
            let runs = seeds.iter().zip(of_policy).map(|(&seed, Done { result, .. })| {
                let header = Header {
                    mode: Mode::Virtual,
                    lanes: self.input.lanes,
                    policy: policy.clone(),
                    queue: setting.queue,
                    workload: self.input.workload.clone(),
                    load: self.input.load,
                    speed: self.args.input.speed,
                    seed,
                    device: None,
                };
                RunResult::of_simulation(result, &header, warm_up)
            });
            let runs: Vec<RunResult> = runs.collect();
            self.choices.push(Choice { policy, estimate: PolicyEstimate::of(&runs.iter().collect::<Vec<_>>()) });
            self.runs.extend(runs);
        }
        Ok(Some(()))
    }

    /// The weights of the two best `balance` that have no other setting.
    fn best_weights(&self) -> Vec<f64> {
        let weight = |choice: &Choice| choice.policy.strip_prefix("balance:w=")?.parse::<f64>().ok();
        let mut known: Vec<(f64, [f64; 3])> =
            self.choices.iter().filter_map(|choice| Some((weight(choice)?, choice.score(&self.args.slo)))).collect();
        known.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(std::cmp::Ordering::Equal));
        known.into_iter().take(2).map(|(weight, _)| weight).collect()
    }
}

fn every_policy(lanes: usize) -> Vec<String> {
    let weights = (-1..=8).map(|power| format!("balance:w={}", 2_f64.powi(power)));
    let thresholds = (0..lanes.min(16)).map(|l| format!("msfq:l={l}"));
    let drains = ["drain", "drain:batch=all", "drain:backfill=on", "drain:batch=all:backfill=on", "easy", "fcfs", "msf"];
    weights.chain(thresholds).chain(drains.into_iter().map(str::to_owned)).collect()
}

/// The other settings of `balance` that bear on an SLA, at this weight.
fn orders(weight: f64, slo: &Slo) -> Vec<String> {
    let base = format!("balance:w={weight}");
    let mut all = vec![format!("{base}:order=arrival"), format!("{base}:order_large=on-time")];
    if let Some(goal) = slo.0[Class::Large.index()] {
        all.push(format!("{base}:targets=urgent"));
        all.push(format!("{base}:targets=urgent:order_large=on-time"));
        for part in [2.0, 1.0, 0.75, 0.5] {
            let bound = Nanos((Nanos::from(goal.response).as_millis_f64() * part * 1e6) as u64).max(Nanos(1));
            all.push(format!("{base}:max_wait={}", Span(bound)));
        }
    }
    all
}

/// The choices that no other beats in both classes, the fastest for smalls first.
fn front(choices: &[Choice], slo: &Slo) -> String {
    let words = |row: [&str; 8]| row.map(str::to_owned).to_vec();
    let mut rows = vec![
        words(["not beaten in both classes", "small", "", "", "large", "", "", "goodput"]),
        words(["", "in time", "mean", "p99", "in time", "mean", "p99", "a second"]),
    ];
    let mut kept: Vec<&Choice> = choices
        .iter()
        .filter(|choice| choice.stable() && !choices.iter().any(|other| other.stable() && other.beats(choice)))
        .collect();
    kept.sort_by(|a, b| b.rank(Class::Small).partial_cmp(&a.rank(Class::Small)).unwrap_or(std::cmp::Ordering::Equal));
    for choice in kept {
        let mark = if choice.meets(slo) { "* " } else { "  " };
        let mut row = vec![format!("{mark}{}", choice.policy)];
        for class in Class::ALL {
            let of = choice.estimate.classes.of(class);
            let ms =
                |of: &Option<phalanx_sim::engine::Estimate>| of.as_ref().map_or_else(|| "-".to_owned(), |of| time(of.mean * 1e6));
            row.push(of.slo_met.as_ref().map_or_else(|| "-".to_owned(), |share| percent(share.mean)));
            row.push(ms(&of.response_ms_mean));
            row.push(ms(&of.response_ms_p99));
        }
        row.push(format!("{:.2}", choice.estimate.goodput_per_s.mean));
        rows.push(row);
    }
    format!("{}{:<12}meets the SLAs\n", aligned(&rows), "*")
}

fn command(args: &TuneArgs, input: &Input, seeds: usize) -> String {
    Command::new("tune")
        .input(&args.input, input)
        .put("--seeds", Some(seeds))
        .put("--slo", Some(args.slo))
        .put("--lanes", args.lanes)
        .put("--queue", (args.queue != Default::default()).then_some(args.queue))
        .text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_slo_is_printed_as_it_is_parsed() {
        let slo: Slo = "small=500ms,large=4s@90".parse().unwrap();
        assert_eq!(slo.to_string(), "small=500ms@95,large=4s@90");
        assert_eq!(slo.to_string().parse::<Slo>().unwrap(), slo);
        let one: Slo = "large=1m@99.9".parse().unwrap();
        assert_eq!(one.targets(), [Nanos::MAX, Nanos::from_secs(60)]);
        for (text, says) in [
            ("", "is no SLA"),
            ("small", "is no SLA"),
            ("medium=1s", "no class"),
            ("small=fast", "small"),
            ("small=0s", "cannot be had"),
            ("small=1s@0", "no share"),
            ("small=1s@NaN", "no share"),
            ("small=1s,small=2s", "twice"),
        ] {
            let error = text.parse::<Slo>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
