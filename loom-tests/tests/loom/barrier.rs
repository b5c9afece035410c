//! The gang barrier as the runtime has it: real members that park, real wake-ups. A wake-up that is lost is a deadlock, which loom
//! reports.

use ::loom::thread;
use phalanx::runtime::model::{self, Mailbox};
use phalanx::word::{StateWord, Word};
use phalanx::{Epoch, Gang, LaneId, LaneMask};
use phalanx_loom_tests::{Payload, check};
use std::sync::Arc;

struct Node<const N: usize> {
    word: StateWord<N, 2>,
    boxes: [Mailbox<()>; N],
    payloads: [Payload; N],
    why: Payload,
}

impl<const N: usize> Node<N> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: StateWord::new(),
            boxes: std::array::from_fn(|_| Mailbox::new()),
            payloads: std::array::from_fn(|_| Payload::default()),
            why: Payload::default(),
        })
    }

    fn wake(&self, lanes: LaneMask) {
        for lane in lanes {
            self.boxes[lane.index()].unpark();
        }
    }

    /// A member on this thread.
    fn member<R>(&self, lane: usize, epoch: Epoch, body: impl FnOnce(&Gang<'_>) -> R) -> R {
        self.boxes[lane].attach();
        model::member(&self.word, &|lanes| self.wake(lanes), LaneId::new(lane), N, epoch, body)
    }

    /// What a worker does last.
    fn release(&self, lane: usize) {
        let released = self.word.release(LaneId::new(lane));
        self.wake(released.wake);
    }
}

/// All members run `body`, member 0 on this thread.
fn meet<const N: usize>(body: impl Fn(&Node<N>, &Gang<'_>) + Copy + Send + Sync + 'static) {
    let node = Node::<N>::new();
    let epoch = node.word.reserve_gang().unwrap();
    let members: Vec<_> = (1..N)
        .map(|lane| {
            let node = Arc::clone(&node);
            thread::spawn(move || node.member(lane, epoch, |gang| body(&node, gang)))
        })
        .collect();
    node.member(0, epoch, |gang| body(&node, gang));
    for member in members {
        member.join().unwrap();
    }
}

/// All members run `body` and release their lanes, member 0 on this thread; then the gang ends and every lane is free.
fn gang<const N: usize>(body: impl Fn(&Node<N>, &Gang<'_>) + Copy + Send + Sync + 'static) {
    let node = Node::<N>::new();
    let epoch = node.word.reserve_gang().unwrap();
    let members: Vec<_> = (1..N)
        .map(|lane| {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                node.member(lane, epoch, |gang| body(&node, gang));
                node.release(lane);
            })
        })
        .collect();
    node.member(0, epoch, |gang| body(&node, gang));
    node.release(0);
    for member in members {
        member.join().unwrap();
    }
    let _ = node.word.end_gang().unwrap();
    assert!(Word::load(&node.word).busy.is_empty());
}

/// What each wrote before the barrier each finds after it.
fn rounds<const N: usize>(node: &Node<N>, gang: &Gang<'_>, rounds: u32) {
    for round in 1..=rounds {
        node.payloads[gang.rank()].write(round);
        gang.barrier().unwrap();
        for payload in &node.payloads {
            assert_eq!(payload.read(), round);
        }
        // The next round writes what the peers read here.
        if round < rounds {
            gang.barrier().unwrap();
        }
    }
}

/// Two lanes, two rounds of two barriers. Unbounded.
#[test]
fn two_lanes_reuse_the_barrier() {
    check(None, || meet::<2>(|node, gang| rounds(node, gang, 2)));
}

/// Two lanes, three rounds: five barriers, so that the 2-bit epoch comes round, and the release of both lanes. At most three
/// preemptions.
#[test]
fn two_lanes_come_round() {
    check(Some(3), || gang::<2>(|node, gang| rounds(node, gang, 3)));
}

/// Three lanes, one barrier. At most three preemptions.
#[test]
fn three_lanes_meet() {
    check(Some(3), || meet::<3>(|node, gang| rounds(node, gang, 1)));
}

/// Three lanes, two rounds. At most one preemption.
#[test]
fn three_lanes_reuse_the_barrier() {
    check(Some(1), || meet::<3>(|node, gang| rounds(node, gang, 2)));
}

/// Four lanes, one barrier. At most two preemptions.
#[test]
fn four_lanes_meet() {
    check(Some(2), || meet::<4>(|node, gang| rounds(node, gang, 1)));
}

/// A member panics while its two peers arrive or have arrived: both are told broken, and may read why. At most three preemptions.
#[test]
fn abort_frees_those_who_wait() {
    check(Some(3), || {
        gang::<3>(|node, gang| {
            if gang.rank() == 0 {
                node.why.write(9);
                model::abort(gang);
                // A worker waits for its device before it releases the lane: the abort alone must free the peers.
                while Word::load(&node.word).busy.count() > 1 {
                    thread::yield_now();
                }
            } else {
                assert!(gang.barrier().is_err());
                assert_eq!(node.why.read(), 9);
            }
        });
    });
}

/// A member returns without coming to the barrier; its peers are freed by its release alone. At most three preemptions.
#[test]
fn an_early_return_frees_those_who_wait() {
    check(Some(3), || {
        gang::<3>(|_, gang| {
            if gang.rank() != 0 {
                assert!(gang.barrier().is_err());
            }
        });
    });
}

/// A member's lane is lost while its peer waits: the quarantine frees the peer before the release does. Unbounded.
#[test]
fn a_lost_lane_frees_those_who_wait() {
    check(None, || {
        let node = Node::<2>::new();
        let epoch = node.word.reserve_gang().unwrap();
        let peer = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                node.member(1, epoch, |gang| assert!(gang.barrier().is_err()));
                assert_eq!(node.why.read(), 9);
                node.release(1);
            })
        };
        node.why.write(9);
        let quarantined = node.word.quarantine(LaneId::new(0)).unwrap();
        node.wake(quarantined.wake);
        peer.join().unwrap();
        node.release(0);
        let _ = node.word.end_gang().unwrap();
        assert_eq!(Word::load(&node.word).offline, LaneId::new(0).mask());
    });
}

/// The dispatcher asks a gang to stop, at any moment, and takes that back: both members stop after the same step, of two, or neither does.
/// Three threads. At most three preemptions.
#[test]
fn members_stop_at_the_same_step() {
    check(Some(3), || {
        let node = Node::<2>::new();
        let epoch = node.word.reserve_gang().unwrap();
        let asker = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                node.word.ask(LaneMask::first(2));
                node.word.unask(LaneMask::first(2));
            })
        };
        fn stops(gang: &Gang<'_>) -> Option<usize> {
            (0..2).find(|_| model::pass(gang))
        }
        let peer = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.member(1, epoch, stops))
        };
        let at = node.member(0, epoch, stops);
        assert_eq!(at, peer.join().unwrap(), "they stopped after different steps");
        asker.join().unwrap();
    });
}
