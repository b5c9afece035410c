//! The truth table of the [page](super), row by row, and real threads on the real word.

use super::layout::LaneField;
use super::*;
use crate::types::{Epoch, LaneId, LaneMask};

type Small = Snapshot<3, 2>;

const ALL: LaneMask = LaneMask::first(3);

fn lane(index: usize) -> LaneId {
    LaneId::new(index)
}

/// A word of three lanes.
fn word(flags: Flags, busy: u64, arrived: u64, offline: u64, ask: u64, epoch: u64) -> Small {
    let lanes = |field: LaneField, bits| field.place(LaneMask::from_bits(bits));
    let fields = lanes(LaneField::Busy, busy)
        | lanes(LaneField::Arrived, arrived)
        | lanes(LaneField::Offline, offline)
        | lanes(LaneField::Ask, ask);
    Small::from_bits(fields | flags.place() | epoch << 40)
}

/// Every word of three lanes that [`Snapshot::is_valid`] allows.
fn every_valid_word() -> impl Iterator<Item = Small> {
    let bits = (0..1u64 << 19).map(|n| {
        let field = |from: u32, to: u32| (n >> from & 7) << to;
        field(0, 0) | field(3, 8) | field(6, 16) | field(9, 32) | (n >> 12 & 31) << 24 | (n >> 17 & 3) << 40
    });
    bits.map(Small::from_bits).filter(|word| word.is_valid())
}

#[test]
fn the_layout_reads_by_eye() {
    let word = Snapshot::<8>::from_bits(0x0000_0781_1e03_02ff);
    assert_eq!(word.epoch(), Epoch::new(7));
    assert_eq!(word.asked(), LaneMask::from_bits(0x81));
    assert_eq!(word.flags(), Flags::GANG.with(Flags::ABORT).with(Flags::CLOSED).with(Flags::STOP));
    assert_eq!(word.offline(), LaneMask::from_bits(3));
    assert_eq!(word.arrived(), LaneMask::from_bits(2));
    assert_eq!(word.busy(), LaneMask::from_bits(0xff));
    let text = "epoch 7 ask 10000001 flags GANG|ABORT|CLOSED|STOP offline 00000011 arrived 00000010 busy 11111111";
    assert_eq!(format!("{word:?}"), text);
    assert_eq!(format!("{:?}", Flags::NONE), "-");
}

#[test]
fn reservations_are_refused_for_the_first_reason_of_the_table() {
    use {GangRefused as G, ReserveRefused as R};
    let everything = Flags::CLOSED.with(Flags::GANG).with(Flags::ABORT);
    let mut now = word(everything, 7, 0, 7, 0, 0);
    assert_eq!(now.try_reserve(lane(0)), Err(R::Closed));
    assert_eq!(now.try_reserve_gang(), Err(G::Closed));
    now = word(Flags::GANG.with(Flags::ABORT), 7, 0, 7, 0, 0);
    assert_eq!(now.try_reserve(lane(0)), Err(R::Gang));
    assert_eq!(now.try_reserve_gang(), Err(G::Gang));
    now = word(Flags::NONE, 0b011, 0, 0b110, 0, 0);
    assert_eq!(now.try_reserve(lane(0)), Err(R::Busy));
    assert_eq!(now.try_reserve(lane(1)), Err(R::Busy));
    assert_eq!(now.try_reserve(lane(2)), Err(R::Offline));
    assert_eq!(now.try_reserve_gang(), Err(G::Busy(LaneMask::from_bits(0b011))));
    now = word(Flags::NONE, 0, 0, 0b110, 0, 0);
    assert_eq!(now.try_reserve_gang(), Err(G::Offline(LaneMask::from_bits(0b110))));
}

#[test]
fn every_transition_is_refused_exactly_by_the_table() {
    let mut words = 0;
    for now in every_valid_word() {
        words += 1;
        let (on, l) = (now.flags(), lane(1));
        let (closed, gang, abort) = (on.contains(Flags::CLOSED), on.contains(Flags::GANG), on.contains(Flags::ABORT));
        let (busy, offline) = (now.busy().contains(l), now.offline().contains(l));
        let epoch = now.epoch();
        let other = Epoch::new(epoch.get() + 1);

        assert_eq!(now.try_reserve(l).is_ok(), !(closed || gang || busy || offline), "{now:?}");
        assert_eq!(now.try_reserve_probe(l).is_ok(), !busy && offline, "{now:?}");
        let free = now.busy().is_empty() && now.offline().is_empty();
        assert_eq!(now.try_reserve_gang().is_ok(), !(closed || gang) && free, "{now:?}");
        let whole = gang && !abort && now.busy() == ALL;
        let refused = |epoch| matches!(now.try_arrive(l, epoch), (next, Arrival::Refused(_)) if next == now);
        assert_eq!(refused(epoch), !whole, "{now:?}");
        assert!(refused(other), "{now:?}");
        assert_eq!(now.judge(epoch), if whole { Verdict::Wait } else { Verdict::Broken }, "{now:?}");
        assert_eq!(now.judge(other), Verdict::Through { stop: on.contains(Flags::STOP) }, "{now:?}");
        assert_eq!(now.try_abort_gang(None).is_ok(), gang && !abort, "{now:?}");
        assert_eq!(now.try_abort_gang(Some(epoch)).is_ok(), gang && !abort, "{now:?}");
        assert!(now.try_abort_gang(Some(other)).is_err(), "{now:?}");
        assert_eq!(now.try_quarantine(l).is_ok(), !offline, "{now:?}");
        assert_eq!(now.try_end_gang().is_ok(), gang && now.offline().covers(now.busy()), "{now:?}");
        assert_eq!(now.try_restore(l).is_ok(), !busy && offline, "{now:?}");
    }
    assert!(words > 100_000, "only {words} words");
}

#[test]
fn every_transition_leads_to_a_valid_word() {
    for now in every_valid_word() {
        let l = lane(1);
        let next = [
            now.try_reserve(l).ok(),
            now.try_reserve_probe(l).ok(),
            now.try_reserve_gang().ok(),
            Some(now.try_arrive(l, now.epoch()).0),
            now.try_abort_gang(None).ok().map(|(next, _)| next),
            now.try_quarantine(l).ok().map(|(next, _)| next),
            Some(now.release(l).0),
            now.try_end_gang().ok().map(|(next, _)| next),
            // A member's lane that is restored before the gang has been ended.
            now.try_restore(l).ok(),
            Some(now.ask(ALL)),
            Some(now.unask(ALL)),
            Some(now.drain(true)),
            Some(now.drain(false)),
            Some(now.close()),
        ];
        for next in next.into_iter().flatten() {
            assert!(next.is_valid(), "{now:?} -> {next:?}");
        }
    }
}

#[test]
fn transitions_change_what_they_say_and_nothing_else() {
    let drain = Flags::DRAIN;
    assert_eq!(word(drain, 0b100, 0, 0, 0b111, 1).try_reserve(lane(0)), Ok(word(drain, 0b101, 0, 0, 0b110, 1)));
    let probed = word(drain, 0b101, 0, 1, 0b110, 1);
    assert_eq!(word(drain, 0b100, 0, 1, 0b111, 1).try_reserve_probe(lane(0)), Ok(probed));
    let left_over = drain.with(Flags::STOP);
    assert_eq!(word(left_over, 0, 0, 0, 0b111, 3).try_reserve_gang(), Ok(word(Flags::GANG, 7, 0, 0, 0, 0)));
    assert_eq!(word(drain, 0, 0, 0b11, 0, 1).try_restore(lane(1)), Ok(word(drain, 0, 0, 0b01, 0, 1)));
    let (next, released) = word(drain, 7, 0, 1, 7, 1).release(lane(1));
    assert_eq!((next, released.after, released.wake), (word(drain, 5, 0, 1, 5, 1), next.view(), LaneMask::NONE));
    assert_eq!(word(drain, 1, 0, 0, 0, 1).ask(LaneMask::first(64)), word(drain, 1, 0, 0, 7, 1));
    assert_eq!(word(drain, 1, 0, 0, 7, 1).unask(lane(1).mask()), word(drain, 1, 0, 0, 5, 1));
    assert_eq!(Small::EMPTY.drain(true).close(), word(drain.with(Flags::CLOSED), 0, 0, 0, 0, 0));
    assert_eq!(word(drain, 0, 0, 0, 0, 0).drain(false), Small::EMPTY);
}

#[test]
fn the_last_arrival_completes_and_decides_the_stop_across_the_wrap() {
    let gang = Flags::GANG;
    let (now, arrival) = word(gang, 7, 0b001, 0, 0, 3).try_arrive(lane(1), Epoch::new(3));
    assert_eq!((now, arrival), (word(gang, 7, 0b011, 0, 0, 3), Arrival::Waiting));
    let wake = LaneMask::from_bits(0b011);
    // A member counts on without knowing the width.
    let (next, arrival) = now.try_arrive(lane(2), Epoch::new(7));
    assert_eq!((next, arrival), (word(gang, 7, 0, 0, 0, 0), Arrival::Completed { wake, stop: false }));
    let (next, arrival) = now.ask(lane(0).mask()).try_arrive(lane(2), Epoch::new(3));
    let stopping = word(gang.with(Flags::STOP), 7, 0, 0, 1, 0);
    assert_eq!((next, arrival), (stopping, Arrival::Completed { wake, stop: true }));
    // Taken back too late: what was decided stays decided, for the next barrier too.
    assert_eq!(next.unask(ALL).judge(Epoch::new(3)), Verdict::Through { stop: true });
}

#[test]
fn what_breaks_a_gang_wakes_and_later_ones_do_not() {
    let gang = word(Flags::GANG, 7, 0b011, 0, 0, 1);
    let wake = LaneMask::from_bits(0b011);
    let (aborted, outcome) = gang.try_abort_gang(Some(Epoch::new(1))).unwrap();
    assert_eq!(outcome, Aborted { wake });
    let (quarantined, outcome) = gang.try_quarantine(lane(2)).unwrap();
    assert_eq!(outcome, Quarantined { aborted: true, wake });
    assert!(quarantined.flags().contains(Flags::ABORT));
    assert_eq!(gang.release(lane(2)).1.wake, wake);
    // A member that waits and is released over its head is not among those to wake: its holder is elsewhere.
    assert_eq!(gang.release(lane(0)).1.wake, LaneMask::from_bits(0b010));
    assert_eq!(aborted.release(lane(2)).1.wake, LaneMask::NONE);
    let later = Quarantined { aborted: false, wake: LaneMask::NONE };
    assert_eq!(aborted.try_quarantine(lane(2)).unwrap().1, later);
}

#[test]
fn a_gang_ends_over_hung_lanes_and_keeps_its_verdict() {
    let flags = Flags::GANG.with(Flags::ABORT).with(Flags::STOP);
    let now = word(flags, 0b110, 0b010, 0b010, 0b111, 2);
    assert_eq!(now.try_end_gang(), Err(EndRefused::Busy(LaneMask::from_bits(0b100))));
    let (next, ended) = word(flags, 0b010, 0b010, 0b010, 0b111, 2).try_end_gang().unwrap();
    assert_eq!((next, ended), (word(Flags::STOP, 0b010, 0, 0b010, 0, 2), Ended { hung: lane(1).mask() }));
    assert_eq!(next.judge(Epoch::new(1)), Verdict::Through { stop: true });
    assert_eq!(next.judge(Epoch::new(2)), Verdict::Broken);
    assert_eq!(next.try_reserve(lane(0)), Ok(word(Flags::STOP, 0b011, 0, 0b010, 0, 2)));
}

/// The cell and the trait take every transition to where the pure function says.
#[test]
fn the_word_chosen_at_run_time_does_the_same() {
    assert!(new_word(0).is_none());
    assert!(new_word(9).is_none());
    for lanes in 1..=8 {
        let word = new_word(lanes).unwrap();
        let all = LaneMask::first(lanes);
        assert_eq!((word.load().all, word.load().free()), (all, all));
        word.drain(true);
        assert_eq!(word.reserve(lane(0)), Ok(()));
        assert_eq!(word.reserve(lane(0)), Err(ReserveRefused::Busy));
        assert_eq!(word.reserve_gang(), Err(GangRefused::Busy(lane(0).mask())));
        assert_eq!(word.ask(all).flags, Flags::DRAIN);
        let released = word.release(lane(0));
        assert!(released.before.busy.contains(lane(0)) && released.after == word.load());
        let mail = word.reserve_gang().unwrap();
        assert!(word.load().is_gang() && word.load().flags == Flags::GANG && word.load().ask.is_empty());
        word.ask(lane(0).mask());
        for member in 0..lanes - 1 {
            assert_eq!(word.arrive(lane(member), mail), Arrival::Waiting);
            assert_eq!(word.judge(mail), Verdict::Wait);
        }
        let wake = LaneMask::first(lanes - 1);
        assert_eq!(word.arrive(lane(lanes - 1), mail), Arrival::Completed { wake, stop: true });
        assert_eq!(word.judge(mail), Verdict::Through { stop: true });
        assert_eq!(word.abort_gang(Some(mail)), Err(AbortRefused::OtherEpoch));
        assert_eq!(word.abort_gang(None), Ok(Aborted { wake: LaneMask::NONE }));
        assert_eq!(word.arrive(lane(0), word.load().epoch), Arrival::Refused(ArriveRefused::Aborted));
        assert_eq!(word.quarantine(lane(0)), Ok(Quarantined { aborted: false, wake: LaneMask::NONE }));
        assert_eq!(word.quarantine(lane(0)), Err(AlreadyOffline));
        for member in 1..lanes {
            assert!(word.end_gang().is_err());
            assert!(word.release(lane(member)).wake.is_empty());
        }
        assert_eq!(word.end_gang(), Ok(Ended { hung: lane(0).mask() }));
        assert_eq!(word.reserve_probe(lane(0)), Err(ProbeRefused::Busy));
        assert!(word.release(lane(0)).wake.is_empty());
        assert_eq!(word.reserve_probe(lane(0)), Ok(()));
        assert_eq!(word.restore(lane(0)), Err(RestoreRefused::Busy));
        assert!(word.release(lane(0)).wake.is_empty());
        assert_eq!(word.restore(lane(0)), Ok(()));
        assert_eq!(word.restore(lane(0)), Err(RestoreRefused::Online));
        word.unask(all);
        word.drain(false);
        word.close();
        assert_eq!(word.reserve(lane(0)), Err(ReserveRefused::Closed));
        assert_eq!(word.load().free(), all);
    }
}

/// One thread reserves lanes and gangs, eight release them: what was counted without atomics under a busy bit adds up.
#[test]
fn eight_workers_and_a_dispatcher_add_up() {
    use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    const SMALLS: u64 = 4_000;
    const GANGS: u64 = 250;
    const NO_MAIL: u32 = 0;
    const SMALL: u32 = 1;
    /// And above, the epoch.
    const GANG: u32 = 2;

    /// A count that only the lane's holder touches.
    #[derive(Default)]
    struct Owned(crate::sync::UnsafeCell<u64>);
    // SAFETY: the busy bit of the lane, taken with Acquire and given back with Release, makes its holder the only one inside.
    unsafe impl Sync for Owned {}

    let state = StateWord::<8>::new();
    let counts: [Owned; 8] = Default::default();
    let mail: [AtomicU32; 8] = Default::default();
    let done = AtomicBool::new(false);
    let count = |lane: usize| {
        // SAFETY: as above; each caller holds the lane.
        counts[lane].0.with_mut(|value| unsafe { *value += 1 });
    };
    std::thread::scope(|scope| {
        for index in 0..8 {
            let (state, mail, done) = (&state, &mail, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    match mail[index].swap(NO_MAIL, Ordering::AcqRel) {
                        NO_MAIL => std::thread::yield_now(),
                        SMALL => {
                            count(index);
                            let _ = state.release(lane(index));
                        }
                        letter => {
                            let epoch = Epoch::new(letter - GANG);
                            count(index);
                            assert!(!matches!(state.arrive(lane(index), epoch), Arrival::Refused(_)));
                            while state.judge(epoch) == Verdict::Wait {
                                std::thread::yield_now();
                            }
                            assert_eq!(state.judge(epoch), Verdict::Through { stop: false });
                            let _ = state.release(lane(index));
                        }
                    }
                }
            });
        }
        let (mut smalls, mut gangs) = (0, 0);
        while smalls < SMALLS || gangs < GANGS {
            let free = state.load().view().free();
            if gangs * SMALLS < smalls * GANGS || smalls == SMALLS {
                if state.load().flags().contains(Flags::GANG) {
                    let _ = state.end_gang();
                } else if let Ok(epoch) = state.reserve_gang() {
                    gangs += 1;
                    mail.iter().for_each(|mail| mail.store(GANG + epoch.get(), Ordering::Release));
                }
            } else if state.load().flags().contains(Flags::GANG) {
                let _ = state.end_gang();
            } else if let Some(lane) = free.lowest() {
                assert_eq!(state.reserve(lane), Ok(()), "only the dispatcher reserves");
                smalls += 1;
                mail[lane.index()].store(SMALL, Ordering::Release);
            }
            std::thread::yield_now();
        }
        while !state.load().busy().is_empty() {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Release);
    });
    let _ = state.end_gang();
    assert!(state.load().busy().is_empty() && state.load().is_valid());
    assert_eq!(state.load().epoch(), Epoch::new(2 * GANGS as u32));
    let total: u64 = counts.into_iter().map(|count| count.0.into_inner()).sum();
    assert_eq!(total, SMALLS + 8 * GANGS);
}
