//! The table at the end: a row a policy.

use phalanx::Class;
use phalanx::scheduler::PredictionSource;
use phalanx_sim::engine::{Estimate, PredictionResult};
use phalanx_sim::record::{PolicyEstimate, ResultDocument, RunResult};

use crate::input::Input;
use crate::sim::count;
use crate::table::{aligned, percent, time};

pub(super) fn table(document: &ResultDocument, input: &Input, command: &str) -> String {
    let seeds = (document.runs.len() / document.estimates.len().max(1)).max(1);
    let rejects = document.runs.iter().any(|run| Class::ALL.into_iter().any(|class| run.classes.of(class).rejected > 0));
    let expires = document.runs.iter().any(|run| Class::ALL.into_iter().any(|class| run.classes.of(class).expired > 0));
    let spread = if seeds > 1 { "± 95 %" } else { "" };
    let mut above: Vec<&str> = vec!["", "small", "", "", "large", "", "", "SLO met", ""];
    let mut head: Vec<&str> = vec!["policy", "mean", spread, "p99", "mean", spread, "p99", "small", "large"];
    for (there, name) in [(rejects, "rejected"), (expires, "expired")] {
        if there {
            above.extend([name, ""]);
            head.extend(["small", "large"]);
        }
    }
    above.extend(["GPU time", "idle for", "goodput"]);
    head.extend(["used", "a drain", "a second"]);
    let words = |row: Vec<&str>| row.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let mut rows = vec![words(above), words(head)];
    let each: Vec<(&PolicyEstimate, &[RunResult])> = document.estimates.iter().zip(document.runs.chunks(seeds)).collect();
    for &(estimate, runs) in &each {
        let mut row = vec![estimate.policy.clone()];
        for class in Class::ALL {
            let of = estimate.classes.of(class);
            match (&of.response_ms_mean, &of.response_ms_p99) {
                (Some(mean), Some(p99)) => {
                    row.extend([time(mean.mean * 1e6), half_width(mean), time(p99.mean * 1e6)]);
                }
                _ if estimate.unstable > 0 => row.extend(["unstable".to_owned(), String::new(), "-".to_owned()]),
                _ => row.extend(["-".to_owned(), String::new(), "-".to_owned()]),
            }
        }
        let share = |of: &Option<Estimate>| of.as_ref().map_or_else(|| "-".to_owned(), |of| percent(of.mean));
        row.extend(Class::ALL.map(|class| share(&estimate.classes.of(class).slo_met)));
        let mean = |of: &dyn Fn(&RunResult) -> u64| {
            let sum: u64 = runs.iter().map(of).sum();
            format!("{:.0}", sum as f64 / runs.len() as f64)
        };
        if rejects {
            row.extend(Class::ALL.map(|class| mean(&|run| run.classes.of(class).rejected)));
        }
        if expires {
            row.extend(Class::ALL.map(|class| mean(&|run| run.classes.of(class).expired)));
        }
        row.push(percent(estimate.utilization.mean));
        row.push(percent(estimate.drain_idle_fraction.mean));
        row.push(format!("{:.2}", estimate.goodput_per_s.mean));
        rows.push(row);
    }
    let mut out = aligned(&rows);
    for (estimate, of) in each.into_iter().filter(|(estimate, _)| estimate.unstable > 0) {
        let simulated = || of.iter().filter_map(|run| run.simulated.as_ref());
        let growing: Vec<String> = Class::ALL
            .into_iter()
            .filter(|&class| simulated().any(|simulated| simulated.growing == Some(class)))
            .map(|class| class.to_string())
            .collect();
        let (policy, n, all) = (&estimate.policy, estimate.unstable, of.len());
        out.push_str(&format!(
            "unstable    {policy}: the queue of {} requests grows for ever in {n} of {all} runs: waits would only say how long one looked\n",
            growing.join(" and ")
        ));
    }
    let mut line = |name: &str, text: String| out.push_str(&format!("{name:<12}{text}\n"));
    if let Some(simulated) = document.runs.first().and_then(|run| run.simulated.as_ref())
        && !simulated.predictions.is_empty()
    {
        // Of a class mean the mean relative error says little: the shortest request of a class is off by any factor.
        let of = |p: &PredictionResult| {
            let error = match p.source {
                PredictionSource::Class => String::new(),
                _ => format!(" ± {:.0} %", 100.0 * p.relative_error),
            };
            format!("{} {} x {:.2}{error}", p.class, p.source.name(), p.bias)
        };
        let each: Vec<String> = simulated.predictions.iter().map(of).collect();
        let text = format!("{} (actual over predicted, mean error; {})", each.join(", "), document.runs[0].policy);
        line("predictions", text);
    }
    let load = input.load.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.3}"));
    let requests = document.runs.first().map_or(0, |run| run.classes.small.submitted + run.classes.large.submitted);
    line(
        "arrivals",
        format!(
            "{}; load {load}; {} lanes; {requests} requests counted a run; {}",
            input.workload,
            input.lanes,
            count(seeds, "seed", "seeds")
        ),
    );
    line("times", "response: from arrival to end, in virtual time".to_owned());
    line("again", command.to_owned());
    out
}

fn half_width(of: &Estimate) -> String {
    if of.half_width.is_finite() && of.mean > 0.0 { format!("{:.1} %", 100.0 * of.half_width / of.mean) } else { String::new() }
}
