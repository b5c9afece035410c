//! `swap`: when requests of both classes stop at their steps.
//!
//! No drain is then left to be weighed: what remains is when to swap. With preemption free of charge the exact optimum (`phalanx optimum
//! --preemptive`) runs smalls if and only if they fill the node. A swap costs something, though, and with a loss d for each the optimum is a
//! hysteresis whose width grows, as in [`balance`](super::balance), as the square root of the larges:
//! ```text
//! d     = 0.39 q + 2 c                     q: a step; c: what a stop, or a resumption, costs
//! beta  = w ms / (k ml)
//! theta = sqrt( 5 sqrt(rho_s/rho) sqrt(k ms/ml) w nl (d/ms) / ((1 - rho)(1 - beta)) )
//! ```
//! 0.39 q is what k lanes idle on average until the last of them has reached its step. ns and nl count all in the system here; a is how many
//! lanes would be busy if smalls ran: those that hold one, and one for each that is queued, at most k.
//!
//! # The rule
//! At every event and timer, the first line that applies says who runs:
//!
//! | | if | run |
//! |---|---|---|
//! | 1 | nl = 0; ns = 0 | smalls; larges |
//! | 2 | overload: both classes have asked for 1.15 of the node over 120 s (until below 1.05), larges for less than 0.9 and no more than smalls | larges |
//! | 3 | the oldest of a class is older than 5 times its bound (`max_wait`, `max_wait_small`); larges if both | that class |
//! | 4 | a small must start now to end in time, and a >= k - 1, or the waste budget is not used up | smalls |
//! | 5 | beta >= 1 | larges |
//! | 6 | smalls run and a < k - 1; larges run and not (a >= k - 1 and ns >= k + theta) | larges |
//!
//! The budget grows by 0.2 (1 - rho) (at least 0.001) of the time, up to 2 ml, and is used up by idle lanes while larges wait and none runs;
//! once a small one is urgent it may be overdrawn by ml/2. Without it, urgency at partial width is unstable. Without line 2 or 3 larges would
//! never run in an overload; tight bounds that force both classes collapse, so that the cheap one is ageing: one lane of eight prefers the
//! oldest small past its bound, and every fourth start of a large one is that of the oldest.
//!
//! To larges: every small that runs stops at its next step, and the large one starts when all lanes are free. To smalls: the large one stops
//! at its next step. Going back before that only takes the request to stop back. Smalls never stop for smalls; a large one that runs stops for
//! another whose predicted run, with what the stop costs, is below 0.8 of what remains of its own.
//!
//! # Memory
//! A lane holds at most `parked` + 1 requests: `parked_large` large ones and the rest small. A parked small goes on on its own lane. A swap
//! never needs another place, so it cannot deadlock. A request that was stopped `max_stops` times runs to its end from then on, as one
//! without steps does.
//!
//! # Order
//! With predictions the smallest remaining first, smalls that can still end in time before others; without, the earliest target.
//!
//! # Cost
//! Counters, the heads of the ranked queues, and what runs or is parked: O(lanes), whatever is queued; O(log n) for the ranks.

use super::settings::Span;
use super::{Action, Hold, Policy, PolicyInfo};
use crate::scheduler::MAX_PARKED;
use crate::scheduler::event::JobRef;
use crate::scheduler::predict::PredictionSource;
use crate::scheduler::view::{Parked, Ranking, Running, View, Waiting};
use crate::types::{Class, Nanos};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "swap",
    about: "for requests that stop at steps: small ones while they fill the node, with a hysteresis for what a swap costs",
    settings: &[
        ("w", "8", "how many small requests in the system one large one is worth, 0 to 1000000"),
        ("cost", "1ms", "what it costs to stop a request at a step, and to resume it: a duration"),
        ("parked", "2", "a lane holds at most so many requests besides the one that runs, 1 to 8"),
        ("parked_large", "2", "so many large ones among all that a lane holds, 1 to 4; 1 with parked=1"),
        (
            "max_wait",
            "100x",
            "beyond 5 times this age of a large request large ones run: a duration, or a multiple of their mean service",
        ),
        ("max_wait_small", "200x", "the same of small ones; and beyond it one lane of eight prefers the oldest"),
        ("max_stops", "1000", "a request that was stopped so often runs to its end"),
    ],
    make: |settings, lanes| {
        let parked = settings.count("parked", 2, 1..=2 * MAX_PARKED)?;
        // Besides it there is room for at least one small one.
        let parked_large = settings.count("parked_large", parked.min(2), 1..=parked.min(MAX_PARKED))?;
        Ok(Box::new(Swap {
            w: settings.number("w", 8.0, 0.0..=1e6)?,
            cost_ns: settings.fixed("cost", Nanos::from_millis(1))?.0 as f64,
            smalls_a_lane: (parked + 1 - parked_large).min(MAX_PARKED),
            larges: parked_large,
            max_wait: settings.span("max_wait", Span::Multiple(100.0))?,
            max_wait_small: settings.span("max_wait_small", Span::Multiple(200.0))?,
            max_stops: settings.count("max_stops", 1_000, 0..=1_000_000)? as u32,
            lanes: lanes as f64,
            runs: Class::Small,
            overload: false,
            urgent: false,
            budget_ns: 0.0,
            budget_at: Nanos::ZERO,
            wasted_lanes: 0,
            large_starts: 0,
            aged: None,
        }))
    },
};

/// Line 2: the offered load at which an overload begins and ends, and what larges may ask for at most.
const OVERLOAD_ON: f64 = 1.15;
const OVERLOAD_OFF: f64 = 1.05;
const OVERLOAD_LARGE: f64 = 0.9;
/// Line 3: so many times its bound, and a class is forced.
const FORCED: f64 = 5.0;
/// What the waste budget gains of the time that the load leaves free, which counts as at least so much.
const BUDGET_SHARE: f64 = 0.2;
const BUDGET_LEAST: f64 = 0.005;
/// The budget's ends, in ml.
const BUDGET_MOST: f64 = 2.0;
const BUDGET_OVERDRAWN: f64 = 0.5;
/// The load is cut here: the root has a pole at 1.
const MAX_LOAD: f64 = 0.97;
/// A large one stops for another below so much of its remaining.
const YIELDS_BELOW: f64 = 0.8;
/// Idle lanes until the last reaches its step: k/(k+1) - 1/2 of a step for 8.
const STEP_LOSS: f64 = 0.39;
/// One lane in so many, and one start of a large in so many, go by age.
const AGED_LANE: usize = 8;
const AGED_START: u32 = 4;

#[derive(Debug)]
struct Swap {
    w: f64,
    cost_ns: f64,
    /// How many smalls a lane holds, running or parked.
    smalls_a_lane: usize,
    /// How many larges the node holds, running or parked.
    larges: usize,
    max_wait: Span,
    max_wait_small: Span,
    max_stops: u32,
    lanes: f64,
    /// Whose turn it is.
    runs: Class,
    overload: bool,
    /// A small one is urgent and was let.
    urgent: bool,
    budget_ns: f64,
    budget_at: Nanos,
    /// Idle lanes while larges wait and none runs, since `budget_at`.
    wasted_lanes: usize,
    large_starts: u32,
    /// The large one that was started by age: it is not stopped for another.
    aged: Option<JobRef>,
}

impl Policy for Swap {
    fn name(&self) -> &str {
        INFO.name
    }

    fn ranks(&self) -> bool {
        true
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        self.spend(view);
        let (runs, wake_at) = self.whose_turn(view);
        self.runs = runs;
        let action = match runs {
            Class::Small => self.smalls(view),
            Class::Large => self.larges(view),
        };
        let larges_wait = view.queued(Class::Large) > 0 || view.parked_larges().next().is_some();
        self.wasted_lanes = if larges_wait && !view.gang_running() { view.free().count() } else { 0 };
        action.unwrap_or(Action::Hold(Hold { drain: runs == Class::Large && !view.gang_running(), wake_at }))
    }
}

impl Swap {
    /// Lets the budget grow, and takes from it what lanes have idled.
    fn spend(&mut self, view: &View<'_>) {
        let dt = (view.now() - self.budget_at).0 as f64;
        self.budget_at = view.now();
        if dt > 0.0 {
            let averages = view.averages();
            let gain = self.budget_gain(view);
            let most = BUDGET_MOST * averages.mean_service_ns(Class::Large).unwrap_or(0.0);
            let loss = self.wasted_lanes as f64 / self.lanes;
            self.budget_ns = (self.budget_ns + (gain - loss) * dt).min(most);
        }
    }

    /// What the budget gains in a nanosecond.
    fn budget_gain(&self, view: &View<'_>) -> f64 {
        BUDGET_SHARE * (1.0 - self.loads(view).map_or(0.0, |[small, large]| small + large)).max(BUDGET_LEAST)
    }

    fn loads(&self, view: &View<'_>) -> Option<[f64; 2]> {
        let lanes = self.lanes as usize;
        Some([view.averages().load(Class::Small, lanes)?, view.averages().load(Class::Large, lanes)?])
    }

    /// The rule; and when it may say something else though nothing happens.
    fn whose_turn(&mut self, view: &mut View<'_>) -> (Class, Option<Nanos>) {
        let late_from = view.latest_start(Class::Small);
        let queued = view.queued(Class::Small);
        let smalls_hold = if view.gang_running() { view.parked_on() } else { view.busy() | view.parked_on() };
        let smalls = queued + view.parked(Class::Small) + view.smalls_running();
        let larges = view.queued(Class::Large) + view.parked_larges().count() + usize::from(view.gang_running());
        if larges == 0 || smalls == 0 {
            self.urgent = false;
            return (if larges == 0 { Class::Small } else { Class::Large }, None);
        }
        let now = view.now();
        if self.is_overload(view) {
            return (Class::Large, None);
        }
        // What must not be overlooked, though nothing happens.
        let mut wake_at = Nanos::MAX;
        for class in [Class::Large, Class::Small] {
            let at = self.forced_at(view, class);
            if at <= now {
                return (class, None);
            }
            wake_at = wake_at.min(at);
        }
        let lanes = self.lanes as usize;
        let full = (smalls_hold.count() + queued).min(lanes) + 1 >= lanes;
        let ml = view.averages().mean_service_ns(Class::Large).unwrap_or(0.0);
        let urgent_at = self.urgent_at(view, late_from).unwrap_or(Nanos::MAX);
        if urgent_at <= now {
            let least = if self.urgent { -BUDGET_OVERDRAWN * ml } else { 0.0 };
            if full || self.budget_ns > least {
                // Full width costs nothing, and opens no credit.
                self.urgent |= !full;
                if !full {
                    // The budget may end before anything else happens.
                    let loss = (lanes - smalls_hold.count().min(lanes)) as f64 / self.lanes - self.budget_gain(view);
                    let lasts = (self.budget_ns + BUDGET_OVERDRAWN * ml) / loss;
                    wake_at = if loss > 0.0 { wake_at.min(now + Nanos(lasts as u64) + Nanos(1)) } else { wake_at };
                }
                return (Class::Small, Some(wake_at));
            }
            self.urgent = false;
            let lasts = -self.budget_ns / self.budget_gain(view);
            wake_at = wake_at.min(now + Nanos(lasts as u64) + Nanos::from_micros(1));
        } else {
            self.urgent = false;
            wake_at = wake_at.min(urgent_at);
        }
        let wake_at = Some(wake_at).filter(|&at| at < Nanos::MAX);
        let means = [Class::Small, Class::Large].map(|class| view.averages().mean_service_ns(class));
        let [Some(ms), Some(ml)] = means else {
            return (if full { Class::Small } else { Class::Large }, wake_at);
        };
        let beta = self.w * ms / (self.lanes * ml);
        if beta >= 1.0 {
            return (Class::Large, wake_at);
        }
        let smalls_run = match self.runs {
            Class::Small => full,
            Class::Large => full && smalls as f64 >= self.lanes + self.theta(view, [ms, ml], beta, larges),
        };
        (if smalls_run { Class::Small } else { Class::Large }, wake_at)
    }

    fn theta(&self, view: &View<'_>, [ms, ml]: [f64; 2], beta: f64, larges: usize) -> f64 {
        let Some([small, large]) = self.loads(view) else { return 0.0 };
        let rho = small + large;
        let d = STEP_LOSS * view.averages().mean_step_ns().unwrap_or(0.0) + 2.0 * self.cost_ns;
        let roots = (small / rho * (self.lanes * ms / ml)).sqrt();
        let squared = 5.0 * roots * self.w * larges as f64 * (d / ms) / ((1.0 - rho.min(MAX_LOAD)) * (1.0 - beta));
        if squared.is_finite() { squared.sqrt() } else { 0.0 }
    }

    fn is_overload(&mut self, view: &View<'_>) -> bool {
        let [small, large] = Class::ALL.map(|class| view.averages().recent_load(class, self.lanes as usize, view.now()));
        self.overload = small + large > if self.overload { OVERLOAD_OFF } else { OVERLOAD_ON };
        self.overload && large < OVERLOAD_LARGE && large <= small
    }

    /// A bound on the age of a class; none as long as what it is a multiple of is unknown.
    fn bound(&self, view: &View<'_>, class: Class, times: f64) -> Option<Nanos> {
        let of = if class == Class::Small { self.max_wait_small } else { self.max_wait };
        let ns = match of {
            Span::Fixed(bound) => bound.0 as f64,
            Span::Multiple(of_mean) => of_mean * view.averages().mean_service_ns(class)?,
        };
        Some(Nanos((times * ns) as u64))
    }

    /// When the oldest of a class is so old that the class is forced.
    fn forced_at(&self, view: &View<'_>, class: Class) -> Nanos {
        let Some(bound) = self.bound(view, class, FORCED) else { return Nanos::MAX };
        let mut oldest = view.oldest(class).map_or(Nanos::MAX, |queued| queued.arrival);
        let here = view.gang_running() == (class == Class::Large);
        if here {
            oldest = view.all_running().map(|running| running.arrival).fold(oldest, Nanos::min);
        }
        let oldest = match class {
            Class::Small => parked_smalls(view).map(|small| small.arrival).fold(oldest, Nanos::min),
            Class::Large => view.parked_larges().map(|large| large.arrival).fold(oldest, Nanos::min),
        };
        if oldest < Nanos::MAX { oldest + bound } else { oldest }
    }

    /// When a small one that waits must start to end in time: the first that still can, a step before.
    fn urgent_at(&self, view: &View<'_>, queued: Option<(Waiting, Nanos)>) -> Option<Nanos> {
        let step = Nanos(view.averages().mean_step_ns().unwrap_or(0.0) as u64);
        let queued = queued.map(|(small, latest)| match view.prediction_source(&small) {
            PredictionSource::Class => latest - view.predicted(&small).unwrap_or(Nanos::ZERO),
            _ => latest,
        });
        let parked = parked_smalls(view).filter_map(|small| {
            let due = small.due?;
            (due >= view.now() + small.remaining).then(|| due - small.remaining)
        });
        // One that runs and would not end in time if it stopped now, too: else it would be stopped as soon as it has started.
        let gang = view.gang_running();
        let running = view.all_running().filter_map(|small| {
            let due = small.due.filter(|_| !gang)?;
            (due >= view.now() + small.remaining).then(|| due - small.remaining)
        });
        parked.chain(running).chain(queued).min().map(|latest| latest - step)
    }

    /// How the queue of a class is served: by size where that is known.
    fn first(view: &View<'_>, class: Class) -> Option<Waiting> {
        let first = view.ranked(class, Ranking::Size)?;
        match view.prediction_source(&first) {
            PredictionSource::Class => view.ranked(class, Ranking::Due),
            _ => Some(first),
        }
    }

    fn smalls(&mut self, view: &View<'_>) -> Option<Action> {
        if view.gang_running() {
            return self.stop_one(view);
        }
        if !view.asked().is_empty()
            && let Some(small) = view.all_running().find(|small| small.asked)
        {
            return Some(Action::Unask(small.job));
        }
        for lane in view.free() {
            let parked = view.parked_smalls(lane).min_by_key(|small| (small.remaining, small.arrival));
            let queued =
                if view.parked_smalls(lane).count() < self.smalls_a_lane { Self::first(view, Class::Small) } else { None };
            match (parked, queued) {
                (None, None) => {}
                (Some(small), None) => return Some(Action::Resume(small.job)),
                (Some(small), Some(queued)) if view.predicted(&queued).is_none_or(|run| small.remaining <= run) => {
                    return Some(Action::Resume(small.job));
                }
                (_, Some(mut small)) => {
                    if lane.index().is_multiple_of(AGED_LANE)
                        && let Some(oldest) = view.oldest(Class::Small)
                        && self.bound(view, Class::Small, 1.0).is_some_and(|bound| view.now() - oldest.arrival > bound)
                    {
                        small = oldest;
                    }
                    return Some(Action::StartSmallOn { job: small.job, lane });
                }
            }
        }
        None
    }

    fn larges(&mut self, view: &View<'_>) -> Option<Action> {
        if let Some(large) = view.all_running().next().filter(|_| view.gang_running()) {
            let better = self.better(view, &large);
            return match (large.asked, better) {
                (true, false) => Some(Action::Unask(large.job)),
                (false, true) => self.stop_one(view),
                _ => None,
            };
        }
        if view.smalls_running() > 0 {
            return self.stop_one(view);
        }
        if !view.all_free() {
            return None;
        }
        let oldest = view.oldest(Class::Large).map_or(Nanos::MAX, |large| large.arrival);
        let by_age = self.large_starts % AGED_START == AGED_START - 1
            && self.bound(view, Class::Large, 1.0).is_some_and(|bound| view.now() - oldest > bound);
        let (parked, queued) = self.next_large(view, by_age);
        // By age the oldest is started if there is room for one more. Else the one that is done sooner goes on.
        let action = match (parked, queued) {
            (Some(parked), _) if Some(parked.job) == self.aged => Some(Action::Resume(parked.job)),
            (Some(parked), Some((_, run, _))) if !by_age && parked.remaining <= run => Some(Action::Resume(parked.job)),
            (_, Some((large, ..))) => Some(Action::StartLarge(large.job)),
            (Some(parked), None) => Some(Action::Resume(parked.job)),
            (None, None) => None,
        };
        if let (true, Some(Action::StartLarge(large))) = (by_age, action) {
            self.aged = Some(large);
        }
        // Only a request's first start counts: a resumption keeps its order.
        self.large_starts = self.large_starts.wrapping_add(u32::from(matches!(action, Some(Action::StartLarge(_)))));
        action
    }

    /// The first parked and the first queued large one, with what that is predicted to run and when it came. The queued one only if there is
    /// room for one more.
    fn next_large(&self, view: &View<'_>, by_age: bool) -> (Option<Parked>, Option<(Waiting, Nanos, Nanos)>) {
        let parked =
            view.parked_larges().min_by_key(|large| (if by_age { large.arrival } else { large.remaining }, large.arrival));
        let held = view.parked_larges().count() + usize::from(view.gang_running());
        let queued = if held >= self.larges {
            None
        } else if by_age {
            view.oldest(Class::Large)
        } else {
            Self::first(view, Class::Large)
        };
        (parked, queued.map(|large| (large, view.predicted(&large).unwrap_or(Nanos::MAX), large.arrival)))
    }

    /// Whether another large one should run instead of this one. Only where runs are predicted one by one.
    fn better(&self, view: &View<'_>, large: &Running) -> bool {
        if self.aged == Some(large.job) {
            return false;
        }
        let (parked, queued) = self.next_large(view, false);
        let own = queued.filter(|(queued, ..)| view.prediction_source(queued) != PredictionSource::Class);
        let told = own.is_some() || queued.is_none();
        let least = parked.filter(|_| told).map(|parked| parked.remaining).into_iter().chain(own.map(|(_, run, _)| run)).min();
        // A second step, so to say, must be gained: what the stop and the later resumption cost counts with it.
        least.is_some_and(|run| (run.0 as f64) + 2.0 * self.cost_ns < YIELDS_BELOW * large.remaining.0 as f64)
    }

    /// Asks one that runs to stop, if one can be asked.
    fn stop_one(&self, view: &View<'_>) -> Option<Action> {
        view.all_running()
            .find(|running| running.can_stop && running.stops < self.max_stops)
            .map(|running| Action::Ask(running.job))
    }
}

fn parked_smalls<'a>(view: &'a View<'_>) -> impl Iterator<Item = Parked> + 'a {
    view.parked_on().into_iter().flat_map(|lane| view.parked_smalls(lane))
}
