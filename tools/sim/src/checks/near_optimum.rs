//! `balance` beside the exact optimum of the Markov model: cells of load and share of large work, small mean 50 ms, large 400 ms.

use super::{CheckError, Report, Want, runs, runs_of};
use crate::engine::{Estimate, RunResult};

/// Load, share of large work, and the least W_1 and W_8 that any rule without preemption reaches, from an independent solver.
const EXACT: [(f64, f64, f64, f64); 7] = [
    (0.5, 0.5, 7.59, 11.83),
    (0.8, 0.3, 26.24, 37.61),
    (0.8, 0.5, 24.62, 44.79),
    (0.8, 0.9, 11.35, 43.44),
    (0.9, 0.3, 43.2, 73.2),
    (0.9, 0.5, 42.7, 93.7),
    (0.9, 0.9, 24.7, 99.0),
];

fn workload(load: f64, share: f64, more: &str) -> String {
    format!("mix:load={load},share={share}{more}")
}

/// The ratio of two runs a seed, as an estimate of the ratio of their means (jackknife: the plain mean of ratios is biased by noise).
fn ratio(above: &[f64], below: &[f64]) -> Estimate {
    let (a, b): (f64, f64) = (above.iter().sum(), below.iter().sum());
    let n = above.len() as f64;
    let pseudo: Vec<f64> = above.iter().zip(below).map(|(x, y)| n * (a / b) - (n - 1.0) * ((a - x) / (b - y))).collect();
    let mut estimate = Estimate::of(&pseudo);
    estimate.mean = a / b;
    estimate
}

fn weighted(results: &[RunResult], weight: f64) -> Vec<f64> {
    results.iter().map(|result| result.weighted_number(weight)).collect()
}

/// A mean of logarithms, back as a ratio, with the joint error of its parts.
fn geometric_mean(ratios: &[Estimate]) -> Estimate {
    let n = ratios.len() as f64;
    let mean = (ratios.iter().map(|r| r.mean.ln()).sum::<f64>() / n).exp();
    let error = |of: fn(&Estimate) -> f64| mean * ratios.iter().map(|r| (of(r) / r.mean).powi(2)).sum::<f64>().sqrt() / n;
    Estimate { mean, half_width: error(|r| r.half_width), standard_error: error(|r| r.standard_error), samples: ratios.len() }
}

fn over(results: &[RunResult], weight: f64, exact: f64) -> Estimate {
    Estimate::of(&weighted(results, weight).iter().map(|cost| cost / exact).collect::<Vec<_>>())
}

pub(super) fn check(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let (requests, seeds) = if quick { (200_000, 4) } else { (10_000_000, 16) };
    for (index, weight) in [1.0, 8.0].into_iter().enumerate() {
        let mut ratios = Vec::new();
        for (load, share, w1, w8) in EXACT {
            let results = runs(&format!("balance:w={weight}"), &workload(load, share, ""), requests, seeds)?;
            let ratio = over(&results, weight, [w1, w8][index]);
            report.hold(format!("load {load} share {share}: W_{weight} over the exact optimum's"), ratio, Want::AtMost(1.03));
            ratios.push(ratio);
        }
        let mean = geometric_mean(&ratios);
        report.note(format!("geometric mean of the W_{weight} ratios: {:.4} ± {:.4}", mean.mean, mean.half_width));
    }
    Ok(report)
}

pub(super) fn perfect(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let (requests, seeds) = if quick { (200_000, 4) } else { (4_000_000, 8) };
    let mut ratios = Vec::new();
    for (load, share, _, w8) in EXACT {
        let ratio = over(&runs("balance", &workload(load, share, ",error=0"), requests, seeds)?, 8.0, w8);
        report
            .note(format!("load {load} share {share}: W_8 over the exact optimum's {:.4} ± {:.4}", ratio.mean, ratio.half_width));
        ratios.push(ratio);
    }
    report.hold("geometric mean of W_8 over the exact optimum's", geometric_mean(&ratios), Want::AtMost(0.97));
    Ok(report)
}

/// The factors on every prediction.
const FACTORS: [f64; 4] = [0.25, 0.5, 2.0, 4.0];

pub(super) fn factor(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    let (requests, seeds) = if quick { (200_000, 4) } else { (2_000_000, 8) };
    for (load, share) in [(0.7, 0.3), (0.8, 0.5), (0.9, 0.3)] {
        for (service, error) in [("exp", 0.0), ("lognormal", 0.3)] {
            let text = workload(load, share, &format!(",service={service},error={error}"));
            for policy in ["balance", "easy"] {
                let plain = weighted(&runs(policy, &text, requests, seeds)?, 8.0);
                for factor in FACTORS {
                    let results = runs_of(policy, &text, requests, seeds, factor, |_| {})?;
                    let what =
                        format!("{policy} at load {load}, share {share}, {service}, error {error}, predictions x {factor}");
                    if policy == "easy" {
                        let unstable = results.iter().filter(|result| !result.stability.is_stable()).count() as f64;
                        report.hold(format!("{what}: unstable runs"), Estimate::of(&[unstable]), Want::AtMost(0.0));
                    }
                    let moved = ratio(&weighted(&results, 8.0), &plain);
                    if policy == "balance" {
                        report.hold(format!("{what}: W_8 over that of x 1"), moved, Want::Near(1.0, 0.02));
                    } else {
                        report.note(format!("{what}: W_8 over that of x 1 {:.4}", moved.mean));
                    }
                }
            }
        }
    }
    Ok(report)
}
