//! The document `phalanx.result/1`: what `--json` writes.

use std::collections::BTreeMap;

use phalanx::Class;
use phalanx::observe::Terminal;
use serde::Serialize;

use super::{Header, Mode};
use crate::engine::{self, Estimate, Percentiles, PredictionResult, Stability};

/// The schema of the result document.
pub const RESULT_SCHEMA: &str = "phalanx.result/1";

/// What `--json` writes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ResultDocument {
    /// Always [`RESULT_SCHEMA`].
    pub schema: &'static str,
    /// The command that gives this result again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// One entry a run.
    pub runs: Vec<RunResult>,
    /// Means over the seeds, one entry a policy: where there were several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub estimates: Vec<PolicyEstimate>,
    /// The exact solution: `phalanx optimum` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimum: Option<OptimumResult>,
}

/// The exact solution that a result is compared with.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OptimumResult {
    /// How many smalls one large counts for: cost = smalls in the system + weight x larges in the system.
    pub weight: f64,
    /// The least mean cost that any policy has.
    pub cost: f64,
    /// How sure that is: the distance of the bounds below and above it, relative.
    pub span_bound: f64,
    /// Whether the bound and the cut of the queues met their tolerances. If not, `cost` is no result.
    pub converged: bool,
    /// Whether service may be stopped and resumed free of charge.
    pub preemptive: bool,
}

/// The mean of one policy's runs over the seeds, each with a 95 % confidence interval (Student's t).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PolicyEstimate {
    /// The policy and its settings.
    pub policy: String,
    /// How many of the runs were unstable. Above 0 the waits and responses below are null.
    pub unstable: usize,
    /// By class.
    pub classes: ClassesEstimate,
    /// As in a run.
    pub utilization: Estimate,
    /// As in a run.
    pub drain_idle_fraction: Estimate,
    /// As in a run.
    pub goodput_per_s: Estimate,
    /// Of the costs, where a run has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Estimate>,
    /// Of the ratios, where a run has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Estimate>,
}

/// One entry a class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClassesEstimate {
    /// Of the smalls.
    pub small: ClassEstimate,
    /// Of the larges.
    pub large: ClassEstimate,
}

impl ClassesEstimate {
    /// The entry of a class.
    #[must_use]
    pub const fn of(&self, class: Class) -> &ClassEstimate {
        match class {
            Class::Small => &self.small,
            Class::Large => &self.large,
        }
    }
}

/// One class over the seeds: each figure of every run, averaged. Null where a run has none.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClassEstimate {
    /// Of the mean waits.
    pub wait_ms_mean: Option<Estimate>,
    /// Of the mean responses.
    pub response_ms_mean: Option<Estimate>,
    /// Of the medians.
    pub response_ms_p50: Option<Estimate>,
    /// Of the 99th percentiles.
    pub response_ms_p99: Option<Estimate>,
    /// Of the shares that met their target.
    pub slo_met: Option<Estimate>,
}

impl PolicyEstimate {
    /// Over the runs of one policy.
    ///
    /// # Panics
    /// Without a run.
    #[must_use]
    pub fn of(runs: &[&RunResult]) -> Self {
        let of = |figure: &dyn Fn(&RunResult) -> f64| Estimate::of(&runs.iter().map(|run| figure(run)).collect::<Vec<_>>());
        let all = |figure: &dyn Fn(&RunResult) -> Option<f64>| {
            let samples: Option<Vec<f64>> = runs.iter().map(|run| figure(run)).collect();
            samples.map(|samples| Estimate::of(&samples))
        };
        let class = |class| ClassEstimate {
            wait_ms_mean: all(&|run| run.classes.of(class).wait_ms.mean),
            response_ms_mean: all(&|run| run.classes.of(class).response_ms.mean),
            response_ms_p50: all(&|run| run.classes.of(class).response_ms.p50),
            response_ms_p99: all(&|run| run.classes.of(class).response_ms.p99),
            slo_met: all(&|run| run.classes.of(class).slo_met),
        };
        Self {
            policy: runs[0].policy.clone(),
            unstable: runs.iter().filter(|run| run.simulated.as_ref().is_some_and(|simulated| !simulated.stable)).count(),
            classes: ClassesEstimate { small: class(Class::Small), large: class(Class::Large) },
            utilization: of(&|run| run.utilization),
            drain_idle_fraction: of(&|run| run.drain_idle_fraction),
            goodput_per_s: of(&|run| run.goodput_per_s),
            cost: all(&|run| run.cost),
            ratio: all(&|run| run.ratio),
        }
    }
}

impl ResultDocument {
    /// A document of these runs.
    #[must_use]
    pub const fn new(runs: Vec<RunResult>) -> Self {
        Self { schema: RESULT_SCHEMA, command: None, runs, estimates: Vec::new(), optimum: None }
    }
}

/// One run of a [`ResultDocument`]: real or simulated, by one policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunResult {
    /// Whose time it was.
    pub mode: Mode,
    /// The policy and its settings.
    pub policy: String,
    /// The workload's text or the trace's name.
    pub workload: String,
    /// GPU time asked for over GPU time there is, where it can be told.
    pub load: Option<f64>,
    /// By what time and service were divided. All figures are of the run as it happened, not scaled back.
    pub speed: f64,
    /// The seed of everything that was drawn.
    pub seed: u64,
    /// How many lanes.
    pub lanes: usize,
    /// What the lanes were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// From the first submission to the last end, in seconds.
    pub span_s: f64,
    /// The time for which bodies ran, summed over the lanes, over lanes x span. A lane that is reserved and whose body has not
    /// begun, or that waits for the other members of its gang, is not utilized.
    pub utilization: f64,
    /// The time for which a lane was free, in service and held back for a waiting gang (between `drain_on` and the gang's start or
    /// `drain_off`), summed over the lanes, over lanes x span.
    pub drain_idle_fraction: f64,
    /// Completed requests that met their target, or had none, over the span.
    pub goodput_per_s: f64,
    /// By class.
    pub classes: Classes,
    /// Records of the log that were lost because its reader was too slow: above 0, every other figure may be wrong.
    pub lost_records: u64,
    /// Where time goes between a submission and its start, in nanoseconds, by stage: real time only.
    ///
    /// | stage | from, to | of |
    /// |---|---|---|
    /// | `submit_to_reserved` | submission, reservation of the lane | smalls that were started by the very event of their arrival: a lane was free, nothing was before them |
    /// | `reserved_to_started` | reservation, begin of the body | smalls |
    /// | `gang_reserved_to_started` | reservation, begin of the body | every member of every large |
    /// | `gang_skew` | the first member's begin, the last one's | larges of which every lane has left its span |
    /// | `ended_to_finish` | a body's end, the dispatcher's notice of it | smalls whose span precedes the next event of their lane |
    ///
    /// The program adds `generator_lateness`: from the moment at which a request was to be submitted to its submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead_ns: Option<BTreeMap<String, Figures>>,
    /// What only the simulator knows: virtual time only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
    /// The weighted number in system: `phalanx optimum` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// `cost` over that of the optimum: `phalanx optimum` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

/// What only the simulator knows of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Simulated {
    /// Whether the queues stood still in the long run. Where they did not there are no waits and responses: they would say how long
    /// one looked.
    pub stable: bool,
    /// The class whose queue grew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growing: Option<Class>,
    /// So many requests came before those that are counted.
    pub warm_up: u64,
    /// The share of GPU time that was idle while any request was queued.
    pub idle_while_waiting_fraction: f64,
    /// Requests in the system, queued or running, on the average of time, small first.
    pub in_system: [f64; 2],
    /// How good the predictions were, for each source and class that made any.
    pub predictions: Vec<PredictionResult>,
}

impl RunResult {
    /// A simulated run, of which `header` says what the simulator does not know.
    #[must_use]
    pub fn of_simulation(result: &engine::RunResult, header: &Header, warm_up: u64) -> Self {
        let growing = match result.stability {
            Stability::Stable => None,
            Stability::Unstable { class, .. } => Some(class),
        };
        let figures = |ms: &Percentiles, completed: u64| {
            if growing.is_some() || completed == 0 {
                return MsFigures::default();
            }
            MsFigures {
                mean: Some(ms.mean),
                p50: Some(ms.p50),
                p90: Some(ms.p90),
                p99: Some(ms.p99),
                p999: Some(ms.p999),
                max: Some(ms.max),
            }
        };
        let class = |class: &engine::ClassResult| ClassResult {
            submitted: class.submitted,
            completed: class.completed,
            failed: class.failed,
            expired: class.expired,
            cancelled: class.cancelled,
            rejected: class.rejected,
            shut_down: 0,
            unfinished: 0,
            slo_met: class.slo_met,
            wait_ms: figures(&class.wait_ms, class.completed),
            response_ms: figures(&class.response_ms, class.completed),
        };
        Self {
            mode: header.mode,
            policy: header.policy.clone(),
            workload: header.workload.clone(),
            load: header.load,
            speed: header.speed,
            seed: header.seed,
            lanes: result.lanes,
            device: None,
            span_s: result.span_s,
            utilization: result.utilization,
            drain_idle_fraction: result.drain_idle_fraction,
            goodput_per_s: result.goodput_per_s,
            classes: Classes { small: class(&result.small), large: class(&result.large) },
            lost_records: 0,
            overhead_ns: None,
            simulated: Some(Simulated {
                stable: growing.is_none(),
                growing,
                warm_up,
                idle_while_waiting_fraction: result.idle_while_waiting_fraction,
                in_system: [result.small.in_system, result.large.in_system],
                predictions: result.predictions.clone(),
            }),
            cost: None,
            ratio: None,
        }
    }
}

/// One entry a class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Classes {
    /// Of the smalls.
    pub small: ClassResult,
    /// Of the larges.
    pub large: ClassResult,
}

impl Classes {
    /// The entry of a class.
    #[must_use]
    pub const fn of(&self, class: Class) -> &ClassResult {
        match class {
            Class::Small => &self.small,
            Class::Large => &self.large,
        }
    }
}

/// The figures of one class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClassResult {
    /// All that were offered, rejected ones too: the sum of the six counts below, and of `unfinished`.
    pub submitted: u64,
    /// Ran to their end.
    pub completed: u64,
    /// Ran and failed.
    pub failed: u64,
    /// Did not start by their deadline.
    pub expired: u64,
    /// Were taken back.
    pub cancelled: u64,
    /// Were refused at the door.
    pub rejected: u64,
    /// Were given up by a shutdown.
    pub shut_down: u64,
    /// Arrived and had not ended when the log ended: 0 for a run that was shut down properly.
    pub unfinished: u64,
    /// Those that completed by their target, over all that were submitted; null if not one had a target. One that was rejected,
    /// expired or failed has missed it.
    pub slo_met: Option<f64>,
    /// From submission to the begin of the body, of those that began.
    pub wait_ms: MsFigures,
    /// From submission to the end of the body, of those that completed.
    pub response_ms: MsFigures,
}

impl ClassResult {
    /// How many ended so.
    #[must_use]
    pub const fn count(&self, terminal: Terminal) -> u64 {
        match terminal {
            Terminal::Completed => self.completed,
            Terminal::Failed => self.failed,
            Terminal::Expired => self.expired,
            Terminal::Cancelled => self.cancelled,
            Terminal::ShutDown => self.shut_down,
            Terminal::Rejected => self.rejected,
        }
    }
}

/// A distribution in milliseconds; all null where nothing was measured. Mean and maximum are exact, quantiles within 0.1 %.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct MsFigures {
    /// The mean.
    pub mean: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// 9 of 10 are at or below it.
    pub p90: Option<f64>,
    /// 99 of 100 are.
    pub p99: Option<f64>,
    /// 999 of 1,000 are.
    pub p999: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
}

/// A distribution in nanoseconds: as [`MsFigures`], with how many were measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: u64,
    /// 9 of 10 are at or below it.
    pub p90: u64,
    /// 99 of 100 are.
    pub p99: u64,
    /// 999 of 1,000 are.
    pub p999: u64,
    /// The largest.
    pub max: u64,
    /// How many were measured.
    pub n: u64,
}
