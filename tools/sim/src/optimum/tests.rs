use super::*;
use std::time::Instant;

fn model(load: f64, share: f64, weight: f64) -> Model {
    Model::new(8, load, share, 0.05, 0.4, weight).unwrap()
}

#[test]
#[ignore = "minutes"]
fn exact_values() {
    let exact = [
        (0.5, 0.5, 7.59, 11.83),
        (0.8, 0.3, 26.24, 37.61),
        (0.8, 0.5, 24.62, 44.79),
        (0.8, 0.9, 11.35, 43.44),
        (0.9, 0.3, 43.2, 73.2),
        (0.9, 0.5, 42.7, 93.7),
        (0.9, 0.9, 24.7, 99.0),
    ];
    for (load, share, w1, w8) in exact {
        for (weight, value) in [(1.0, w1), (8.0, w8)] {
            let start = Instant::now();
            let (s, t) = solve(&model(load, share, weight), &Settings::default()).unwrap();
            println!(
                "load {load} share {share} w {weight}: {:.3} exact {value} error {:+.2} % span {:.1e} change {:.1e} {} {:?} states {} improvements {} steps {} table {} B {:?}",
                s.cost,
                100.0 * (s.cost / value - 1.0),
                s.span_bound,
                s.truncation_change,
                s.converged,
                s.truncation,
                s.states,
                s.improvements,
                s.steps,
                t.bytes(),
                start.elapsed()
            );
        }
    }
}
