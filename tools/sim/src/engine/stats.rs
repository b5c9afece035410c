//! What a run measures.

use hdrhistogram::Histogram;
use phalanx::Class;
use phalanx::scheduler::{Limits, PredictionError, PredictionSource};
use serde::Serialize;

/// Mean and percentiles, in milliseconds. The mean and the greatest are exact, the others to three significant digits.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Percentiles {
    /// The mean; 0 if there was none.
    pub mean: f64,
    /// Half are at most this.
    pub p50: f64,
    /// 90 % are.
    pub p90: f64,
    /// 99 % are.
    pub p99: f64,
    /// 99.9 % are.
    pub p999: f64,
    /// The greatest.
    pub max: f64,
}

/// Times, recorded one by one.
#[derive(Debug)]
pub(super) struct Recorder {
    histogram: Histogram<u32>,
    sum_ns: u128,
    count: u64,
    max_ns: u64,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self {
            histogram: Histogram::new(3).expect("three digits are within what the histogram takes"),
            sum_ns: 0,
            count: 0,
            max_ns: 0,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, ns: u64) {
        // It grows as far as half of the range, which is 292 years: what is longer counts as that. (`saturating_record` would stop where it is.)
        let _ = self.histogram.record(ns.min(i64::MAX as u64));
        self.sum_ns += u128::from(ns);
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max_ns) as f64 * 1e-6;
        let mean = if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 * 1e-6 };
        let max = self.max_ns as f64 * 1e-6;
        Percentiles { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max }
    }
}

/// Whether the queues stood still in the long run: the definition is in the module's page.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stability {
    /// They did.
    Stable,
    /// They did not: the averages say how long one looked, not how long one waits.
    Unstable {
        /// The class whose queue grew.
        class: Class,
        /// How many of it were there at the last arrival.
        left: u64,
    },
}

impl Stability {
    /// Whether the run was stable.
    #[must_use]
    pub const fn is_stable(&self) -> bool {
        matches!(self, Self::Stable)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// One class of a run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ClassResult {
    /// Requests that arrived, those of the warm-up not counted; so everywhere below.
    pub submitted: u64,
    /// Those that ran to their end.
    pub completed: u64,
    /// Always 0: nothing fails in a simulation.
    pub failed: u64,
    /// Those whose deadline passed while they were queued.
    pub expired: u64,
    /// Always 0: nobody takes a request back.
    pub cancelled: u64,
    /// Those that found the queue full.
    pub rejected: u64,
    /// The share of those submitted that ended within their target, or within their deadline where they have no target; `None` if not
    /// one of them had either.
    pub slo_met: Option<f64>,
    /// From arrival to start, of those completed.
    pub wait_ms: Percentiles,
    /// From arrival to end, of those completed.
    pub response_ms: Percentiles,
    /// How many were in the system, queued or running, on the average of time.
    pub in_system: f64,
    /// Ends within the measured time, in a second, whenever they arrived.
    pub throughput_per_s: f64,
    /// Of those, and in a second, the ones in time, as [`slo_met`](Self::slo_met) says it; without a target or deadline, all.
    pub on_time_per_s: f64,
    /// The share of the node's capacity that went to the class.
    pub utilization: f64,
    /// How often one of those completed stopped at a step, on average.
    #[serde(skip_serializing_if = "is_zero")]
    pub stops: f64,
}

/// How one source predicted one class.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PredictionResult {
    /// Where the predictions came from.
    pub source: PredictionSource,
    /// Of which class.
    pub class: Class,
    /// Completed requests that it predicted.
    pub completed: u64,
    /// Actual over predicted time, of late; predictions are corrected by it.
    pub bias: f64,
    /// Mean of |actual − corrected prediction| ÷ actual, of late.
    pub relative_error: f64,
}

impl PredictionResult {
    pub(super) fn new(source: PredictionSource, class: Class, error: PredictionError) -> Self {
        Self { source, class, completed: error.completed, bias: error.bias, relative_error: error.relative_error }
    }
}

/// One run: the fields of `phalanx.result/1` that the simulator knows. Who calls it adds mode, workload, load and seed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunResult {
    /// The policy with its settings.
    pub policy: String,
    /// Lanes of the node.
    pub lanes: usize,
    /// The measured time, in seconds: from the end of the warm-up to the last arrival.
    pub span_s: f64,
    /// Whether the averages mean anything.
    pub stability: Stability,
    /// The share of GPU time in which a request ran.
    pub utilization: f64,
    /// The share of GPU time held idle for a waiting large request.
    pub drain_idle_fraction: f64,
    /// The share of GPU time that was idle while any request was queued; the former is a part of it.
    pub idle_while_waiting_fraction: f64,
    /// The share of GPU time that was idle while any request was queued or parked, where any stopped.
    #[serde(skip_serializing_if = "is_zero")]
    pub idle_while_waiting_or_parked_fraction: f64,
    /// The share of GPU time that stopping and resuming requests cost; a part of [`utilization`](Self::utilization).
    #[serde(skip_serializing_if = "is_zero")]
    pub stopping_fraction: f64,
    /// Requests that ended in time (see [`ClassResult::slo_met`]) within the measured time, in a second.
    pub goodput_per_s: f64,
    /// The small class.
    pub small: ClassResult,
    /// The large class.
    pub large: ClassResult,
    /// How good the predictions were, for each source and class that made any.
    pub predictions: Vec<PredictionResult>,
    /// Events that the scheduler took in, all of the run.
    pub events: u64,
    /// Requests that arrived, all of the run.
    pub requests: u64,
    /// How often the policy asked for something impossible. Above 0 it has a bug.
    pub policy_faults: u64,
}

impl RunResult {
    /// One of the classes.
    #[must_use]
    pub const fn class(&self, class: Class) -> &ClassResult {
        match class {
            Class::Small => &self.small,
            Class::Large => &self.large,
        }
    }

    /// W_w: smalls in the system, and w times the larges, on the average of time.
    #[must_use]
    pub fn weighted_number(&self, w: f64) -> f64 {
        self.small.in_system + w * self.large.in_system
    }
}

/// What is counted of one class while a run goes on.
#[derive(Debug)]
pub(super) struct ClassTally {
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) expired: u64,
    pub(super) rejected: u64,
    /// Those that had a target or a deadline.
    pub(super) with_due: u64,
    pub(super) met: u64,
    pub(super) wait: Recorder,
    pub(super) response: Recorder,
    /// Ends within the measured time.
    pub(super) ended_inside: u64,
    pub(super) met_inside: u64,
    /// Stops of those completed, and all within the measured time.
    pub(super) stops: u64,
    pub(super) stops_inside: u64,
    /// In the system now.
    pub(super) present: u64,
    /// Running now.
    pub(super) running: u64,
    /// Arrivals and refusals of the whole run.
    pub(super) offered: u64,
    pub(super) refused: u64,
}

impl ClassTally {
    pub(super) fn new() -> Self {
        Self {
            submitted: 0,
            completed: 0,
            expired: 0,
            rejected: 0,
            with_due: 0,
            met: 0,
            wait: Recorder::new(),
            response: Recorder::new(),
            ended_inside: 0,
            met_inside: 0,
            stops: 0,
            stops_inside: 0,
            present: 0,
            running: 0,
            offered: 0,
            refused: 0,
        }
    }

    pub(super) fn result(&self, areas: &ClassAreas, span_ns: u64, capacity_ns: f64) -> ClassResult {
        let span_s = span_ns as f64 * 1e-9;
        let over = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        ClassResult {
            submitted: self.submitted,
            completed: self.completed,
            failed: 0,
            expired: self.expired,
            cancelled: 0,
            rejected: self.rejected,
            slo_met: (self.with_due > 0).then(|| over(self.met as f64, self.submitted as f64)),
            wait_ms: self.wait.percentiles(),
            response_ms: self.response.percentiles(),
            in_system: over(areas.present as f64, span_ns as f64),
            throughput_per_s: over(self.ended_inside as f64, span_s),
            on_time_per_s: over(self.met_inside as f64, span_s),
            utilization: over(areas.busy as f64, capacity_ns),
            stops: over(self.stops as f64, self.completed as f64),
        }
    }
}

/// Integrals over time of one class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassAreas {
    /// Of its number in the system.
    pub(super) present: u128,
    /// Of the lanes it holds.
    pub(super) busy: u128,
}

/// The number in the system over time, at so few points that it does not grow with the run: once there are [`Trail::MOST`], every
/// second is dropped and the distance doubled.
#[derive(Debug)]
pub(super) struct Trail {
    /// Time, and the integral of each class's number in the system up to it.
    points: Vec<(u64, [u128; 2])>,
    every: u64,
    arrivals: u64,
}

impl Trail {
    const MOST: usize = 512;

    pub(super) fn new() -> Self {
        Self { points: Vec::with_capacity(Self::MOST), every: 1, arrivals: 0 }
    }

    #[inline]
    pub(super) fn arrival(&mut self, now: u64, areas: [u128; 2]) {
        self.arrivals += 1;
        if self.arrivals.is_multiple_of(self.every) {
            self.mark(now, areas);
        }
    }

    fn mark(&mut self, now: u64, areas: [u128; 2]) {
        if self.points.len() == Self::MOST {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.every *= 2;
        }
        self.points.push((now, areas));
    }

    /// The mean number of a class in the system between two parts of the run, from its first to its last arrival.
    fn mean(&self, class: Class, from: f64, to: f64) -> f64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return 0.0 };
        let at = |part: f64| {
            let time = first.0 + ((last.0 - first.0) as f64 * part) as u64;
            let i = self.points.partition_point(|(at, _)| *at < time).min(self.points.len() - 1);
            self.points[i]
        };
        let (from, to) = (at(from), at(to));
        let area = to.1[class.index()] - from.1[class.index()];
        if to.0 > from.0 { area as f64 / (to.0 - from.0) as f64 } else { 0.0 }
    }

    pub(super) fn stability(&self, tallies: &[ClassTally; 2], present: [u64; 2], queue: [usize; 2]) -> Stability {
        for class in Class::ALL {
            let (tally, left) = (&tallies[class.index()], present[class.index()]);
            let many = left >= 32 && left as f64 > 0.03 * tally.offered as f64;
            let grows = self.mean(class, 0.75, 1.0) > 1.4 * self.mean(class, 0.25, 0.5);
            let overflown = tally.refused > 0 && queue[class.index()] >= Limits::DEFAULT_QUEUE;
            if (many && grows) || overflown {
                return Stability::Unstable { class, left };
            }
        }
        Stability::Stable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_exact_and_percentiles_are_near() {
        let mut recorder = Recorder::new();
        assert_eq!(recorder.percentiles(), Percentiles::default());
        (1..=1_000_000_u64).for_each(|i| recorder.add(i * 1_000_000));
        let p = recorder.percentiles();
        assert_eq!((p.mean, p.max), (500_000.5, 1_000_000.0));
        for (got, want) in [(p.p50, 5e5), (p.p90, 9e5), (p.p99, 9.9e5), (p.p999, 9.99e5)] {
            assert!((got / want - 1.0).abs() < 2e-3, "{got} {want}");
        }
    }

    #[test]
    fn a_trail_stays_short_and_tells_growth() {
        let mut trail = Trail::new();
        // One arrival each nanosecond, none leaves.
        let mut area = 0_u128;
        for now in 0..100_000_u64 {
            area += u128::from(now);
            trail.arrival(now, [area, 0]);
        }
        assert!(trail.points.len() <= Trail::MOST);
        let (second, last) = (trail.mean(Class::Small, 0.25, 0.5), trail.mean(Class::Small, 0.75, 1.0));
        assert!((last / second - 7.0 / 3.0).abs() < 0.02, "{second} {last}");
        assert_eq!(trail.mean(Class::Large, 0.0, 1.0), 0.0);
    }
}
