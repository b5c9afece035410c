//! `balance`, the default: the square-root switching rule.
//!
//! The exact solution of the Markov decision model of this node (one-lane and all-lane jobs, neither preempted; the simulator's
//! `optimum` solves it) switches from small to large jobs along a curve that grows as the square root of the larges waiting. In
//! closed form, with k lanes, mean service ms and ml, load rho = rho_s + rho_l, nl larges waiting, and w saying how many waiting
//! smalls one waiting large is worth:
//! ```text
//! beta  = w ms / (k ml)
//! theta = max(0, -1 + sqrt( 4 sqrt(rho_s/rho) sqrt(k ms/ml) w nl (D/ms) / ((1 - rho)(1 - beta)+) ))
//! ```
//! D is the time that a drain takes, rho is cut at 0.97 and (1 - beta)+ at 0.001. All of it is measured as the node runs
//! ([`Averages`](crate::scheduler::Averages), and D here, from closing to the start of the large): nothing is configured but w. Until
//! each class has completed a request theta is 0.
//!
//! # The rule
//! With ns smalls queued and r running, H_n = 1 + 1/2 + ... + 1/n:
//!
//! | state | does |
//! |---|---|
//! | nothing runs | a large if ns = 0, or a drain has just ended (exactly one), or ns <= theta: so larges run in batches. Else small ones fill the lanes |
//! | open: small ones run | start small ones; CLOSE when a large waits, no small is queued and r <= k/2 |
//! | closed, soft | start none but backfill; reopen if ns > theta (1 - H_r/H_k): the drain is young, and what it has cost is little |
//! | urgent | closed without reopening, then every large there is, arrivals meanwhile included; ends when no large is queued |
//!
//! Why k/2: solved on the model, closing at 5k/8 costs half a percent more where most work is large (W_1 at load 0.7, share 0.9), and from
//! 3k/8 down what a later drain keeps the larges waiting costs more than that at load 0.9.
//!
//! # Small requests that stop at steps
//! At the closing each that runs is asked to stop at its next step, and a drain lasts one step: so the phase is closed as soon as a lane
//! idles, and a drain counts as one step where it is foreseen. Those that have none, or have been stopped `max_stops` times, end as above:
//! it is they whose number must be at most k/2. Parked ones go on first, each on its lane; when nothing runs they count among ns. A reopening
//! takes back what has not been obeyed yet. Large ones run to their ends.
//!
//! # The bound
//! A large is urgent at its latest start: age + H_r ms + ml >= its bound. The bound is its hard deadline where it has one that can
//! still be met, else `max_wait`. Without a bound every rule of this kind starves the larges for ever once smalls saturate the node.
//! By default it is 200 times the measured mean service of a large: it seldom binds below saturation (100 times does at load 0.9,
//! where one exhaustive batch ages the larges behind it past the bound, and costs up to 27 %). A tight one is an SLO with a price:
//! it drains early. Urgency is latched, since a test that is made afresh on every event would flap, and it serves every large, since
//! one large an urgent drain collapses under load. It comes with time, not with an event: [`Hold::wake_at`] says when.
//!
//! Small ones have a bound of their own, `max_wait_small`, since where larges saturate the node neither theta nor an exhaustive batch would ever
//! let one start: when nothing runs and a large would start, but the oldest small has waited past it, the lanes get one fill of the oldest
//! smalls first. Then it is a large one's turn: at most one such fill between two larges. The theorem that the two bounds make is on the
//! page [`docs::scheduling`](crate::docs::scheduling).
//!
//! Before any large has completed, what multiplies `max_wait` is the waiting one's own prediction, else k ms, else nothing: then the
//! large is urgent at once, so that there is something to learn from.
//!
//! # Cost
//! A decision looks at the heads of the queues and at counters: O(1), but for backfill, which looks at the first
//! [`SCAN`](crate::scheduler::SCAN) small ones, and only during a drain with predictions of their own.

use super::backfill::Futile;
use super::settings::Span;
use super::{Action, Hold, Policy, PolicyInfo};
use crate::scheduler::predict::PredictionSource;
use crate::scheduler::table::Part;
use crate::scheduler::view::{Order, Parked, View, Waiting};
use crate::types::{Class, MAX_SIM_LANES, Nanos};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "balance",
    about: "the square-root switching rule, near the exact optimum: large requests in batches, small ones while they fill the lanes",
    settings: &[
        ("w", "8", "how many waiting small requests one waiting large one is worth, 0 to 1000000"),
        ("max_wait", "200x", "the wait after which a large request is urgent: a duration, or a multiple of their mean service"),
        ("max_wait_small", "200x", "the wait after which small requests get a fill between two large ones; as max_wait"),
        ("order", "on-time", "of small requests: on-time: those that can still meet their target first; arrival"),
        ("order_large", "arrival", "of large requests: arrival; on-time"),
        ("targets", "order", "order: soft targets only order; urgent: they bound a large request's wait as hard deadlines do"),
        ("max_stops", "64", "so often is a small request with steps stopped for large ones"),
        ("cost", "1ms", "what it costs to stop a request at a step, and to resume it: a duration"),
        ("backfill", "on", "on: during a drain start small requests whose own prediction ends by the shadow time; off"),
    ],
    make: |settings, lanes| {
        let order = [("on-time", Order::OnTime), ("arrival", Order::Arrival)];
        let order_large = [order[1], order[0]];
        Ok(Box::new(Balance {
            w: settings.number("w", 8.0, 0.0..=1e6)?,
            max_wait: settings.span("max_wait", Span::Multiple(200.0))?,
            max_wait_small: settings.span("max_wait_small", Span::Multiple(200.0))?,
            order: [settings.choice("order", &order)?, settings.choice("order_large", &order_large)?],
            targets_urgent: settings.choice("targets", &[("order", false), ("urgent", true)])?,
            backfill: settings.choice("backfill", &[("on", true), ("off", false)])?,
            close_at: lanes / 2,
            max_stops: settings.count("max_stops", 64, 0..=1_000_000)? as u32,
            cost_ns: settings.fixed("cost", Nanos::from_millis(1))?.0 as f64,
            lanes: lanes as f64,
            harmonic: harmonic_numbers(),
            drain_ns: None,
            closed_at: None,
            futile: None,
            urgent: false,
            fill: 0,
            owes_large: false,
        }))
    },
};

/// The weight of one drain in the average of their lengths.
const DRAIN_WEIGHT: f64 = 0.05;
/// The load is cut here: the root has a pole at 1.
const MAX_LOAD: f64 = 0.97;
/// (1 - beta) is cut here: from beta = 1 on every w is the same policy, and this is near enough to it.
const MIN_ONE_LESS_BETA: f64 = 0.001;

/// The margin of a backfilled request, in mean relative errors of its prediction.
const BACKFILL_ERRORS: f64 = 1.0;

/// H_0 to H_64.
const fn harmonic_numbers() -> [f64; MAX_SIM_LANES + 1] {
    let mut h = [0.0; MAX_SIM_LANES + 1];
    let mut n = 1;
    while n < h.len() {
        h[n] = h[n - 1] + 1.0 / n as f64;
        n += 1;
    }
    h
}

#[derive(Debug)]
struct Balance {
    w: f64,
    max_wait: Span,
    max_wait_small: Span,
    /// By class.
    order: [Order; 2],
    targets_urgent: bool,
    backfill: bool,
    /// A small phase closes once no more than so many run.
    close_at: usize,
    /// A small one that has stopped so often is not asked any more.
    max_stops: u32,
    /// What a resumption costs.
    cost_ns: f64,
    lanes: f64,
    harmonic: [f64; MAX_SIM_LANES + 1],
    /// D, once a drain has ended.
    drain_ns: Option<f64>,
    /// Small jobs are held back since then.
    closed_at: Option<Nanos>,
    /// The scan for backfill that found nothing.
    futile: Option<Futile>,
    /// The latch: no reopening, and larges until none is queued.
    urgent: bool,
    /// So many more small ones belong to a fill that overdue ones have brought about.
    fill: usize,
    /// There was such a fill since a large one ran: the next turn is a large one's.
    owes_large: bool,
}

/// What is parked on a lane that is free, lowest first.
fn parked_on_free(view: &View<'_>) -> Option<Parked> {
    let lane = (view.free() & view.parked_on()).lowest()?;
    view.parked_smalls(lane).next()
}

impl Policy for Balance {
    fn name(&self) -> &str {
        INFO.name
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        if view.gang_running() {
            return Action::IDLE;
        }
        let free = !view.free().is_empty();
        if self.fill > 0 {
            return self.fill(view).unwrap_or_else(|| self.next(view));
        }
        if view.queued(Class::Large) == 0 && view.parked_larges().next().is_none() {
            self.closed_at = None;
            self.urgent = false;
            self.owes_large = false;
            return self.small(view, free).unwrap_or(Action::IDLE);
        }
        let running = view.smalls_running();
        let unstoppable = self.unstoppable(view, running);
        let mut wake_at = None;
        if !self.urgent {
            let latest = self.latest_start(view, unstoppable);
            self.urgent = view.now() >= latest;
            wake_at = (!self.urgent && latest < Nanos::MAX).then_some(latest);
        }
        if running == 0 {
            let large_first = self.urgent || self.closed_at.is_some() || self.within_theta(view);
            if large_first && !self.owes_large && self.overdue(view) {
                self.fill = view.free().count();
                self.owes_large = true;
                self.closed_at = Some(view.now());
                return self.fill(view).unwrap_or(Action::IDLE);
            }
            return if large_first { self.large(view) } else { self.small(view, free).unwrap_or(Action::IDLE) };
        }
        let queued = view.queued(Class::Small);
        if self.closed_at.is_none() {
            let none_waits = queued == 0 && (view.free() & view.parked_on()).is_empty();
            // What stops at its next step does not keep the large one waiting: a lane that idles is enough.
            let few = unstoppable <= self.close_at && running < self.lanes as usize;
            if self.urgent || (none_waits && few) {
                self.closed_at = Some(view.now());
            } else {
                return self.small(view, free).unwrap_or(Action::Hold(Hold { drain: false, wake_at }));
            }
        }
        // Those of a fill have been kept waiting past their bound: they run to their ends.
        if unstoppable < running
            && !self.owes_large
            && let Some(small) = view.all_running().find(|small| small.can_stop && small.stops < self.max_stops)
        {
            return Action::Ask(small.job);
        }
        if free && queued > 0 {
            let spent = self.harmonic[running] / self.harmonic[self.lanes as usize];
            if !self.urgent && queued as f64 > self.theta(view) * (1.0 - spent).max(0.0) {
                self.closed_at = None;
                return self.small(view, free).unwrap_or(Action::IDLE);
            }
            if self.backfill
                && !(view.free() & !view.parked_on()).is_empty()
                && let Some(small) = self.in_time(view)
            {
                return Action::backfill(small.job);
            }
        }
        Action::Hold(Hold { drain: true, wake_at })
    }
}

impl Balance {
    /// The next thing to do for smalls while they may start: none of them stops any more, those that did go on, others start.
    #[inline]
    fn small(&self, view: &mut View<'_>, free: bool) -> Option<Action> {
        if !view.asked().is_empty()
            && let Some(small) = view.all_running().find(|small| small.asked)
        {
            return Some(Action::Unask(small.job));
        }
        if !free {
            return None;
        }
        if let Some(small) = parked_on_free(view) {
            return Some(Action::Resume(small.job));
        }
        view.next(Class::Small, self.order[Class::Small.index()]).map(|small| Action::small(small.job))
    }

    /// The next of a fill: what is parked where it can go on, else the oldest.
    fn fill(&mut self, view: &View<'_>) -> Option<Action> {
        self.fill -= 1;
        let next = if view.free().is_empty() {
            None
        } else {
            let parked = parked_on_free(view).map(|small| Action::Resume(small.job));
            parked.or_else(|| view.oldest(Class::Small).map(|small| Action::small(small.job)))
        };
        if next.is_none() {
            self.fill = 0;
        }
        next
    }

    /// How many of the small ones that run do not stop at a next step: they have none, or have stopped as often as one may.
    fn unstoppable(&self, view: &View<'_>, running: usize) -> usize {
        if view.averages().mean_step_ns().is_none() {
            return running;
        }
        view.all_running().filter(|small| !small.asked && (!small.can_stop || small.stops >= self.max_stops)).count()
    }

    /// Starts a large; the drain that led to it, if one did, is a sample of D.
    fn large(&mut self, view: &mut View<'_>) -> Action {
        if let Some(closed_at) = self.closed_at.take() {
            let took = (view.now() - closed_at).0 as f64;
            let drain = self.drain_ns.or_else(|| self.drain_at_first(view)).unwrap_or(took);
            self.drain_ns = Some(drain + DRAIN_WEIGHT * (took - drain));
        }
        self.owes_large = false;
        if let Some(large) = view.parked_larges().next() {
            return Action::Resume(large.job);
        }
        match view.next(Class::Large, self.order[Class::Large.index()]) {
            Some(large) => Action::StartLarge(large.job),
            None => Action::IDLE,
        }
    }

    fn drain_at_first(&self, view: &View<'_>) -> Option<f64> {
        Some(self.harmonic[self.lanes as usize] * view.averages().mean_service_ns(Class::Small)?)
    }

    /// (theta + 1)^2; `None` until it can be told.
    fn theta_squared(&self, view: &View<'_>) -> Option<f64> {
        let averages = view.averages();
        let ms = averages.mean_service_ns(Class::Small)?;
        let ml = averages.mean_service_ns(Class::Large)?;
        let rho_s = averages.rate_per_ns(Class::Small)? * ms / self.lanes;
        let rho_l = averages.rate_per_ns(Class::Large)? * ml;
        let mut drain = self.drain_ns.or_else(|| self.drain_at_first(view))?;
        if averages.mean_step_ns().is_some() {
            // What a stop costs is a part of the drain that was measured; the resumption after it is not.
            drain += self.cost_ns;
        }
        let beta = self.w * ms / (self.lanes * ml);
        let rho = rho_s + rho_l;
        let roots = (rho_s / rho * (self.lanes * ms / ml)).sqrt();
        let larges = (view.queued(Class::Large) + view.parked(Class::Large)) as f64;
        let squared =
            4.0 * roots * self.w * larges * (drain / ms) / ((1.0 - rho.min(MAX_LOAD)) * (1.0 - beta).max(MIN_ONE_LESS_BETA));
        // 0 / 0 where nothing takes any time: nothing to balance either.
        squared.is_finite().then_some(squared)
    }

    fn theta(&self, view: &View<'_>) -> f64 {
        self.theta_squared(view).map_or(0.0, |squared| (squared.sqrt() - 1.0).max(0.0))
    }

    /// ns <= theta, without the root.
    fn within_theta(&self, view: &View<'_>) -> bool {
        let queued = (view.queued(Class::Small) + view.parked(Class::Small)) as f64;
        queued == 0.0 || self.theta_squared(view).is_some_and(|squared| (queued + 1.0) * (queued + 1.0) <= squared)
    }

    /// What a multiple of a bound counts: the mean service of larges; before one has completed a large one's own prediction, else k ms,
    /// else nothing.
    fn unit_ns(&self, view: &View<'_>, large: Option<&Waiting>) -> f64 {
        let averages = view.averages();
        let own = || large.and_then(|large| view.predicted(large)).map(|own| own.0 as f64);
        let small = || averages.mean_service_ns(Class::Small).map(|ms| self.lanes * ms);
        averages.mean_service_ns(Class::Large).or_else(own).or_else(small).unwrap_or(0.0)
    }

    /// Whether a small one has waited, or been parked, for longer than its bound.
    fn overdue(&self, view: &View<'_>) -> bool {
        let queued = view.oldest(Class::Small).map(|small| small.arrival);
        let parked = || view.parked_on().into_iter().flat_map(|lane| view.parked_smalls(lane)).map(|small| small.since).min();
        let bound = match self.max_wait_small {
            Span::Fixed(bound) => bound,
            Span::Multiple(times) => Nanos((times * self.unit_ns(view, None)) as u64),
        };
        // Before anything is known the bound is nothing, and what has just been stopped for a large one would go first again, to its end.
        let known = bound > Nanos::ZERO && !view.parked_on().is_empty();
        let oldest = if known { queued.into_iter().chain(parked()).min() } else { queued };
        let Some(oldest) = oldest else { return false };
        view.now() - oldest >= bound
    }

    /// When a large one becomes urgent: the first of each part of their queue is looked at, which is the oldest in arrival order.
    /// `unstoppable` of the smalls that run do so to their ends; the others free their lanes within a step.
    fn latest_start(&self, view: &View<'_>, unstoppable: usize) -> Nanos {
        let averages = view.averages();
        let ms = averages.mean_service_ns(Class::Small);
        let ml = averages.mean_service_ns(Class::Large);
        let step = averages.mean_step_ns().unwrap_or(0.0);
        let drain = (self.harmonic[unstoppable] * ms.unwrap_or(0.0)).max(step);
        let of = |large: Waiting, late: bool| {
            let mut service = ml.unwrap_or(0.0);
            let soft = large.target.filter(|_| self.targets_urgent).unwrap_or(Nanos::MAX);
            let due = large.deadline.unwrap_or(Nanos::MAX).min(soft);
            if due < Nanos::MAX && !late && !view.is_late(&large) {
                // It is late once its own prediction does not fit any more: it must be urgent before that.
                if view.prediction_source(&large) != PredictionSource::Class {
                    service = service.max(view.predicted(&large).map_or(0.0, |own| own.0 as f64));
                }
                return due - Nanos((drain + service) as u64);
            }
            let bound = match self.max_wait {
                Span::Fixed(bound) => bound,
                Span::Multiple(times) => Nanos((times * self.unit_ns(view, Some(&large))) as u64),
            };
            (large.arrival + bound) - Nanos((drain + service) as u64)
        };
        let fresh = view.head(Class::Large, Part::Fresh).map_or(Nanos::MAX, |large| of(large, false));
        let late = view.head(Class::Large, Part::Late).map_or(Nanos::MAX, |large| of(large, true));
        fresh.min(late)
    }

    /// The first small job in line whose own prediction ends by the shadow time, with a margin for its error: one that outlives the
    /// drain delays the large one. The mean of its class promises nothing about one job.
    ///
    /// Time passes, the shadow stands still and the queue grows at its end: who did not fit does not fit later. So most events of a drain
    /// need no second scan.
    fn in_time(&mut self, view: &mut View<'_>) -> Option<Waiting> {
        let now = Futile::now(view);
        if self.futile.is_some_and(|before| before.covers(&now)) {
            return None;
        }
        let room = now.shadow() - view.now();
        let order = self.order[Class::Small.index()];
        let found = view.first_within(Class::Small, order, room, BACKFILL_ERRORS, true);
        self.futile = if found.is_none() { Some(now) } else { None };
        found
    }
}
