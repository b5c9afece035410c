//! Many seeds on the cores there are, and how sure their mean is.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// A mean over seeds, with the half-width of its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The true mean is within so much of it, with 95 % confidence (Student's t); infinite for a single sample.
    pub half_width: f64,
    /// Standard error of the mean; infinite for a single sample.
    pub standard_error: f64,
    /// How many samples there are.
    pub samples: usize,
}

impl Estimate {
    /// Of independent samples, one a seed.
    #[must_use]
    pub fn of(samples: &[f64]) -> Self {
        let n = samples.len();
        let mean = samples.iter().sum::<f64>() / n as f64;
        let squares: f64 = samples.iter().map(|x| (x - mean) * (x - mean)).sum();
        let standard_error = if n > 1 { (squares / (n - 1) as f64 / n as f64).sqrt() } else { f64::INFINITY };
        let half_width = if n > 1 { student_t(n - 1) * standard_error } else { f64::INFINITY };
        Self { mean, half_width, standard_error, samples: n }
    }

    /// The interval's lower end.
    #[must_use]
    pub fn low(&self) -> f64 {
        self.mean - self.half_width
    }

    /// The interval's upper end.
    #[must_use]
    pub fn high(&self) -> f64 {
        self.mean + self.half_width
    }
}

/// The factor of a two-sided 95 % interval with so many degrees of freedom (tables; from 31 on by the expansion of Cornish and Fisher
/// to 1/n^2, whose error is below 1e-3).
#[must_use]
pub fn student_t(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
        2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    let z = 1.959_964_f64;
    match degrees {
        0 => f64::INFINITY,
        1..=30 => TABLE[degrees - 1],
        _ => {
            let n = degrees as f64;
            z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
        }
    }
}

/// Does `run` for every input, on as many threads as there are cores, and returns what it gives in the order of the inputs: the same
/// on any number of cores.
///
/// # Panics
/// If `run` does.
pub fn across_seeds<I: Sync, T: Send>(inputs: &[I], run: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get).min(inputs.len());
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<T>>> = Mutex::new(inputs.iter().map(|_| None).collect());
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(input) = inputs.get(i) else { return };
            let result = run(input);
            results.lock().unwrap_or_else(PoisonError::into_inner)[i] = Some(result);
        }
    };
    thread::scope(|scope| {
        // The present thread is one of them.
        for _ in 1..cores {
            scope.spawn(work);
        }
        work();
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().map(|result| result.expect("every input was done")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_inputs() {
        let inputs: Vec<u64> = (0..100).collect();
        assert_eq!(across_seeds(&inputs, |&x| x * x), inputs.iter().map(|x| x * x).collect::<Vec<_>>());
        assert!(across_seeds(&[] as &[u64], |&x| x).is_empty());
    }

    #[test]
    fn intervals_are_students() {
        let e = Estimate::of(&[1.0, 2.0, 3.0, 4.0]);
        assert!((e.mean - 2.5).abs() < 1e-12);
        assert!((e.half_width - 3.182 * (5.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-9);
        assert_eq!(Estimate::of(&[1.0]).half_width, f64::INFINITY);
        assert!((student_t(31) - 2.0395).abs() < 2e-3 && (student_t(1_000) - 1.9623).abs() < 1e-3);
    }
}
