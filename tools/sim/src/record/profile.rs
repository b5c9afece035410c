//! What a report draws of a run: distributions, shares of GPU time over time, and the lanes of one stretch of it.

use hdrhistogram::Histogram;
use phalanx::observe::{LaneSpan, Record, Terminal, What};
use phalanx::{Class, Nanos};
use serde::Serialize;

use super::Book;

/// A run as a report draws it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Profile {
    /// By class: `[response in ms, share of the completed that took longer]`, from the fastest to the slowest.
    pub small_response: Vec<[f64; 2]>,
    /// The same of the larges.
    pub large_response: Vec<[f64; 2]>,
    /// How the GPU time was spent, over time.
    pub series: Series,
    /// What ran where, for a part of the run.
    pub timeline: Timeline,
}

/// Averages over stretches of equal length.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Series {
    /// The length of a stretch, in seconds.
    pub stretch_s: f64,
    /// The share of lane time in which smalls ran.
    pub small: Vec<f32>,
    /// The same of larges.
    pub large: Vec<f32>,
    /// The share that was held idle for a waiting large.
    pub drain_idle: Vec<f32>,
    /// Smalls that were queued.
    pub small_queued: Vec<f32>,
    /// Larges that were.
    pub large_queued: Vec<f32>,
}

/// The lanes of one stretch of the run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Timeline {
    /// Where it begins, in seconds from the run's start.
    pub from_s: f64,
    /// Its length, in seconds.
    pub length_s: f64,
    /// `[lane, 0 small or 1 large, request, start, end]`, times in ms from its begin; may reach over its ends.
    pub spans: Vec<(u8, u8, u64, f64, f64)>,
    /// `[start, end]` of the drains, likewise.
    pub drains: Vec<(f64, f64)>,
    /// So many spans were left out, since there were too many to draw.
    pub left_out: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Areas {
    small: f64,
    large: f64,
    drain: f64,
    queued: [f64; 2],
}

/// Takes the records of a run one by one and gives its [`Profile`]. Of bounded size, however long the run.
#[derive(Debug)]
pub struct Profiler {
    lanes: usize,
    book: Book,
    now: Nanos,
    responses: [Histogram<u64>; 2],
    stretch: Nanos,
    areas: Vec<Areas>,
    from: Nanos,
    to: Nanos,
    spans: Vec<LaneSpan>,
    left_out: u64,
    drains: Vec<(Nanos, Nanos)>,
    drain_since: Option<Nanos>,
}

impl Profiler {
    /// Stretches that are kept; once there are twice as many, two and two become one.
    const STRETCHES: usize = 240;
    /// Spans of a timeline: more cannot be told apart on a screen, even zoomed.
    const SPANS: usize = 20_000;

    /// Of a node of so many lanes and a run of about this length, with the lanes drawn for `length` from `from` on.
    ///
    /// # Panics
    /// With more lanes than there can be.
    #[must_use]
    pub fn new(lanes: usize, run: Nanos, from: Nanos, length: Nanos) -> Self {
        let histogram = || Histogram::new(3).expect("3 significant digits are allowed");
        Self {
            lanes,
            book: Book::new(lanes),
            now: Nanos::ZERO,
            responses: [histogram(), histogram()],
            stretch: Nanos((run.0 / Self::STRETCHES as u64).max(1_000_000)),
            areas: Vec::new(),
            from,
            to: from + length,
            spans: Vec::new(),
            left_out: 0,
            drains: Vec::new(),
            drain_since: None,
        }
    }

    /// Takes the next record.
    pub fn add(&mut self, record: &Record) {
        self.pass(record.now);
        self.book.on(record);
        match record.what {
            What::Span(span) if span.started < self.to && span.ended > self.from => {
                if self.spans.len() < Self::SPANS {
                    self.spans.push(span);
                } else {
                    self.left_out += 1;
                }
            }
            What::Outcome(outcome) if outcome.outcome == Terminal::Completed => {
                // It grows as far as half of the range, which is 292 years: what is longer counts as that.
                let span = (outcome.ended - outcome.submitted).0.min(i64::MAX as u64);
                let _ = self.responses[outcome.class.index()].record(span);
            }
            _ => {}
        }
        let drains = self.book.draining() && !self.book.gang_running();
        match self.drain_since {
            None if drains => self.drain_since = Some(record.now),
            Some(since) if !drains => {
                self.drain_since = None;
                self.drained(since, record.now);
            }
            _ => {}
        }
    }

    fn drained(&mut self, since: Nanos, to: Nanos) {
        if since < self.to && to > self.from && to > since && self.drains.len() < Self::SPANS {
            self.drains.push((since, to));
        }
    }

    /// Lets time pass, with everything as it is.
    fn pass(&mut self, to: Nanos) {
        while self.now < to {
            let at = (self.now.0 / self.stretch.0) as usize;
            if at >= 2 * Self::STRETCHES {
                self.halve();
                continue;
            }
            if at >= self.areas.len() {
                self.areas.resize(at + 1, Areas::default());
            }
            let end = Nanos((at as u64 + 1).saturating_mul(self.stretch.0)).min(to);
            let dt = (end - self.now).0 as f64;
            let busy = self.book.busy().count() as f64;
            let areas = &mut self.areas[at];
            if self.book.gang_running() {
                areas.large += dt * busy;
            } else {
                areas.small += dt * busy;
                if self.book.draining() {
                    areas.drain += dt * self.book.idle().count() as f64;
                }
            }
            for class in Class::ALL {
                areas.queued[class.index()] += dt * self.book.queued(class) as f64;
            }
            self.now = end;
        }
    }

    fn halve(&mut self) {
        let halves = self.areas.chunks(2).map(|pair| {
            pair.iter().fold(Areas::default(), |sum, areas| Areas {
                small: sum.small + areas.small,
                large: sum.large + areas.large,
                drain: sum.drain + areas.drain,
                queued: [0, 1].map(|class| sum.queued[class] + areas.queued[class]),
            })
        });
        self.areas = halves.collect();
        self.stretch = Nanos(self.stretch.0.saturating_mul(2));
    }

    /// What there is so far.
    #[must_use]
    pub fn profile(&self) -> Profile {
        // The last stretch has not been lived through to its end.
        let length = |at: usize| {
            let rest = self.now.0.saturating_sub(at as u64 * self.stretch.0);
            rest.min(self.stretch.0).max(1) as f64
        };
        let series = |of: &dyn Fn(&Areas) -> f64| {
            self.areas.iter().enumerate().map(|(at, areas)| rounded(of(areas) / length(at)) as f32).collect::<Vec<_>>()
        };
        let lanes = self.lanes as f64;
        let ms = |at: Nanos| rounded((at.0 as f64 - self.from.0 as f64) * 1e-6);
        Profile {
            small_response: curve(&self.responses[Class::Small.index()]),
            large_response: curve(&self.responses[Class::Large.index()]),
            series: Series {
                stretch_s: self.stretch.as_secs_f64(),
                small: series(&|areas| areas.small / lanes),
                large: series(&|areas| areas.large / lanes),
                drain_idle: series(&|areas| areas.drain / lanes),
                small_queued: series(&|areas| areas.queued[0]),
                large_queued: series(&|areas| areas.queued[1]),
            },
            timeline: Timeline {
                from_s: self.from.as_secs_f64(),
                length_s: (self.to - self.from).as_secs_f64(),
                spans: self
                    .spans
                    .iter()
                    .map(|span| {
                        let large = u8::from(span.class == Class::Large);
                        (span.lane.index() as u8, large, span.id.0, ms(span.started), ms(span.ended))
                    })
                    .collect(),
                drains: self.drains.iter().map(|&(since, to)| (ms(since), ms(to))).collect(),
                left_out: self.left_out,
            },
        }
    }
}

/// To four decimals: what more there is cannot be seen and makes the page long.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() * 1e-4
}

/// The complementary distribution function at quantiles that are even where it is a body, and even on a logarithmic scale in its tail.
fn curve(histogram: &Histogram<u64>) -> Vec<[f64; 2]> {
    let n = histogram.len();
    if n == 0 {
        return Vec::new();
    }
    let body = (0..45).map(|i| 1.0 - f64::from(i) * 0.02);
    let tail = (0..=100).map(|i| 0.1 * 10_f64.powf(-f64::from(i) / 20.0));
    // Beyond this there is no request more.
    let shares = body.chain(tail).take_while(|share| share * n as f64 >= 0.5);
    let at = |share: f64| if share < 1.0 { histogram.value_at_quantile(1.0 - share) } else { histogram.min() };
    let mut points: Vec<[f64; 2]> = shares.map(|share| [rounded(at(share) as f64 * 1e-6), share]).collect();
    points.dedup_by(|next, kept| {
        let same = next[0] == kept[0];
        if same {
            kept[1] = next[1];
        }
        same
    });
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkloadSpec;
    use crate::engine::{Scribe, SimOptions, simulate_with};

    #[test]
    fn it_agrees_with_the_simulators_own_figures() {
        let spec: WorkloadSpec = "mix:load=0.8,share=0.5".parse().unwrap();
        let options = SimOptions { requests: Some(20_000), ..SimOptions::new(8, "balance".parse().unwrap()) };
        // A second is foreseen, far less than what comes, so that stretches are joined.
        let mut profiler = Profiler::new(8, Nanos::from_secs(1), Nanos::from_secs(30), Nanos::from_secs(60));
        let mut scribe = Scribe::new(8, |record| profiler.add(record));
        let result = simulate_with(&mut spec.source(3), &options, options.policy.build(8), &mut scribe).unwrap();
        let profile = profiler.profile();
        let series = &profile.series;
        assert!(series.small.len() <= 2 * Profiler::STRETCHES && series.small.len() == series.drain_idle.len());
        let mean = |of: &[f32]| f64::from(of.iter().sum::<f32>()) / of.len() as f64;
        // The last stretch and what runs after the last arrival are all that differs.
        assert!((mean(&series.small) - result.small.utilization).abs() < 0.01);
        assert!((mean(&series.large) - result.large.utilization).abs() < 0.01);
        assert!((mean(&series.drain_idle) - result.drain_idle_fraction).abs() < 0.01);
        for (curve, class) in [(&profile.small_response, &result.small), (&profile.large_response, &result.large)] {
            assert!(curve.is_sorted_by(|a, b| a[0] < b[0] && a[1] > b[1]));
            let half = curve.iter().find(|point| point[1] <= 0.5).unwrap();
            assert!((half[0] / class.response_ms.p50 - 1.0).abs() < 0.05, "{half:?} {}", class.response_ms.p50);
        }
        let timeline = &profile.timeline;
        assert!(timeline.left_out == 0 && timeline.spans.len() > 1_000 && !timeline.drains.is_empty());
        // No lane holds two at once.
        for lane in 0..8 {
            let mut spans: Vec<_> = timeline.spans.iter().filter(|span| span.0 == lane).map(|span| (span.3, span.4)).collect();
            spans.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-6));
        }
    }

    #[test]
    fn nothing_recorded_is_nothing_drawn() {
        let profile = Profiler::new(8, Nanos::ZERO, Nanos::ZERO, Nanos::from_secs(1)).profile();
        assert!(profile.small_response.is_empty() && profile.series.small.is_empty() && profile.timeline.spans.is_empty());
    }
}
