//! The door: how many requests of a class may be in the node's queue, exactly, and whether any may.

use super::request::RejectReason;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::mutant;

/// Which requests are taken in, of those that the queue has room for: [`Builder::admission`](super::Builder::admission).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Admission {
    /// All of them. One that does not start by its deadline expires then.
    #[default]
    All,
    /// Those that are expected to start by their deadlines, by [`Phalanx::estimate_start`](super::Phalanx::estimate_start), and to end by
    /// [`Request::finish_by`](super::Request::finish_by) with what they expect themselves; the others are handed back at once, with the
    /// estimate. Those that name neither are all taken.
    InTime {
        /// One in so many of those that would be turned away is taken all the same, so that an estimate that is too long is found out: what
        /// is turned away teaches nothing. 0 and 1 take all.
        probe: u32,
    },
}

/// The node takes no more requests.
const CLOSED: u64 = 1 << 63;

/// Counts the requests of one class that were admitted and have not left the queue: on their way to it, or in it.
///
/// It is exact: of any number of threads that submit at the same time, just as many pass as there is room for. And it is what a
/// shutdown waits for: a request that passed before the door closed keeps the count above 0 until the dispatcher has dealt with it,
/// so none can slip into a node that has stopped.
#[derive(Debug)]
pub(crate) struct Door {
    inside: AtomicU64,
    capacity: u64,
}

impl Door {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { inside: AtomicU64::new(0), capacity: capacity as u64 }
    }

    /// One more, if there is room. A retry means that another request passed or left: the loop is lock-free.
    #[inline]
    pub(crate) fn enter(&self) -> Result<(), RejectReason> {
        // ORDERING: Relaxed: the count alone decides; the request itself is passed on by the ring.
        let mut inside = self.inside.load(Ordering::Relaxed);
        loop {
            if inside & CLOSED != 0 && !mutant("door.enter:ignores-closed") {
                return Err(RejectReason::Closed);
            }
            if inside & !CLOSED >= self.capacity && !mutant("door.enter:ignores-capacity") {
                return Err(RejectReason::QueueFull);
            }
            // ORDERING: Relaxed: as above. The counter's own order of changes makes it exact.
            match self.inside.compare_exchange_weak(inside, inside + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => inside = now,
            }
        }
    }

    /// One has left the queue.
    #[inline]
    pub(crate) fn leave(&self) {
        // ORDERING: Relaxed: as above.
        let before = self.inside.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before & !CLOSED > 0, "more requests left the queue than entered it");
    }

    /// Nobody enters from now on.
    pub(crate) fn close(&self) {
        // ORDERING: Relaxed: whoever enters before this in the counter's order is waited for.
        self.inside.fetch_or(CLOSED, Ordering::Relaxed);
    }

    /// Whether nobody is inside, nor can be again.
    pub(crate) fn is_finished(&self) -> bool {
        // ORDERING: Relaxed: a request that entered before is still counted here.
        self.inside.load(Ordering::Relaxed) == CLOSED
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn exactly_as_many_pass_as_there_is_room_for() {
        for _ in 0..50 {
            let door = Arc::new(Door::new(100));
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let door = Arc::clone(&door);
                    std::thread::spawn(move || (0..30).filter(|_| door.enter() == Err(RejectReason::QueueFull)).count())
                })
                .collect();
            assert_eq!(threads.into_iter().map(|t| t.join().unwrap()).sum::<usize>(), 20);
        }
    }

    #[test]
    fn a_closed_door_waits_for_those_inside() {
        let door = Door::new(2);
        door.enter().unwrap();
        door.close();
        assert_eq!(door.enter(), Err(RejectReason::Closed));
        assert!(!door.is_finished());
        door.leave();
        assert!(door.is_finished());
    }
}
