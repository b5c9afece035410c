//! `phalanx sim`: any number of policies over the same arrivals, in virtual time.
//!
//! ```text
//!  input ──► jobs: policy x seed, on the cores there are ──► runs, estimates ──► table, JSON, report
//! ```

pub(crate) mod jobs;
mod table;

use std::io::Write as _;
use std::process::ExitCode;

use phalanx::Nanos;
use phalanx::types::MAX_SIM_LANES;
use phalanx_sim::record::{Header, Mode, PolicyEstimate, ResultDocument, RunResult};

use crate::args::SimArgs;
use crate::fail::Fail;
use crate::files::Files;
use crate::input::{Command, End, Input, outputs_differ};
use crate::interrupt;
use crate::output::{self, Output};
use crate::policy::{Ready, SimPolicy};
use crate::report::{self, Page};
use jobs::{Done, Job, Setting};

/// Requests of a workload unless it is said otherwise: mean waits at load 0.9 are then good to some percent.
const REQUESTS: u64 = 200_000;
/// Seeds where something is drawn.
const SEEDS: u64 = 5;
/// More would be a mistake.
const MOST_SEEDS: u64 = 10_000;

/// The weights of `balance` that a report draws as a curve.
const WEIGHTS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Fail> {
    outputs_differ(&[
        ("--trace", args.input.trace.as_ref()),
        ("--json", args.json.as_ref()),
        ("--report", args.report.as_ref()),
        ("--events", args.events.as_ref()),
        ("--chrome-trace", args.chrome_trace.as_ref()),
    ])?;
    for (flag, given) in [("--events", &args.events), ("--chrome-trace", &args.chrome_trace)] {
        let nodes = matches!(args.policy[..], [SimPolicy::Node(_) | SimPolicy::Optimum { .. }]);
        if given.is_some() && !nodes {
            return Err(Fail::new(format!("{flag}: is of one policy; name it with --policy (server-filling has no events)")));
        }
    }
    let input = Input::new(&args.input, args.lanes, MAX_SIM_LANES, args.requests, End::Requests(REQUESTS))?;
    let seeds = seeds(args.seeds, args.input.seed, SEEDS, &input)?;
    let warm_up = args.warm_up.unwrap_or(if input.mix().is_some() { input.requests / 10 } else { 0 });
    if warm_up >= input.requests {
        let text = format!("--warm-up: {warm_up} leaves none of about {} requests to count; give fewer", input.requests);
        return Err(Fail::new(text));
    }
    let json = args.json.as_deref().map(Output::create).transpose()?;
    let report = args.report.as_deref().map(Output::create).transpose()?;
    let header = |policy: String, seed| Header {
        mode: Mode::Virtual,
        lanes: input.lanes,
        policy,
        queue: args.queue.0,
        workload: input.workload.clone(),
        load: input.load,
        speed: args.input.speed,
        seed,
        device: None,
    };
    let first = header(args.policy[0].to_string(), seeds[0]);
    let mut files = Files::create(args.events.as_deref(), args.chrome_trace.as_deref(), &first)?;
    if !args.quiet {
        for note in &input.notes {
            eprintln!("note: {note}");
        }
    }
    interrupt::listen();

    let ready = args.policy.iter().map(|policy| policy.ready(&input, args.quiet)).collect::<Result<Vec<_>, _>>()?;
    let curve: Vec<(String, Ready)> = if report.is_some() { balances(&input)? } else { Vec::new() };
    let minute = args.minute.map(Nanos::from);
    let mut all: Vec<Job<'_>> = Vec::new();
    for policy in &ready {
        for &seed in &seeds {
            let profile = (report.is_some() && seed == seeds[0]).then_some(minute);
            all.push(Job { policy, seed, profile, targets: None });
        }
    }
    all.extend(curve.iter().map(|(_, policy)| Job { policy, seed: seeds[0], profile: None, targets: None }));
    let message = format!("{} x {} seeds", count(ready.len(), "policy", "policies"), seeds.len());
    let setting = Setting { input: &input, queue: args.queue.0, warm_up, stop_cost: args.step_cost.into() };
    let bar = jobs::bar(args.quiet, input.requests * all.len() as u64, &message);
    let Some(mut done) = jobs::run(setting, &all, &bar)? else { return Ok(ExitCode::from(interrupt::STATUS)) };
    let of_curve = done.split_off(ready.len() * seeds.len());
    if files.any() {
        let mut failed = None;
        let job = Job { policy: &ready[0], seed: seeds[0], profile: Some(None), targets: None };
        jobs::one(setting, &job, &bar, &mut |record| {
            if failed.is_none()
                && let Err(fail) = files.write(record)
            {
                failed = Some(fail);
            }
        })?;
        if let Some(fail) = failed {
            return Err(fail);
        }
        if interrupt::asked() {
            return Ok(ExitCode::from(interrupt::STATUS));
        }
    }
    files.finish()?;

    let mut runs = Vec::new();
    let mut estimates = Vec::new();
    let mut profiles = Vec::new();
    for (policy, of_policy) in args.policy.iter().zip(done.chunks_mut(seeds.len())) {
        profiles.push(of_policy[0].profile.take());
        let results = seeds
            .iter()
            .zip(of_policy)
            .map(|(&seed, Done { result, .. })| RunResult::of_simulation(result, &header(policy.to_string(), seed), warm_up));
        let results: Vec<_> = results.collect();
        estimates.push(PolicyEstimate::of(&results.iter().collect::<Vec<_>>()));
        runs.extend(results);
    }
    let command = command(args, &input, warm_up, seeds.len());
    let mut document = ResultDocument::new(runs);
    document.command = Some(command.clone());
    document.estimates = estimates;
    if let Some(file) = json {
        output::write_json(file, &document)?;
    }
    if !args.quiet {
        let text = table::table(&document, &input, &command);
        // A reader that went away takes nothing from the run.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
    if let Some(file) = report {
        let results = curve
            .iter()
            .zip(&of_curve)
            .map(|((name, _), done)| RunResult::of_simulation(&done.result, &header(name.clone(), seeds[0]), warm_up));
        let curve = results.collect();
        report::write(file, &Page { document, profiles, curve })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// So many seeds, from the first on; one where they would all give the same.
pub(crate) fn seeds(given: Option<u64>, first: u64, default: u64, input: &Input) -> Result<Vec<u64>, Fail> {
    let n = match given {
        Some(n) if (1..=MOST_SEEDS).contains(&n) => n,
        Some(n) => return Err(Fail::new(format!("--seeds: {n} is out of range; give 1 to {MOST_SEEDS}"))),
        None if input.draws() => default,
        None => 1,
    };
    Ok((0..n).map(|i| first.wrapping_add(i)).collect())
}

/// `balance` over its weights, from one that spares the smalls to the last that makes a difference.
fn balances(input: &Input) -> Result<Vec<(String, Ready)>, Fail> {
    let of = |weight: u32| {
        let name = format!("balance:w={weight}");
        let policy: SimPolicy = name.parse().map_err(|error| Fail::new(format!("--policy: {error}")))?;
        Ok((name, policy.ready(input, true)?))
    };
    WEIGHTS.into_iter().map(of).collect()
}

pub(crate) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// The command that does the same again.
fn command(args: &SimArgs, input: &Input, warm_up: u64, seeds: usize) -> String {
    let policies: Vec<_> = args.policy.iter().map(ToString::to_string).collect();
    Command::new("sim")
        .input(&args.input, input)
        .put("--seeds", Some(seeds))
        .put("--warm-up", Some(warm_up))
        .put("--policy", Some(policies.join(",")))
        .put("--lanes", args.lanes)
        .put("--step-cost", (args.step_cost.0 != Nanos::from_millis(1)).then_some(args.step_cost))
        .put("--queue", (args.queue != Default::default()).then_some(args.queue))
        .text()
}
