//! What one pass over a source says about it.

use std::fmt;

use phalanx::{Class, Nanos};

use crate::{InputError, Source, TraceRequest};

/// What one pass over a source measures.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// The lanes that a large request holds.
    pub lanes: usize,
    /// From the first arrival to the last.
    pub span: Nanos,
    /// By [`Class::index`].
    pub classes: [ClassSummary; 2],
    /// How many lines were left out because they are no request that ran: in SWF jobs that never started, in BurstGPT failed requests.
    pub skipped: u64,
    /// What the user should know before the numbers are believed.
    pub warnings: Vec<Warning>,
}

/// The requests of one class.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ClassSummary {
    /// How many.
    pub count: u64,
    /// The mean service time, in nanoseconds; 0 without requests.
    pub service_mean_ns: f64,
    /// The sum of the squared differences from the mean.
    squares: f64,
    /// The longest service time.
    pub service_max: Nanos,
    /// How many bring a prediction.
    pub with_expected: u64,
    /// How many have a soft target.
    pub with_target: u64,
    /// How many have a hard deadline.
    pub with_deadline: u64,
}

/// Nothing is wrong enough to stop, but the user should be told.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Warning {
    /// The rule for large requests is met by none.
    RuleMatchesNothing {
        /// The rule.
        rule: String,
        /// Whether at least one request has the field that the rule reads.
        field_seen: bool,
    },
    /// The rule for large requests is met by all.
    RuleMatchesAll {
        /// The rule.
        rule: String,
    },
    /// No request says its class or its GPUs and there is no rule: all are small.
    NoClasses,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RuleMatchesNothing { rule, field_seen: true } => {
                write!(f, "the rule `{rule}` matched 0 requests: all are small")
            }
            Self::RuleMatchesNothing { rule, field_seen: false } => {
                write!(f, "the rule `{rule}` matched 0 requests: none has the field that it reads, so all are small")
            }
            Self::RuleMatchesAll { rule } => write!(f, "the rule `{rule}` matched every request: all are large"),
            Self::NoClasses => f.write_str(
                "no request says its class or its gpus and no rule says which are large (such as `input>8000`): all are small",
            ),
        }
    }
}

impl ClassSummary {
    fn add(&mut self, request: &TraceRequest) {
        let x = request.service.0 as f64;
        self.count += 1;
        // Welford: the variance of many nearly equal times does not drown in the square of their mean.
        let delta = x - self.service_mean_ns;
        self.service_mean_ns += delta / self.count as f64;
        self.squares += delta * (x - self.service_mean_ns);
        self.service_max = self.service_max.max(request.service);
        self.with_expected += u64::from(request.expected.is_some());
        self.with_target += u64::from(request.target.is_some());
        self.with_deadline += u64::from(request.deadline.is_some());
    }

    /// The coefficient of variation of the service time; 0 without requests.
    #[must_use]
    pub fn service_cv(&self) -> f64 {
        if self.count == 0 { 0.0 } else { (self.squares / self.count as f64).sqrt() / self.service_mean_ns }
    }

    /// The sum of the service times, in nanoseconds.
    #[must_use]
    pub fn service_total_ns(&self) -> f64 {
        self.service_mean_ns * self.count as f64
    }
}

impl Summary {
    /// Reads `source` to its end. An endless source must be cut first ([`Adapt::duration`](crate::Adapt::duration)).
    ///
    /// # Errors
    /// The first error of the source.
    pub fn of<S: Source + ?Sized>(source: &mut S) -> Result<Self, InputError> {
        let mut summary = Self { lanes: source.lanes(), ..Self::default() };
        let mut first = None;
        while let Some(request) = source.next_request()? {
            let first = *first.get_or_insert(request.arrival);
            summary.span = request.arrival - first;
            summary.classes[request.class.index()].add(&request);
        }
        Ok(summary)
    }

    /// The requests of one class.
    #[must_use]
    pub fn class(&self, class: Class) -> &ClassSummary {
        &self.classes[class.index()]
    }

    /// How many requests there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().map(|c| c.count).sum()
    }

    /// The GPU time that the requests need, in nanoseconds of one lane.
    fn work_ns(&self) -> f64 {
        let [small, large] = &self.classes;
        small.service_total_ns() + large.service_total_ns() * self.lanes as f64
    }

    /// The load at native speed: the sum of gpus x service, over lanes x span. `None` if all arrive at one moment: no load can be told.
    #[must_use]
    pub fn native_load(&self) -> Option<f64> {
        (self.span > Nanos::ZERO).then(|| self.work_ns() / (self.lanes as f64 * self.span.0 as f64))
    }

    /// The share of the GPU time that large requests need, from 0 to 1; 0 without requests.
    #[must_use]
    pub fn large_share(&self) -> f64 {
        let work = self.work_ns();
        if work == 0.0 { 0.0 } else { self.class(Class::Large).service_total_ns() * self.lanes as f64 / work }
    }
}
