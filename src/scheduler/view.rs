//! What a policy may see.

use super::SCAN;
use super::averages::Averages;
use super::event::{Job, JobRef};
use super::lanes::{Lanes, Stopped, remaining};
use super::predict::{PredictionSource, Predictor};
use super::ranks::By;
use super::table::{Part, Table};
use crate::types::{Class, LaneId, LaneMask, Nanos};

/// A late job older than so many times the span it was given goes before those that can be in time,
pub const LATE_AGE: u64 = 20;

/// but at most one start in so many of its class is such a one.
pub const LATE_SHARE: u32 = 32;

/// The margin in the test for lateness, in mean relative errors of what predicts the job.
const LATE_ERRORS: f64 = 2.0;

/// A queued job, as a policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// How an [`Action`](super::Action) names it.
    pub job: JobRef,
    /// One lane or all.
    pub class: Class,
    /// Its place in the order of arrival over both classes: lower came first.
    pub seq: u64,
    /// When it was submitted.
    pub arrival: Nanos,
    /// The earlier of its deadline and the moment by which it must have ended: past it, it is expired.
    pub deadline: Option<Nanos>,
    /// By when it should have ended.
    pub target: Option<Nanos>,
}

/// In which order a class is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// As they came.
    #[default]
    Arrival,
    /// Those that can still be in time first, then the others; each part as they came.
    OnTime,
}

/// A job that runs, as a policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    /// How an [`Action`](super::Action) names it.
    pub job: JobRef,
    /// When it was submitted.
    pub arrival: Nanos,
    /// The earlier of its target and its deadline.
    pub due: Option<Nanos>,
    /// About how long one of its steps takes, if it can stop.
    pub step: Option<Nanos>,
    /// Whether it is asked to stop.
    pub asked: bool,
    /// Whether it can be: it has steps, is not asked yet, and there is room for it to be parked.
    pub can_stop: bool,
    /// How often it has stopped.
    pub stops: u32,
    /// How much longer it is predicted to run if it is let: half of its age, once it has outlived its prediction.
    pub remaining: Nanos,
}

/// A job that is parked, as a policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parked {
    /// How an [`Action`](super::Action) names it.
    pub job: JobRef,
    /// When it was submitted.
    pub arrival: Nanos,
    /// The earlier of its target and its deadline.
    pub due: Option<Nanos>,
    /// Since when it is parked.
    pub since: Nanos,
    /// How much longer it is predicted to run, as [`Running::remaining`].
    pub remaining: Nanos,
}

/// By what a policy that [ranks](super::Policy::ranks) takes the first of a class. Among equals it is the one that came first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ranking {
    /// The shortest predicted run, by the prediction at its arrival.
    Size,
    /// The earliest target or deadline; those that have neither come last.
    Due,
}

fn due(job: &Job) -> Option<Nanos> {
    job.target.into_iter().chain(job.deadline).min()
}

/// The node at one moment: the queues, the lanes, the averages and the predictions. Policies decide by this alone.
///
/// While a lane is out of service no gang can start, so the larges are not shown at all: a policy that drained for them would
/// idle the node for as long as the lane is gone. They are shown again when it is back.
#[derive(Debug)]
pub struct View<'a> {
    pub(super) now: Nanos,
    pub(super) table: &'a mut Table,
    pub(super) lanes: &'a Lanes,
    pub(super) averages: &'a Averages,
    pub(super) predictor: &'a Predictor,
}

impl View<'_> {
    /// The present moment.
    #[inline]
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// How many lanes the node has, in service or not.
    #[inline]
    #[must_use]
    pub fn lane_count(&self) -> usize {
        self.lanes.count()
    }

    /// The lanes that are in service and free.
    #[inline]
    #[must_use]
    pub fn free(&self) -> LaneMask {
        self.lanes.free()
    }

    /// The lanes on which something runs.
    #[inline]
    #[must_use]
    pub fn busy(&self) -> LaneMask {
        self.lanes.busy()
    }

    /// Whether every lane is in service and free: only then can a large job start.
    #[inline]
    #[must_use]
    pub fn all_free(&self) -> bool {
        self.lanes.all_free()
    }

    /// How many small jobs run.
    #[inline]
    #[must_use]
    pub fn smalls_running(&self) -> usize {
        self.lanes.smalls_running()
    }

    /// Whether a large job runs.
    #[inline]
    #[must_use]
    pub fn gang_running(&self) -> bool {
        self.lanes.gang().is_some()
    }

    /// How many jobs of a class are queued and could run on the lanes in service.
    #[inline]
    #[must_use]
    pub fn queued(&self, class: Class) -> usize {
        if self.hidden(class) { 0 } else { self.table.queued(class) }
    }

    /// The job of a class that has waited longest.
    #[inline]
    #[must_use]
    pub fn oldest(&self, class: Class) -> Option<Waiting> {
        if self.hidden(class) {
            return None;
        }
        self.table.oldest(class).map(|slot| self.waiting(slot))
    }

    /// The job of a class that is to be served next.
    ///
    /// [`Order::OnTime`] asks of the first in line whether it can still end in time: now, plus its own prediction, against the
    /// earlier of target and deadline. (Its own: what it expects or what its key says. The mean of a class says nothing about one of
    /// it, and counts as 0. What is its own is taken with a margin of twice the mean error of its source: without it, an overloaded
    /// class would always start the one that is at the brink, and miss with every second.) One that cannot goes to the late part, for
    /// good.
    ///
    /// A late one whose age is [`LATE_AGE`] times the span it was given is served first, but no more than one in [`LATE_SHARE`]
    /// starts: so the late are delayed and not starved, and at an overload, when they fill the queue, they do not take the lanes from
    /// those that can still be in time. At most [`SCAN`] jobs are found late in one call.
    #[must_use]
    pub fn next(&mut self, class: Class, order: Order) -> Option<Waiting> {
        if self.hidden(class) {
            return None;
        }
        if order == Order::Arrival {
            return self.oldest(class);
        }
        if self.table.since_late(class) >= LATE_SHARE - 1
            && let Some(slot) = self.table.head(class, Part::Late)
        {
            let late = &self.table.entry(slot).job;
            let span = late.target.or(hard(late)).map_or(Nanos::ZERO, |due| due - late.arrival);
            if self.now - late.arrival > Nanos(span.0.saturating_mul(LATE_AGE)) {
                return Some(self.waiting(slot));
            }
        }
        for _ in 0..SCAN {
            match self.table.head(class, Part::Fresh) {
                Some(slot) if self.slot_is_late(slot) => self.table.mark_late(slot),
                _ => break,
            }
        }
        let slot = self.table.head(class, Part::Fresh).or_else(|| self.table.head(class, Part::Late))?;
        Some(self.waiting(slot))
    }

    /// The first of one part of a class's queue. Without [`Order::OnTime`] all stand in the fresh one, in the order of arrival.
    #[inline]
    #[must_use]
    pub fn head(&self, class: Class, part: Part) -> Option<Waiting> {
        if self.hidden(class) {
            return None;
        }
        self.table.head(class, part).map(|slot| self.waiting(slot))
    }

    /// Whether a queued job cannot end in time any more, as [`next`](Self::next) tests it.
    #[must_use]
    pub fn is_late(&self, waiting: &Waiting) -> bool {
        self.slot_is_late(waiting.job.slot)
    }

    fn slot_is_late(&self, slot: u32) -> bool {
        let (entry, prediction) = (self.table.entry(slot), self.table.prediction(slot));
        let due = entry.job.target.unwrap_or(Nanos::MAX).min(hard(&entry.job).unwrap_or(Nanos::MAX));
        if due == Nanos::MAX {
            return false;
        }
        let own = match prediction.source() {
            PredictionSource::Class => Nanos::ZERO,
            source => {
                let factor = self.predictor.cautious_factor(source, entry.job.class, LATE_ERRORS);
                Nanos((prediction.raw().0 as f64 * factor) as u64)
            }
        };
        self.now + own > due
    }

    /// The first jobs of a class in the order of arrival, at most [`SCAN`] of them.
    pub fn scan(&self, class: Class) -> impl Iterator<Item = Waiting> + '_ {
        self.scan_in(class, Order::Arrival)
    }

    /// The first jobs of a class in this order, at most [`SCAN`] of them: with [`Order::OnTime`] those not found late so far come first.
    pub fn scan_in(&self, class: Class, order: Order) -> impl Iterator<Item = Waiting> + '_ {
        self.slots(class, order).map(|slot| self.waiting(slot))
    }

    fn slots(&self, class: Class, order: Order) -> impl Iterator<Item = u32> + '_ {
        let visible = !self.hidden(class);
        let mut parts = [Part::Fresh, Part::Late].map(|part| self.table.head(class, part).filter(|_| visible));
        let in_order = std::iter::from_fn(move || {
            let pick = match parts {
                [Some(_), Some(_)] if order == Order::OnTime => 0,
                [Some(fresh), Some(late)] => usize::from(self.table.entry(late).seq < self.table.entry(fresh).seq),
                [fresh, _] => usize::from(fresh.is_none()),
            };
            let slot = parts[pick]?;
            parts[pick] = self.table.next(slot);
            Some(slot)
        });
        in_order.take(SCAN)
    }

    /// The first of the [`SCAN`] jobs that [`scan_in`](Self::scan_in) shows that runs for no longer than `room`, by its prediction and
    /// so many times the mean relative error of what predicts it. `own`: only by what it expects itself or its key says; else also by
    /// the mean of its class, taken as it is.
    #[must_use]
    pub fn first_within(&mut self, class: Class, order: Order, room: Nanos, errors: f64, own: bool) -> Option<Waiting> {
        let most = self.most_within(class, room, errors, own);
        let slot = self.scan_predictions(class, order, |raw, source, _| most[source as usize].is_some_and(|most| raw <= most))?;
        Some(self.waiting(slot))
    }

    /// Of the [`SCAN`] jobs that [`scan_in`](Self::scan_in) shows the one that is predicted to run longest and yet for no longer than
    /// `room`; the first in line among equals. One of which nothing but its class is known is taken to run for the mean of it.
    #[must_use]
    pub fn longest_within(&mut self, class: Class, order: Order, room: Nanos) -> Option<Waiting> {
        let most = self.most_within(class, room, 0.0, false);
        // A source each, since only within one are raw predictions in the order of the calibrated ones.
        let mut longest: [Option<(Nanos, u32)>; 3] = [None; 3];
        let _ = self.scan_predictions(class, order, |raw, source, slot| {
            let longest = &mut longest[source as usize];
            if most[source as usize].is_some_and(|most| raw <= most) && longest.is_none_or(|(before, _)| raw > before) {
                *longest = Some((raw, slot));
            }
            false
        });
        let candidates = longest.into_iter().flatten().map(|(_, slot)| self.waiting(slot));
        let predicted = candidates.map(|job| (self.predicted(&job), std::cmp::Reverse(job.seq), job));
        predicted.max_by_key(|&(predicted, seq, _)| (predicted, seq)).map(|(.., job)| job)
    }

    /// The longest raw prediction that fits, a source each: a scan then compares, and computes nothing.
    fn most_within(&self, class: Class, room: Nanos, errors: f64, own: bool) -> [Option<Nanos>; 3] {
        PredictionSource::ALL.map(|source| match source {
            PredictionSource::Class => {
                let fits = self.averages.mean_service_ns(class).is_some_and(|mean| mean as u64 <= room.0);
                if fits && !own { Some(Nanos::MAX) } else { None }
            }
            _ => Some(Nanos((room.0 as f64 / self.predictor.cautious_factor(source, class, errors)) as u64)),
        })
    }

    /// The first of the [`SCAN`] jobs in this order whose prediction is accepted.
    fn scan_predictions(
        &mut self,
        class: Class,
        order: Order,
        mut accept: impl FnMut(Nanos, PredictionSource, u32) -> bool,
    ) -> Option<u32> {
        let fresh_first = order == Order::OnTime || self.table.head(class, Part::Late).is_none();
        if class == Class::Large || !fresh_first {
            return self.slots(class, order).find(|&slot| {
                let prediction = self.table.prediction(slot);
                accept(prediction.raw(), prediction.source(), slot)
            });
        }
        let shown = self.table.window();
        for ((&raw, &source), &slot) in shown.raw.iter().zip(shown.source).zip(shown.slot) {
            if accept(raw, source, slot) {
                return Some(slot);
            }
        }
        let mut left = SCAN - shown.slot.len();
        let mut next = self.table.head(class, Part::Late);
        while let Some(slot) = next.filter(|_| left > 0) {
            let prediction = self.table.prediction(slot);
            if accept(prediction.raw(), prediction.source(), slot) {
                return Some(slot);
            }
            next = self.table.next(slot);
            left -= 1;
        }
        None
    }

    /// A number that changes whenever a queued job of the class leaves its place: while it stands still, the queue has at most grown at
    /// its end, and one longer than [`SCAN`] shows a scan the same jobs again.
    #[inline]
    #[must_use]
    pub fn queue_version(&self, class: Class) -> u64 {
        self.table.unlinked(class)
    }

    /// A number that changes whenever predictions may: with every completion.
    #[inline]
    #[must_use]
    pub fn completions(&self) -> u64 {
        self.predictor.completions()
    }

    /// How long a queued job is predicted to run. `None` as long as nothing is known about it or its class.
    #[inline]
    #[must_use]
    pub fn predicted(&self, waiting: &Waiting) -> Option<Nanos> {
        let mean = self.averages.mean_service_ns(waiting.class);
        self.predictor.run_time(self.table.prediction(waiting.job.slot), waiting.class, mean)
    }

    /// Whether a job's prediction is its own, not the mean of its class.
    #[inline]
    #[must_use]
    pub fn prediction_source(&self, waiting: &Waiting) -> PredictionSource {
        self.table.prediction(waiting.job.slot).source()
    }

    /// The shadow time: when the last lane that is busy now is predicted to be free.
    #[must_use]
    pub fn shadow(&self) -> Nanos {
        self.lanes.shadow(self.now)
    }

    /// What runs on a lane: since when, and until when by prediction. For a gang every lane says the same.
    #[must_use]
    pub fn running(&self, lane: LaneId) -> Option<(Nanos, Nanos)> {
        if !self.lanes.busy().contains(lane) {
            return None;
        }
        let run = self.lanes.gang().or_else(|| self.lanes.small(lane))?;
        Some((run.started, run.end(self.now)))
    }

    /// What runs: the small job on each lane, lowest first, or the large one.
    pub fn all_running(&self) -> impl Iterator<Item = Running> + '_ {
        let gang = self.lanes.gang();
        let smalls = if gang.is_some() { LaneMask::NONE } else { self.lanes.busy() };
        gang.into_iter().chain(smalls.into_iter().filter_map(|lane| self.lanes.small(lane))).map(|run| {
            let job = &self.table.entry(run.slot).job;
            Running {
                job: JobRef { slot: run.slot, id: job.id },
                arrival: job.arrival,
                due: due(job),
                step: run.step,
                asked: run.asked.is_some(),
                can_stop: self.lanes.can_ask(run.slot, job.class),
                stops: run.stops,
                remaining: run.remaining(self.now),
            }
        })
    }

    /// How many jobs of a class are parked.
    #[inline]
    #[must_use]
    pub fn parked(&self, class: Class) -> usize {
        if self.lanes.any_parked() { self.lanes.parked(class) } else { 0 }
    }

    /// The lanes on which small jobs are parked.
    #[inline]
    #[must_use]
    pub fn parked_on(&self) -> LaneMask {
        self.lanes.parked_on()
    }

    /// The lanes whose job is asked to stop.
    #[inline]
    #[must_use]
    pub fn asked(&self) -> LaneMask {
        self.lanes.asked()
    }

    /// The small jobs that are parked on a lane, the one that stopped first first.
    pub fn parked_smalls(&self, lane: LaneId) -> impl Iterator<Item = Parked> + '_ {
        self.lanes.parked_smalls(lane).iter().map(|stopped| self.stopped(stopped))
    }

    /// The large jobs that are parked, the one that stopped first first. None while a lane is out of service: they could not go on.
    pub fn parked_larges(&self) -> impl Iterator<Item = Parked> + '_ {
        let hidden = self.hidden(Class::Large);
        self.lanes.parked_larges().iter().filter(move |_| !hidden).map(|stopped| self.stopped(stopped))
    }

    /// The lane on which [`Action::small`](super::Action::small) would start: the lowest of the free ones with the fewest parked jobs.
    #[inline]
    #[must_use]
    pub fn next_lane(&self) -> Option<LaneId> {
        self.lanes.for_new()
    }

    /// The first queued job of a class in this order: of those that can still end in time if there is any, else of the others, as the latest
    /// [`latest_start`](Self::latest_start) of the class found. Without
    /// [`Policy::ranks`](super::Policy::ranks) it is the oldest: a policy that wraps another and does not hand that on serves by age, and still
    /// serves.
    #[must_use]
    pub fn ranked(&self, class: Class, by: Ranking) -> Option<Waiting> {
        if self.hidden(class) {
            return None;
        }
        let by = match by {
            Ranking::Size => By::Size,
            Ranking::Due => By::Due,
        };
        let Some(ranks) = self.table.ranks() else { return self.oldest(class) };
        ranks.first(by, class, false).or_else(|| ranks.first(by, class, true)).map(|slot| self.waiting(slot))
    }

    /// The queued job of a class that must start first of those that can still end in time, by their own predictions (0 where there is none),
    /// and that moment. Those that cannot are ranked behind the others from now on; at most [`SCAN`] are found so in one call. `None`
    /// without [`Policy::ranks`](super::Policy::ranks).
    pub fn latest_start(&mut self, class: Class) -> Option<(Waiting, Nanos)> {
        if self.hidden(class) {
            return None;
        }
        let now = self.now;
        let ranks = self.table.ranks_mut()?;
        for _ in 0..SCAN {
            match ranks.first(By::Latest, class, false) {
                Some(slot) if ranks.key(slot).latest < now => ranks.mark_late(slot),
                _ => break,
            }
        }
        let slot = ranks.first(By::Latest, class, false)?;
        let latest = ranks.key(slot).latest;
        Some((self.waiting(slot), latest)).filter(|_| latest >= now)
    }

    fn stopped(&self, stopped: &Stopped) -> Parked {
        let job = &self.table.entry(stopped.slot).job;
        Parked {
            job: JobRef { slot: stopped.slot, id: job.id },
            arrival: job.arrival,
            due: due(job),
            since: stopped.since,
            remaining: remaining(stopped.predicted, stopped.served),
        }
    }

    /// The moving averages of arrivals and service.
    #[inline]
    #[must_use]
    pub const fn averages(&self) -> &Averages {
        self.averages
    }

    fn hidden(&self, class: Class) -> bool {
        class == Class::Large && !self.lanes.offline().is_empty()
    }

    fn waiting(&self, slot: u32) -> Waiting {
        let entry = self.table.entry(slot);
        let job = &entry.job;
        Waiting {
            job: JobRef { slot, id: job.id },
            class: job.class,
            seq: entry.seq,
            arrival: job.arrival,
            deadline: hard(job),
            target: job.target,
        }
    }
}

/// The earlier of a job's deadline and the moment by which it must have ended.
fn hard(job: &Job) -> Option<Nanos> {
    match (job.deadline, job.finish_by) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
