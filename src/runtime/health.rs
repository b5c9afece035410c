//! The node's health: what [`Phalanx::health`](super::Phalanx::health) reads, past the request queue.
//!
//! The dispatcher writes a plate for each lane whenever its state changes, and anybody reads it at any time. A version says whether a read
//! met a change: the writer makes it odd, writes, and makes it even again; a reader that finds it odd or changed looks again, for a bounded
//! time.

use super::faults::Fault;
use super::node::Shared;
use crate::device::DeviceError;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{hint, order, thread};
use crate::types::{Class, LaneId, LaneMask, Nanos};
use std::time::Duration;

/// How often a reader looks again at once: the dispatcher writes three numbers.
const LOOKS: u32 = 64;
/// How often it then sleeps a little before it looks again: the dispatcher has lost its CPU within a write. After a tenth of a second it gets
/// the numbers as they are: a monitor must not wait for a node that stands still, and `is_live` tells of that.
const NAPS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 1_000 };
const NAP: Duration = Duration::from_micros(100);

/// So long may a turn of the dispatcher take before it counts as stuck: a million times what one takes.
const STUCK: Nanos = Nanos::from_secs(1);

/// Where a lane is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LaneState {
    /// Requests run on it.
    InService,
    /// Nothing runs on it until a probe has passed.
    Quarantined {
        /// Why.
        fault: Fault,
        /// Since when, in the node's time.
        since: Nanos,
        /// When it is probed next. `None`: a probe is under way, or whoever was given up on it still holds it.
        next_try: Option<Nanos>,
    },
    /// It will not come back.
    Lost {
        /// Why.
        fault: Fault,
        /// Since when it is out of service, in the node's time.
        since: Nanos,
    },
}

/// One lane's health.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LaneHealth {
    /// Which lane.
    pub lane: LaneId,
    /// Where it is.
    pub state: LaneState,
    /// What its device said when it last took the lane out of service, or failed a probe. It stays when the lane is back.
    pub last_error: Option<DeviceError>,
}

/// The node's health at one moment.
///
/// *Live* and *ready* are two questions. A node that is not live is beyond help: restart it. One that is live and not ready must not be sent
/// requests now, and a restart would not bring its GPUs back.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Health {
    /// When this was read, in the node's time.
    pub now: Nanos,
    /// Every lane, in order.
    pub lanes: Vec<LaneHealth>,
    /// Whether requests are taken: the node has not been told to shut down.
    pub accepting: bool,
    /// Whether larges are turned away, because lanes have been missing for too long.
    pub larges_turned_away: bool,
    /// When the dispatcher last began to work. `None`: it waits for something to do.
    pub working_since: Option<Nanos>,
    /// Whether the node has ended.
    pub ended: bool,
}

impl Health {
    /// Whether the dispatcher does its work: it waits for something to do, or began its latest turn within the last second. If the node was
    /// built with [`Drive::Turn`](super::Drive::Turn) that is whether somebody turned within the last second. Broken lanes do not count.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.ended && self.working_since.is_none_or(|since| self.now - since < STUCK)
    }

    /// Whether a small request could start: the node is live, takes requests, and has a lane in service.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready_for(Class::Small)
    }

    /// Whether a request of this class could start. A large one needs every lane in service.
    #[must_use]
    pub fn is_ready_for(&self, class: Class) -> bool {
        let mut in_service = self.lanes.iter().map(|lane| lane.state == LaneState::InService);
        let lanes = match class {
            Class::Small => in_service.any(|in_service| in_service),
            Class::Large => in_service.all(|in_service| in_service),
        };
        self.is_live() && self.accepting && lanes
    }

    /// The lanes that are not in service.
    #[must_use]
    pub fn out_of_service(&self) -> LaneMask {
        self.lanes.iter().filter(|lane| lane.state != LaneState::InService).map(|lane| lane.lane).collect()
    }
}

const QUARANTINED: u64 = 1;
const LOST: u64 = 2;

/// A lane's state, written by the dispatcher and read by anybody.
#[derive(Debug)]
pub(crate) struct Plate {
    version: AtomicU32,
    state: AtomicU64,
    since: AtomicU64,
    /// 0: none.
    next_try: AtomicU64,
}

impl Plate {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { version: AtomicU32::new(0), state: zero(), since: zero(), next_try: zero() }
    }

    /// For the dispatcher alone.
    pub(crate) fn write(&self, lane: LaneState) {
        let (state, since, next_try) = match lane {
            LaneState::InService => (0, Nanos::ZERO, None),
            LaneState::Quarantined { fault, since, next_try } => (QUARANTINED | fault.code() << 8, since, next_try),
            LaneState::Lost { fault, since } => (LOST | fault.code() << 8, since, None),
        };
        // ORDERING: Relaxed: there is one writer; the stores below bring it along.
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // ORDERING: Release, with the loads in `read`: who reads one of these sees the odd version when it looks once more.
        let release = order("plate.write", Ordering::Release);
        self.state.store(state, release);
        self.since.store(since.0, release);
        self.next_try.store(next_try.map_or(0, |at| at.0.max(1)), release);
        // ORDERING: Release, with the first load in `read`: who sees it even again sees all that was written.
        self.version.store(version.wrapping_add(2), order("plate.done", Ordering::Release));
    }

    pub(crate) fn read(&self) -> LaneState {
        let mut look = self.look();
        for looks in 1..LOOKS + NAPS {
            if look.1 {
                break;
            }
            if looks < LOOKS {
                hint::spin_loop();
            } else {
                thread::park_timeout(NAP);
            }
            look = self.look();
        }
        look.0
    }

    /// What the plate says, and whether that is all of one state.
    pub(crate) fn look(&self) -> (LaneState, bool) {
        // ORDERING: Acquire, with the last store in `write`.
        let version = self.version.load(order("plate.begin", Ordering::Acquire));
        // ORDERING: Acquire, with the stores in `write`: who reads what belongs to a later version sees that version below.
        let acquire = order("plate.read", Ordering::Acquire);
        let [state, since, next_try] = [&self.state, &self.since, &self.next_try].map(|number| number.load(acquire));
        // ORDERING: Relaxed: the loads above have acquired what it is compared for.
        let whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        let (fault, since) = (Fault::of_code(state >> 8), Nanos(since));
        let lane = match state & 0xFF {
            QUARANTINED => LaneState::Quarantined { fault, since, next_try: Some(Nanos(next_try)).filter(|at| at.0 > 0) },
            LOST => LaneState::Lost { fault, since },
            _ => LaneState::InService,
        };
        (lane, whole)
    }
}

/// When the dispatcher's latest turn began.
#[derive(Debug)]
pub(crate) struct Pulse(AtomicU64);

impl Pulse {
    /// It waits.
    const WAITS: u64 = u64::MAX;

    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Self::WAITS))
    }

    /// A turn begins.
    #[inline]
    pub(crate) fn beat(&self, now: Nanos) {
        self.set(now.0);
    }

    /// There is nothing to do.
    #[inline]
    pub(crate) fn rest(&self) {
        self.set(Self::WAITS);
    }

    #[inline]
    fn set(&self, number: u64) {
        // ORDERING: Relaxed: a number for monitors, which orders nothing.
        self.0.store(number, Ordering::Relaxed);
    }

    fn since(&self) -> Option<Nanos> {
        // ORDERING: Relaxed, as above.
        Some(Nanos(self.0.load(Ordering::Relaxed))).filter(|since| since.0 != Self::WAITS)
    }
}

impl<L> Shared<L> {
    pub(crate) fn health(&self) -> Health {
        let working_since = self.pulse.since();
        let lanes = LaneMask::first(self.lanes).into_iter().map(|lane| {
            let place = self.lane(lane);
            LaneHealth { lane, state: place.plate.read(), last_error: place.last_error() }
        });
        Health {
            lanes: lanes.collect(),
            accepting: self.closing().is_none(),
            larges_turned_away: !self.missing().is_empty(),
            working_since,
            ended: self.has_ended(),
            now: self.clock.now(),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_plate_says_what_was_written() {
        let plate = Plate::new();
        let since = Nanos(7);
        assert_eq!(plate.read(), LaneState::InService);
        for fault in [Fault::Device, Fault::Hung, Fault::Breaker, Fault::Lost] {
            for state in [
                LaneState::Lost { fault, since },
                LaneState::Quarantined { fault, since, next_try: None },
                LaneState::Quarantined { fault, since, next_try: Some(Nanos(9)) },
                LaneState::InService,
            ] {
                plate.write(state);
                assert_eq!(plate.read(), state);
            }
        }
    }

    #[test]
    fn a_plate_never_mixes_two_states() {
        let plate = Arc::new(Plate::new());
        let stop = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (plate, stop) = (Arc::clone(&plate), Arc::clone(&stop));
            move || {
                let mut seen = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    if let LaneState::Quarantined { since, next_try, .. } = plate.read() {
                        assert_eq!(next_try, Some(since));
                        seen += 1;
                    }
                }
                seen
            }
        });
        for number in 1..200_000 {
            let at = Nanos(number);
            plate.write(LaneState::Quarantined { fault: Fault::Device, since: at, next_try: Some(at) });
            std::hint::spin_loop();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    }

    #[test]
    fn live_and_ready_are_two_questions() {
        let lane = |index, state| LaneHealth { lane: LaneId::new(index), state, last_error: None };
        let out = LaneState::Quarantined { fault: Fault::Hung, since: Nanos(5), next_try: None };
        let mut health = Health {
            now: Nanos::from_secs(10),
            lanes: vec![lane(0, LaneState::InService), lane(1, out)],
            accepting: true,
            larges_turned_away: false,
            working_since: None,
            ended: false,
        };
        assert!(health.is_live() && health.is_ready() && !health.is_ready_for(Class::Large));
        assert_eq!(health.out_of_service(), LaneId::new(1).mask());
        health.lanes[0].state = out;
        assert!(health.is_live() && !health.is_ready());
        health.lanes.clear();
        health.working_since = Some(Nanos::from_millis(8_999));
        assert!(!health.is_live() && !health.is_ready_for(Class::Large));
        health.working_since = Some(Nanos::from_millis(9_001));
        assert!(health.is_live());
        health.ended = true;
        assert!(!health.is_live());
    }
}
