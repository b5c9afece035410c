//! Quick checks against closed forms and plain value iteration; and, ignored, the published values.
//!
//! `cargo test --release -p phalanx-sim optimum -- --ignored --nocapture` prints every value beside the exact one, and PASS or FAIL.

use super::*;

fn model(load: f64, share: f64, weight: f64) -> Model {
    Model::new(8, load, share, 0.05, 0.4, weight).unwrap()
}

/// Two lanes, and short queues: small enough for the dev profile.
fn little(weight: f64) -> Model {
    Model::new(2, 0.5, 0.4, 0.05, 0.1, weight).unwrap()
}

fn near(found: f64, wanted: f64, relative: f64) {
    assert!((found / wanted - 1.0).abs() <= relative, "{found} is not within {relative} of {wanted}");
}

/// Relative value iteration as in the textbook, on a box so long that its free edge is never felt, from one state in reach of it.
fn textbook(model: &Model, smalls: usize, larges: usize) -> f64 {
    let (k, w) = (model.lanes, model.weight);
    let total = model.lambda_small + model.lambda_large + k as f64 * model.mu_small + model.mu_large;
    let at = |i: usize, j: usize, s: usize| (i * (larges + 1) + j) * (k + 2) + s;
    let n = (smalls + 1) * (larges + 1) * (k + 2);
    let mut h = vec![0.0f64; n];
    let mut gain = 0.0;
    for _ in 0..20_000 {
        let mut decided = h.clone();
        for i in 0..=smalls {
            for j in 0..=larges {
                for r in 0..k {
                    if i > 0 {
                        decided[at(i, j, r)] = decided[at(i, j, r)].min(decided[at(i - 1, j, r + 1)]);
                    }
                    if r == 0 && j > 0 {
                        decided[at(i, j, r)] = decided[at(i, j, r)].min(h[at(i, j - 1, k + 1)]);
                    }
                }
            }
        }
        let mut next = vec![0.0; n];
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for i in 0..=smalls {
            for j in 0..=larges {
                for s in 0..k + 2 {
                    let running_large = s == k + 1;
                    let run = if running_large { 0 } else { s };
                    let cost = (i + run) as f64 + w * (j + usize::from(running_large)) as f64;
                    let own = h[at(i, j, s)];
                    let (ni, nj) = ((i + 1).min(smalls), (j + 1).min(larges));
                    // A penalty far above any real marginal cost.
                    let edge = if ni == i || nj == j { 1e3 } else { 0.0 };
                    let ended = if running_large {
                        model.mu_large * (decided[at(i, j, 0)] - own)
                    } else if s > 0 {
                        s as f64 * model.mu_small * (decided[at(i, j, s - 1)] - own)
                    } else {
                        0.0
                    };
                    let drift = model.lambda_small * (decided[at(ni, j, s)] - own)
                        + model.lambda_large * (decided[at(i, nj, s)] - own)
                        + ended;
                    next[at(i, j, s)] = own + (cost + edge + drift) / total;
                    low = low.min(cost + edge + drift);
                    high = high.max(cost + edge + drift);
                }
            }
        }
        gain = 0.5 * (low + high);
        let offset = next[0];
        h = next.iter().map(|v| v - offset).collect();
        if high - low < 1e-5 * gain {
            break;
        }
    }
    gain
}

#[test]
fn it_agrees_with_textbook_value_iteration() {
    for weight in [1.0, 3.0] {
        let model = little(weight);
        let (solution, _) = solve(&model, &Settings::default()).unwrap();
        assert!(solution.converged, "{solution:?}");
        near(solution.cost, textbook(&model, 40, 24), 1e-3);
    }
}

#[test]
fn one_class_alone_has_its_closed_form() {
    let settings = Settings { tolerance: 1e-6, truncation_tolerance: 1e-4, ..Settings::default() };
    // Larges alone: M/M/1 with weight 3.
    let (solution, table) = solve(&Model::new(8, 0.7, 1.0, 0.05, 0.4, 3.0).unwrap(), &settings).unwrap();
    assert!(solution.converged);
    near(solution.cost, 3.0 * 0.7 / 0.3, 1e-3);
    assert_eq!(table.decide(0, 1, 0, false), Choice::StartLarge);
    assert_eq!(table.decide(3, 1000, 0, false), Choice::StartLarge);
    assert_eq!(table.decide(3, 0, 0, false), Choice::StartSmall, "no small arrives in the model, but one is there");
    // Smalls alone: M/M/8, mean number a + C(8, a) rho / (1 - rho).
    let (solution, table) = solve(&Model::new(8, 0.7, 0.0, 0.05, 0.4, 3.0).unwrap(), &settings).unwrap();
    let (a, rho) = (5.6f64, 0.7);
    let term = |n: u32| a.powi(n as i32) / (1..=n).map(f64::from).product::<f64>();
    let waits = term(8) / (1.0 - rho);
    let erlang = waits / ((0..8).map(term).sum::<f64>() + waits);
    near(solution.cost, a + erlang * rho / (1.0 - rho), 1e-3);
    assert_eq!(table.decide(1, 0, 7, false), Choice::StartSmall);
    assert_eq!(table.decide(0, 1, 0, false), Choice::StartLarge);
}

#[test]
fn the_table_costs_what_the_solution_says_and_no_rule_costs_less() {
    let model = little(2.0);
    let settings = Settings { truncation_tolerance: 1e-4, ..Settings::default() };
    let (solution, table) = solve(&model, &settings).unwrap();
    let cost = |rule: RuleCost| {
        assert!(rule.converged, "{rule:?}");
        rule.cost
    };
    near(cost(evaluate(&model, &table, &settings).unwrap()), solution.cost, 1e-3);
    let root = cost(evaluate(&model, &SquareRoot::new(&model, &SquareRootShape::default()), &settings).unwrap());
    let swap = cost(evaluate(&model, &Quickswap { lanes: 2, limit: 1 }, &settings).unwrap());
    assert!(solution.lower <= root * 1.0002 && solution.lower <= swap * 1.0002, "{} {root} {swap}", solution.lower);
    let preemptive = solve_preemptive(&model, &settings).unwrap();
    assert!(preemptive.converged && preemptive.cost < solution.cost);
}

#[test]
fn what_did_not_converge_says_so() {
    let short = Settings { max_steps: 1, ..Settings::default() };
    assert!(!solve(&little(1.0), &short).unwrap().0.converged);
    let rule = SquareRoot::new(&little(1.0), &SquareRootShape::default());
    assert!(!evaluate(&little(1.0), &rule, &short).unwrap().converged);
    let tight = Settings { truncation: Some(Truncation { smalls: 6, larges: 3 }), ..Settings::default() };
    assert!(!solve(&little(1.0), &tight).unwrap().0.converged, "a box of 6 by 3 is too short");
    let few = Settings { max_states: 100, ..Settings::default() };
    assert!(matches!(solve(&little(1.0), &few), Err(SolveError::TooManyStates { .. })));
    let unstable = Model { lambda_large: 100.0, ..little(1.0) };
    assert!(matches!(solve(&unstable, &short), Err(SolveError::Model(ModelError::Unstable { .. }))));
}

/// At w = k ml / ms (64 here) a small and a large count as their mean work does, so that W_w is the mean work in the system in units of
/// ms / k. No policy has less work in the system than one that never wastes a lane, whose mean is Pollaczek and Khinchine's:
/// lambda E[S^2] / (2 (1 - rho)). And W_w is concave in w, being a least value of linear functions.
#[test]
#[ignore = "minutes in release"]
fn preemptive_values_at_the_weight_of_the_work() {
    let mut pass = true;
    for load in [0.5, 0.8, 0.9] {
        for share in [0.1, 0.3, 0.5, 0.9] {
            let cost = |weight: f64| {
                let s = solve_preemptive(&model(load, share, weight), &Settings::default()).unwrap();
                assert!(s.converged, "{s:?}");
                s.cost
            };
            let (w1, w8, w64) = (cost(1.0), cost(8.0), cost(64.0));
            let m = model(load, share, 64.0);
            let small = 1.0 / (8.0 * m.mu_small);
            let variance = 2.0 * (m.lambda_small * small * small + m.lambda_large / (m.mu_large * m.mu_large));
            let least = variance / (2.0 * (1.0 - m.load())) / small;
            let most = w8 + 56.0 * (w8 - w1) / 7.0;
            let ok = least <= w64 * 1.001 && w64 <= most * 1.001;
            println!(
                "preemptive, load {load} share {share} w 64: {w64:.3}, between {least:.3} (work) and {most:.3} (concave): {}",
                if ok { "PASS" } else { "FAIL" }
            );
            pass &= ok;
        }
    }
    assert!(pass);
}

#[test]
#[ignore = "a minute in release"]
fn doubling_the_truncation_changes_nothing() {
    for weight in [1.0, 8.0] {
        let model = model(0.8, 0.5, weight);
        let (found, _) = solve(&model, &Settings::default()).unwrap();
        let Truncation { smalls, larges } = found.truncation;
        let double = Truncation { smalls: 2 * smalls, larges: 2 * larges };
        let (twice, _) = solve(&model, &Settings { truncation: Some(double), ..Settings::default() }).unwrap();
        println!("w {weight}: {} at {:?}, {} at {:?}", found.cost, found.truncation, twice.cost, twice.truncation);
        near(found.cost, twice.cost, 1e-3);
    }
}

/// Ratios of the square-root rule to the optimum in 16 cells.
#[test]
#[ignore = "minutes in release"]
fn the_square_root_rule_is_near_the_optimum() {
    for weight in [1.0, 8.0] {
        let (mut worst, mut log) = (0.0f64, 0.0);
        for load in [0.5, 0.7, 0.8, 0.9] {
            for share in [0.1, 0.3, 0.5, 0.9] {
                let model = model(load, share, weight);
                let (best, _) = solve(&model, &Settings::default()).unwrap();
                let rule = SquareRoot::settled(&model, &SquareRootShape::default());
                let cost = evaluate(&model, &rule, &Settings::default()).unwrap();
                assert!(best.converged && cost.converged, "{best:?} {cost:?}");
                let ratio = cost.cost / best.cost;
                println!(
                    "w {weight} load {load} share {share}: optimum {:.4}, rule {:.4} with D = {:.1} ms, ratio {ratio:.4}",
                    best.cost,
                    cost.cost,
                    1000.0 * rule.drain_s()
                );
                worst = worst.max(ratio);
                log += ratio.ln() / 16.0;
            }
        }
        println!("w {weight}: geometric mean {:.4}, worst {worst:.4}", log.exp());
        assert!(worst < 1.03);
    }
}
