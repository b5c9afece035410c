//! Every interleaving of full thread programs over the pure transitions, breadth first.
//!
//! A state is the word, the program counter of each lane's holder, and ghosts: who owns a lane, and which verdict a barrier call
//! has come to. The dispatcher's counter is not stored: it is sequential, and in the middle of something exactly when some lane
//! says so (granted but not handed over, revoked but not released). A step is one transition together with the thread-local
//! steps next to it, which no other thread can tell apart from a later or earlier moment; waking is part of the transition,
//! since a waker that dawdles is a sleeper that sleeps longer.
//!
//! Lanes are alike, so a state is kept with its lanes sorted. Epochs are kept as they are, 2 bits wide, so that the wrap is
//! searched too.
//!
//! Who may do what:
//! - the dispatcher reserves a lane, hands it over or takes it back; reserves a gang; aborts, ends; quarantines any lane, idle
//!   or held; probes; restores after a probe newer than the last fault; asks, drains, closes; revokes a lease;
//! - a small request ends, faults (quarantine, then release) or hangs; what hangs may go on at any time, or never;
//! - a member calls the barrier up to twice, and before each call may return, panic, fault or hang; while it waits it may run out
//!   of time; a member told to step aside may also not do it;
//! - a lease's holder lets go, or is revoked: whoever changes the lease's own atomic first releases the lane.
//!
//! # Liveness
//! Each granted request ends, each gang is ended, and each large one that the dispatcher drains for starts: by ranks, checked on every edge and in
//! every state, without keeping the graph.
//! - [`Property::BoundedSteps`]: no step by anybody raises what the holder of a lane has left to do, but its own hang; each step of the holder
//!   lowers it. So traffic on other lanes, however long, takes nothing from it.
//! - [`Property::GrantedEnds`], [`Property::GangEnds`]: in every state in which a lane is held, or there is a gang, somebody owes the step
//!   that helps: the holder its next one, the dispatcher to hand over, to take out of service what hangs, to end a gang that it may end. A sleeper
//!   that has a verdict counts as lost. Time-outs and the dispatcher's abort are owed by nobody, so that they cannot hide a wake-up that is missing.
//! - [`Property::LargeStarts`]: a bit of the state says that a large one waits. The dispatcher then starts no small one but a few backfills, and what
//!   is left before the start never rises, but by a hang or a fault.
//!
//! What is assumed: who owes a step takes it in the end, a member hangs finitely often, and faults and withdrawals come finitely often. A rank
//! that fails need not be a run without end; one that holds is a proof that there is none.
//!
//! [`Mutant`]s break one rule each, and the search must fail on each: that is how we know that it sees.

use std::fmt;

use super::layout::{Flags, LaneField};
use super::snapshot::{AbortRefused, Arrival, Snapshot, Verdict};
use crate::types::{Epoch, LaneId, LaneMask};

/// Wide enough for two barrier calls of a gang to be told from the gang before, narrow enough to wrap.
const EPOCH_BITS: u32 = 2;
/// How often a member calls the barrier at most.
const CALLS: u8 = 2;
/// How many small requests start ahead of a large one that waits, at most: two, so that one can follow the other on a lane.
const BACKFILLS: u8 = 2;
const BACKFILL_BITS: u32 = 2;

type Word<const N: usize> = Snapshot<N, EPOCH_BITS>;

/// Where the holder of a lane is, or that it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pc {
    /// Nobody holds the lane.
    Idle,
    /// Nobody does, and a probe newer than the last fault found it well.
    Probed,
    /// The dispatcher holds it and has not handed it over.
    Granted,
    Small,
    /// A small request or a probe that hangs.
    Hung,
    /// All that is left is to release.
    Leaving,
    Lease,
    /// The lease's holder won its atomic, and will release.
    LeaseLeft,
    /// The dispatcher won it, and will release.
    LeaseRevoked,
    Probe,
    /// A member that is through this many barrier calls.
    Run(u8),
    /// A member that has arrived, or was woken: it judges next.
    Arrived(u8),
    /// A member that judged, found it must wait, and sleeps until woken.
    Parked(u8),
    /// A member that hangs.
    MemberHung(u8),
    /// [`Mutant::ArriveInTwoSteps`] only: arrived as the last one and has not said so.
    Completing(u8),
}

impl Pc {
    fn code(self) -> u16 {
        match self {
            Self::Idle => 0,
            Self::Probed => 1,
            Self::Granted => 2,
            Self::Small => 3,
            Self::Hung => 4,
            Self::Leaving => 5,
            Self::Lease => 6,
            Self::LeaseLeft => 7,
            Self::LeaseRevoked => 8,
            Self::Probe => 9,
            Self::Run(calls) => 10 + u16::from(calls),
            Self::Arrived(calls) => 13 + u16::from(calls),
            Self::Parked(calls) => 15 + u16::from(calls),
            Self::MemberHung(calls) => 17 + u16::from(calls),
            Self::Completing(calls) => 20 + u16::from(calls),
        }
    }

    fn of(code: u16) -> Self {
        const ALL: [Pc; 22] = [
            Pc::Idle,
            Pc::Probed,
            Pc::Granted,
            Pc::Small,
            Pc::Hung,
            Pc::Leaving,
            Pc::Lease,
            Pc::LeaseLeft,
            Pc::LeaseRevoked,
            Pc::Probe,
            Pc::Run(0),
            Pc::Run(1),
            Pc::Run(2),
            Pc::Arrived(0),
            Pc::Arrived(1),
            Pc::Parked(0),
            Pc::Parked(1),
            Pc::MemberHung(0),
            Pc::MemberHung(1),
            Pc::MemberHung(2),
            Pc::Completing(0),
            Pc::Completing(1),
        ];
        ALL[code as usize]
    }

    fn owns(self) -> bool {
        !matches!(self, Self::Idle | Self::Probed)
    }

    fn hangs(self) -> bool {
        matches!(self, Self::Hung | Self::MemberHung(_))
    }

    /// Whether the dispatcher is in the middle of something with this lane.
    fn is_with_dispatcher(self) -> bool {
        matches!(self, Self::Granted | Self::LeaseRevoked)
    }

    /// The barrier call whose verdict this member still has to get, if it calls.
    fn next_call(self) -> Option<u8> {
        match self {
            Self::Run(calls) | Self::Arrived(calls) | Self::Parked(calls) | Self::MemberHung(calls) | Self::Completing(calls) => {
                Some(calls)
            }
            _ => None,
        }
    }
}

/// What a barrier call has come to, as far as any member has been told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Nothing,
    Through,
    Stop,
    Broken,
}

impl Told {
    const ALL: [Self; 4] = [Self::Nothing, Self::Through, Self::Stop, Self::Broken];
}

#[derive(Clone, Copy)]
struct State<const N: usize> {
    word: Word<N>,
    pc: [Pc; N],
    /// [`Mutant::LeaseHasNoAtomic`] only: an old lease holder that does not know that it was revoked.
    stale: LaneMask,
    /// The epoch in the gang's mail, while any member of it runs.
    mail: u8,
    told: [Told; CALLS as usize],
    /// The dispatcher drains for a large request that waits. Unless a mutant loses it, DRAIN says so too.
    waits: bool,
    /// How many small requests may still start ahead of it.
    backfills: u8,
}

/// One lane's bits in a code: 5 of the counter, then busy, arrived, offline, ask, stale.
const LANE_BITS: u32 = 10;

impl<const N: usize> State<N> {
    const START: Self = Self {
        word: Word::EMPTY,
        pc: [Pc::Idle; N],
        stale: LaneMask::NONE,
        mail: 0,
        told: [Told::Nothing; CALLS as usize],
        waits: false,
        backfills: 0,
    };

    fn lane_code(&self, lane: usize) -> u16 {
        let bit = |mask: LaneMask, place: u32| ((mask.bits() >> lane & 1) as u16) << place;
        self.pc[lane].code()
            | bit(self.word.busy(), 5)
            | bit(self.word.arrived(), 6)
            | bit(self.word.offline(), 7)
            | bit(self.word.asked(), 8)
            | bit(self.stale, 9)
    }

    /// The same for all states that differ in the order of their lanes alone.
    fn code(&self) -> u128 {
        let mut lanes: [u16; N] = std::array::from_fn(|lane| self.lane_code(lane));
        lanes.sort_unstable();
        let mut code = 0u128;
        for lane in lanes {
            code = code << LANE_BITS | u128::from(lane);
        }
        let flags = (self.word.bits() >> 24 & 31) as u128;
        let rest = [
            (flags, 5),
            (u128::from(self.word.epoch().get()), EPOCH_BITS),
            (u128::from(self.mail), EPOCH_BITS),
            (self.told[0] as u128, 2),
            (self.told[1] as u128, 2),
            (u128::from(self.waits), 1),
            (u128::from(self.backfills), BACKFILL_BITS),
        ];
        for (value, bits) in rest {
            code = code << bits | value;
        }
        code
    }

    fn of(mut code: u128) -> Self {
        let mut take = |bits: u32| {
            let value = code & ((1 << bits) - 1);
            code >>= bits;
            value as u64
        };
        let backfills = take(BACKFILL_BITS) as u8;
        let waits = take(1) == 1;
        let told1 = Told::ALL[take(2) as usize];
        let told0 = Told::ALL[take(2) as usize];
        let mail = take(EPOCH_BITS) as u8;
        let epoch = take(EPOCH_BITS);
        let flags = take(5);
        let mut word = epoch << 40 | flags << 24;
        let mut stale = 0;
        let mut pc = [Pc::Idle; N];
        for lane in (0..N).rev() {
            let bits = take(LANE_BITS);
            pc[lane] = Pc::of((bits & 31) as u16);
            for (from, to) in [(5, 0), (6, 8), (7, 16), (8, 32)] {
                word |= (bits >> from & 1) << to << lane;
            }
            stale |= (bits >> 9) << lane;
        }
        Self { word: Word::from_bits(word), pc, stale: LaneMask::from_bits(stale), mail, told: [told0, told1], waits, backfills }
    }

    fn epoch_of_call(&self, call: u8) -> Epoch {
        Epoch::new(u32::from(self.mail) + u32::from(call))
    }

    fn wake(&mut self, lanes: LaneMask) {
        for lane in lanes {
            if let Pc::Parked(call) = self.pc[lane.index()] {
                self.pc[lane.index()] = Pc::Arrived(call);
            }
        }
    }

    /// A member is told what `call` came to.
    fn tell(&mut self, call: u8, verdict: Told) -> Result<(), Property> {
        let told = &mut self.told[call as usize];
        match (*told, verdict) {
            (Told::Nothing, Told::Broken) => *told = Told::Broken,
            // The completing member is the first to know of a barrier passed, and it notes it there.
            (Told::Nothing, _) => return Err(Property::ThroughMeansAllArrived),
            (before, now) if before != now => return Err(Property::OneVerdict),
            _ => {}
        }
        Ok(())
    }

    /// Drops ghosts that nobody will look at again, so that they do not multiply the states.
    fn forget(&mut self) {
        let first = self.pc.iter().filter_map(|pc| pc.next_call()).min();
        for call in 0..CALLS {
            if first.is_none_or(|first| first > call) {
                self.told[call as usize] = Told::Nothing;
            }
        }
        if first.is_none() {
            self.mail = 0;
        }
        if !self.waits {
            self.backfills = 0;
        }
    }

    fn owned(&self) -> LaneMask {
        (0..N).filter(|&lane| self.pc[lane].owns()).map(LaneId::new).collect()
    }

    /// What must hold in every state.
    fn check(&self, rules: Rules) -> Result<(), Property> {
        if self.word.busy() != self.owned() {
            return Err(Property::OneOwner);
        }
        // A mutant's first failure should be what it does to people, not that its word looks odd.
        if rules.broken.is_none() && !self.word.is_valid() {
            return Err(Property::ValidWord);
        }
        if self.word.flags().contains(Flags::DRAIN) && !self.waits {
            return Err(Property::DrainIsForSomebody);
        }
        Ok(())
    }

    fn is_dispatcher_free(&self) -> bool {
        !self.pc.iter().any(|pc| pc.is_with_dispatcher())
    }

    fn is_gang(&self) -> bool {
        self.word.flags().contains(Flags::GANG)
    }

    /// The lanes whose holders a gang has to wait for before it can be ended.
    fn held_in_service(&self) -> LaneMask {
        self.word.busy() & !self.word.offline()
    }

    /// Whether the large request that waits is owed a start.
    fn is_large_due(&self) -> bool {
        self.waits && self.word.offline().is_empty() && !self.word.flags().contains(Flags::CLOSED)
    }
}

impl<const N: usize> fmt::Debug for State<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} | lanes {:?} | mail {} told {:?}", self.word, self.pc, self.mail, self.told)?;
        if self.waits { write!(f, " | a large waits, backfills {}", self.backfills) } else { Ok(()) }
    }
}

/// What the search asserts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Property {
    /// A lane never has two owners, and its busy bit is on exactly while it has one.
    OneOwner,
    /// A gang holds every lane or none.
    AllOrNothing,
    /// All members that a barrier call tells anything are told the same.
    OneVerdict,
    /// Through implies that all members have arrived.
    ThroughMeansAllArrived,
    /// An offline lane is never reserved.
    OfflineStaysFree,
    /// An ask never hits the lane's next request.
    AskHitsNoOther,
    /// What the word's page says of every value.
    ValidWord,
    /// DRAIN keeps small requests out only while a large one waits.
    DrainIsForSomebody,
    /// Each holder of a lane takes a bounded number of steps, whatever the others do.
    BoundedSteps,
    /// Each holder of a lane lets go of it, or is out of service because it hangs.
    GrantedEnds,
    /// Each gang is ended.
    GangEnds,
    /// A large request that the dispatcher drains for starts.
    LargeStarts,
}

/// One rule of the word broken. Each entry says how the real rule differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mutant {
    /// `end_gang` leaves the epoch alone.
    EndMovesEpoch,
    /// `end_gang` leaves STOP alone.
    EndClearsStop,
    /// `arrive` is one compare-exchange, not a fetch_or and then the completion.
    ArriveInTwoSteps,
    /// `end_gang` and `reserve_gang` clear what arrived. (Either is enough: nothing arrives without GANG.)
    OldArrivalsStay,
    /// `quarantine` aborts the gang.
    QuarantineKeepsGang,
    /// `release` wakes those who wait for the member that leaves.
    ReleaseWakesNobody,
    /// The completing `arrive` wakes those who arrived before.
    CompletionWakesNobody,
    /// `abort_gang` wakes those who wait.
    AbortWakesNobody,
    /// `abort_gang` leaves DRAIN alone.
    AbortLosesDrain,
    /// `end_gang` does not wait for lanes that hang.
    EndWaitsForHung,
    /// `judge` looks whether all members are still there.
    JudgeTrustsMembers,
    /// `judge` looks at the epoch before anything else.
    JudgeLooksAtEpochLast,
    /// `judge` reads STOP, which the completing arrival has decided.
    JudgeReadsAsk,
    /// `arrive` is refused under ABORT.
    ArriveAfterAbort,
    /// The completing `arrive` clears the others' bits.
    CompletionKeepsArrivals,
    /// `abort_gang` of a member is refused when its barrier has completed.
    AbortIgnoresEpoch,
    /// `reserve` is refused under GANG.
    ReserveUnderGang,
    /// `reserve` is refused for an offline lane.
    ReserveOffline,
    /// `reserve` clears the lane's ask.
    ReserveKeepsAsk,
    /// `reserve_gang` is refused while a lane is busy.
    GangOverBusy,
    /// `reserve_gang` is refused while a lane is offline.
    GangOverOffline,
    /// `reserve_gang` is granted under DRAIN.
    GangWaitsForDrain,
    /// `reserve_gang` clears DRAIN.
    GangKeepsDrain,
    /// `restore` is refused while somebody holds the lane.
    RestoreHeld,
    /// A lease that may be revoked has an atomic of its own.
    LeaseHasNoAtomic,
    /// Under DRAIN the dispatcher starts no small request that is no backfill.
    AdmitsUnderDrain,
    /// The dispatcher releases the lane of a lease that it has revoked.
    RevokedStaysHeld,
    /// A member whose arrival is refused leaves.
    RefusedTriesAgain,
    /// `ask` wakes nobody: who waits is woken once, by the verdict, and so takes a bounded number of steps.
    AskWakesMembers,
    /// The dispatcher takes a lane that hangs out of service.
    HungStaysInService,
}

/// The transitions as the search takes them: the real ones, but for one broken rule.
#[derive(Clone, Copy, Debug)]
struct Rules {
    broken: Option<Mutant>,
}

impl Rules {
    const REAL: Self = Self { broken: None };

    fn is(self, mutant: Mutant) -> bool {
        self.broken == Some(mutant)
    }

    /// The transition `step` as if the word's `mask` were off; what was on stays on.
    fn blind<const N: usize, T>(word: Word<N>, mask: u64, step: impl FnOnce(Word<N>) -> (Word<N>, T)) -> (Word<N>, T) {
        let (next, outcome) = step(Word::from_bits(word.bits() & !mask));
        (Word::from_bits(next.bits() | word.bits() & mask), outcome)
    }

    fn reserve<const N: usize>(self, word: Word<N>, lane: LaneId) -> Option<Word<N>> {
        let mask = match self.broken {
            Some(Mutant::ReserveUnderGang) => Flags::GANG.place(),
            Some(Mutant::ReserveOffline) => LaneField::Offline.place(LaneMask::first(N)),
            Some(Mutant::ReserveKeepsAsk) => LaneField::Ask.place(lane.mask()),
            _ => 0,
        };
        let (next, outcome) = Self::blind(word, mask, |word| match word.try_reserve(lane) {
            Ok(next) => (next, true),
            Err(_) => (word, false),
        });
        outcome.then_some(next)
    }

    /// How many backfills are left when the dispatcher has started a small request, if it may.
    fn admit<const N: usize>(self, state: &State<N>) -> Option<u8> {
        if !state.word.flags().contains(Flags::DRAIN) || self.is(Mutant::AdmitsUnderDrain) {
            return Some(state.backfills);
        }
        state.backfills.checked_sub(1)
    }

    fn reserve_gang<const N: usize>(self, word: Word<N>) -> Option<Word<N>> {
        if self.is(Mutant::GangWaitsForDrain) && word.flags().contains(Flags::DRAIN) {
            return None;
        }
        let mask = match self.broken {
            Some(Mutant::GangOverBusy) => LaneField::Busy.place(LaneMask::first(N)),
            Some(Mutant::GangOverOffline) => LaneField::Offline.place(LaneMask::first(N)),
            Some(Mutant::OldArrivalsStay) => LaneField::Arrived.place(LaneMask::first(N)),
            Some(Mutant::GangKeepsDrain) => Flags::DRAIN.place(),
            _ => 0,
        };
        let (next, outcome) = Self::blind(word, mask, |word| match word.try_reserve_gang() {
            Ok(next) => (next, true),
            Err(_) => (word, false),
        });
        outcome.then_some(next)
    }

    fn arrive<const N: usize>(self, word: Word<N>, lane: LaneId, epoch: Epoch) -> (Word<N>, Arrival) {
        let (next, arrival) = match self.broken {
            Some(Mutant::ArriveAfterAbort) => Self::blind(word, Flags::ABORT.place(), |word| word.try_arrive(lane, epoch)),
            _ => word.try_arrive(lane, epoch),
        };
        if self.is(Mutant::CompletionKeepsArrivals) && matches!(arrival, Arrival::Completed { .. }) {
            return (Word::from_bits(next.bits() | LaneField::Arrived.place(word.arrived())), arrival);
        }
        if let Arrival::Completed { stop, .. } = arrival
            && self.is(Mutant::CompletionWakesNobody)
        {
            return (next, Arrival::Completed { wake: LaneMask::NONE, stop });
        }
        (next, arrival)
    }

    fn judge<const N: usize>(self, word: Word<N>, epoch: Epoch) -> Verdict {
        let whole = word.flags().contains(Flags::GANG) && !word.flags().contains(Flags::ABORT);
        match (self.broken, word.judge(epoch)) {
            (Some(Mutant::JudgeTrustsMembers), Verdict::Broken) if whole => Verdict::Wait,
            (Some(Mutant::JudgeLooksAtEpochLast), _) if !whole => Verdict::Broken,
            (Some(Mutant::JudgeReadsAsk), Verdict::Through { .. }) => Verdict::Through { stop: !word.asked().is_empty() },
            (_, verdict) => verdict,
        }
    }

    fn abort_gang<const N: usize>(self, word: Word<N>, epoch: Option<Epoch>) -> Result<(Word<N>, LaneMask), AbortRefused> {
        let epoch = if self.is(Mutant::AbortIgnoresEpoch) { None } else { epoch };
        let (next, aborted) = word.try_abort_gang(epoch)?;
        Ok(match self.broken {
            Some(Mutant::AbortWakesNobody) => (next, LaneMask::NONE),
            Some(Mutant::AbortLosesDrain) => (next.drain(false), aborted.wake),
            _ => (next, aborted.wake),
        })
    }

    fn quarantine<const N: usize>(self, word: Word<N>, lane: LaneId) -> Option<(Word<N>, LaneMask)> {
        let (next, quarantined) = word.try_quarantine(lane).ok()?;
        if self.is(Mutant::QuarantineKeepsGang) {
            return Some((Word::from_bits(word.bits() | LaneField::Offline.place(lane.mask())), LaneMask::NONE));
        }
        Some((next, quarantined.wake))
    }

    fn release<const N: usize>(self, word: Word<N>, lane: LaneId) -> (Word<N>, LaneMask) {
        let (next, released) = word.release(lane);
        (next, if self.is(Mutant::ReleaseWakesNobody) { LaneMask::NONE } else { released.wake })
    }

    fn end_gang<const N: usize>(self, word: Word<N>) -> Option<Word<N>> {
        if self.is(Mutant::EndWaitsForHung) && !word.busy().is_empty() {
            return None;
        }
        let mask = if self.is(Mutant::OldArrivalsStay) { LaneField::Arrived.place(LaneMask::first(N)) } else { 0 };
        let (next, outcome) = Self::blind(word, mask, |word| match word.try_end_gang() {
            Ok((next, _)) => (next, true),
            Err(_) => (word, false),
        });
        let next = match self.broken {
            Some(Mutant::EndMovesEpoch) => step_epoch(next),
            Some(Mutant::EndClearsStop) => Word::from_bits(next.bits() & !Flags::STOP.place()),
            _ => next,
        };
        outcome.then_some(next)
    }
}

/// A blind fetch_add on the epoch, for mutants. The epoch is cut where its highest bit would leave the real word.
fn step_epoch<const N: usize>(word: Word<N>) -> Word<N> {
    Word::from_bits((word.bits() + (1 << 40)) & ((1 << (40 + EPOCH_BITS)) - 1))
}

/// What somebody did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Act {
    Reserve,
    Backfill,
    HandOverSmall,
    HandOverLease,
    TakeBack,
    ReserveGang,
    ReserveGangLease,
    Return,
    Fault,
    Panic,
    Hang,
    GoOn,
    Leave,
    LetGoOfLease,
    Revoke,
    ReleaseRevoked,
    ReleaseStale,
    Probe,
    ProbePasses,
    ProbeFails,
    Restore,
    Quarantine,
    FaultAgain,
    EndGang,
    EndGangOverHung,
    Abort,
    Arrive,
    ArriveLast,
    ArriveRefused,
    JudgeWait,
    JudgeThrough,
    JudgeStop,
    JudgeBroken,
    TimeOut,
    TimeOutTooLate,
    Ask,
    Unask,
    Drain,
    EndDrain,
    Close,
}

const ACTS: usize = Act::Close as usize + 1;

impl Act {
    /// Whether it is a step of who holds the lane: the thread there, or the dispatcher before it has handed over.
    fn is_holders(self) -> bool {
        self.is_owed() || matches!(self, Self::GoOn | Self::Panic | Self::Fault | Self::TimeOut | Self::Revoke)
    }

    /// Whether the holder has to take this step or another one, if it can. It has to do nothing else: a time-out must not hide a
    /// wake-up that is missing.
    fn is_owed(self) -> bool {
        matches!(
            self,
            Self::HandOverSmall
                | Self::HandOverLease
                | Self::TakeBack
                | Self::ReleaseRevoked
                | Self::Return
                | Self::Leave
                | Self::LetGoOfLease
                | Self::ProbePasses
                | Self::ProbeFails
                | Self::Arrive
                | Self::ArriveLast
                | Self::ArriveRefused
                | Self::JudgeWait
                | Self::JudgeThrough
                | Self::JudgeStop
                | Self::JudgeBroken
        )
    }
}

/// What may happen in a search.
#[derive(Clone, Copy, Debug)]
struct May {
    small: bool,
    lease: bool,
    panic: bool,
    fault: bool,
    hang: bool,
    time_out: bool,
    abort: bool,
    /// The dispatcher quarantines lanes that do not hang: idle ones, and held ones that are merely slow.
    quarantine: bool,
    probe: bool,
    ask: bool,
    drain: bool,
    close: bool,
}

impl May {
    const EVERYTHING: Self = Self {
        small: true,
        lease: true,
        panic: true,
        fault: true,
        hang: true,
        time_out: true,
        abort: true,
        quarantine: true,
        probe: true,
        ask: true,
        drain: true,
        close: true,
    };
    const ONLY_GANGS: Self = Self {
        small: false,
        lease: false,
        panic: false,
        fault: false,
        hang: false,
        time_out: false,
        abort: false,
        quarantine: false,
        probe: false,
        ask: false,
        drain: false,
        close: false,
    };

    /// The acts that a search with these powers has to have seen, or it covered less than it says.
    fn expected(self) -> Vec<Act> {
        let mut acts =
            vec![Act::ReserveGang, Act::Return, Act::EndGang, Act::Arrive, Act::ArriveLast, Act::JudgeWait, Act::JudgeThrough];
        acts.extend([Act::JudgeBroken, Act::Leave, Act::ArriveRefused]);
        let mut when = |may: bool, more: &[Act]| {
            if may {
                acts.extend(more);
            }
        };
        when(self.small, &[Act::Reserve, Act::HandOverSmall, Act::TakeBack]);
        when(self.lease, &[Act::ReserveGangLease, Act::LetGoOfLease, Act::Revoke, Act::ReleaseRevoked]);
        when(self.small && self.lease, &[Act::HandOverLease]);
        when(self.panic, &[Act::Panic]);
        when(self.fault, &[Act::Fault]);
        when(self.hang, &[Act::Hang, Act::GoOn, Act::Quarantine, Act::EndGangOverHung]);
        when(self.time_out, &[Act::TimeOut, Act::TimeOutTooLate]);
        when(self.abort, &[Act::Abort]);
        when(self.quarantine, &[Act::Quarantine, Act::EndGangOverHung]);
        when(self.probe, &[Act::Probe, Act::ProbePasses, Act::ProbeFails, Act::Restore]);
        when(self.probe && self.quarantine, &[Act::FaultAgain]);
        when(self.ask, &[Act::Ask, Act::Unask, Act::JudgeStop]);
        when(self.drain, &[Act::Drain, Act::EndDrain]);
        when(self.drain && self.small, &[Act::Backfill]);
        when(self.close, &[Act::Close]);
        acts
    }
}

/// Every step that anybody can take from `state`: calls `each` with what was done and where it leads, or what it violates.
fn steps<const N: usize>(state: &State<N>, may: May, rules: Rules, mut each: impl FnMut(Act, usize, Result<State<N>, Property>)) {
    let dispatcher_is_free = state.is_dispatcher_free();
    for lane in 0..N {
        // Sorted, so that lanes that are alike stand side by side: a step by one is a step by each.
        if lane > 0 && state.lane_code(lane) == state.lane_code(lane - 1) {
            continue;
        }
        let mut each = |act, next| each(act, lane, next);
        holder_steps(state, lane, may, rules, &mut each);
        if dispatcher_is_free {
            dispatcher_lane_steps(state, lane, may, rules, &mut each);
        }
    }
    if dispatcher_is_free {
        dispatcher_steps(state, may, rules, &mut |act, next| each(act, N, next));
    }
}

type Each<'a, const N: usize> = &'a mut dyn FnMut(Act, Result<State<N>, Property>);

/// `state` with another word, with `wake` woken and with lane `at` at `pc`.
fn to<const N: usize>(state: &State<N>, (word, wake): (Word<N>, LaneMask), at: usize, pc: Pc) -> State<N> {
    let mut next = *state;
    next.word = word;
    // The lane itself moves last: whatever its holder did, it is not asleep.
    next.wake(wake);
    next.pc[at] = pc;
    next
}

/// What the holder of lane `at` can do, and the dispatcher when it is in the middle of something with it.
fn holder_steps<const N: usize>(state: &State<N>, at: usize, may: May, rules: Rules, each: Each<'_, N>) {
    let lane = LaneId::new(at);
    let word = state.word;
    let stay = (word, LaneMask::NONE);
    let released = |pc| to(state, rules.release(word, lane), at, pc);
    let quarantined = || rules.quarantine(word, lane).unwrap_or(stay);
    match state.pc[at] {
        Pc::Idle | Pc::Probed => {}
        Pc::Granted => {
            each(Act::HandOverSmall, Ok(to(state, stay, at, Pc::Small)));
            if may.lease {
                each(Act::HandOverLease, Ok(to(state, stay, at, Pc::Lease)));
            }
            each(Act::TakeBack, Ok(released(Pc::Idle)));
        }
        Pc::Small => {
            each(Act::Return, Ok(released(Pc::Idle)));
            if may.fault {
                each(Act::Fault, Ok(to(state, quarantined(), at, Pc::Leaving)));
            }
            if may.hang {
                each(Act::Hang, Ok(to(state, stay, at, Pc::Hung)));
            }
        }
        Pc::Hung => each(Act::GoOn, Ok(to(state, stay, at, Pc::Leaving))),
        Pc::Leaving => each(Act::Leave, Ok(released(Pc::Idle))),
        Pc::Lease => {
            each(Act::LetGoOfLease, Ok(to(state, stay, at, Pc::LeaseLeft)));
            if state.is_dispatcher_free() {
                let mut next = to(state, stay, at, Pc::LeaseRevoked);
                if rules.is(Mutant::LeaseHasNoAtomic) {
                    next.stale = next.stale.with(lane);
                }
                each(Act::Revoke, Ok(next));
            }
        }
        Pc::LeaseLeft => each(Act::Leave, Ok(released(Pc::Idle))),
        Pc::LeaseRevoked if rules.is(Mutant::RevokedStaysHeld) => {}
        Pc::LeaseRevoked => each(Act::ReleaseRevoked, Ok(released(Pc::Idle))),
        Pc::Probe => {
            each(Act::ProbePasses, Ok(released(Pc::Probed)));
            each(Act::ProbeFails, Ok(released(Pc::Idle)));
            if may.hang {
                each(Act::Hang, Ok(to(state, stay, at, Pc::Hung)));
            }
        }
        Pc::Run(call) => {
            let epoch = state.epoch_of_call(call);
            each(Act::Return, Ok(released(Pc::Idle)));
            if call < CALLS {
                arrive(state, at, call, rules, each);
            }
            if may.panic {
                let aborted = rules.abort_gang(word, Some(epoch)).unwrap_or(stay);
                each(Act::Panic, Ok(to(state, aborted, at, Pc::Leaving)));
            }
            if may.fault {
                each(Act::Fault, Ok(to(state, quarantined(), at, Pc::Leaving)));
            }
            if may.hang {
                each(Act::Hang, Ok(to(state, stay, at, Pc::MemberHung(call))));
            }
        }
        Pc::MemberHung(call) => each(Act::GoOn, Ok(to(state, stay, at, Pc::Run(call)))),
        Pc::Arrived(call) => {
            let told = |act, verdict, pc| {
                let mut next = to(state, stay, at, pc);
                (act, next.tell(call, verdict).map(|()| next))
            };
            let (act, next) = match rules.judge(word, state.epoch_of_call(call)) {
                Verdict::Wait => (Act::JudgeWait, Ok(to(state, stay, at, Pc::Parked(call)))),
                Verdict::Through { stop: false } => told(Act::JudgeThrough, Told::Through, Pc::Run(call + 1)),
                Verdict::Through { stop: true } => told(Act::JudgeStop, Told::Stop, Pc::Run(call + 1)),
                Verdict::Broken => told(Act::JudgeBroken, Told::Broken, Pc::Leaving),
            };
            each(act, next);
            // Its time may be up at the very moment at which it is woken.
            time_out(state, at, call, may, rules, each);
        }
        Pc::Parked(call) => time_out(state, at, call, may, rules, each),
        Pc::Completing(call) => {
            let wake = word.arrived();
            let cleared = Word::from_bits(word.bits() & !LaneField::Arrived.place(LaneMask::first(N)));
            let mut next = to(state, (step_epoch(cleared), wake), at, Pc::Run(call + 1));
            let told = next.told[call as usize];
            next.told[call as usize] = Told::Through;
            each(Act::ArriveLast, if told == Told::Nothing { Ok(next) } else { Err(Property::OneVerdict) });
        }
    }
    if state.stale.contains(lane) {
        let mut next = to(state, rules.release(word, lane), at, state.pc[at]);
        next.stale = next.stale.without(lane);
        each(Act::ReleaseStale, Ok(next));
    }
}

/// The member of lane `at` calls the barrier for the time `call`, counted from 0.
fn arrive<const N: usize>(state: &State<N>, at: usize, call: u8, rules: Rules, each: Each<'_, N>) {
    let lane = LaneId::new(at);
    let all_others_arrived = || {
        (0..N).filter(|&other| other != at).all(|other| matches!(state.pc[other], Pc::Arrived(c) | Pc::Parked(c) if c == call))
    };
    if rules.is(Mutant::ArriveInTwoSteps) {
        let word = Word::<N>::from_bits(state.word.bits() | LaneField::Arrived.place(lane.mask()));
        let last = word.arrived().covers(LaneMask::first(N));
        let pc = if last { Pc::Completing(call) } else { Pc::Arrived(call) };
        return each(Act::Arrive, Ok(to(state, (word, LaneMask::NONE), at, pc)));
    }
    match rules.arrive(state.word, lane, state.epoch_of_call(call)) {
        (word, Arrival::Waiting) => each(Act::Arrive, Ok(to(state, (word, LaneMask::NONE), at, Pc::Arrived(call)))),
        (word, Arrival::Completed { wake, stop }) => {
            let mut next = to(state, (word, wake), at, Pc::Run(call + 1));
            next.told[call as usize] = if stop { Told::Stop } else { Told::Through };
            let next = match state.told[call as usize] {
                Told::Nothing if all_others_arrived() => Ok(next),
                Told::Nothing => Err(Property::ThroughMeansAllArrived),
                _ => Err(Property::OneVerdict),
            };
            each(Act::ArriveLast, next);
        }
        (_, Arrival::Refused(_)) if rules.is(Mutant::RefusedTriesAgain) => each(Act::ArriveRefused, Ok(*state)),
        (word, Arrival::Refused(_)) => {
            let mut next = to(state, (word, LaneMask::NONE), at, Pc::Leaving);
            each(Act::ArriveRefused, next.tell(call, Told::Broken).map(|()| next));
        }
    }
}

/// The member of lane `at`, which has arrived, runs out of time.
fn time_out<const N: usize>(state: &State<N>, at: usize, call: u8, may: May, rules: Rules, each: Each<'_, N>) {
    if !may.time_out {
        return;
    }
    match rules.abort_gang(state.word, Some(state.epoch_of_call(call))) {
        Ok(aborted) => {
            let mut next = to(state, aborted, at, Pc::Leaving);
            each(Act::TimeOut, next.tell(call, Told::Broken).map(|()| next));
        }
        // Broken by somebody else, or completed at the last moment: judge again.
        Err(_) => each(Act::TimeOutTooLate, Ok(to(state, (state.word, LaneMask::NONE), at, Pc::Arrived(call)))),
    }
}

/// What the dispatcher can do with lane `at` when it is free to.
fn dispatcher_lane_steps<const N: usize>(state: &State<N>, at: usize, may: May, rules: Rules, each: Each<'_, N>) {
    let lane = LaneId::new(at);
    let word = state.word;
    let pc = state.pc[at];
    if may.small
        && let Some(backfills) = rules.admit(state)
        && let Some(next) = rules.reserve(word, lane)
    {
        let outcome = if pc.owns() {
            Err(Property::OneOwner)
        } else if word.offline().contains(lane) {
            Err(Property::OfflineStaysFree)
        } else if word.flags().contains(Flags::GANG) {
            Err(Property::AllOrNothing)
        } else if next.asked().contains(lane) {
            Err(Property::AskHitsNoOther)
        } else {
            Ok(State { backfills, ..to(state, (next, LaneMask::NONE), at, Pc::Granted) })
        };
        each(if backfills == state.backfills { Act::Reserve } else { Act::Backfill }, outcome);
    }
    if may.probe
        && let Ok(next) = word.try_reserve_probe(lane)
    {
        let outcome = if pc.owns() {
            Err(Property::OneOwner)
        } else if next.asked().contains(lane) {
            Err(Property::AskHitsNoOther)
        } else {
            Ok(to(state, (next, LaneMask::NONE), at, Pc::Probe))
        };
        each(Act::Probe, outcome);
    }
    if may.probe
        && pc == Pc::Probed
        && let Ok(next) = word.try_restore(lane)
    {
        each(Act::Restore, Ok(to(state, (next, LaneMask::NONE), at, Pc::Idle)));
    }
    if pc == Pc::Probe && rules.is(Mutant::RestoreHeld) && word.offline().contains(lane) {
        let next = Word::from_bits(word.bits() & !LaneField::Offline.place(lane.mask()));
        each(Act::Restore, Ok(to(state, (next, LaneMask::NONE), at, pc)));
    }
    if may.quarantine || pc.hangs() && !rules.is(Mutant::HungStaysInService) {
        if let Some((word, wake)) = rules.quarantine(word, lane) {
            // The lane's own member may be among those who sleep.
            let mut next = State { word, ..*state };
            next.wake(wake);
            each(Act::Quarantine, Ok(next));
        } else if pc == Pc::Probed {
            // A fault newer than the probe: the word has nothing to change, the dispatcher's books do.
            each(Act::FaultAgain, Ok(to(state, (word, LaneMask::NONE), at, Pc::Idle)));
        }
    }
    if may.ask {
        // Any lane: the dispatcher asks what it saw running, which may have let go since.
        let next = if word.asked().contains(lane) { word.unask(lane.mask()) } else { word.ask(lane.mask()) };
        let act = if word.asked().contains(lane) { Act::Unask } else { Act::Ask };
        let mut next = State { word: next, ..*state };
        if rules.is(Mutant::AskWakesMembers) {
            next.wake(word.arrived());
        }
        each(act, Ok(next));
    }
}

/// What the dispatcher can do with the whole word when it is free to.
fn dispatcher_steps<const N: usize>(state: &State<N>, may: May, rules: Rules, each: Each<'_, N>) {
    let word = state.word;
    if let Some(next) = rules.reserve_gang(word) {
        let outcome = if !word.offline().is_empty() {
            Err(Property::OfflineStaysFree)
        } else if state.pc.iter().any(|pc| pc.owns()) || next.busy() != LaneMask::first(N) {
            Err(Property::AllOrNothing)
        } else if !next.asked().is_empty() {
            Err(Property::AskHitsNoOther)
        } else {
            Ok(State { word: next, mail: next.epoch().get() as u8, waits: false, ..*state })
        };
        each(Act::ReserveGang, outcome.map(|next| State { pc: [Pc::Run(0); N], ..next }));
        if may.lease {
            each(Act::ReserveGangLease, outcome.map(|next| State { pc: [Pc::Lease; N], ..next }));
        }
    }
    if let Some(next) = rules.end_gang(word) {
        let act = if word.busy().is_empty() { Act::EndGang } else { Act::EndGangOverHung };
        each(act, Ok(State { word: next, ..*state }));
    }
    if may.abort
        && let Ok((next, wake)) = rules.abort_gang(word, None)
    {
        let mut next = State { word: next, ..*state };
        next.wake(wake);
        each(Act::Abort, Ok(next));
    }
    if may.drain {
        // It begins to wait, or does no longer: cancelled, expired, or the policy has changed its mind.
        let on = !state.waits;
        let next = State { word: word.drain(on), waits: on, backfills: BACKFILLS, ..*state };
        each(if on { Act::Drain } else { Act::EndDrain }, Ok(next));
    }
    if may.close && !word.flags().contains(Flags::CLOSED) {
        each(Act::Close, Ok(State { word: word.close(), ..*state }));
    }
}

/// What is left to do in a state: for the holder of each lane, and before the large request that waits can start.
#[derive(Clone, Copy)]
struct Left<const N: usize> {
    lanes: [u8; N],
    large: u32,
}

impl<const N: usize> Left<N> {
    fn of(state: &State<N>, rules: Rules) -> Self {
        let waits = |call| rules.judge(state.word, state.epoch_of_call(call)) == Verdict::Wait;
        let waits = [waits(0), waits(1)];
        let lanes = state.pc.map(|pc| match pc {
            Pc::Idle | Pc::Probed => 0,
            Pc::Leaving | Pc::LeaseLeft | Pc::LeaseRevoked => 1,
            Pc::Hung => 2,
            Pc::Small | Pc::Lease | Pc::Probe => 3,
            Pc::Granted => 4,
            Pc::MemberHung(call) => Self::run(call) + 1,
            Pc::Run(call) => Self::run(call),
            // Less once the verdict is there: whoever was woken has come nearer to its end, whoever sleeps has not.
            Pc::Arrived(call) if !waits[call as usize] => Self::run(call) - 3,
            Pc::Arrived(call) | Pc::Completing(call) => Self::run(call) - 1,
            Pc::Parked(call) => Self::run(call) - 2,
        });
        let large = lanes.iter().map(|&left| u32::from(left)).sum::<u32>();
        // A backfill costs more than the small request that it becomes.
        Self { lanes, large: large + 5 * u32::from(state.backfills) + u32::from(state.is_gang()) }
    }

    /// A member that is through so many calls. Each call takes three steps, and leaves less to do than hanging after it.
    const fn run(calls: u8) -> u8 {
        2 + 5 * (CALLS - calls)
    }
}

/// What the steps that somebody owes in a state come to.
struct Owed {
    /// Lanes whose holder moves.
    moves: LaneMask,
    /// Lanes that hang, and that the dispatcher takes out of service.
    gives_up: LaneMask,
    ends_gang: bool,
    starts_large: bool,
}

impl Owed {
    const NOTHING: Self = Self { moves: LaneMask::NONE, gives_up: LaneMask::NONE, ends_gang: false, starts_large: false };

    fn note(&mut self, act: Act, lane: usize) {
        match act {
            Act::Quarantine => self.gives_up = self.gives_up.with(LaneId::new(lane)),
            Act::EndGang | Act::EndGangOverHung => self.ends_gang = true,
            Act::ReserveGang => self.starts_large = true,
            _ if act.is_owed() => self.moves = self.moves.with(LaneId::new(lane)),
            _ => {}
        }
    }

    /// Whether whatever has to end in `state` has somebody who owes a step towards it.
    fn suffices<const N: usize>(mut self, state: &State<N>, rules: Rules) -> Result<(), Property> {
        // While the dispatcher is in the middle of something it owes the rest of that, which is a move; and then the others.
        let is_free = state.is_dispatcher_free();
        for at in 0..N {
            let lane = LaneId::new(at);
            // Of lanes that are alike `steps` moves the first.
            if at > 0 && state.lane_code(at) == state.lane_code(at - 1) {
                let before = LaneId::new(at - 1);
                self.moves = if self.moves.contains(before) { self.moves.with(lane) } else { self.moves };
                self.gives_up = if self.gives_up.contains(before) { self.gives_up.with(lane) } else { self.gives_up };
            }
        }
        for at in 0..N {
            let lane = LaneId::new(at);
            let helped = match state.pc[at] {
                Pc::Idle | Pc::Probed => true,
                Pc::Hung | Pc::MemberHung(_) => state.word.offline().contains(lane) || !is_free || self.gives_up.contains(lane),
                // Asleep though there is a verdict, it is woken by nobody any more.
                Pc::Parked(call) => {
                    rules.judge(state.word, state.epoch_of_call(call)) == Verdict::Wait
                        && !(self.moves.is_empty() && self.gives_up.is_empty())
                }
                _ => self.moves.contains(lane),
            };
            if !helped {
                return Err(Property::GrantedEnds);
            }
        }
        if is_free && state.is_gang() && state.held_in_service().is_empty() && !self.ends_gang {
            return Err(Property::GangEnds);
        }
        if state.is_large_due() && !state.is_gang() && state.word.busy().is_empty() && !self.starts_large {
            return Err(Property::LargeStarts);
        }
        Ok(())
    }
}

/// Whether a step leaves no more to do than there was, and less if it was owed.
fn progresses<const N: usize>(
    (state, left): (&State<N>, &Left<N>),
    (act, lane): (Act, usize),
    next: &State<N>,
    rules: Rules,
) -> Result<(), Property> {
    let after = Left::of(next, rules);
    for at in 0..N {
        let begins = !state.pc[at].owns();
        let hangs = act == Act::Hang && at == lane;
        if after.lanes[at] > left.lanes[at] && !begins && !hangs {
            return Err(Property::BoundedSteps);
        }
    }
    if act.is_holders() && after.lanes[lane] >= left.lanes[lane] {
        return Err(Property::BoundedSteps);
    }
    if state.is_gang() && next.is_gang() && !state.held_in_service().covers(next.held_in_service()) {
        return Err(Property::GangEnds);
    }
    if state.is_large_due() && next.is_large_due() && after.large > left.large && act != Act::Hang {
        return Err(Property::LargeStarts);
    }
    Ok(())
}

/// The codes of the states seen, in the order in which they were: an index is a state's number.
struct Seen {
    codes: Vec<u128>,
    /// From which state each was reached first.
    from: Vec<u32>,
    /// Open addressing; `u32::MAX` is free. The size is a power of two and at least twice the number of states.
    slots: Vec<u32>,
}

impl Seen {
    fn new(first: u128) -> Self {
        let mut seen = Self { codes: Vec::new(), from: Vec::new(), slots: vec![u32::MAX; 1 << 16] };
        seen.add(first, 0);
        seen
    }

    fn slot_of(&self, code: u128) -> usize {
        let mask = self.slots.len() - 1;
        let mixed = (code as u64 ^ ((code >> 64) as u64).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mut slot = (mixed >> 20) as usize & mask;
        while self.slots[slot] != u32::MAX && self.codes[self.slots[slot] as usize] != code {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Whether the state is new.
    fn add(&mut self, code: u128, from: u32) -> bool {
        let slot = self.slot_of(code);
        if self.slots[slot] != u32::MAX {
            return false;
        }
        let number = u32::try_from(self.codes.len()).expect("fewer than 2^32 states");
        self.slots[slot] = number;
        self.codes.push(code);
        self.from.push(from);
        if self.codes.len() * 2 > self.slots.len() {
            self.slots = vec![u32::MAX; self.slots.len() * 2];
            for number in 0..self.codes.len() {
                let slot = self.slot_of(self.codes[number]);
                self.slots[slot] = number as u32;
            }
        }
        true
    }
}

/// What a search without a violation covered.
#[derive(Debug)]
struct Covered {
    states: usize,
    edges: u64,
    acts: [u64; ACTS],
    /// Of the states, those in which a request has to end, a gang has to, and a large request has to start.
    pending: usize,
    gangs: usize,
    larges: usize,
}

/// How a property was violated: what, and the shortest way there.
struct Violation {
    property: Property,
    trace: String,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} does not hold:\n{}", self.property, self.trace)
    }
}

/// Searches every state that can be reached.
fn explore<const N: usize>(may: May, rules: Rules) -> Result<Covered, Violation> {
    let mut seen = Seen::new(State::<N>::START.code());
    let mut covered = Covered { states: 0, edges: 0, acts: [0; ACTS], pending: 0, gangs: 0, larges: 0 };
    while covered.states < seen.codes.len() {
        let number = covered.states;
        let state = State::<N>::of(seen.codes[number]);
        let left = Left::of(&state, rules);
        let mut owed = Owed::NOTHING;
        let mut violated = None;
        steps(&state, may, rules, |act, lane, next| {
            covered.edges += 1;
            covered.acts[act as usize] += 1;
            owed.note(act, lane);
            let checked = match next {
                Ok(mut next) => {
                    next.forget();
                    let is_new = seen.add(next.code(), number as u32);
                    let checked = if is_new { next.check(rules) } else { Ok(()) };
                    let checked = checked.and_then(|()| progresses((&state, &left), (act, lane), &next, rules));
                    checked.map_err(|property| (property, Some(next)))
                }
                Err(property) => Err((property, None)),
            };
            if let Err((property, next)) = checked {
                violated.get_or_insert((property, act, lane, next));
            }
        });
        if let Some((property, act, lane, next)) = violated {
            let mut trace = trace::<N>(&seen, number, may, rules);
            trace.push_str(&line(act, lane, next.as_ref()));
            return Err(Violation { property, trace });
        }
        if let Err(property) = owed.suffices(&state, rules) {
            let trace = trace::<N>(&seen, number, may, rules) + "  and nobody owes a step towards it\n";
            return Err(Violation { property, trace });
        }
        covered.states += 1;
        covered.pending += usize::from(left.lanes.iter().any(|&left| left > 0));
        covered.gangs += usize::from(state.is_gang());
        covered.larges += usize::from(state.is_large_due());
    }
    Ok(covered)
}

fn line<const N: usize>(act: Act, lane: usize, next: Option<&State<N>>) -> String {
    let who = if lane < N { format!(" lane {lane}") } else { String::new() };
    let next = next.map_or_else(|| "refuted".to_owned(), |next| format!("{next:?}"));
    format!("  {act:?}{who}\n      {next}\n")
}

/// The steps from the start to the state with this number. Lanes are sorted anew after each.
fn trace<const N: usize>(seen: &Seen, mut number: usize, may: May, rules: Rules) -> String {
    let mut lines = Vec::new();
    while number != 0 {
        let from = seen.from[number] as usize;
        let mut step = None;
        steps(&State::<N>::of(seen.codes[from]), may, rules, |act, lane, next| {
            if let Ok(mut next) = next {
                next.forget();
                if next.code() == seen.codes[number] {
                    step.get_or_insert((act, lane));
                }
            }
        });
        let (act, lane) = step.expect("a state was reached by a step");
        lines.push(line(act, lane, Some(&State::<N>::of(seen.codes[number]))));
        number = from;
    }
    lines.reverse();
    lines.concat()
}

/// Searches, demands that all that may happen did, and says how much that was.
fn search<const N: usize>(may: May) -> Covered {
    let start = std::time::Instant::now();
    let covered = explore::<N>(may, Rules::REAL).unwrap_or_else(|violation| panic!("{violation:?}"));
    for act in may.expected() {
        assert!(covered.acts[act as usize] > 0, "width {N} never saw {act:?}: {covered:?}");
    }
    assert!(covered.larges > 0 || !may.drain, "width {N} never saw a large request wait: {covered:?}");
    let Covered { states, edges, pending, gangs, larges, .. } = covered;
    println!("searched width {N}: {states} states, {edges} edges, {:.1} s", start.elapsed().as_secs_f64());
    println!(
        "    to come to an end from: {pending} states with a request, {gangs} with a gang; to start from: {larges} with a large"
    );
    covered
}

/// A gang with all that its members and the dispatcher's limit can do to it.
const GANGS: May = May { panic: true, fault: true, time_out: true, abort: true, ..May::ONLY_GANGS };

#[test]
fn width_2_with_everything() {
    search::<2>(May::EVERYTHING);
}

#[test]
fn width_3_with_all_but_close() {
    search::<3>(May { close: false, ..May::EVERYTHING });
}

#[test]
fn width_4_gangs() {
    search::<4>(GANGS);
}

#[test]
fn width_4_with_a_large_that_waits() {
    search::<4>(May { small: true, drain: true, panic: true, hang: true, ..May::ONLY_GANGS });
}

/// What a mutant does, and what it takes to see it: the fewest powers, so that the reason is plain.
fn refute(mutant: Mutant, property: Property, may: May) {
    match explore::<3>(may, Rules { broken: Some(mutant) }) {
        Ok(covered) => panic!("the search does not see {mutant:?}: {covered:?}"),
        Err(violation) => assert_eq!(violation.property, property, "{mutant:?}: {violation:?}"),
    }
    // The same powers with the real rules: it is the mutant that fails, not the search.
    if let Err(violation) = explore::<3>(may, Rules::REAL) {
        panic!("{violation:?}");
    }
}

#[test]
fn the_search_sees_every_mutant() {
    let gangs = May::ONLY_GANGS;
    let ask = May { ask: true, ..gangs };
    let time_out = May { time_out: true, ..gangs };
    let small = May { small: true, ..gangs };
    let slow = May { quarantine: true, ..gangs };
    refute(Mutant::EndMovesEpoch, Property::ThroughMeansAllArrived, slow);
    refute(Mutant::EndClearsStop, Property::OneVerdict, May { ask: true, ..slow });
    refute(Mutant::ArriveInTwoSteps, Property::OneVerdict, time_out);
    refute(Mutant::OldArrivalsStay, Property::ThroughMeansAllArrived, gangs);
    refute(Mutant::JudgeLooksAtEpochLast, Property::OneVerdict, May { panic: true, ..gangs });
    refute(Mutant::JudgeReadsAsk, Property::OneVerdict, ask);
    refute(Mutant::ArriveAfterAbort, Property::OneVerdict, time_out);
    refute(Mutant::CompletionKeepsArrivals, Property::ThroughMeansAllArrived, gangs);
    refute(Mutant::AbortIgnoresEpoch, Property::OneVerdict, time_out);
    refute(Mutant::ReserveUnderGang, Property::AllOrNothing, small);
    refute(Mutant::ReserveOffline, Property::OfflineStaysFree, May { fault: true, ..small });
    refute(Mutant::ReserveKeepsAsk, Property::AskHitsNoOther, May { ask: true, ..small });
    refute(Mutant::GangOverBusy, Property::AllOrNothing, small);
    refute(Mutant::GangOverOffline, Property::OfflineStaysFree, May { fault: true, ..gangs });
    refute(Mutant::LeaseHasNoAtomic, Property::OneOwner, May { lease: true, ..small });
    refute(Mutant::GangKeepsDrain, Property::DrainIsForSomebody, May { drain: true, ..gangs });
}

#[test]
fn the_search_sees_what_never_ends() {
    let gangs = May::ONLY_GANGS;
    let hang = May { hang: true, ..gangs };
    let panic = May { panic: true, ..gangs };
    let drain = May { drain: true, ..gangs };
    // Asleep for ever.
    refute(Mutant::ReleaseWakesNobody, Property::GrantedEnds, gangs);
    refute(Mutant::CompletionWakesNobody, Property::GrantedEnds, gangs);
    refute(Mutant::AbortWakesNobody, Property::GrantedEnds, panic);
    refute(Mutant::QuarantineKeepsGang, Property::GrantedEnds, hang);
    // Nobody's to end.
    refute(Mutant::HungStaysInService, Property::GrantedEnds, hang);
    refute(Mutant::RevokedStaysHeld, Property::GrantedEnds, May { lease: true, ..gangs });
    refute(Mutant::EndWaitsForHung, Property::GangEnds, hang);
    refute(Mutant::GangWaitsForDrain, Property::LargeStarts, drain);
    // Busy for ever: but for the first, in no state of these is everybody stuck.
    // Woken without a verdict, it sleeps again.
    refute(Mutant::JudgeTrustsMembers, Property::BoundedSteps, gangs);
    refute(Mutant::RefusedTriesAgain, Property::BoundedSteps, gangs);
    refute(Mutant::AskWakesMembers, Property::BoundedSteps, May { ask: true, ..gangs });
    refute(Mutant::RestoreHeld, Property::GangEnds, May { fault: true, probe: true, ..gangs });
    refute(Mutant::AdmitsUnderDrain, Property::LargeStarts, May { small: true, ..drain });
    refute(Mutant::AbortLosesDrain, Property::LargeStarts, May { small: true, panic: true, ..drain });
}

/// Minutes and gigabytes: `tools/ci/search.sh` runs it, in a release build.
#[test]
#[ignore = "takes minutes: tools/ci/search.sh runs it in a release build"]
fn width_4_in_full() {
    search::<4>(May { close: false, ..May::EVERYTHING });
}

/// The width that the node has, one power after the other: `tools/ci/search.sh` runs it, in a release build.
#[test]
#[ignore = "takes minutes: tools/ci/search.sh runs it in a release build"]
fn width_8_in_full() {
    search::<8>(GANGS);
    search::<8>(May { ask: true, ..GANGS });
    search::<8>(May { hang: true, ..GANGS });
    search::<8>(May { small: true, ..GANGS });
    search::<8>(May { small: true, fault: true, probe: true, ..May::ONLY_GANGS });
    search::<8>(May { small: true, hang: true, probe: true, quarantine: true, ..GANGS });
    search::<8>(May { small: true, lease: true, ..May::ONLY_GANGS });
    let drain = May { small: true, drain: true, ..May::ONLY_GANGS };
    search::<8>(drain);
    search::<8>(May { hang: true, ..drain });
    search::<8>(May { panic: true, abort: true, ..drain });
    search::<8>(May { panic: true, abort: true, time_out: true, fault: true, ..drain });
    search::<8>(May { lease: true, ..drain });
    search::<8>(May { hang: true, probe: true, ..drain });
}
