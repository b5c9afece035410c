//! The state word itself: the one atomic behind every [`Snapshot`] transition.
//!
//! Each function here is the pure transition of the same name under a compare-exchange, or a single read-modify-write where the
//! transition is never refused. The orderings are literals in this file and nowhere else; the [page](super#orderings) has the
//! pairs.

use std::fmt;

use super::layout::{EPOCH_BITS, Flags, LaneField};
use super::snapshot::{
    AbortRefused, Aborted, AlreadyOffline, Arrival, EndRefused, Ended, GangRefused, ProbeRefused, Quarantined, Released,
    ReserveRefused, RestoreRefused, Snapshot, Verdict, View,
};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{mutant, order};
use crate::types::{Epoch, LaneId, LaneMask};

/// The state word of a node with `N` lanes.
///
/// It has a cache line of its own: all workers and the dispatcher write it, and nothing else should move with it.
pub struct StateWord<const N: usize, const E: u32 = EPOCH_BITS> {
    cell: crossbeam_utils::CachePadded<AtomicU64>,
}

impl<const N: usize, const E: u32> StateWord<N, E> {
    /// A word with every lane free.
    #[must_use]
    pub fn new() -> Self {
        Self { cell: crossbeam_utils::CachePadded::new(AtomicU64::new(Snapshot::<N, E>::EMPTY.bits())) }
    }

    /// The value now.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Snapshot<N, E> {
        // ORDERING: Acquire, partner every Release or AcqRel below: who sees a lane free may use what its holder left there, who
        // sees the gang broken may read why.
        Snapshot::from_bits(self.cell.load(order("word.load", Ordering::Acquire)))
    }

    /// See [`Snapshot::try_reserve`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn reserve(&self, lane: LaneId) -> Result<(), ReserveRefused> {
        // ORDERING: Acquire, partner `release`: the lane's new request finds what the old one did. A refusal gives the caller
        // nothing to touch, so it needs no ordering.
        self.change("word.reserve", Ordering::Acquire, Ordering::Relaxed, |now| now.try_reserve(lane).map(|next| (next, ())))
    }

    /// See [`Snapshot::try_reserve_probe`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn reserve_probe(&self, lane: LaneId) -> Result<(), ProbeRefused> {
        // ORDERING: Acquire, partner `release`, as in `reserve`.
        self.change("word.reserve_probe", Ordering::Acquire, Ordering::Relaxed, |now| {
            now.try_reserve_probe(lane).map(|next| (next, ()))
        })
    }

    /// See [`Snapshot::try_reserve_gang`]. Returns the epoch for the members' mail.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn reserve_gang(&self) -> Result<Epoch, GangRefused> {
        // ORDERING: Acquire, partner the `release` of every lane, all of which are in the release sequence of the value read.
        self.change("word.reserve_gang", Ordering::Acquire, Ordering::Relaxed, |now| {
            now.try_reserve_gang().map(|next| (next, next.epoch()))
        })
    }

    /// See [`Snapshot::try_arrive`].
    #[inline]
    pub fn arrive(&self, lane: LaneId, epoch: Epoch) -> Arrival {
        // ORDERING: Release: what this member did before the barrier, partner the completing `arrive` and the `judge` of the
        // others. Acquire of what is looked at, partner the `arrive` of all others: the completing member is through here and now;
        // and partner `abort_gang`, `quarantine` and `release`: a member that is refused may read why.
        let outcome = self.change("word.arrive", Ordering::Release, Ordering::Acquire, |now| match now.try_arrive(lane, epoch) {
            (_, Arrival::Refused(why)) => Err(why),
            arrived => Ok(arrived),
        });
        outcome.unwrap_or_else(Arrival::Refused)
    }

    /// See [`Snapshot::judge`].
    #[inline]
    pub fn judge(&self, epoch: Epoch) -> Verdict {
        // ORDERING: Acquire (in `load`), partner `arrive`: who is through sees what every member did before the barrier, since
        // all arrivals are in one release sequence.
        self.load().judge(epoch)
    }

    /// See [`Snapshot::try_abort_gang`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn abort_gang(&self, epoch: Option<Epoch>) -> Result<Aborted, AbortRefused> {
        // ORDERING: Release: the reason noted before, partner `judge` and a refused `arrive`. Acquire of what is looked at: a
        // member refused because its barrier completed goes through, partner `arrive`.
        self.change("word.abort_gang", Ordering::Release, Ordering::Acquire, |now| now.try_abort_gang(epoch))
    }

    /// See [`Snapshot::try_quarantine`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn quarantine(&self, lane: LaneId) -> Result<Quarantined, AlreadyOffline> {
        // ORDERING: Release: the fault noted before, partner the dispatcher's `load` and the members' `judge`. Acquire of what is
        // looked at: the dispatcher that quarantines a lane reports what its holder did before it arrived or released.
        self.change("word.quarantine", Ordering::Release, Ordering::Acquire, |now| now.try_quarantine(lane))
    }

    /// See [`Snapshot::release`].
    #[inline]
    pub fn release(&self, lane: LaneId) -> Released {
        // ORDERING: Release: all that was done while holding the lane, partner `reserve`, `reserve_probe`, `reserve_gang` and
        // `load`. No acquire: the prior value only says whom to wake.
        let before = self.cell.fetch_and(Snapshot::<N, E>::release_mask(lane), order("word.release", Ordering::Release));
        let before = Snapshot::<N, E>::from_bits(before);
        debug_assert!(before.busy().contains(lane), "only its holder releases a lane: {before:?}");
        let (next, outcome) = before.release(lane);
        debug_assert!(next.is_valid(), "{before:?} -> {next:?}");
        outcome
    }

    /// See [`Snapshot::try_end_gang`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn end_gang(&self) -> Result<Ended, EndRefused> {
        // ORDERING: Release: what the dispatcher noted of the gang, partner the `judge` of a member that hung. Acquire of what is
        // looked at: the outcome of every member, partner their `release`.
        self.change("word.end_gang", Ordering::Release, Ordering::Acquire, Snapshot::try_end_gang)
    }

    /// See [`Snapshot::try_restore`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn restore(&self, lane: LaneId) -> Result<(), RestoreRefused> {
        // ORDERING: Release: the dispatcher's books, partner whoever's `load` sees the lane in service. Acquire of what is looked
        // at: what the probe found, partner its `release`.
        self.change("word.restore", Ordering::Release, Ordering::Acquire, |now| now.try_restore(lane).map(|next| (next, ())))
    }

    /// See [`Snapshot::ask`]. Returns the value before.
    #[inline]
    pub fn ask(&self, lanes: LaneMask) -> Snapshot<N, E> {
        // ORDERING: Relaxed: the bit is the whole message. A read-modify-write, so it breaks no release sequence.
        Snapshot::from_bits(self.cell.fetch_or(Snapshot::<N, E>::ask_mask(lanes), Ordering::Relaxed))
    }

    /// Whether what runs on this lane is asked to stop at its next step: the one look that a step costs.
    #[inline]
    pub fn is_asked(&self, lane: LaneId) -> bool {
        // ORDERING: Relaxed: the bit is the whole message.
        Snapshot::<N, E>::from_bits(self.cell.load(Ordering::Relaxed)).asked().contains(lane)
    }

    /// See [`Snapshot::unask`]. Returns the value before.
    #[inline]
    pub fn unask(&self, lanes: LaneMask) -> Snapshot<N, E> {
        // ORDERING: Relaxed, as `ask`.
        Snapshot::from_bits(self.cell.fetch_and(!Snapshot::<N, E>::ask_mask(lanes), Ordering::Relaxed))
    }

    /// See [`Snapshot::drain`]. Returns the value before.
    #[inline]
    pub fn drain(&self, on: bool) -> Snapshot<N, E> {
        // ORDERING: Relaxed: a hint to those who look, which guards nothing. A read-modify-write, as `ask`.
        let before = if on {
            self.cell.fetch_or(Flags::DRAIN.place(), Ordering::Relaxed)
        } else {
            self.cell.fetch_and(!Flags::DRAIN.place(), Ordering::Relaxed)
        };
        Snapshot::from_bits(before)
    }

    /// See [`Snapshot::close`]. Returns the value before.
    #[inline]
    pub fn close(&self) -> Snapshot<N, E> {
        // ORDERING: AcqRel. Release: why the node closes, partner whoever's `load` sees CLOSED. Acquire: the closer counts the
        // lanes that are still held and sees what was done on the others, partner `release`.
        Snapshot::from_bits(self.cell.fetch_or(Flags::CLOSED.place(), order("word.close", Ordering::AcqRel)))
    }

    /// Repeats `step` on the newest value until it is refused or its result is in place.
    ///
    /// `look` is the ordering of every load, refused or not. With Acquire there, success needs none: all that a value tells of
    /// happened before the store that was looked at, and the exchange succeeds on the same bits only. In between the word may have
    /// gone elsewhere and come back, but not by anything that these bits could tell of.
    ///
    /// The weak exchange: where it can fail spuriously it saves a loop inside the loop. Why the repetitions are bounded is on
    /// the [page](super#bounded).
    #[inline]
    fn change<T, R>(
        &self,
        site: &'static str,
        success: Ordering,
        look: Ordering,
        step: impl Fn(Snapshot<N, E>) -> Result<(Snapshot<N, E>, T), R>,
    ) -> Result<T, R> {
        // ORDERING: the caller's, which names the partners.
        let (success, look) = (order(site, success), order(site, look));
        let mut now = self.cell.load(look);
        loop {
            let (next, outcome) = step(Snapshot::from_bits(now))?;
            debug_assert!(next.is_valid(), "{:?} -> {next:?}", Snapshot::<N, E>::from_bits(now));
            let next = mutated(site, Snapshot::from_bits(now), next);
            // ORDERING: the caller's.
            match self.cell.compare_exchange_weak(now, next.bits(), success, look) {
                Ok(_) => return Ok(outcome),
                Err(newer) => now = newer,
            }
        }
    }
}

/// `next`, unless a mutant of the protocol was chosen.
#[inline(always)]
fn mutated<const N: usize, const E: u32>(site: &'static str, now: Snapshot<N, E>, next: Snapshot<N, E>) -> Snapshot<N, E> {
    let completed = now.epoch() != next.epoch();
    match site {
        "word.arrive" if completed && mutant("word.arrive:keeps-bits") => {
            let but_one = LaneMask::first(N).without(LaneId::new(0));
            Snapshot::from_bits(next.bits() | LaneField::Arrived.place(but_one))
        }
        "word.arrive" if completed && mutant("word.arrive:keeps-epoch") => next.with_epoch(now.epoch()),
        "word.end_gang" if mutant("word.end_gang:moves-epoch") => next.with_epoch(Epoch::new(now.epoch().get() + 1)),
        "word.end_gang" if mutant("word.end_gang:keeps-gang") => Snapshot::from_bits(next.bits() | Flags::GANG.place()),
        "word.quarantine" if mutant("word.quarantine:no-abort") => Snapshot::from_bits(next.bits() & !Flags::ABORT.place()),
        "word.reserve_gang" if mutant("word.reserve_gang:keeps-epoch") => next.with_epoch(now.epoch()),
        _ => next,
    }
}

impl<const N: usize, const E: u32> Default for StateWord<N, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize, const E: u32> fmt::Debug for StateWord<N, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.load(), f)
    }
}

mod sealed {
    pub trait Sealed {}
    impl<const N: usize, const E: u32> Sealed for super::StateWord<N, E> {}
}

/// A [`StateWord`] whose lane count is chosen at run time: what the runtime holds, from [`new_word`].
///
/// Each function is the one of the same name there. One indirect call stands before an atomic operation of many times its cost.
pub trait Word: sealed::Sealed + fmt::Debug + Send + Sync {
    /// The value now, with Acquire.
    fn load(&self) -> View;
    /// See [`Snapshot::try_reserve`].
    ///
    /// # Errors
    /// As there.
    fn reserve(&self, lane: LaneId) -> Result<(), ReserveRefused>;
    /// See [`Snapshot::try_reserve_probe`].
    ///
    /// # Errors
    /// As there.
    fn reserve_probe(&self, lane: LaneId) -> Result<(), ProbeRefused>;
    /// See [`Snapshot::try_reserve_gang`]. Returns the epoch for the members' mail.
    ///
    /// # Errors
    /// As there.
    fn reserve_gang(&self) -> Result<Epoch, GangRefused>;
    /// See [`Snapshot::try_arrive`].
    fn arrive(&self, lane: LaneId, epoch: Epoch) -> Arrival;
    /// See [`Snapshot::judge`].
    fn judge(&self, epoch: Epoch) -> Verdict;
    /// See [`Snapshot::try_abort_gang`].
    ///
    /// # Errors
    /// As there.
    fn abort_gang(&self, epoch: Option<Epoch>) -> Result<Aborted, AbortRefused>;
    /// See [`Snapshot::try_quarantine`].
    ///
    /// # Errors
    /// As there.
    fn quarantine(&self, lane: LaneId) -> Result<Quarantined, AlreadyOffline>;
    /// See [`Snapshot::release`].
    fn release(&self, lane: LaneId) -> Released;
    /// See [`Snapshot::try_end_gang`].
    ///
    /// # Errors
    /// As there.
    fn end_gang(&self) -> Result<Ended, EndRefused>;
    /// See [`Snapshot::try_restore`].
    ///
    /// # Errors
    /// As there.
    fn restore(&self, lane: LaneId) -> Result<(), RestoreRefused>;
    /// See [`Snapshot::ask`]. Returns the value before.
    fn ask(&self, lanes: LaneMask) -> View;
    /// See [`StateWord::is_asked`].
    fn is_asked(&self, lane: LaneId) -> bool;
    /// See [`Snapshot::unask`]. Returns the value before.
    fn unask(&self, lanes: LaneMask) -> View;
    /// See [`Snapshot::drain`]. Returns the value before.
    fn drain(&self, on: bool) -> View;
    /// See [`Snapshot::close`]. Returns the value before.
    fn close(&self) -> View;
}

impl<const N: usize, const E: u32> Word for StateWord<N, E> {
    fn load(&self) -> View {
        self.load().view()
    }

    fn reserve(&self, lane: LaneId) -> Result<(), ReserveRefused> {
        self.reserve(lane)
    }

    fn reserve_probe(&self, lane: LaneId) -> Result<(), ProbeRefused> {
        self.reserve_probe(lane)
    }

    fn reserve_gang(&self) -> Result<Epoch, GangRefused> {
        self.reserve_gang()
    }

    fn arrive(&self, lane: LaneId, epoch: Epoch) -> Arrival {
        self.arrive(lane, epoch)
    }

    fn judge(&self, epoch: Epoch) -> Verdict {
        self.judge(epoch)
    }

    fn abort_gang(&self, epoch: Option<Epoch>) -> Result<Aborted, AbortRefused> {
        self.abort_gang(epoch)
    }

    fn quarantine(&self, lane: LaneId) -> Result<Quarantined, AlreadyOffline> {
        self.quarantine(lane)
    }

    fn release(&self, lane: LaneId) -> Released {
        self.release(lane)
    }

    fn end_gang(&self) -> Result<Ended, EndRefused> {
        self.end_gang()
    }

    fn restore(&self, lane: LaneId) -> Result<(), RestoreRefused> {
        self.restore(lane)
    }

    fn ask(&self, lanes: LaneMask) -> View {
        self.ask(lanes).view()
    }

    fn is_asked(&self, lane: LaneId) -> bool {
        self.is_asked(lane)
    }

    fn unask(&self, lanes: LaneMask) -> View {
        self.unask(lanes).view()
    }

    fn drain(&self, on: bool) -> View {
        self.drain(on).view()
    }

    fn close(&self) -> View {
        self.close().view()
    }
}

/// A word for that many lanes, or none if there is no such word: it has 1 to 8 lanes.
#[must_use]
pub fn new_word(lanes: usize) -> Option<Box<dyn Word>> {
    Some(match lanes {
        1 => Box::new(StateWord::<1>::new()),
        2 => Box::new(StateWord::<2>::new()),
        3 => Box::new(StateWord::<3>::new()),
        4 => Box::new(StateWord::<4>::new()),
        5 => Box::new(StateWord::<5>::new()),
        6 => Box::new(StateWord::<6>::new()),
        7 => Box::new(StateWord::<7>::new()),
        8 => Box::new(StateWord::<8>::new()),
        _ => return None,
    })
}
