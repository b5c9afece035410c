//! The lane book: what the scheduler believes of every lane.
//!
//! The state word is the truth about who holds what; this is the dispatcher's own copy of what it decided, with the times that the
//! word has no room for. The two agree whenever the dispatcher has taken in every release, and the runtime asserts that.

use crate::types::{Class, LaneId, LaneMask, Nanos};

/// A job on its lane, or on all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) slot: u32,
    pub(super) started: Nanos,
    /// When it will end, by what was known at its start; `started` if nothing was.
    pub(super) predicted_end: Nanos,
}

impl Run {
    /// When it will end, by what is known now: a run that has outlived its prediction is given half of its age again. (Heavy
    /// tails have residual lives that grow with age; a prediction left in the past would promise the lane at once, for ever.)
    pub(super) fn end(&self, now: Nanos) -> Nanos {
        // At the very moment of its predicted end it is on time: of two that end together one is told first, and the other must not make
        // room for a backfill that it will not need.
        if now <= self.predicted_end { self.predicted_end } else { now + Nanos((now - self.started).0 / 2 + 1) }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Lanes {
    all: LaneMask,
    busy: LaneMask,
    offline: LaneMask,
    smalls: Vec<Option<Run>>,
    gang: Option<Run>,
}

impl Lanes {
    pub(super) fn new(lanes: usize) -> Self {
        Self { all: LaneMask::first(lanes), busy: LaneMask::NONE, offline: LaneMask::NONE, smalls: vec![None; lanes], gang: None }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.smalls.len()
    }

    #[inline]
    pub(super) fn busy(&self) -> LaneMask {
        self.busy
    }

    #[inline]
    pub(super) fn offline(&self) -> LaneMask {
        self.offline
    }

    /// In service and held by nobody.
    #[inline]
    pub(super) fn free(&self) -> LaneMask {
        self.all & !(self.busy | self.offline)
    }

    #[inline]
    pub(super) fn in_service(&self) -> LaneMask {
        self.all & !self.offline
    }

    #[inline]
    pub(super) fn all_free(&self) -> bool {
        self.free() == self.all
    }

    #[inline]
    pub(super) fn smalls_running(&self) -> usize {
        if self.gang.is_some() { 0 } else { self.busy.count() }
    }

    #[inline]
    pub(super) fn gang(&self) -> Option<&Run> {
        self.gang.as_ref()
    }

    /// The small job on a lane.
    #[inline]
    pub(super) fn small(&self, lane: LaneId) -> Option<&Run> {
        self.smalls[lane.index()].as_ref()
    }

    pub(super) fn start_small(&mut self, lane: LaneId, run: Run) {
        debug_assert!(self.free().contains(lane), "{lane:?} is not free");
        self.busy = self.busy.with(lane);
        self.smalls[lane.index()] = Some(run);
    }

    pub(super) fn start_gang(&mut self, run: Run) {
        debug_assert!(self.all_free(), "a gang holds every lane or none");
        self.busy = self.all;
        self.gang = Some(run);
    }

    /// Frees the lane, or the lanes, of a job. `lane`: that of a small one.
    pub(super) fn finish(&mut self, slot: u32, class: Class, lane: LaneId) -> Option<Run> {
        match class {
            Class::Large => {
                let run = self.gang.take_if(|run| run.slot == slot)?;
                self.busy = LaneMask::NONE;
                Some(run)
            }
            Class::Small => {
                let run = self.smalls.get_mut(lane.index())?.take_if(|run| run.slot == slot)?;
                self.busy = self.busy.without(lane);
                Some(run)
            }
        }
    }

    pub(super) fn set_offline(&mut self, lane: LaneId, offline: bool) {
        if lane.index() < self.count() {
            self.offline = if offline { self.offline.with(lane) } else { self.offline.without(lane) };
        }
    }

    /// The earliest time at which every lane is predicted to be free: the latest end of what runs.
    pub(super) fn shadow(&self, now: Nanos) -> Nanos {
        let gang = self.gang.iter().map(|run| run.end(now));
        let smalls = self.smalls.iter().flatten().map(|run| run.end(now));
        gang.chain(smalls).fold(now, Nanos::max)
    }

    pub(super) fn check(&self) {
        assert!(self.all.covers(self.busy | self.offline), "a lane that does not exist is busy or offline");
        if self.gang.is_some() {
            assert_eq!(self.busy, self.all, "a gang holds all lanes or none");
        }
        for lane in self.all {
            let held = self.small(lane).is_some() || self.gang.is_some();
            assert_eq!(held, self.busy.contains(lane), "{lane:?} is busy without a run, or the reverse");
            assert!(!(self.small(lane).is_some() && self.gang.is_some()), "{lane:?} has two owners");
        }
    }
}
