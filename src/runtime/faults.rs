//! What the dispatcher knows of each lane's health, and when a lane that is out of service is tried again.
//!
//! A lane goes out of service by a fault and comes back by a *probe*: the dispatcher reserves the idle lane, its worker calls
//! [`Device::probe`](crate::Device::probe), and a probe that passes restores the lane, if no fault came after the probe began. Every fault
//! and every failed probe is a strike, and doubles the wait before the next probe. Only requests that end well take strikes back: a lane
//! that passes its probes and fails at once when it works gets one request a wait, and the waits grow.
//!
//! Nothing here is shared or reads a clock.

use super::health::LaneState;
use crate::types::{LaneId, LaneMask, MAX_LANES, Nanos};
use std::time::Duration;

/// Why a lane is out of service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Fault {
    /// The device said so, by [`DeviceFault::Lane`](crate::DeviceFault::Lane), or panicked.
    Device,
    /// A request did not let go of it within its limit and the grace, or a probe did not end. While it is held it is not probed.
    Hung,
    /// Too many requests in a row failed on it by a device error; see [`Recovery::breaker`].
    Breaker,
    /// The device said that it is gone for good, by [`DeviceFault::Lost`](crate::DeviceFault::Lost).
    Lost,
}

impl Fault {
    /// As a number, for a plate.
    pub(super) const fn code(self) -> u64 {
        self as u64
    }

    /// That of a number which [`code`](Self::code) gave.
    pub(super) const fn of_code(code: u64) -> Self {
        match code {
            1 => Self::Hung,
            2 => Self::Breaker,
            3 => Self::Lost,
            _ => Self::Device,
        }
    }
}

/// How lanes that are out of service come back: [`Builder::recovery`](super::Builder::recovery).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// How long after a lane's first fault it is probed. Default: 100 ms, far more than a driver's reset of one context takes, and little
    /// to a request that waits for the lane. 0 counts as a microsecond.
    pub first_wait: Duration,
    /// The longest wait, to which each further strike doubles it. Default: 60 s, so that a card that somebody repairs is back within a
    /// minute, and one that nobody repairs costs a probe a minute.
    pub longest_wait: Duration,
    /// After so many requests that ended well on the lane its strikes are forgotten. Default: 32, so that one that works by chance now and
    /// then is not taken for healthy.
    pub good_runs: u32,
    /// After so many requests in a row that failed on the lane by a device error it is taken out of service. Such a lane is free
    /// sooner than the others, and would draw the traffic to itself. The last lane in service stays. Default: 8, since requests that are
    /// at fault themselves are rarely alone on a lane so often. `None`: never.
    pub breaker: Option<u32>,
    /// After so many failed probes in a row the lane is given up as lost. Default: `None`, never: a probe a minute costs nothing.
    pub attempts: Option<u32>,
    /// How long a probe may take; after that the lane counts as hung. Default: 30 s, several times what opening a GPU takes.
    pub probe_limit: Duration,
    /// How long large requests wait for the return of lanes that are out of service, counted from when the first of them went. Those that
    /// wait then fail with [`RequestError::LanesMissing`](super::RequestError::LanesMissing), and further ones are turned away with
    /// [`RejectReason::LanesMissing`](super::RejectReason::LanesMissing), until every lane is back. A lane that is lost is not waited for.
    /// Default: 60 s, in which even a lane with many strikes is probed once.
    pub large_wait: Duration,
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(60),
            good_runs: 32,
            breaker: Some(8),
            attempts: None,
            probe_limit: Duration::from_secs(30),
            large_wait: Duration::from_secs(60),
        }
    }
}

/// How long requests may hold their lanes: [`Builder::watchdog`](super::Builder::watchdog).
///
/// A request that is past its limit is asked to stop, and if it is large its gang is broken, so that those at the barrier leave. Who still
/// holds a lane after [`grace`](Self::grace) is given up with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchdog {
    /// The limit of a request without one of its own, as a multiple of how long it is predicted to run. Default: 20, which a slow one does
    /// not reach: a false alarm costs a request, and a lane for as long as it still runs. `None`: only requests with a limit are watched.
    pub times: Option<u32>,
    /// But no limit by prediction is shorter. Default: 30 s, since what is short may meet a driver that loads or compiles something.
    pub at_least: Duration,
    /// The limit of a request of which nothing can be predicted yet. Default: 10 min. `None`: none.
    pub unpredicted: Option<Duration>,
    /// How long a request that is past its limit has to end after it was asked. Default: 1 s, some thousand barriers and many steps of
    /// what looks whether it is to stop.
    pub grace: Duration,
    /// How long requests that run may go on running once the node is shut down by [`Shutdown::Abort`](super::Shutdown::Abort), if their
    /// limits are not shorter. It is what bounds that. Default: 30 s. `None`: to their ends.
    pub abort: Option<Duration>,
}

impl Watchdog {
    /// Nothing is watched but requests with a limit of their own, and a shutdown waits for what runs.
    pub const OFF: Self =
        Self { times: None, at_least: Duration::from_secs(30), unpredicted: None, grace: Duration::from_secs(1), abort: None };

    /// The limit of a request that has none of its own.
    #[inline]
    pub(super) fn limit(&self, predicted: Option<Nanos>) -> Nanos {
        match (self.times, predicted) {
            (Some(times), Some(predicted)) => Nanos(predicted.0.saturating_mul(u64::from(times))).max(Nanos::from(self.at_least)),
            _ => self.unpredicted.map_or(Nanos::MAX, Nanos::from),
        }
    }
}

impl Default for Watchdog {
    fn default() -> Self {
        Self { times: Some(20), unpredicted: Some(Duration::from_secs(600)), abort: Some(Duration::from_secs(30)), ..Self::OFF }
    }
}

/// One lane, as the dispatcher knows it.
#[derive(Clone, Copy, Debug)]
struct LaneBook {
    /// Why it is out of service.
    fault: Option<Fault>,
    /// Since when.
    since: Nanos,
    /// Faults in its life: a probe vouches for those before it alone.
    faults: u32,
    /// `faults` when the probe began.
    probed: u32,
    /// Faults and failed probes that are not forgotten.
    strikes: u32,
    /// Failed probes in a row.
    failed_probes: u32,
    /// Requests in a row that ended well, since the last strike.
    good: u32,
    /// Requests in a row that failed by a device error.
    bad: u32,
    /// When it is probed; none while it is held, or lost.
    next_try: Option<Nanos>,
}

impl LaneBook {
    const NEW: Self = Self {
        fault: None,
        since: Nanos::ZERO,
        faults: 0,
        probed: 0,
        strikes: 0,
        failed_probes: 0,
        good: 0,
        bad: 0,
        next_try: None,
    };
}

/// What the books say of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Probed {
    /// The lane goes back into service.
    Restore,
    /// It stays out.
    Stay,
}

/// Every lane's book.
#[derive(Clone, Debug)]
pub(super) struct Books {
    recovery: Option<Recovery>,
    lanes: [LaneBook; MAX_LANES],
    changed: LaneMask,
}

impl Books {
    pub(super) const fn new(recovery: Option<Recovery>) -> Self {
        Self { recovery, lanes: [LaneBook::NEW; MAX_LANES], changed: LaneMask::NONE }
    }

    fn change(&mut self, lane: usize) -> &mut LaneBook {
        self.changed = self.changed.with(LaneId::new(lane));
        &mut self.lanes[lane]
    }

    /// A lane went out of service, or a fault came while it was out.
    pub(super) fn fault(&mut self, lane: usize, now: Nanos, fault: Fault) {
        let book = self.change(lane);
        if book.fault.is_none() {
            book.since = now;
            book.failed_probes = 0;
        }
        // A lost lane stays lost, whatever else befalls it.
        if book.fault != Some(Fault::Lost) {
            book.fault = Some(fault);
        }
        book.faults = book.faults.wrapping_add(1);
        book.strikes = book.strikes.saturating_add(1);
        (book.good, book.bad, book.next_try) = (0, 0, None);
    }

    /// What the worker told of the fault that took its lane out of service.
    pub(super) fn explain(&mut self, lane: usize, fault: Fault) {
        self.change(lane).fault = Some(fault);
    }

    /// The lane, which is out of service, is held by nobody: it is probed after its wait.
    pub(super) fn idle(&mut self, lane: usize, now: Nanos) {
        let recovery = self.recovery;
        let book = self.change(lane);
        let wait = recovery.filter(|_| book.fault != Some(Fault::Lost)).map(|recovery| wait(&recovery, book.strikes));
        book.next_try = wait.map(|wait| now + wait);
    }

    /// When the lane is to be probed.
    pub(super) fn next_try(&self, lane: usize) -> Option<Nanos> {
        self.lanes[lane].next_try
    }

    /// A probe begins. How long it may take.
    pub(super) fn probe(&mut self, lane: usize) -> Nanos {
        let book = self.change(lane);
        (book.probed, book.next_try) = (book.faults, None);
        self.recovery.map_or(Nanos::MAX, |recovery| Nanos::from(recovery.probe_limit))
    }

    /// Why the lane is out of service.
    pub(super) fn why(&self, lane: usize) -> Option<Fault> {
        self.lanes[lane].fault
    }

    /// A probe ended, by this fault or by none, and its lane is idle.
    pub(super) fn probed(&mut self, lane: usize, now: Nanos, found: Option<Fault>) -> Probed {
        let recovery = self.recovery;
        let book = self.change(lane);
        if found.is_none() && book.probed == book.faults {
            (book.fault, book.failed_probes) = (None, 0);
            return Probed::Restore;
        }
        if found.is_some() {
            book.strikes = book.strikes.saturating_add(1);
            book.failed_probes = book.failed_probes.saturating_add(1);
        }
        let given_up = recovery.and_then(|recovery| recovery.attempts).is_some_and(|most| book.failed_probes >= most);
        if given_up || found == Some(Fault::Lost) {
            book.fault = Some(Fault::Lost);
        }
        self.idle(lane, now);
        Probed::Stay
    }

    /// A request ended on the lane in service, as the device saw it. Whether the breaker takes the lane out of service.
    #[inline]
    pub(super) fn ended(&mut self, lane: usize, failed: bool) -> bool {
        let book = &mut self.lanes[lane];
        let Some(recovery) = &self.recovery else { return false };
        if failed {
            book.good = 0;
            book.bad = book.bad.saturating_add(1);
            return recovery.breaker.is_some_and(|most| book.bad >= most.max(1));
        }
        book.bad = 0;
        if book.strikes > 0 {
            book.good += 1;
            if book.good >= recovery.good_runs {
                (book.good, book.strikes) = (0, 0);
            }
        }
        false
    }

    /// Until when larges wait for lanes that are out of service since then.
    pub(super) fn wait_until(&self, since: Nanos) -> Nanos {
        self.recovery.map_or(Nanos::ZERO, |recovery| since + Nanos::from(recovery.large_wait))
    }

    /// Whether the lane will not come back.
    pub(super) fn is_lost(&self, lane: usize) -> bool {
        let book = &self.lanes[lane];
        book.fault == Some(Fault::Lost) || book.fault.is_some() && self.recovery.is_none()
    }

    /// What the lane's plate is to say.
    pub(super) fn state(&self, lane: usize) -> LaneState {
        let book = &self.lanes[lane];
        let since = book.since;
        match book.fault {
            None => LaneState::InService,
            Some(fault) if self.is_lost(lane) => LaneState::Lost { fault, since },
            Some(fault) => LaneState::Quarantined { fault, since, next_try: book.next_try },
        }
    }

    /// The lanes whose state has changed since this was last asked.
    #[inline]
    pub(super) fn take_changed(&mut self) -> LaneMask {
        std::mem::replace(&mut self.changed, LaneMask::NONE)
    }
}

/// How long a lane with so many strikes waits for its probe.
fn wait(recovery: &Recovery, strikes: u32) -> Nanos {
    let doublings = strikes.saturating_sub(1).min(63);
    let first = Nanos::from(recovery.first_wait).max(Nanos::from_micros(1));
    Nanos(first.0.saturating_mul(1 << doublings)).min(Nanos::from(recovery.longest_wait).max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn recovery() -> Recovery {
        Recovery { first_wait: 10 * MS, longest_wait: 35 * MS, good_runs: 2, breaker: Some(3), ..Recovery::default() }
    }

    #[test]
    fn each_strike_doubles_the_wait_and_good_runs_take_them_back() {
        let mut books = Books::new(Some(recovery()));
        for (round, wait) in [10, 20, 35, 35].into_iter().enumerate() {
            books.fault(0, at(0), Fault::Device);
            books.idle(0, at(1));
            assert_eq!(books.next_try(0), Some(at(1 + wait)), "round {round}");
            books.probe(0);
            assert_eq!(books.next_try(0), None, "one probe at a time");
            assert_eq!(books.probed(0, at(2), None), Probed::Restore);
            assert!(!books.ended(0, false), "one good run is not enough");
        }
        books.ended(0, false);
        books.fault(0, at(0), Fault::Device);
        books.idle(0, at(0));
        assert_eq!(books.next_try(0), Some(at(10)));
    }

    #[test]
    fn a_probe_vouches_only_for_faults_before_it() {
        let mut books = Books::new(Some(recovery()));
        books.fault(1, at(0), Fault::Device);
        books.idle(1, at(0));
        books.probe(1);
        books.fault(1, at(5), Fault::Device);
        assert_eq!(books.probed(1, at(6), None), Probed::Stay);
        assert_eq!(books.next_try(1), Some(at(26)));
        let out = LaneState::Quarantined { fault: Fault::Device, since: at(0), next_try: Some(at(26)) };
        assert_eq!(books.state(1), out, "it is out since the first fault");
        books.probe(1);
        assert_eq!(books.probed(1, at(30), None), Probed::Restore);
        assert_eq!(books.state(1), LaneState::InService);
        assert_eq!((books.take_changed(), books.take_changed()), (LaneId::new(1).mask(), LaneMask::NONE));
    }

    #[test]
    fn what_is_lost_is_not_tried_again() {
        let mut books = Books::new(Some(Recovery { attempts: Some(2), ..recovery() }));
        books.fault(0, at(0), Fault::Lost);
        books.idle(0, at(0));
        assert_eq!((books.next_try(0), books.is_lost(0)), (None, true));
        books.fault(1, at(0), Fault::Device);
        for failed in 1..=2 {
            books.probe(1);
            assert_eq!(books.probed(1, at(0), Some(Fault::Device)), Probed::Stay);
            assert_eq!(books.is_lost(1), failed == 2);
        }
        assert_eq!(books.next_try(1), None);
        let mut never = Books::new(None);
        never.fault(0, at(0), Fault::Device);
        never.idle(0, at(0));
        assert_eq!((never.next_try(0), never.is_lost(0)), (None, true), "without recovery nothing comes back");
    }

    #[test]
    fn the_breaker_counts_device_errors_in_a_row() {
        let mut books = Books::new(Some(recovery()));
        assert_eq!(
            [true, true, false, true, true, true].map(|failed| books.ended(2, failed)),
            [false, false, false, false, false, true]
        );
    }

    #[test]
    fn a_limit_is_a_multiple_of_the_prediction_and_has_a_floor() {
        let watchdog = Watchdog::default();
        assert_eq!(watchdog.limit(Some(at(10_000))), at(200_000));
        assert_eq!(watchdog.limit(Some(at(1))), at(30_000));
        assert_eq!(watchdog.limit(Some(Nanos::MAX)), Nanos::MAX);
        assert_eq!(watchdog.limit(None), at(600_000));
        assert_eq!(Watchdog::OFF.limit(Some(at(1))), Nanos::MAX);
    }

    #[test]
    fn absurd_settings_do_not_overflow() {
        let absurd = Recovery { first_wait: Duration::MAX, longest_wait: Duration::ZERO, ..recovery() };
        let mut books = Books::new(Some(absurd));
        for _ in 0..100 {
            books.fault(0, Nanos::MAX, Fault::Device);
            books.idle(0, Nanos::MAX);
        }
        assert_eq!(books.next_try(0), Some(Nanos::MAX));
        let zero = Recovery { first_wait: Duration::ZERO, longest_wait: Duration::ZERO, good_runs: 0, ..recovery() };
        assert_eq!(wait(&zero, 5), Nanos::from_micros(1), "a wait of nothing would have the dispatcher spin");
    }
}
