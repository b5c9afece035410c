//! How long a request will run.
//!
//! Three sources, in this order: what its owner expects, the history of its model key, the mean of its class. What each source
//! says is corrected by its own running ratio of actual to predicted time, so that a constant bias of a source does no harm.
//! Failed and withdrawn runs teach nothing.
//!
//! A key's history is the median of its latest [`HISTORY`] run times: one outlier does not move it, and after a change of the model
//! it has learned the new time once half of those are new. Keys live in a table of fixed size, [`WAYS`] to a set; a
//! new key takes the place of the one in its set that was longest without a completion.

use super::averages::Average;
use super::event::Job;
use crate::types::{Class, ModelKey, Nanos};

/// How many run times a key remembers.
pub(super) const HISTORY: usize = 15;
/// How many keys share a set of the table.
const WAYS: usize = 4;
/// How many keys the table holds.
const KEYS: usize = 1024;
/// The weight of one completion in a source's calibration.
const CALIBRATION_WEIGHT: f64 = 0.01;

/// A prediction that is off by more than this factor, up or down, counts as off by it.
const WILDEST: f64 = 64.0;

/// Where a prediction comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum PredictionSource {
    /// The request's own `expected`.
    Request,
    /// The history of its model key.
    Key,
    /// The mean of its class.
    Class,
}

impl PredictionSource {
    /// All, best first.
    pub const ALL: [Self; 3] = [Self::Request, Self::Key, Self::Class];

    /// `request`, `key` or `class`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Key => "key",
            Self::Class => "class",
        }
    }
}

/// What a source says, before it is calibrated; fixed when the request arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prediction {
    raw: Nanos,
    source: PredictionSource,
}

impl Prediction {
    /// Nothing but the class is known: its mean is looked up when it is needed, so that it is never stale.
    pub(super) const UNKNOWN: Self = Self { raw: Nanos::ZERO, source: PredictionSource::Class };

    #[inline]
    pub(super) const fn source(self) -> PredictionSource {
        self.source
    }

    #[inline]
    pub(super) const fn raw(self) -> Nanos {
        self.raw
    }
}

/// How good a source has been, for reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictionError {
    /// Completed requests that it predicted.
    pub completed: u64,
    /// Actual over predicted time, of late: 1 is unbiased. Later predictions of this source are multiplied by it.
    pub bias: f64,
    /// Mean of |actual − calibrated prediction| ÷ actual, of late.
    pub relative_error: f64,
}

#[derive(Clone, Copy, Debug)]
struct Calibration {
    actual: Average,
    predicted: Average,
    error: Average,
}

impl Calibration {
    const NEW: Self = Self {
        actual: Average::new(CALIBRATION_WEIGHT),
        predicted: Average::new(CALIBRATION_WEIGHT),
        error: Average::new(CALIBRATION_WEIGHT),
    };

    /// A ratio of averages, not an average of ratios: the latter is biased upward by every short overestimate.
    fn factor(&self) -> f64 {
        match (self.actual.get(), self.predicted.get()) {
            (Some(actual), Some(predicted)) if predicted > 0.0 => (actual / predicted).clamp(1.0 / WILDEST, WILDEST),
            _ => 1.0,
        }
    }
}

/// The latest run times of one key: by age in a ring, and sorted.
#[derive(Clone, Copy, Debug)]
struct History {
    key: ModelKey,
    class: Class,
    /// When a completion last touched it, in completions.
    touched: u64,
    len: u8,
    oldest: u8,
    by_age: [Nanos; HISTORY],
    sorted: [Nanos; HISTORY],
}

impl History {
    const VACANT: Self = Self {
        key: ModelKey::NONE,
        class: Class::Small,
        touched: 0,
        len: 0,
        oldest: 0,
        by_age: [Nanos::ZERO; HISTORY],
        sorted: [Nanos::ZERO; HISTORY],
    };

    fn add(&mut self, ran: Nanos) {
        let len = usize::from(self.len);
        // The place in `sorted` that becomes vacant: the oldest's, or the first unused one.
        let mut hole = len;
        if len == HISTORY {
            let leaving = std::mem::replace(&mut self.by_age[usize::from(self.oldest)], ran);
            self.oldest = (self.oldest + 1) % HISTORY as u8;
            hole = self.sorted[..len].partition_point(|&x| x < leaving);
        } else {
            self.by_age[len] = ran;
            self.len += 1;
        }
        while hole > 0 && self.sorted[hole - 1] > ran {
            self.sorted[hole] = self.sorted[hole - 1];
            hole -= 1;
        }
        while hole + 1 < usize::from(self.len) && self.sorted[hole + 1] < ran {
            self.sorted[hole] = self.sorted[hole + 1];
            hole += 1;
        }
        self.sorted[hole] = ran;
    }

    fn median(&self) -> Nanos {
        self.sorted[usize::from(self.len) / 2]
    }
}

/// Learns from completions, and predicts.
#[derive(Clone, Debug)]
pub(super) struct Predictor {
    keys: Vec<History>,
    completions: u64,
    /// By source and class.
    calibration: [[Calibration; 2]; 3],
}

impl Predictor {
    pub(super) fn new() -> Self {
        Self { keys: vec![History::VACANT; KEYS], completions: 0, calibration: [[Calibration::NEW; 2]; 3] }
    }

    fn set(key: ModelKey, class: Class) -> usize {
        // Fibonacci hashing: callers may number their models 1, 2, 3.
        let hash = (key.0 ^ class as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize % (KEYS / WAYS) * WAYS
    }

    fn history(&self, key: ModelKey, class: Class) -> Option<&History> {
        let set = Self::set(key, class);
        self.keys[set..set + WAYS].iter().find(|h| h.len > 0 && h.key == key && h.class == class)
    }

    /// What the best source says of an arriving job.
    pub(super) fn predict(&self, job: &Job) -> Prediction {
        if let Some(expected) = job.expected {
            return Prediction { raw: expected, source: PredictionSource::Request };
        }
        if job.model.is_some()
            && let Some(history) = self.history(job.model, job.class)
        {
            return Prediction { raw: history.median(), source: PredictionSource::Key };
        }
        Prediction::UNKNOWN
    }

    /// The predicted run time. `None` as long as nothing at all is known: no expectation, no history, and no completed request of
    /// the class either, whose mean is `class_mean_ns`.
    #[inline]
    pub(super) fn run_time(&self, prediction: Prediction, class: Class, class_mean_ns: Option<f64>) -> Option<Nanos> {
        match prediction.source {
            PredictionSource::Class => class_mean_ns.map(|mean| Nanos(mean as u64)),
            source => {
                let factor = self.calibration[source as usize][class.index()].factor();
                Some(Nanos((prediction.raw.0 as f64 * factor) as u64))
            }
        }
    }

    /// What a raw prediction of this source and class is multiplied by, so that it is rarely exceeded: the calibration, and so many times
    /// the mean relative error.
    #[inline]
    pub(super) fn cautious_factor(&self, source: PredictionSource, class: Class, errors: f64) -> f64 {
        let calibration = &self.calibration[source as usize][class.index()];
        // The error is bounded, so that a hopeless source does not call everything late.
        calibration.factor() * (1.0 + errors * calibration.error.get().unwrap_or(0.0).min(0.5))
    }

    /// How many runs it has learned from.
    #[inline]
    pub(super) const fn completions(&self) -> u64 {
        self.completions
    }

    /// Learns from a completed run.
    pub(super) fn completed(
        &mut self,
        class: Class,
        model: ModelKey,
        prediction: Prediction,
        class_mean_ns: Option<f64>,
        ran: Nanos,
    ) {
        self.completions += 1;
        let calibrated = self.run_time(prediction, class, class_mean_ns);
        let calibration = &mut self.calibration[prediction.source as usize][class.index()];
        let raw = match prediction.source {
            // The mean of the class is its own calibration; what is kept of it is only how far off it is.
            PredictionSource::Class => class_mean_ns,
            // Clipped: one absurd expectation must not make the next thousand good ones look wrong.
            _ => Some((prediction.raw.0 as f64).clamp(ran.0 as f64 / WILDEST, ran.0 as f64 * WILDEST)),
        };
        if let (Some(raw), Some(calibrated)) = (raw, calibrated) {
            calibration.actual.add(ran.0 as f64);
            calibration.predicted.add(raw);
            calibration.error.add((ran.0 as f64 - calibrated.0 as f64).abs() / (ran.0.max(1) as f64));
        }
        if model.is_some() {
            self.learn(model, class, ran);
        }
    }

    fn learn(&mut self, key: ModelKey, class: Class, ran: Nanos) {
        let set = Self::set(key, class);
        let ways = &mut self.keys[set..set + WAYS];
        let way = match ways.iter().position(|h| h.len > 0 && h.key == key && h.class == class) {
            Some(way) => way,
            None => {
                let mut way = 0;
                for other in 1..WAYS {
                    if ways[other].touched < ways[way].touched {
                        way = other;
                    }
                }
                ways[way] = History { key, class, ..History::VACANT };
                way
            }
        };
        ways[way].touched = self.completions;
        ways[way].add(ran);
    }

    pub(super) fn error(&self, source: PredictionSource, class: Class) -> Option<PredictionError> {
        let calibration = &self.calibration[source as usize][class.index()];
        Some(PredictionError {
            completed: calibration.error.samples(),
            bias: calibration.factor(),
            relative_error: calibration.error.get()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::RequestId;
    use proptest::prelude::*;

    fn job(model: u64) -> Job {
        Job { model: ModelKey(model), ..Job::new(RequestId(0), Class::Small, Nanos::ZERO) }
    }

    fn says(predictor: &Predictor, job: &Job) -> Option<Nanos> {
        predictor.run_time(predictor.predict(job), job.class, None)
    }

    fn teach(predictor: &mut Predictor, job: &Job, ran: Nanos, times: usize) {
        for _ in 0..times {
            let prediction = predictor.predict(job);
            predictor.completed(job.class, job.model, prediction, None, ran);
        }
    }

    #[test]
    fn one_outlier_does_not_poison_a_key() {
        let (mut predictor, job) = (Predictor::new(), job(7));
        teach(&mut predictor, &job, Nanos::from_millis(1), 100);
        teach(&mut predictor, &job, Nanos::from_millis(14), 1);
        let after = says(&predictor, &job).unwrap();
        // The calibration moves by its weight for one sample of 14 times the prediction: at most 13 %.
        assert!(after <= Nanos::from_micros(1_140), "{after}");
    }

    #[test]
    fn a_key_relearns_after_a_change() {
        let (mut predictor, job) = (Predictor::new(), job(7));
        teach(&mut predictor, &job, Nanos::from_millis(1), 1_000);
        teach(&mut predictor, &job, Nanos::from_millis(10), 30);
        let after = says(&predictor, &job).unwrap().as_millis_f64();
        assert!((8.0..20.0).contains(&after), "{after}");
    }

    #[test]
    fn a_constant_bias_of_the_owners_is_calibrated_away() {
        let mut predictor = Predictor::new();
        let job = Job { expected: Some(Nanos::from_millis(1)), ..job(0) };
        teach(&mut predictor, &job, Nanos::from_millis(4), 200);
        let after = says(&predictor, &job).unwrap().as_millis_f64();
        assert!((after - 4.0).abs() < 0.01, "{after}");
        let error = predictor.error(PredictionSource::Request, Class::Small).unwrap();
        assert_eq!(error.completed, 200);
        assert!((error.bias - 4.0).abs() < 0.01);
    }

    #[test]
    fn any_number_of_keys_fits_and_the_busy_ones_stay() {
        let mut predictor = Predictor::new();
        for round in 0..50 {
            teach(&mut predictor, &job(1), Nanos::from_millis(3), 1);
            for key in 0..100 {
                teach(&mut predictor, &job(1_000 + round * 100 + key), Nanos::from_millis(1), 1);
            }
        }
        assert_eq!(predictor.predict(&job(1)).source(), PredictionSource::Key);
        assert_eq!(predictor.keys.len(), KEYS);
    }

    #[test]
    fn nothing_known_is_said_to_be_so() {
        assert_eq!(says(&Predictor::new(), &job(3)), None);
    }

    proptest! {
        #[test]
        fn the_sorted_history_is_the_latest_run_times_sorted(runs in prop::collection::vec(0u64..20, 1..60)) {
            let mut history = History::VACANT;
            for (i, &run) in runs.iter().enumerate() {
                history.add(Nanos(run));
                let mut latest: Vec<Nanos> = runs[..=i].iter().rev().take(HISTORY).map(|&r| Nanos(r)).collect();
                latest.sort_unstable();
                prop_assert_eq!(&history.sorted[..usize::from(history.len)], &latest[..]);
            }
        }
    }
}
