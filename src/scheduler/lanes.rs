//! The lane book: what the scheduler believes of every lane.
//!
//! The state word is the truth about who holds what; this is the dispatcher's own copy of what it decided, with the times that the
//! word has no room for. The two agree whenever the dispatcher has taken in every release, and the runtime asserts that.

use super::MAX_PARKED;
use crate::types::{Class, LaneId, LaneMask, Nanos};

/// A job on its lane, or on all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) slot: u32,
    /// Since when: its start, or its latest resumption.
    pub(super) started: Nanos,
    /// When it will end, by what was known then; `started` if nothing was.
    pub(super) predicted_end: Nanos,
    /// For how long it is predicted to run in all, by what was known at its start; 0 if nothing was.
    pub(super) predicted: Nanos,
    /// For how long it had run before.
    pub(super) served: Nanos,
    /// About how long one of its steps takes, if it has steps.
    pub(super) step: Option<Nanos>,
    /// How often it has stopped.
    pub(super) stops: u32,
    /// Since when it is asked to stop.
    pub(super) asked: Option<Nanos>,
}

/// A job that has stopped between two of its steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopped {
    pub(super) slot: u32,
    pub(super) since: Nanos,
    pub(super) predicted: Nanos,
    pub(super) served: Nanos,
    pub(super) step: Option<Nanos>,
    pub(super) stops: u32,
    /// Its owner took it back: it goes on as soon as it can, only to be dropped.
    pub(super) cancelled: bool,
}

/// How much longer something runs that is predicted to run for so long in all and has run for so long: half as long again, once it has
/// outlived its prediction. (See [`Run::end`].)
pub(super) fn remaining(predicted: Nanos, served: Nanos) -> Nanos {
    if served < predicted { predicted - served } else { Nanos(served.0 / 2 + 1) }
}

impl Run {
    /// When it will end, by what is known now: a run that has outlived its prediction is given half of its age again. (Heavy
    /// tails have residual lives that grow with age; a prediction left in the past would promise the lane at once, for ever.)
    pub(super) fn end(&self, now: Nanos) -> Nanos {
        // At the very moment of its predicted end it is on time: of two that end together one is told first, and the other must not make
        // room for a backfill that it will not need.
        let end = if now <= self.predicted_end {
            self.predicted_end
        } else {
            now + Nanos((self.served + (now - self.started)).0 / 2 + 1)
        };
        match (self.asked, self.step) {
            // It frees its lane at the end of the step in which it was asked, which began before that.
            (Some(asked), Some(step)) => end.min(now.max(asked + step)),
            _ => end,
        }
    }

    /// For how long it has run, in all.
    pub(super) fn attained(&self, now: Nanos) -> Nanos {
        self.served + (now - self.started)
    }

    /// How much longer it will run, if it is let.
    pub(super) fn remaining(&self, now: Nanos) -> Nanos {
        remaining(self.predicted, self.attained(now))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Lanes {
    all: LaneMask,
    busy: LaneMask,
    offline: LaneMask,
    smalls: Vec<Option<Run>>,
    gang: Option<Run>,
    /// The lanes whose job is asked to stop.
    asked: LaneMask,
    /// What is parked on each lane: at most [`MAX_PARKED`].
    parked_smalls: Vec<Vec<Stopped>>,
    /// The lanes on which a small one is parked.
    parked_on: LaneMask,
    /// Large ones, whose state is on every lane: at most [`MAX_PARKED`].
    parked_larges: Vec<Stopped>,
}

impl Lanes {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            all: LaneMask::first(lanes),
            busy: LaneMask::NONE,
            offline: LaneMask::NONE,
            smalls: vec![None; lanes],
            gang: None,
            asked: LaneMask::NONE,
            parked_smalls: (0..lanes).map(|_| Vec::with_capacity(MAX_PARKED)).collect(),
            parked_on: LaneMask::NONE,
            parked_larges: Vec::with_capacity(MAX_PARKED),
        }
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
                self.asked = LaneMask::NONE;
                Some(run)
            }
            Class::Small => {
                let run = self.smalls.get_mut(lane.index())?.take_if(|run| run.slot == slot)?;
                self.busy = self.busy.without(lane);
                self.asked = self.asked.without(lane);
                Some(run)
            }
        }
    }

    /// Where a job runs: one lane, or all; none if it does not.
    pub(super) fn lanes_of(&self, slot: u32, class: Class) -> LaneMask {
        match class {
            Class::Large if self.gang.is_some_and(|run| run.slot == slot) => self.all,
            Class::Large => LaneMask::NONE,
            Class::Small => self
                .busy
                .into_iter()
                .find(|&lane| self.small(lane).is_some_and(|run| run.slot == slot))
                .map_or(LaneMask::NONE, LaneId::mask),
        }
    }

    fn run_mut(&mut self, slot: u32, class: Class) -> Option<&mut Run> {
        match class {
            Class::Large => self.gang.as_mut().filter(|run| run.slot == slot),
            Class::Small => self.smalls.iter_mut().flatten().find(|run| run.slot == slot),
        }
    }

    /// Whether a running job can be asked to stop: it has steps, is not asked yet, and what it leaves has a place.
    pub(super) fn can_ask(&self, slot: u32, class: Class) -> bool {
        let (run, parked) = match class {
            Class::Large => (self.gang.as_ref().filter(|run| run.slot == slot), self.parked_larges.len()),
            Class::Small => {
                let lane = self.lanes_of(slot, class).lowest();
                let parked = lane.map_or(0, |lane| self.parked_smalls[lane.index()].len());
                (lane.and_then(|lane| self.small(lane)), parked)
            }
        };
        run.is_some_and(|run| run.step.is_some() && run.asked.is_none()) && parked < MAX_PARKED
    }

    /// Sets or clears since when a running job is asked to stop; where it runs.
    pub(super) fn set_asked(&mut self, slot: u32, class: Class, asked: Option<Nanos>) -> LaneMask {
        let lanes = self.lanes_of(slot, class);
        if let Some(run) = self.run_mut(slot, class) {
            run.asked = asked;
        }
        self.asked = if asked.is_some() { self.asked | lanes } else { self.asked & !lanes };
        lanes
    }

    /// The lanes whose job is asked to stop.
    #[inline]
    pub(super) fn asked(&self) -> LaneMask {
        self.asked
    }

    /// A running job stops after it has held its lanes for so long; `false` if it does not run, or there is no place for what it leaves: then
    /// nothing is changed.
    pub(super) fn park(&mut self, slot: u32, class: Class, ran: Nanos, now: Nanos) -> bool {
        let lanes = self.lanes_of(slot, class);
        let Some(lane) = lanes.lowest() else { return false };
        let parked = if class == Class::Large { &self.parked_larges } else { &self.parked_smalls[lane.index()] };
        if parked.len() >= MAX_PARKED {
            return false;
        }
        let Some(run) = self.finish(slot, class, lane) else { return false };
        let stopped = Stopped {
            slot,
            since: now,
            predicted: run.predicted,
            served: run.served + ran,
            step: run.step,
            stops: run.stops + 1,
            cancelled: false,
        };
        if class == Class::Large {
            self.parked_larges.push(stopped);
        } else {
            self.parked_smalls[lane.index()].push(stopped);
            self.parked_on = self.parked_on.with(lane);
        }
        true
    }

    /// Where a parked job must go on: one lane, or all; none if it is not parked.
    pub(super) fn home(&self, slot: u32, class: Class) -> LaneMask {
        let is = |stopped: &Stopped| stopped.slot == slot;
        match class {
            Class::Large if self.parked_larges.iter().any(is) => self.all,
            Class::Large => LaneMask::NONE,
            Class::Small => {
                let lane = self.parked_on.into_iter().find(|lane| self.parked_smalls[lane.index()].iter().any(is));
                lane.map_or(LaneMask::NONE, LaneId::mask)
            }
        }
    }

    /// Takes a parked job out of the book.
    pub(super) fn unpark(&mut self, slot: u32, class: Class) -> Option<Stopped> {
        let take = |parked: &mut Vec<Stopped>| {
            let at = parked.iter().position(|stopped| stopped.slot == slot)?;
            Some(parked.remove(at))
        };
        if class == Class::Large {
            return take(&mut self.parked_larges);
        }
        let lane = self.home(slot, class).lowest()?;
        let parked = &mut self.parked_smalls[lane.index()];
        let stopped = take(parked);
        if parked.is_empty() {
            self.parked_on = self.parked_on.without(lane);
        }
        stopped
    }

    /// Its owner took a parked job back.
    pub(super) fn cancel(&mut self, slot: u32) {
        let all = self.parked_smalls.iter_mut().flatten().chain(&mut self.parked_larges);
        all.filter(|stopped| stopped.slot == slot).for_each(|stopped| stopped.cancelled = true);
    }

    /// A parked job that was taken back, if its lanes are free.
    pub(super) fn cancelled(&self) -> Option<(u32, Class)> {
        if !self.any_parked() {
            return None;
        }
        let free = self.free() & self.parked_on;
        let small = free.into_iter().flat_map(|lane| &self.parked_smalls[lane.index()]).find(|stopped| stopped.cancelled);
        let large = || self.parked_larges.iter().find(|stopped| stopped.cancelled && self.all_free());
        small.map(|stopped| (stopped.slot, Class::Small)).or_else(|| large().map(|stopped| (stopped.slot, Class::Large)))
    }

    /// Whether anything is parked.
    #[inline]
    pub(super) fn any_parked(&self) -> bool {
        !self.parked_on.is_empty() || !self.parked_larges.is_empty()
    }

    /// The lanes on which a small job is parked.
    #[inline]
    pub(super) fn parked_on(&self) -> LaneMask {
        self.parked_on
    }

    /// What is parked on a lane.
    #[inline]
    pub(super) fn parked_smalls(&self, lane: LaneId) -> &[Stopped] {
        &self.parked_smalls[lane.index()]
    }

    /// The large jobs that are parked, the one that stopped first first.
    #[inline]
    pub(super) fn parked_larges(&self) -> &[Stopped] {
        &self.parked_larges
    }

    /// How many jobs of a class are parked.
    #[inline]
    pub(super) fn parked(&self, class: Class) -> usize {
        match class {
            Class::Large => self.parked_larges.len(),
            Class::Small => self.parked_on.into_iter().map(|lane| self.parked_smalls[lane.index()].len()).sum(),
        }
    }

    /// Where a small job is started: the lowest of the free lanes with the fewest parked ones, which keeps the others free for those.
    #[inline]
    pub(super) fn for_new(&self) -> Option<LaneId> {
        let free = self.free();
        if self.parked_on.is_empty() {
            return free.lowest();
        }
        let unused = (free & !self.parked_on).lowest();
        unused.or_else(|| free.into_iter().min_by_key(|lane| self.parked_smalls[lane.index()].len()))
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
        for lane in self.all {
            let parked = &self.parked_smalls[lane.index()];
            assert!(parked.len() <= MAX_PARKED, "{lane:?} has more parked than it has room for");
            assert_eq!(!parked.is_empty(), self.parked_on.contains(lane), "{lane:?} is not known to have something parked");
            let run = self.gang().or_else(|| self.small(lane));
            let asked = run.is_some_and(|run| run.asked.is_some());
            assert_eq!(asked, self.asked.contains(lane), "{lane:?} is asked to stop and its job is not, or the reverse");
            assert!(!asked || run.is_some_and(|run| run.step.is_some()), "{lane:?}'s job has no steps and is asked to stop");
        }
        assert!(self.parked_larges.len() <= MAX_PARKED, "more large ones are parked than there is room for");
        assert!(self.all.covers(self.parked_on), "something is parked on a lane that does not exist");
    }
}
