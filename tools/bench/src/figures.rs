//! Distributions of nanoseconds.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Samples in nanoseconds, pooled over the rounds.
#[derive(Clone, Debug)]
pub struct Samples {
    histogram: Histogram<u64>,
    max: u64,
}

/// A distribution in nanoseconds; to three significant digits, the largest exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Figures {
    /// The median.
    pub p50: u64,
    /// 9 of 10 are at or below it.
    pub p90: u64,
    /// 99 of 100 are.
    pub p99: u64,
    /// 999 of 1,000 are.
    pub p999: u64,
    /// 9,999 of 10,000 are.
    pub p9999: u64,
    /// The largest.
    pub max: u64,
    /// How many there are.
    pub n: u64,
}

impl Samples {
    pub(crate) fn new() -> Self {
        Self { histogram: Histogram::new(3).expect("three digits are allowed"), max: 0 }
    }

    #[inline]
    pub(crate) fn add(&mut self, ns: u64) {
        // It grows as far as half of the range, so that recording does not fail.
        let _ = self.histogram.record(ns.min(i64::MAX as u64));
        self.max = self.max.max(ns);
    }

    /// The mean, as exactly as the histogram knows it; 0 without samples.
    pub(crate) fn mean(&self) -> f64 {
        self.histogram.mean()
    }

    /// The whole distribution, to be drawn: for each step the share of samples that are above it, and its nanoseconds. The last share is
    /// that of one sample.
    #[must_use]
    pub fn curve(&self) -> Vec<(f64, u64)> {
        let all = self.histogram.len();
        if all == 0 {
            return Vec::new();
        }
        // Twelve points for each nine.
        let nines = (all as f64).log10();
        let steps = (nines * 12.0) as u32;
        let above = (0..=steps).map(|step| 10_f64.powf(-f64::from(step) / 12.0)).chain([1.0 / all as f64]);
        above.map(|above| (above, self.histogram.value_at_quantile(1.0 - above).min(self.max))).collect()
    }

    /// The distribution, if there is one.
    #[must_use]
    pub fn figures(&self) -> Option<Figures> {
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max);
        (!self.histogram.is_empty()).then(|| Figures {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: self.max,
            n: self.histogram.len(),
        })
    }
}
