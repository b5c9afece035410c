//! `phalanx optimum`: the exact optimum of the Markov model, and how near the policies come.

use std::io::Write as _;
use std::process::ExitCode;

use indicatif::ProgressBar;
use phalanx::scheduler::{Limits, PolicySpec};
use phalanx::types::MAX_SIM_LANES;
use phalanx_sim::optimum::{Settings, Solution, solve, solve_preemptive};
use phalanx_sim::record::{Header, Mode, OptimumResult, PolicyEstimate, ResultDocument, RunResult};
use phalanx_sim::workload::{Arrivals, Service};

use crate::args::{InputArgs, OptimumArgs};
use crate::fail::Fail;
use crate::input::{Command, End, Input, outputs_differ};
use crate::interrupt;
use crate::output::{self, Output};
use crate::policy::{self, Ready};
use crate::sim::jobs::{self, Done, Job, Setting};
use crate::sim::{count, seeds};
use crate::table::aligned;

pub(crate) fn optimum(args: &OptimumArgs) -> Result<ExitCode, Fail> {
    outputs_differ(&[("--json", args.json.as_ref()), ("--table", args.table.as_ref())])?;
    let arrives = arrives(args);
    let input = Input::new(&arrives, None, MAX_SIM_LANES, Some(args.requests), End::Requests(args.requests))?;
    let spec = args.workload.unwrap_or_default();
    if spec.service() != Service::Exponential || spec.arrivals() != Arrivals::Poisson {
        let text = "--workload: the model has service=exp and arrivals=poisson alone; leave the others out";
        return Err(Fail::new(text));
    }
    if !(args.tolerance > 0.0 && args.tolerance <= 0.1) {
        return Err(Fail::new(format!("--tolerance: {} is out of range; give a number above 0 and up to 0.1", args.tolerance)));
    }
    let model = policy::model(&spec, input.load, args.weight)?;
    let seeds = seeds(Some(args.seeds), args.seed, 1, &input)?;
    let policies = policies(args, input.lanes)?;
    let json = args.json.as_deref().map(Output::create).transpose()?;
    let table_file = args.table.as_deref().map(Output::create).transpose()?;
    interrupt::listen();

    let settings = Settings { tolerance: args.tolerance, max_states: args.max_states, ..Settings::default() };
    let spinner = if args.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    spinner.set_message("solving: seconds at a load of 0.5, minutes at 0.9");
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    let failed = |error| Fail::new(format!("the optimum of {spec}: {error}"));
    let (solution, table) = if args.preemptive {
        (solve_preemptive(&model, &settings).map_err(failed)?, None)
    } else {
        let (solution, table) = solve(&model, &settings).map_err(failed)?;
        (solution, Some(table))
    };
    spinner.finish_and_clear();
    if interrupt::asked() {
        return Ok(ExitCode::from(interrupt::STATUS));
    }
    say(args, &solved(args, &spec.to_string(), &solution));
    let mut document = ResultDocument::new(Vec::new());
    document.optimum = Some(OptimumResult {
        weight: args.weight,
        cost: solution.cost,
        span_bound: solution.span_bound,
        converged: solution.converged,
        preemptive: args.preemptive,
    });
    let command = command(args, &input, seeds.len());
    document.command = Some(command.clone());
    if let (Some(table), true) = (&table, solution.converged) {
        let optimal = Ready::Optimum(Box::new(table.clone()));
        let ready: Vec<&Ready> = std::iter::once(&optimal).chain(policies.iter().map(|(_, ready)| ready)).collect();
        let all: Vec<Job<'_>> = ready
            .iter()
            .flat_map(|&policy| seeds.iter().map(move |&seed| Job { policy, seed, profile: None, targets: None }))
            .collect();
        let setting = Setting {
            input: &input,
            queue: [Limits::DEFAULT_QUEUE; 2],
            warm_up: args.requests / 10,
            stop_cost: phalanx::Nanos::ZERO,
        };
        let bar = jobs::bar(args.quiet, args.requests * all.len() as u64, &count(ready.len(), "policy", "policies"));
        let Some(done) = jobs::run(setting, &all, &bar)? else { return Ok(ExitCode::from(interrupt::STATUS)) };
        let names =
            std::iter::once(format!("optimum:w={}", args.weight)).chain(policies.iter().map(|(spec, _)| spec.to_string()));
        let mut best: Vec<f64> = Vec::new();
        for (name, of_policy) in names.zip(done.chunks(seeds.len())) {
            let results: Vec<RunResult> = seeds
                .iter()
                .zip(of_policy)
                .map(|(&seed, Done { result, .. })| {
                    let header = Header {
                        mode: Mode::Virtual,
                        lanes: input.lanes,
                        policy: name.clone(),
                        queue: setting.queue,
                        workload: input.workload.clone(),
                        load: input.load,
                        speed: 1.0,
                        seed,
                        device: None,
                    };
                    let mut run = RunResult::of_simulation(result, &header, setting.warm_up);
                    run.cost = result.stability.is_stable().then(|| result.weighted_number(args.weight));
                    run
                })
                .collect();
            if best.is_empty() {
                best = results.iter().map(|run| run.cost.unwrap_or(f64::NAN)).collect();
            }
            let results: Vec<RunResult> = results
                .into_iter()
                .zip(&best)
                .map(|(run, best)| RunResult { ratio: run.cost.map(|cost| cost / best), ..run })
                .collect();
            document.estimates.push(PolicyEstimate::of(&results.iter().collect::<Vec<_>>()));
            document.runs.extend(results);
        }
        say(args, &compared(args, &document));
        if let Some(file) = table_file {
            output::write_json(file, table)?;
        }
    }
    say(args, &format!("{:<12}{command}\n", "again"));
    if let Some(file) = json {
        output::write_json(file, &document)?;
    }
    if solution.converged {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "phalanx: the solution did not converge: its bounds are {:.1e} apart (--tolerance {:.0e}) and the last cut of the queues changed it \
         by {:.1e}; allow more states (--max-states), or lower the load",
        solution.span_bound, args.tolerance, solution.truncation_change
    );
    Ok(ExitCode::from(1))
}

/// What arrives, in the words of the other commands.
fn arrives(args: &OptimumArgs) -> InputArgs {
    InputArgs {
        trace: None,
        format: None,
        large_if: None,
        service_model: None,
        workload: args.workload,
        load: None,
        speed: 1.0,
        duration: None,
        seed: args.seed,
        hard_deadlines: false,
        prediction_error: None,
        step: None,
    }
}

fn policies(args: &OptimumArgs, lanes: usize) -> Result<Vec<(PolicySpec, Ready)>, Fail> {
    let specs: Vec<PolicySpec> = match &args.policy {
        Some(specs) => specs.clone(),
        None => {
            let names = [format!("balance:w={}", args.weight), "msfq".to_owned(), "easy".to_owned(), "fcfs".to_owned()];
            names
                .iter()
                .map(|name| name.parse())
                .collect::<Result<_, _>>()
                .map_err(|error| Fail::new(format!("--weight: {error}")))?
        }
    };
    let ready = |spec: PolicySpec| match spec.check(lanes) {
        Ok(()) => Ok((spec.clone(), Ready::Node(spec))),
        Err(error) => Err(Fail::new(format!("--policy: {error}"))),
    };
    specs.into_iter().map(ready).collect()
}

fn say(args: &OptimumArgs, text: &str) {
    if !args.quiet {
        // A reader that went away takes nothing from the run.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}

fn solved(args: &OptimumArgs, workload: &str, solution: &Solution) -> String {
    let Solution { cost, lower, upper, span_bound, truncation_change, converged, truncation, states, .. } = solution;
    let kind = if args.preemptive { ", service stopped and resumed free of charge" } else { "" };
    let cost = if *converged {
        format!("{cost:.4}")
    } else {
        format!("not converged (between {lower:.4} and {upper:.4} of the cut model)")
    };
    format!(
        "{:<12}{workload}{kind}\n{:<12}smalls in the system + {} x larges in the system\n{:<12}{cost}\n{:<12}span bound {span_bound:.1e}; cut of the \
         queues at {} smalls, {} larges, which changed it by {truncation_change:.1e}; {states} states\n",
        "model", "cost", args.weight, "optimum", "sure to", truncation.smalls, truncation.larges
    )
}

fn compared(args: &OptimumArgs, document: &ResultDocument) -> String {
    let words = |row: [&str; 7]| row.map(str::to_owned).to_vec();
    let mut rows = vec![words(["policy", "cost", "± 95 %", "over the optimum's", "± 95 %", "smalls there", "larges there"])];
    let per = document.runs.len() / document.estimates.len().max(1);
    for (estimate, runs) in document.estimates.iter().zip(document.runs.chunks(per.max(1))) {
        let in_system = |class: usize| {
            let all = runs.iter().filter_map(|run| run.simulated.as_ref()).map(|simulated| simulated.in_system[class]);
            format!("{:.3}", all.sum::<f64>() / runs.len() as f64)
        };
        let sure = |half: f64| if half.is_finite() { format!("{half:.4}") } else { String::new() };
        rows.push(match (&estimate.cost, &estimate.ratio) {
            (Some(cost), Some(ratio)) => vec![
                estimate.policy.clone(),
                format!("{:.3}", cost.mean),
                sure(cost.half_width),
                format!("{:.4}", ratio.mean),
                sure(ratio.half_width),
                in_system(0),
                in_system(1),
            ],
            _ => words([&estimate.policy, "unstable", "", "-", "", "-", "-"]),
        });
    }
    let seeds = count(args.seeds as usize, "seed", "seeds");
    format!("\n{}{:<12}simulated, the same arrivals for all: {} requests, {seeds}\n", aligned(&rows), "compared", args.requests)
}

fn command(args: &OptimumArgs, input: &Input, seeds: usize) -> String {
    let policies = args.policy.as_ref().map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    let mut command = Command::new("optimum");
    command.input(&arrives(args), input).put("--weight", Some(args.weight)).put("--policy", policies).put("--seeds", Some(seeds));
    if args.preemptive {
        command.flag("--preemptive");
    }
    command.put("--tolerance", (args.tolerance != 1e-4).then_some(args.tolerance));
    command.put("--max-states", (args.max_states != Settings::default().max_states).then_some(args.max_states));
    command.text()
}
