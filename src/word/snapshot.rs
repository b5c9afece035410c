//! One value of the state word, and every transition as a pure function of it.
//!
//! Nothing here is shared, so everything here can be searched: `explore` drives these very functions through every
//! interleaving, and [`StateWord`](super::StateWord) adds the compare-exchange and nothing else.

use std::fmt;

use super::layout::{self, EPOCH_BITS, Flags, LaneField};
use crate::types::{Epoch, LaneId, LaneMask, MAX_LANES};

/// A value of the state word for `N` lanes and an epoch of `E` bits.
///
/// The `try_*` functions are the transitions: each gives the next value and what the caller has to know or do, or says why it is
/// refused. Nothing changes but by a compare-exchange from this value to the next.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Snapshot<const N: usize, const E: u32 = EPOCH_BITS>(u64);

/// The word as seen once, without its width: what [`Word::load`](super::Word::load) returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// The lanes that exist.
    pub all: LaneMask,
    /// The lanes that somebody holds.
    pub busy: LaneMask,
    /// The members that wait at the gang's barrier, and those that left it without a verdict of through.
    pub arrived: LaneMask,
    /// The lanes that are out of service.
    pub offline: LaneMask,
    /// The lanes whose request is asked to stop at its next step.
    pub ask: LaneMask,
    /// The flags.
    pub flags: Flags,
    /// The barrier's generation.
    pub epoch: Epoch,
}

impl View {
    /// The lanes that a reservation would find neither busy nor offline.
    #[inline]
    #[must_use]
    pub fn free(&self) -> LaneMask {
        self.all & !(self.busy | self.offline)
    }

    /// Whether one request holds, or held, every lane and has not been ended.
    #[inline]
    #[must_use]
    pub const fn is_gang(&self) -> bool {
        self.flags.contains(Flags::GANG)
    }
}

/// Why [`Snapshot::try_reserve`] is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReserveRefused {
    /// CLOSED is on.
    Closed,
    /// GANG is on.
    Gang,
    /// Somebody holds the lane.
    Busy,
    /// The lane is out of service.
    Offline,
}

/// Why [`Snapshot::try_reserve_probe`] is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeRefused {
    /// Somebody holds the lane.
    Busy,
    /// The lane is in service: there is nothing to probe.
    Online,
}

/// Why [`Snapshot::try_reserve_gang`] is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GangRefused {
    /// CLOSED is on.
    Closed,
    /// The gang before has not been ended.
    Gang,
    /// Somebody holds these lanes.
    Busy(LaneMask),
    /// These lanes are out of service.
    Offline(LaneMask),
}

/// What [`Snapshot::try_arrive`] comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Arrival {
    /// Others are still missing: judge, then wait, then judge again.
    Waiting,
    /// This was the last member: all are through.
    Completed {
        /// The members that had arrived before, who wait and must be woken.
        wake: LaneMask,
        /// Whether the gang steps aside at its next step.
        stop: bool,
    },
    /// There is nothing to arrive at: the gang is broken for this member.
    Refused(ArriveRefused),
}

/// Why there is nothing to arrive at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArriveRefused {
    /// The gang has been ended.
    NoGang,
    /// The gang is aborted.
    Aborted,
    /// The barrier is in another generation than this member's.
    OtherEpoch,
    /// These members have left already.
    MembersLeft(LaneMask),
}

/// What a member that has arrived finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// Neither yet.
    Wait,
    /// All members arrived.
    Through {
        /// Whether the gang steps aside at its next step: the same for all members.
        stop: bool,
    },
    /// Not all will arrive. It stays so.
    Broken,
}

/// What [`Snapshot::try_abort_gang`] comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "waiting members must be woken"]
pub struct Aborted {
    /// The members whose wait this ends.
    pub wake: LaneMask,
}

/// Why [`Snapshot::try_abort_gang`] is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AbortRefused {
    /// There is no gang.
    NoGang,
    /// It is aborted already.
    Aborted,
    /// The barrier is in another generation: the wait that was to be given up is over, and all went through.
    OtherEpoch,
}

/// What [`Snapshot::try_quarantine`] comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "waiting members must be woken"]
pub struct Quarantined {
    /// Whether this aborted a gang that was not aborted.
    pub aborted: bool,
    /// The members whose wait this ends.
    pub wake: LaneMask,
}

/// The lane is out of service already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlreadyOffline;

/// What [`Snapshot::release`] comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "waiting members must be woken"]
pub struct Released {
    /// The word before.
    pub before: View,
    /// The word after.
    pub after: View,
    /// The members whose wait this ends.
    pub wake: LaneMask,
}

/// What [`Snapshot::try_end_gang`] comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Ended {
    /// The lanes whose member still has not let go. They are offline.
    pub hung: LaneMask,
}

/// Why [`Snapshot::try_end_gang`] is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndRefused {
    /// There is no gang.
    NoGang,
    /// These lanes are in service, and their members have not let go.
    Busy(LaneMask),
}

/// Why [`Snapshot::try_restore`] is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestoreRefused {
    /// Somebody holds the lane.
    Busy,
    /// The lane is in service.
    Online,
}

impl<const N: usize, const E: u32> Snapshot<N, E> {
    /// Every lane that exists.
    pub const ALL: LaneMask = {
        assert!(N >= 1 && N <= MAX_LANES, "a word has 1 to 8 lanes");
        assert!(E >= 2 && E <= EPOCH_BITS, "an epoch has 2 to 24 bits");
        LaneMask::first(N)
    };

    /// The word at the start: every lane free, no flag, epoch 0.
    pub const EMPTY: Self = {
        // Names ALL, so that a wrong N or E does not compile.
        let _ = Self::ALL;
        Self(0)
    };

    /// The value with these bits.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        let _ = Self::ALL;
        Self(bits)
    }

    /// Its bits, laid out as the [page](super) says.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The lanes that somebody holds.
    #[inline]
    #[must_use]
    pub const fn busy(self) -> LaneMask {
        LaneField::Busy.get(self.0)
    }

    /// The members that have arrived in this generation of the barrier.
    #[inline]
    #[must_use]
    pub const fn arrived(self) -> LaneMask {
        LaneField::Arrived.get(self.0)
    }

    /// The lanes that are out of service.
    #[inline]
    #[must_use]
    pub const fn offline(self) -> LaneMask {
        LaneField::Offline.get(self.0)
    }

    /// The lanes whose request is asked to stop at its next step.
    #[inline]
    #[must_use]
    pub const fn asked(self) -> LaneMask {
        LaneField::Ask.get(self.0)
    }

    /// The flags.
    #[inline]
    #[must_use]
    pub const fn flags(self) -> Flags {
        Flags::get(self.0)
    }

    /// The barrier's generation.
    #[inline]
    #[must_use]
    pub const fn epoch(self) -> Epoch {
        Epoch::new(layout::epoch(self.0, E))
    }

    /// The same without its width.
    #[inline]
    #[must_use]
    pub const fn view(self) -> View {
        View {
            all: Self::ALL,
            busy: self.busy(),
            arrived: self.arrived(),
            offline: self.offline(),
            ask: self.asked(),
            flags: self.flags(),
            epoch: self.epoch(),
        }
    }

    /// Whether what the [page](super#what-always-holds) says of every value holds of this one.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        let gang = self.has(Flags::GANG);
        let known = self.0 & !layout::used(N, E) == 0;
        let no_gang_no_barrier = gang || self.arrived().is_empty() && !self.has(Flags::ABORT);
        let faulty_gang_is_aborted = !gang || self.offline().is_empty() || self.has(Flags::ABORT);
        let somebody_is_missing = !self.arrived().covers(Self::ALL);
        known && no_gang_no_barrier && faulty_gang_is_aborted && somebody_is_missing
    }

    /// The dispatcher takes a free lane for a small request.
    ///
    /// DRAIN does not refuse it: that is how a backfill starts.
    ///
    /// # Errors
    /// If the door is closed, a gang is on, or the lane is not free.
    #[inline]
    pub const fn try_reserve(self, lane: LaneId) -> Result<Self, ReserveRefused> {
        let lane = Self::only(lane);
        if self.has(Flags::CLOSED) {
            Err(ReserveRefused::Closed)
        } else if self.has(Flags::GANG) {
            Err(ReserveRefused::Gang)
        } else if !self.lacks(LaneField::Busy, lane) {
            Err(ReserveRefused::Busy)
        } else if !self.lacks(LaneField::Offline, lane) {
            Err(ReserveRefused::Offline)
        } else {
            Ok(self.on(LaneField::Busy, lane).off(LaneField::Ask, lane))
        }
    }

    /// The dispatcher takes a lane that is out of service, to find out whether it works again. The lane stays offline meanwhile.
    ///
    /// # Errors
    /// If somebody holds the lane, or it is in service.
    #[inline]
    pub const fn try_reserve_probe(self, lane: LaneId) -> Result<Self, ProbeRefused> {
        let lane = Self::only(lane);
        if !self.lacks(LaneField::Busy, lane) {
            Err(ProbeRefused::Busy)
        } else if self.lacks(LaneField::Offline, lane) {
            Err(ProbeRefused::Online)
        } else {
            // The ask goes too: a probe is the lane's next request like any other.
            Ok(self.on(LaneField::Busy, lane).off(LaneField::Ask, lane))
        }
    }

    /// The dispatcher takes every lane for one request. The next value's [`epoch`](Self::epoch) goes into every member's mail.
    ///
    /// # Errors
    /// If the door is closed, a gang is on, or any lane is not free.
    #[inline]
    pub const fn try_reserve_gang(self) -> Result<Self, GangRefused> {
        if self.has(Flags::CLOSED) {
            Err(GangRefused::Closed)
        } else if self.has(Flags::GANG) {
            Err(GangRefused::Gang)
        } else if !self.busy().is_empty() {
            Err(GangRefused::Busy(self.busy()))
        } else if !self.offline().is_empty() {
            Err(GangRefused::Offline(self.offline()))
        } else {
            Ok(self
                .on(LaneField::Busy, Self::ALL)
                .off(LaneField::Arrived, Self::ALL)
                .off(LaneField::Ask, Self::ALL)
                .lower(Flags::DRAIN.with(Flags::ABORT).with(Flags::STOP))
                .raise(Flags::GANG)
                .next_epoch())
        }
    }

    /// The member of `lane` comes to the barrier in generation `epoch`: its mail's at first, one more after each time through.
    ///
    /// Only the word's width of `epoch` counts, so that a member may go on counting without knowing it. A refusal leaves the value as it is.
    #[inline]
    pub const fn try_arrive(self, lane: LaneId, epoch: Epoch) -> (Self, Arrival) {
        let missing = Self::ALL.bits() & !self.busy().bits();
        let refused = if !self.has(Flags::GANG) {
            ArriveRefused::NoGang
        } else if self.has(Flags::ABORT) {
            ArriveRefused::Aborted
        } else if !self.is_in(epoch) {
            ArriveRefused::OtherEpoch
        } else if missing != 0 {
            ArriveRefused::MembersLeft(LaneMask::from_bits(missing))
        } else {
            let before = self.arrived();
            let next = self.on(LaneField::Arrived, Self::only(lane));
            if !next.arrived().covers(Self::ALL) {
                return (next, Arrival::Waiting);
            }
            let next = next.off(LaneField::Arrived, Self::ALL).next_epoch();
            let next = if self.asked().is_empty() { next } else { next.raise(Flags::STOP) };
            return (next, Arrival::Completed { wake: before, stop: next.has(Flags::STOP) });
        };
        (self, Arrival::Refused(refused))
    }

    /// What a member that arrived in generation `epoch` finds.
    #[inline]
    pub const fn judge(self, epoch: Epoch) -> Verdict {
        // The epoch comes first: once it has moved all are through, whatever has happened since.
        if !self.is_in(epoch) {
            Verdict::Through { stop: self.has(Flags::STOP) }
        } else if self.is_whole_gang() {
            Verdict::Wait
        } else {
            Verdict::Broken
        }
    }

    /// Breaks the gang: a member does it that panicked or waited too long in generation `epoch`, or the dispatcher, without one.
    ///
    /// # Errors
    /// If there is no gang, it is aborted already, or the barrier has left that generation.
    #[inline]
    pub const fn try_abort_gang(self, epoch: Option<Epoch>) -> Result<(Self, Aborted), AbortRefused> {
        if !self.has(Flags::GANG) {
            return Err(AbortRefused::NoGang);
        }
        if self.has(Flags::ABORT) {
            return Err(AbortRefused::Aborted);
        }
        if let Some(epoch) = epoch
            && !self.is_in(epoch)
        {
            return Err(AbortRefused::OtherEpoch);
        }
        Ok((self.raise(Flags::ABORT), Aborted { wake: self.waiting() }))
    }

    /// Takes a lane out of service, and breaks the gang if there is one. Whoever holds the lane goes on holding it.
    ///
    /// # Errors
    /// If the lane is out of service already.
    #[inline]
    pub const fn try_quarantine(self, lane: LaneId) -> Result<(Self, Quarantined), AlreadyOffline> {
        let lane = Self::only(lane);
        if !self.lacks(LaneField::Offline, lane) {
            return Err(AlreadyOffline);
        }
        let next = self.on(LaneField::Offline, lane);
        let aborted = self.has(Flags::GANG) && !self.has(Flags::ABORT);
        let next = if aborted { next.raise(Flags::ABORT) } else { next };
        Ok((next, Quarantined { aborted, wake: self.waiting() }))
    }

    /// The holder lets go of its lane.
    #[inline]
    pub const fn release(self, lane: LaneId) -> (Self, Released) {
        let next = Self(self.0 & Self::release_mask(lane));
        (next, Released { before: self.view(), after: next.view(), wake: self.waiting().without(lane) })
    }

    /// The dispatcher ends the gang. The epoch and STOP stay, since together they are the verdict of the last barrier: a member
    /// that hung may come to read it only now, and must find what its peers found.
    ///
    /// Nobody has to be woken: whoever waited was woken by what broke the gang.
    ///
    /// # Errors
    /// If there is no gang, or a lane in service is still held.
    #[inline]
    pub const fn try_end_gang(self) -> Result<(Self, Ended), EndRefused> {
        if !self.has(Flags::GANG) {
            return Err(EndRefused::NoGang);
        }
        let held = self.busy().bits() & !self.offline().bits();
        if held != 0 {
            return Err(EndRefused::Busy(LaneMask::from_bits(held)));
        }
        let next = self.off(LaneField::Arrived, Self::ALL).off(LaneField::Ask, Self::ALL).lower(Flags::GANG.with(Flags::ABORT));
        Ok((next, Ended { hung: self.busy() }))
    }

    /// The dispatcher takes a lane back into service, after a probe newer than the lane's last fault.
    ///
    /// # Errors
    /// If somebody holds the lane, or it is in service.
    #[inline]
    pub const fn try_restore(self, lane: LaneId) -> Result<Self, RestoreRefused> {
        let lane = Self::only(lane);
        if !self.lacks(LaneField::Busy, lane) {
            Err(RestoreRefused::Busy)
        } else if self.lacks(LaneField::Offline, lane) {
            Err(RestoreRefused::Online)
        } else {
            Ok(self.off(LaneField::Offline, lane))
        }
    }

    /// The dispatcher asks the requests on `lanes` to stop at their next step; one lane's is enough for a gang.
    #[inline]
    #[must_use]
    pub const fn ask(self, lanes: LaneMask) -> Self {
        Self(self.0 | Self::ask_mask(lanes))
    }

    /// The dispatcher takes that back. A STOP that a barrier has decided stays.
    #[inline]
    #[must_use]
    pub const fn unask(self, lanes: LaneMask) -> Self {
        Self(self.0 & !Self::ask_mask(lanes))
    }

    /// The dispatcher says whether a large request waits for the lanes.
    #[inline]
    #[must_use]
    pub const fn drain(self, on: bool) -> Self {
        if on { self.raise(Flags::DRAIN) } else { self.lower(Flags::DRAIN) }
    }

    /// The dispatcher closes the node to reservations, for good.
    #[inline]
    #[must_use]
    pub const fn close(self) -> Self {
        self.raise(Flags::CLOSED)
    }

    /// What [`release`](Self::release) leaves on.
    #[inline]
    pub(super) const fn release_mask(lane: LaneId) -> u64 {
        let lane = Self::only(lane);
        !(LaneField::Busy.place(lane) | LaneField::Ask.place(lane))
    }

    /// What [`ask`](Self::ask) turns on and [`unask`](Self::unask) turns off.
    #[inline]
    pub(super) const fn ask_mask(lanes: LaneMask) -> u64 {
        LaneField::Ask.place(LaneMask::from_bits(lanes.bits() & Self::ALL.bits()))
    }

    /// Whether a gang is on that can still pass its barrier.
    const fn is_whole_gang(self) -> bool {
        self.has(Flags::GANG) && !self.has(Flags::ABORT) && self.busy().covers(Self::ALL)
    }

    /// Those whom the next break of the gang finds waiting. Once it is broken they have been woken, and no others arrive.
    const fn waiting(self) -> LaneMask {
        if self.is_whole_gang() { self.arrived() } else { LaneMask::NONE }
    }

    /// `lane` alone; none for a lane that does not exist, so that a caller's mistake cannot spill into the next field.
    const fn only(lane: LaneId) -> LaneMask {
        debug_assert!(lane.index() < N, "the lane exists");
        LaneMask::from_bits(lane.mask().bits() & Self::ALL.bits())
    }

    /// Whether the barrier is in generation `epoch`, which may count on beyond the word's width.
    const fn is_in(self, epoch: Epoch) -> bool {
        layout::place_epoch(self.epoch().get(), E) == layout::place_epoch(epoch.get(), E)
    }

    const fn has(self, flag: Flags) -> bool {
        self.flags().contains(flag)
    }

    const fn lacks(self, field: LaneField, lanes: LaneMask) -> bool {
        self.0 & field.place(lanes) == 0
    }

    const fn on(self, field: LaneField, lanes: LaneMask) -> Self {
        Self(self.0 | field.place(lanes))
    }

    const fn off(self, field: LaneField, lanes: LaneMask) -> Self {
        Self(self.0 & !field.place(lanes))
    }

    const fn raise(self, flags: Flags) -> Self {
        Self(self.0 | flags.place())
    }

    const fn lower(self, flags: Flags) -> Self {
        Self(self.0 & !flags.place())
    }

    const fn next_epoch(self) -> Self {
        self.with_epoch(Epoch::new(self.epoch().get().wrapping_add(1)))
    }

    /// The same in another generation.
    pub(super) const fn with_epoch(self, epoch: Epoch) -> Self {
        let cleared = self.0 & !layout::place_epoch(u32::MAX, E);
        Self(cleared | layout::place_epoch(epoch.get(), E))
    }
}

impl<const N: usize, const E: u32> Default for Snapshot<N, E> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize, const E: u32> fmt::Debug for Snapshot<N, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "epoch {} ask {:0n$b} flags {:?} offline {:0n$b} arrived {:0n$b} busy {:0n$b}",
            self.epoch().get(),
            self.asked().bits(),
            self.flags(),
            self.offline().bits(),
            self.arrived().bits(),
            self.busy().bits(),
            n = N,
        )
    }
}
