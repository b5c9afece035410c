//! Hand-overs: mailbox, bell, door. A lost wake-up is a deadlock, which loom reports: nothing here has a time-out.

use ::loom::thread;
use phalanx::runtime::model::{Bell, Door, Mailbox, Plate};
use phalanx::runtime::{Fault, LaneState, RejectReason};
use phalanx::sync::ArrayQueue;
use phalanx::word::StateWord;
use phalanx::{LaneId, Nanos};
use phalanx_loom_tests::{Payload, check};
use std::sync::Arc;

const A: LaneId = LaneId::new(0);

/// Three mails through one lane, each put after the lane was released and reserved again; the worker parks between them. Unbounded.
#[test]
fn mailbox() {
    struct Lane {
        word: StateWord<1, 2>,
        mailbox: Mailbox<u32>,
        payload: Payload,
    }
    check(None, || {
        let lane = Arc::new(Lane { word: StateWord::new(), mailbox: Mailbox::new(), payload: Payload::default() });
        let worker = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || {
                lane.mailbox.attach();
                for expected in 1..=3 {
                    assert_eq!(lane.mailbox.take(), expected);
                    assert_eq!(lane.payload.read(), expected);
                    let _ = lane.word.release(A);
                }
            })
        };
        for mail in 1..=3 {
            while lane.word.reserve(A).is_err() {
                thread::yield_now();
            }
            lane.payload.write(mail);
            // SAFETY: the lane was just reserved, by the only thread that puts.
            unsafe { lane.mailbox.put(mail) };
        }
        worker.join().unwrap();
    });
}

/// Two lanes are released while the dispatcher goes to sleep on the word that it has seen: it wakes for both. At most three
/// preemptions.
#[test]
fn bell_and_releases() {
    struct Node {
        word: StateWord<2, 2>,
        bell: Bell,
    }
    check(Some(3), || {
        let node = Arc::new(Node { word: StateWord::new(), bell: Bell::new() });
        node.bell.attach();
        let lanes = [A, LaneId::new(1)];
        for lane in lanes {
            node.word.reserve(lane).unwrap();
        }
        let workers = lanes.map(|lane| {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                let _ = node.word.release(lane);
                node.bell.ring();
            })
        });
        loop {
            let seen = node.word.load();
            if seen.busy().is_empty() {
                break;
            }
            node.bell.sleep(|| node.word.load() == seen);
        }
        for thread in workers {
            thread.join().unwrap();
        }
    });
}

/// Two submitters push while the dispatcher goes to sleep on the empty ring: it wakes and gets both. At most three preemptions.
///
/// The ring is the stand-in behind a mutex; see `phalanx::sync`.
#[test]
fn bell_and_ring() {
    struct Node {
        ring: ArrayQueue<u32>,
        bell: Bell,
        payloads: [Payload; 2],
    }
    check(Some(3), || {
        let node = Arc::new(Node { ring: ArrayQueue::new(2), bell: Bell::new(), payloads: Default::default() });
        node.bell.attach();
        let submitters = [0, 1].map(|i| {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                node.payloads[i].write(7);
                node.ring.push(i as u32).unwrap();
                node.bell.ring();
            })
        });
        let mut popped = 0;
        while popped < 2 {
            if let Some(i) = node.ring.pop() {
                assert_eq!(node.payloads[i as usize].read(), 7);
                popped += 1;
            } else {
                node.bell.sleep(|| node.ring.is_empty());
            }
        }
        for thread in submitters {
            thread.join().unwrap();
        }
    });
}

/// Two submitters at a door for one that is being closed: one passes at the most, none after the closing, and the door is finished
/// when those who passed have left. Unbounded.
#[test]
fn door() {
    check(None, || {
        let door = Arc::new(Door::new(1));
        let submitters = [0, 1].map(|_| {
            let door = Arc::clone(&door);
            thread::spawn(move || door.enter())
        });
        door.close();
        assert_eq!(door.enter(), Err(RejectReason::Closed));
        let finished = door.is_finished();
        let entered = submitters.map(|submitter| submitter.join().unwrap());
        let inside = entered.iter().filter(|entered| entered.is_ok()).count();
        assert!(inside <= 1, "{entered:?}");
        assert_eq!(finished, inside == 0, "a finished door lets nobody in any more");
        if inside == 1 {
            door.leave();
        }
        assert!(door.is_finished());
    });
}

/// A monitor reads a lane's plate while the dispatcher writes it: what it takes for whole is one state, and no older one than it has read
/// before. Unbounded.
#[test]
fn plate() {
    let of = |number| LaneState::Quarantined { fault: Fault::Device, since: Nanos(number), next_try: Some(Nanos(number)) };
    check(None, move || {
        let plate = Arc::new(Plate::new());
        plate.write(of(1));
        let writer = {
            let plate = Arc::clone(&plate);
            thread::spawn(move || plate.write(of(2)))
        };
        let looks = [plate.look(), plate.look()];
        for look in looks.into_iter().flatten() {
            assert!(look == of(1) || look == of(2), "{look:?} is neither of the two");
        }
        assert!(!(looks == [Some(of(2)), Some(of(1))]), "it went back");
        writer.join().unwrap();
        assert_eq!(plate.look(), Some(of(2)));
    });
}
