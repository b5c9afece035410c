//! The state word of eight lanes under real contention: a dispatcher, and two threads that hold four lanes each.

use phalanx::word::{Arrival, StateWord, Verdict};
use phalanx::{Epoch, LaneId, LaneMask};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const HOLDERS: usize = 2;
/// A gang after so many smalls.
const SMALLS: u64 = 64;

/// What the dispatcher hands a lane's holder: nothing, a small, or membership from an epoch on.
const NOTHING: u64 = 0;
const SMALL: u64 = 1;
const MEMBER: u64 = 2;

struct Node {
    word: StateWord<8>,
    mail: [AtomicU64; 8],
    /// Counted without a read-modify-write: two holders of one lane at a time lose a count.
    held: [AtomicU64; 8],
    stop: AtomicBool,
}

/// Drives the word until it has made so many transitions, and checks every one that was counted.
///
/// # Panics
/// If a count is lost or doubled, or nothing moves for ten seconds.
pub(crate) fn stress(transitions: u64) {
    let node = Node {
        word: StateWord::new(),
        mail: std::array::from_fn(|_| AtomicU64::new(NOTHING)),
        held: std::array::from_fn(|_| AtomicU64::new(0)),
        stop: AtomicBool::new(false),
    };
    let began = Instant::now();
    let (smalls, gangs) = std::thread::scope(|scope| {
        let node = &node;
        let holders: Vec<_> = (0..HOLDERS).map(|holder| scope.spawn(move || hold(node, holder))).collect();
        let counts = dispatch(node, transitions);
        node.stop.store(true, Ordering::Release);
        // By hand: ThreadSanitizer does not see the scope's own waiting, which is in the standard library.
        for holder in holders {
            holder.join().expect("a holder's assertion");
        }
        counts
    });
    let held: u64 = node.held.iter().map(|held| held.load(Ordering::Relaxed)).sum();
    assert_eq!(held, smalls + 8 * gangs, "a holding was lost or doubled: {:?}", node.word.load());
    assert!(node.word.load().busy().is_empty(), "stuck: {:?}", node.word.load());
    // A small: reserve and release. A gang: reserve, eight arrivals, eight releases, end.
    let made = smalls * 2 + gangs * 18;
    println!("WORD transitions {made} smalls {smalls} gangs {gangs} s {:.1}", began.elapsed().as_secs_f64());
}

fn dispatch(node: &Node, transitions: u64) -> (u64, u64) {
    let (mut smalls, mut gangs, mut since) = (0, 0, 0);
    let mut moved = Instant::now();
    let mut looks = 0_u32;
    let mut progress = |yes: bool| {
        looks = looks.wrapping_add(1);
        if yes {
            looks = 0;
            moved = Instant::now();
        } else {
            std::thread::yield_now();
            assert!(!looks.is_multiple_of(1024) || moved.elapsed() < Duration::from_secs(10), "stuck: {:?}", node.word.load());
        }
    };
    while smalls * 2 + gangs * 18 < transitions {
        if since < SMALLS {
            let free = LaneMask::first(8) & !node.word.load().busy();
            for lane in free {
                assert_eq!(node.word.reserve(lane), Ok(()), "the dispatcher alone reserves");
                node.mail[lane.index()].store(SMALL, Ordering::Release);
                smalls += 1;
                since += 1;
            }
            progress(!free.is_empty());
        } else if let Ok(epoch) = node.word.reserve_gang() {
            for mail in &node.mail {
                mail.store(MEMBER | u64::from(epoch.get()) << 8, Ordering::Release);
            }
            while node.word.end_gang().is_err() {
                progress(false);
            }
            gangs += 1;
            since = 0;
            progress(true);
        } else {
            progress(false);
        }
    }
    while !node.word.load().busy().is_empty() {
        progress(false);
    }
    (smalls, gangs)
}

fn hold(node: &Node, holder: usize) {
    let lanes: Vec<LaneId> = (0..8).filter(|lane| lane % HOLDERS == holder).map(LaneId::new).collect();
    let count = |lane: LaneId| {
        let held = &node.held[lane.index()];
        held.store(held.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    };
    let mut members: Vec<(LaneId, Epoch)> = Vec::new();
    while !node.stop.load(Ordering::Acquire) {
        let mut idle = true;
        for &lane in &lanes {
            let mail = node.mail[lane.index()].load(Ordering::Acquire);
            if mail == NOTHING {
                continue;
            }
            idle = false;
            node.mail[lane.index()].store(NOTHING, Ordering::Relaxed);
            count(lane);
            if mail == SMALL {
                let _ = node.word.release(lane);
            } else {
                let epoch = Epoch::new((mail >> 8) as u32);
                assert!(!matches!(node.word.arrive(lane, epoch), Arrival::Refused(_)), "nobody breaks this gang");
                members.push((lane, epoch));
            }
        }
        // A member leaves when its gang is through.
        members.retain(|&(lane, epoch)| match node.word.judge(epoch) {
            Verdict::Wait => true,
            Verdict::Through { .. } => {
                let _ = node.word.release(lane);
                false
            }
            Verdict::Broken => panic!("nobody breaks this gang"),
        });
        if idle {
            std::thread::yield_now();
        }
    }
}
