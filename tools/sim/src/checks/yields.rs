//! Requests that stop at steps of 20 ms: `balance` with small ones that yield, `swap` with both. A stop costs 1 ms and a resumption another.

use super::near_optimum::{Cell, LOADS, SHARES, geometric_mean, optima, ratio, weighted};
use super::overload::SMALL_CAPACITY_PER_S;
use super::traces::{CLASSICAL, folder};
use super::{CheckError, Report, Want, runs, runs_of};
use crate::engine::{Estimate, RunResult, SimError, SimOptions, across_seeds, simulate};
use crate::optimum::{Model, Settings, SolveError, solve_preemptive};
use crate::{Adapt, Step, TraceFile, TraceOptions};
use phalanx::Nanos;
use phalanx::scheduler::Limits;

const STEP: Step = Step::Every(Nanos::from_millis(20));
const COST: Nanos = Nanos::from_millis(1);

fn costs(options: &mut SimOptions) {
    options.stop_cost = COST;
}

fn estimate(results: &[RunResult], of: impl Fn(&RunResult) -> f64) -> Estimate {
    Estimate::of(&results.iter().map(of).collect::<Vec<_>>())
}

/// The mean over cells of one figure a run, with the joint error of its parts.
fn mean_of_cells(cells: &[Estimate]) -> Estimate {
    let n = cells.len() as f64;
    let joint = |of: fn(&Estimate) -> f64| cells.iter().map(|e| of(e).powi(2)).sum::<f64>().sqrt() / n;
    Estimate {
        mean: cells.iter().map(|e| e.mean).sum::<f64>() / n,
        half_width: joint(|e| e.half_width),
        standard_error: joint(|e| e.standard_error),
        samples: cells.len(),
    }
}

/// GPU time that idles while work waits, of many cells: while any is queued, and while any is queued or parked.
#[derive(Default)]
struct Idle {
    queued: Vec<Estimate>,
    parked: Vec<Estimate>,
}

impl Idle {
    fn add(&mut self, results: &[RunResult]) {
        self.queued.push(estimate(results, |r| 100.0 * r.idle_while_waiting_fraction));
        self.parked.push(estimate(results, |r| 100.0 * r.idle_while_waiting_or_parked_fraction));
    }

    fn hold(&self, report: &mut Report, most: f64) {
        report.hold("GPU time idle while work is queued, %", mean_of_cells(&self.queued), Want::AtMost(most));
        report.hold("GPU time idle while work is queued or parked, %", mean_of_cells(&self.parked), Want::AtMost(most));
    }
}

pub(super) fn near_optimum(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let (requests, seeds) = if quick { (200_000, 4) } else { (2_000_000, 8) };
    let (mut ratios, mut idle) = (Vec::new(), Idle::default());
    for Cell { load, share, weight, cost, .. } in optima(&[8.0], quick)? {
        let results = runs_of("balance", &format!("mix:load={load},share={share},step_small=20ms"), requests, seeds, 1.0, costs)?;
        let ratio = ratio(&weighted(&results, weight), &vec![cost; results.len()]);
        report.hold(format!("load {load} share {share}: W_8 over the optimum without stops"), ratio, Want::AtMost(1.0));
        ratios.push(ratio);
        idle.add(&results);
    }
    // In the quick size few of the cells, and those in which stops gain least: the target is for the mean over all.
    let (of, most) = if quick { (", large shares only", 1.0) } else { ("", 0.90) };
    report.hold(format!("geometric mean of W_8 over the optimum without stops{of}"), geometric_mean(&ratios), Want::AtMost(most));
    idle.hold(&mut report, 0.5);
    Ok(report)
}

fn overload_runs(policy: &str, more: &str, large_load: f64, quick: bool) -> Result<Vec<RunResult>, CheckError> {
    let (requests, seeds) = if quick { (100_000, 4) } else { (3_000_000, 8) };
    let workload = format!(
        "mix:rate_small={},rate_large={},service=lognormal,error=0.3,slo_small=500ms,slo_large=4s{more}",
        1.5 * SMALL_CAPACITY_PER_S,
        large_load / 0.4
    );
    runs_of(policy, &workload, requests, seeds, 1.0, |options| {
        costs(options);
        options.queue = [256, Limits::DEFAULT_QUEUE];
    })
}

/// Small requests in a second that the larges, by what they really took, leave room for.
fn ideal(r: &RunResult) -> f64 {
    SMALL_CAPACITY_PER_S * (1.0 - r.large.utilization)
}

pub(super) fn overload(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    for large_load in [0.2, 0.5] {
        let results = overload_runs("balance:max_wait=1s", ",step_small=20ms", large_load, quick)?;
        let at = format!("large load {large_load}");
        // What the larges take is exact; the stops of the smalls are a part of what is left.
        let throughput = estimate(&results, |r| 100.0 * r.small.throughput_per_s / ideal(r));
        let on_time = estimate(&results, |r| 100.0 * r.small.on_time_per_s / ideal(r));
        let large = estimate(&results, |r| r.large.response_ms.mean * 1e-3);
        report.hold(format!("{at}: small throughput, % of ideal"), throughput, Want::AtLeast(99.0));
        report.hold(format!("{at}: small on time, % of ideal"), on_time, Want::AtLeast(93.5));
        report.hold(format!("{at}: large mean response, s"), large, Want::AtMost(1.3));
        report.note(format!(
            "{at}: stops a small {:.2}; stopping and resuming takes {:.2} % of GPU time",
            estimate(&results, |r| r.small.stops).mean,
            estimate(&results, |r| 100.0 * r.stopping_fraction).mean
        ));
    }
    Ok(report)
}

/// One of the traces at load 0.7, under each policy. `None` where its file is absent, which the report says.
fn over_trace(
    report: &mut Report,
    name: &str,
    policies: &[String],
    error: Option<f64>,
    step: Option<Step>,
    seed: u64,
) -> Result<Option<Vec<RunResult>>, CheckError> {
    let path = folder().join(name);
    if !path.is_file() {
        report.note(format!("NOT MEASURED: {} is absent; set PHALANX_TRACES to the folder that holds it", path.display()));
        return Ok(None);
    }
    let trace = TraceFile::open(&path, TraceOptions::default())?;
    let native = trace.summary()?.native_load();
    let results = across_seeds(policies, |policy| -> Result<RunResult, CheckError> {
        let adapt = Adapt { load: Some(0.7), prediction_error: error, step, seed, ..Adapt::default() };
        let mut source = adapt.apply(trace.requests()?, native)?;
        let spec = policy.parse().map_err(SimError::from)?;
        let options = SimOptions { queue: [1 << 20; 2], stop_cost: COST, ..SimOptions::new(8, spec) };
        Ok(simulate(&mut source, &options)?)
    });
    Ok(Some(results.into_iter().collect::<Result<_, _>>()?))
}

const W2: &str = "w2_mooncake_long_context.jsonl.gz";
const W3: &str = "w3_philly_native_one_or_eight.jsonl.gz";
const W4: &str = "w4_servegen_small_large.jsonl.gz";

pub(super) fn traces(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let one = |x: f64| Estimate::of(&[x]);
    for (name, w, small_most, large_most) in [(W2, 10, 4.8, 4.6), (W3, 8, 7.2, 32.0), (W4, 8, 2.4, 24.5)] {
        let ours = [format!("balance:order=arrival:w={w}"), format!("balance:w={w}:order_large=on-time")];
        let Some(results) = over_trace(&mut report, name, &ours, None, Some(STEP), 1)? else { continue };
        let classical: Vec<String> = CLASSICAL.map(str::to_owned).to_vec();
        let Some(theirs) = over_trace(&mut report, name, &classical, None, None, 1)? else { continue };
        let name = &name[..2];
        let mean = |r: &RunResult| [r.small.response_ms.mean * 1e-3, r.large.response_ms.mean * 1e-3];
        let [small, large] = mean(&results[0]);
        report.hold(format!("{name}: {}, small mean, s", ours[0]), one(small), Want::AtMost(small_most));
        report.hold(format!("{name}: {}, large mean, s", ours[0]), one(large), Want::AtMost(large_most));
        let met = |r: &RunResult| [r.small.slo_met.unwrap_or(1.0), r.large.slo_met.unwrap_or(1.0)];
        for (class, at) in [("small", 0), ("large", 1)] {
            // One that is in time with a class because it never serves the other is none to be measured by: `small-first`, on w2.
            let stable = theirs.iter().filter(|r| r.stability.is_stable());
            let best = stable.map(|r| met(r)[at]).fold(0.0, f64::max);
            let what =
                format!("{name}: {}, {class} on time, beside the best classical policy's under which no queue grows", ours[1]);
            report.hold(what, one(met(&results[1])[at]), Want::AtLeast(best));
        }
        for (policy, result) in ours.iter().chain(&classical).zip(results.iter().chain(&theirs)) {
            let ([small, large], [on_time_small, on_time_large]) = (mean(result), met(result));
            report.note(format!(
                "{name} {policy}{}: mean {small:.2} s small, {large:.2} s large; on time {on_time_small:.3}, {on_time_large:.3}; idle while \
                 work waits {:.2} %",
                if result.stability.is_stable() { "" } else { " (unstable)" },
                100.0 * result.idle_while_waiting_fraction
            ));
        }
    }
    Ok(report)
}

fn all_cells() -> impl Iterator<Item = (f64, f64)> {
    LOADS.into_iter().flat_map(|load| SHARES.map(|share| (load, share)))
}

pub(super) fn swap(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let (requests, seeds) = if quick { (100_000, 4) } else { (2_000_000, 8) };
    let cells: Vec<_> = all_cells().collect();
    for (weight, most) in [(8.0, 1.0), (1.0, 1.2)] {
        let exact = across_seeds(&cells, |&(load, share)| {
            let model = Model::new(8, load, share, 0.05, 0.4, weight).map_err(SolveError::from)?;
            let solution = solve_preemptive(&model, &Settings::default())?;
            if !solution.converged {
                return Err(CheckError::NotConverged { load, share, weight, span_bound: solution.span_bound });
            }
            Ok(solution.cost)
        });
        let (mut ratios, mut idle) = (Vec::new(), Idle::default());
        for (&(load, share), exact) in cells.iter().zip(exact) {
            let exact = exact?;
            let workload = format!("mix:load={load},share={share},error=0.3,step_small=20ms,step_large=20ms");
            let results = runs_of(&format!("swap:w={weight}"), &workload, requests, seeds, 1.0, costs)?;
            let ratio = ratio(&weighted(&results, weight), &vec![exact; results.len()]);
            report.note(format!(
                "load {load} share {share}: W_{weight} {:.2}, {:.3} ± {:.3} of the optimum with free preemption; stops {:.2} a small, \
                 {:.2} a large",
                ratio.mean * exact,
                ratio.mean,
                ratio.half_width,
                estimate(&results, |r| r.small.stops).mean,
                estimate(&results, |r| r.large.stops).mean,
            ));
            ratios.push(ratio);
            idle.add(&results);
        }
        let what = format!("geometric mean of W_{weight} over the optimum with free preemption");
        report.hold(what, geometric_mean(&ratios), Want::AtMost(most));
        if weight > 1.0 {
            idle.hold(&mut report, 3.0);
        }
    }
    Ok(report)
}

pub(super) fn means(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let (requests, seeds) = if quick { (100_000, 4) } else { (2_000_000, 8) };
    for service in ["exp", "lognormal"] {
        let mut ratios = Vec::new();
        for (load, share) in all_cells() {
            let workload = format!("mix:load={load},share={share},service={service}");
            let swap =
                runs_of("swap:parked=1", &format!("{workload},step_small=20ms,step_large=20ms"), requests, seeds, 1.0, costs)?;
            let balance = runs("balance", &workload, requests, seeds)?;
            let ratio = ratio(&weighted(&swap, 8.0), &weighted(&balance, 8.0));
            report.note(format!("{service}, load {load} share {share}: W_8 over that of balance {:.3}", ratio.mean));
            ratios.push(ratio);
        }
        report.hold(
            format!("{service}: geometric mean of W_8 over that of balance"),
            geometric_mean(&ratios),
            Want::AtMost(0.70),
        );
    }
    Ok(report)
}

pub(super) fn on_time(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let (requests, seeds) = if quick { (100_000, 4) } else { (2_000_000, 8) };
    let mut of_cells: [Vec<Estimate>; 5] = Default::default();
    let mut idle = Idle::default();
    for (load, share) in all_cells() {
        let workload = format!("mix:load={load},share={share},service=lognormal,error=0.3,step_small=20ms,step_large=20ms");
        let results = runs_of("swap", &workload, requests, seeds, 1.0, costs)?;
        let figures: [&dyn Fn(&RunResult) -> f64; 5] = [
            &|r| r.small.slo_met.unwrap_or_default(),
            &|r| r.large.slo_met.unwrap_or_default(),
            &|r| r.small.stops,
            &|r| r.large.stops,
            &|r| r.weighted_number(8.0),
        ];
        let figures = figures.map(|of| estimate(&results, of));
        idle.add(&results);
        let [small, large, small_stops, large_stops, w8] = figures.map(|figure| figure.mean);
        report.note(format!(
            "load {load} share {share}: on time {small:.3}, {large:.3}; stops {small_stops:.2}, {large_stops:.2}; W_8 {w8:.1}"
        ));
        figures.into_iter().zip(&mut of_cells).for_each(|(figure, of)| of.push(figure));
    }
    let [small, large, small_stops, large_stops, w8] = &of_cells;
    report.hold("smalls on time, mean of the cells", mean_of_cells(small), Want::AtLeast(0.93));
    report.hold("larges on time, mean of the cells", mean_of_cells(large), Want::AtLeast(0.91));
    report.hold("stops a small", mean_of_cells(small_stops), Want::AtMost(0.3));
    report.hold("stops a large", mean_of_cells(large_stops), Want::Near(3.0, 1.0));
    idle.hold(&mut report, 3.0);
    report.note(format!("W_8, geometric mean {:.2}", geometric_mean(w8).mean));
    Ok(report)
}

pub(super) fn swap_traces(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let policies = ["swap".to_owned()];
    let seeds = if quick { 1 } else { 5 };
    for (name, w8_most, small_least, large_least) in
        [(W2, f64::INFINITY, 0.99, 0.99), (W3, 38.0, 0.80, 0.68), (W4, 25.0, 0.97, 0.60)]
    {
        let mut results = Vec::new();
        for seed in 1..=seeds {
            let Some(result) = over_trace(&mut report, name, &policies, Some(0.3), Some(STEP), seed)? else { break };
            results.extend(result);
        }
        if results.is_empty() {
            continue;
        }
        let name = &name[..2];
        if w8_most.is_finite() {
            report.hold(format!("{name}: W_8"), estimate(&results, |r| r.weighted_number(8.0)), Want::AtMost(w8_most));
        }
        let met = |slo_met: Option<f64>| slo_met.unwrap_or(1.0);
        report.hold(format!("{name}: smalls on time"), estimate(&results, |r| met(r.small.slo_met)), Want::AtLeast(small_least));
        report.hold(format!("{name}: larges on time"), estimate(&results, |r| met(r.large.slo_met)), Want::AtLeast(large_least));
        report.note(format!(
            "{name}: W_8 {:.1}; mean response {:.2} s small, {:.2} s large; stops {:.2} a small, {:.2} a large; idle while work waits {:.2} %",
            estimate(&results, |r| r.weighted_number(8.0)).mean,
            estimate(&results, |r| r.small.response_ms.mean * 1e-3).mean,
            estimate(&results, |r| r.large.response_ms.mean * 1e-3).mean,
            estimate(&results, |r| r.small.stops).mean,
            estimate(&results, |r| r.large.stops).mean,
            estimate(&results, |r| 100.0 * r.idle_while_waiting_fraction).mean,
        ));
    }
    Ok(report)
}

pub(super) fn swap_overload(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    for (large_load, on_time_least) in [(0.2, 95.0), (0.5, 91.0)] {
        let results = overload_runs("swap", ",step_small=20ms,step_large=20ms", large_load, quick)?;
        let at = format!("large load {large_load}");
        let throughput = estimate(&results, |r| 100.0 * r.small.throughput_per_s / ideal(r));
        let on_time = estimate(&results, |r| 100.0 * r.small.on_time_per_s / ideal(r));
        let large = estimate(&results, |r| r.large.slo_met.unwrap_or_default());
        report.hold(format!("{at}: small throughput, % of ideal"), throughput, Want::AtLeast(97.5));
        report.hold(format!("{at}: smalls on time, % of ideal"), on_time, Want::AtLeast(on_time_least));
        report.hold(format!("{at}: larges on time"), large, Want::AtLeast(0.985));
        report.note(format!("{at}: large mean response {:.2} s", estimate(&results, |r| r.large.response_ms.mean * 1e-3).mean));
    }
    Ok(report)
}
