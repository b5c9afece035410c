//! The state word: each pair of orderings of its page.
//!
//! Payloads stand for what the runtime keeps beside the word. Two threads or three, two lanes; where nothing else is said every
//! schedule is tried. A thread tries once where the runtime would try again: a retry adds no order.

use ::loom::thread;
use phalanx::word::{AbortRefused, Arrival, ArriveRefused, StateWord, Verdict};
use phalanx::{LaneId, LaneMask};
use phalanx_loom_tests::{Payload, check};
use std::sync::Arc;

/// Two lanes and a barrier that wraps after four generations.
type Two = StateWord<2, 2>;

const A: LaneId = LaneId::new(0);
const B: LaneId = LaneId::new(1);

#[derive(Default)]
struct Node {
    word: Two,
    lanes: [Payload; 2],
    note: Payload,
}

fn node() -> Arc<Node> {
    Arc::default()
}

fn spawn(node: &Arc<Node>, run: impl FnOnce(&Node) + Send + 'static) -> thread::JoinHandle<()> {
    let node = Arc::clone(node);
    thread::spawn(move || run(&node))
}

/// A lane's next request finds what the last one did. Two lanes are released at the same time. Unbounded.
#[test]
fn reserve_against_release() {
    check(None, || {
        let node = node();
        node.word.reserve(A).unwrap();
        node.word.reserve(B).unwrap();
        let workers = [(A, 0), (B, 1)].map(|(lane, i)| {
            spawn(&node, move |node| {
                node.lanes[i].write(7);
                let _ = node.word.release(lane);
            })
        });
        for (lane, i) in [(A, 0), (B, 1)] {
            if node.word.reserve(lane).is_ok() {
                assert_eq!(node.lanes[i].read(), 7);
                node.lanes[i].write(8);
            }
        }
        for thread in workers {
            thread.join().unwrap();
        }
    });
}

/// The same for a probe of a lane out of service. Unbounded.
#[test]
fn probe_against_release() {
    check(None, || {
        let node = node();
        node.word.reserve(A).unwrap();
        let _ = node.word.quarantine(A).unwrap();
        let worker = spawn(&node, |node| {
            node.lanes[0].write(7);
            let _ = node.word.release(A);
        });
        if node.word.reserve_probe(A).is_ok() {
            assert_eq!(node.lanes[0].read(), 7);
            node.lanes[0].write(8);
        }
        worker.join().unwrap();
    });
}

/// A gang takes both lanes only when both are free, and what it puts into their mailboxes comes after what their last holders did.
/// Unbounded.
#[test]
fn gang_against_releases() {
    check(None, || {
        let node = node();
        node.word.reserve(A).unwrap();
        node.word.reserve(B).unwrap();
        let workers = [(A, 0), (B, 1)].map(|(lane, i)| {
            spawn(&node, move |node| {
                node.lanes[i].write(7);
                let _ = node.word.release(lane);
            })
        });
        if node.word.reserve_gang().is_ok() {
            node.lanes[0].write(8);
            node.lanes[1].write(8);
            assert_eq!(node.word.load().busy(), LaneMask::first(2));
        }
        for thread in workers {
            thread.join().unwrap();
        }
    });
}

/// A lane that its holder quarantines before its release is never part of a gang, and the fault goes with the flag. Unbounded.
///
/// The holder is the model's thread, which loom lets run first: a transition's own look at the word hides an earlier load of another
/// thread from loom, so that who only loads must come later, and is then given older values too.
#[test]
fn gang_against_quarantine() {
    check(None, || {
        let node = node();
        node.word.reserve(A).unwrap();
        let dispatcher = spawn(&node, |node| {
            assert!(node.word.reserve_gang().is_err(), "a gang over a faulty lane");
            if node.word.load().offline().contains(A) {
                assert_eq!(node.lanes[0].read(), 7);
            }
        });
        node.lanes[0].write(7);
        let _ = node.word.quarantine(A).unwrap();
        let _ = node.word.release(A);
        dispatcher.join().unwrap();
    });
}

/// The dispatcher that sees a lane released reads its worker's report. Unbounded.
#[test]
fn report_against_load() {
    check(None, || {
        let node = node();
        node.word.reserve(A).unwrap();
        let worker = spawn(&node, |node| {
            node.lanes[0].write(7);
            let _ = node.word.release(A);
        });
        if !node.word.load().busy().contains(A) {
            assert_eq!(node.lanes[0].read(), 7);
        }
        worker.join().unwrap();
    });
}

/// Both members find at the barrier what the other did before it, whoever completes it. Unbounded.
#[test]
fn members_pass_on_what_they_did() {
    check(None, || {
        let node = node();
        let epoch = node.word.reserve_gang().unwrap();
        let peer = spawn(&node, move |node| {
            node.lanes[1].write(7);
            let through = match node.word.arrive(B, epoch) {
                Arrival::Completed { .. } => true,
                _ => matches!(node.word.judge(epoch), Verdict::Through { .. }),
            };
            if through {
                assert_eq!(node.lanes[0].read(), 7);
            }
        });
        node.lanes[0].write(7);
        let through = match node.word.arrive(A, epoch) {
            Arrival::Completed { .. } => true,
            _ => matches!(node.word.judge(epoch), Verdict::Through { .. }),
        };
        if through {
            assert_eq!(node.lanes[1].read(), 7);
        }
        peer.join().unwrap();
    });
}

/// The dispatcher breaks the gang while two members come to the barrier: both get the same verdict, and who is told broken, by
/// judging or by being refused, may read why. Unbounded.
#[test]
fn abort_against_a_completing_barrier() {
    check(None, || {
        let node = node();
        let epoch = node.word.reserve_gang().unwrap();
        let through: Arc<[std::sync::atomic::AtomicU8; 2]> = Arc::default();
        let members = [(A, 0), (B, 1)].map(|(lane, i)| {
            let through = Arc::clone(&through);
            spawn(&node, move |node| {
                let broken = match node.word.arrive(lane, epoch) {
                    Arrival::Completed { .. } => Some(false),
                    Arrival::Refused(why) => {
                        assert_eq!(why, ArriveRefused::Aborted);
                        Some(true)
                    }
                    Arrival::Waiting => match node.word.judge(epoch) {
                        Verdict::Wait => None,
                        Verdict::Through { .. } => Some(false),
                        Verdict::Broken => Some(true),
                    },
                };
                if broken == Some(true) {
                    assert_eq!(node.note.read(), 9, "the reason goes with the break");
                }
                let told = broken.map_or(0, |broken| 1 + u8::from(broken));
                through[i].store(told, std::sync::atomic::Ordering::Relaxed);
            })
        });
        node.note.write(9);
        let aborted = node.word.abort_gang(None);
        for thread in members {
            thread.join().unwrap();
        }
        let told = [0, 1].map(|i| through[i].load(std::sync::atomic::Ordering::Relaxed));
        assert!(told[0] == 0 || told[1] == 0 || told[0] == told[1], "split verdict {told:?} after {aborted:?}");
        if node.word.load().epoch() == epoch {
            assert!(!told.contains(&1), "through a barrier that never completed");
        }
    });
}

/// A member gives up waiting in the moment in which its barrier completes: the refusal lets it go through, with all that its peer
/// did before. Unbounded.
#[test]
fn time_out_against_a_completing_barrier() {
    check(None, || {
        let node = node();
        let epoch = node.word.reserve_gang().unwrap();
        let peer = spawn(&node, move |node| {
            node.lanes[1].write(7);
            let _ = node.word.arrive(B, epoch);
        });
        if node.word.arrive(A, epoch) == Arrival::Waiting && node.word.abort_gang(Some(epoch)) == Err(AbortRefused::OtherEpoch) {
            assert_eq!(node.lanes[1].read(), 7);
        }
        peer.join().unwrap();
    });
}

/// The dispatcher gives up a member that does not come. Whom it is told to wake has arrived, and what that one did is seen; who is told
/// broken may read why. Unbounded.
#[test]
fn quarantine_against_arrival() {
    check(None, || {
        let node = node();
        let epoch = node.word.reserve_gang().unwrap();
        let member = spawn(&node, move |node| {
            node.lanes[0].write(7);
            let broken = match node.word.arrive(A, epoch) {
                Arrival::Refused(_) => true,
                _ => node.word.judge(epoch) == Verdict::Broken,
            };
            if broken {
                assert_eq!(node.note.read(), 9);
            }
        });
        node.note.write(9);
        let quarantined = node.word.quarantine(B).unwrap();
        if quarantined.wake.contains(A) {
            assert_eq!(node.lanes[0].read(), 7);
        }
        member.join().unwrap();
        assert!(node.word.load().view().flags.contains(phalanx::word::Flags::ABORT), "a quarantine breaks the gang");
    });
}

/// The gang ends over a hung member: the dispatcher sees what the others left, the late member finds no gang and may read what the
/// dispatcher noted, and never a barrier that nobody passed. Unbounded.
#[test]
fn end_over_a_hung_member() {
    check(None, || {
        let node = node();
        let epoch = node.word.reserve_gang().unwrap();
        let early = spawn(&node, |node| {
            node.lanes[0].write(7);
            let _ = node.word.release(A);
        });
        let hung = spawn(&node, move |node| match node.word.arrive(B, epoch) {
            Arrival::Refused(ArriveRefused::NoGang) => assert_eq!(node.note.read(), 9),
            Arrival::Refused(_) => {}
            Arrival::Waiting => assert!(
                !matches!(node.word.judge(epoch), Verdict::Through { .. }),
                "through a barrier that its peer never came to"
            ),
            Arrival::Completed { .. } => panic!("completed alone"),
        });
        let _ = node.word.abort_gang(None);
        let _ = node.word.quarantine(B).unwrap();
        node.note.write(9);
        if let Ok(ended) = node.word.end_gang() {
            assert_eq!(node.lanes[0].read(), 7);
            assert!(LaneMask::first(2).without(A).covers(ended.hung));
            assert!(!node.word.load().view().is_gang(), "the gang is over");
        }
        early.join().unwrap();
        hung.join().unwrap();
    });
}

/// A gang that ends and one that follows: a member that was late for the first never takes the second's barrier for its own, since
/// its own lane keeps the second out; and the second's epoch is another. Unbounded.
#[test]
fn the_next_gang_has_another_epoch() {
    check(None, || {
        let node = node();
        let first = node.word.reserve_gang().unwrap();
        let members = [A, B].map(|lane| {
            spawn(&node, move |node| {
                let _ = node.word.release(lane);
            })
        });
        if node.word.end_gang().is_ok() {
            let second = node.word.reserve_gang().unwrap();
            assert_ne!(first, second, "a late arrival would be taken for one of the next gang");
        }
        for thread in members {
            thread.join().unwrap();
        }
    });
}

/// A lane is restored after its probe: the dispatcher sees what the probe found, and who sees the lane in service sees the
/// dispatcher's books. Unbounded.
#[test]
fn restore_after_a_probe() {
    check(None, || {
        let node = node();
        let _ = node.word.quarantine(A).unwrap();
        node.word.reserve_probe(A).unwrap();
        let probe = spawn(&node, |node| {
            node.lanes[0].write(7);
            let _ = node.word.release(A);
        });
        let monitor = spawn(&node, |node| {
            if !node.word.load().offline().contains(A) {
                assert_eq!(node.note.read(), 9);
            }
        });
        node.note.write(9);
        if node.word.restore(A).is_ok() {
            assert_eq!(node.lanes[0].read(), 7);
        }
        probe.join().unwrap();
        monitor.join().unwrap();
    });
}

/// Who sees the node closed may read why; who closes it sees what was done on the lanes that are free by then. Unbounded.
#[test]
fn close_against_release() {
    check(None, || {
        let node = node();
        node.word.reserve(A).unwrap();
        let worker = spawn(&node, |node| {
            node.lanes[0].write(7);
            let _ = node.word.release(A);
        });
        let monitor = spawn(&node, |node| {
            if node.word.load().view().flags.contains(phalanx::word::Flags::CLOSED) {
                assert_eq!(node.note.read(), 9);
            }
        });
        node.note.write(9);
        if !node.word.close().busy().contains(A) {
            assert_eq!(node.lanes[0].read(), 7);
        }
        worker.join().unwrap();
        monitor.join().unwrap();
    });
}

/// What releases passes through relaxed transitions on the same word: asks and drains break no release sequence. Unbounded.
#[test]
fn asks_carry_a_release_on() {
    check(None, || {
        let node = node();
        node.word.reserve(A).unwrap();
        let worker = spawn(&node, |node| {
            node.lanes[0].write(7);
            let _ = node.word.release(A);
        });
        let asker = spawn(&node, |node| {
            node.word.ask(LaneMask::first(2));
            node.word.drain(true);
        });
        if node.word.reserve(A).is_ok() {
            assert_eq!(node.lanes[0].read(), 7);
        }
        worker.join().unwrap();
        asker.join().unwrap();
    });
}
