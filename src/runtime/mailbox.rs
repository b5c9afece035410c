//! The one-slot mailbox of a lane: the dispatcher puts, the lane's worker takes.
//!
//! One atomic says what it holds and whether its owner sleeps:
//!
//! ```text
//!            put                    take
//!  EMPTY ──────────► FULL ◄──┐   FULL ──► EMPTY
//!    │ park               put│
//!    └─────► PARKED ─────────┘ (and unpark)
//! ```
//! A mailbox is only put to while its lane is reserved and its previous mail was taken, so it is never full then. Going to sleep and
//! putting meet on the same atomic: one of them comes second and sees the other.

use super::wait::Waiting;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{UnsafeCell, mutant, order, thread};
use std::sync::OnceLock;

const EMPTY: u32 = 0;
const FULL: u32 = 1;
const PARKED: u32 = 2;

/// One slot, one producer, one consumer.
#[derive(Debug)]
pub(crate) struct Mailbox<M> {
    state: AtomicU32,
    mail: UnsafeCell<Option<M>>,
    owner: OnceLock<thread::Thread>,
}

// SAFETY: the mail is moved from the producer's thread to the consumer's; `state` says which of the two may touch it.
unsafe impl<M: Send> Sync for Mailbox<M> {}

impl<M> Mailbox<M> {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(EMPTY), mail: UnsafeCell::new(None), owner: OnceLock::new() }
    }

    /// Makes the current thread the owner, who takes. The first call counts.
    pub(crate) fn attach(&self) {
        let _ = self.owner.set(thread::current());
    }

    /// Whether this thread is the owner.
    pub(crate) fn is_owner(&self, id: thread::ThreadId) -> bool {
        self.owner.get().is_some_and(|owner| owner.id() == id)
    }

    /// Ends the owner's park, whatever it waits for.
    #[inline]
    pub(crate) fn unpark(&self) {
        if let Some(owner) = self.owner.get() {
            owner.unpark();
        }
    }

    /// Puts mail into the empty box, and wakes its owner if it sleeps.
    ///
    /// # Safety
    /// No other thread puts at the same time, and whatever was put before has been taken, which the caller knows by a
    /// happens-before edge: the reservation of a lane whose holder released it after it had taken its mail.
    #[inline]
    pub(crate) unsafe fn put(&self, mail: M) {
        self.mail.with_mut(|slot| {
            // SAFETY: by the contract nobody else is at the slot: the owner touches it only while the state is FULL.
            let slot = unsafe { &mut *slot };
            debug_assert!(slot.is_none(), "the mailbox of a reserved lane is empty");
            *slot = Some(mail);
        });
        // ORDERING: Release, with the Acquire in `try_take`: the mail is seen by whoever sees FULL. A read-modify-write, so that a
        // PARKED that came in between is seen and answered.
        let before = self.state.swap(FULL, order("mailbox.put", Ordering::Release));
        if before == PARKED && !mutant("mailbox.put:wakes-nobody") {
            self.unpark();
        }
    }

    /// Takes the mail, if there is some. For the owner only.
    #[inline]
    fn try_take(&self) -> Option<M> {
        // ORDERING: Acquire, with the Release in `put`.
        if self.state.load(order("mailbox.try_take", Ordering::Acquire)) != FULL {
            return None;
        }
        // SAFETY: FULL was seen, so the producer is done with the slot, and it will not put again before we have released the lane.
        let mail = self.mail.with_mut(|slot| unsafe { (*slot).take() });
        // ORDERING: Relaxed: nothing is passed on. The next put is ordered behind this by the lane's release and reservation.
        self.state.swap(EMPTY, Ordering::Relaxed);
        debug_assert!(mail.is_some(), "a full mailbox holds mail");
        mail
    }

    /// Waits for mail and takes it. For the owner only.
    pub(crate) fn take(&self, waiting: &Waiting) -> M {
        loop {
            if let Some(mail) = waiting.spin(|| self.try_take()) {
                return mail;
            }
            // ORDERING: Relaxed both: if it fails the mail is there, and `try_take` acquires it; if it succeeds nothing is passed on.
            let parked = self.state.compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if parked {
                // ORDERING: Relaxed: only whether to go on sleeping; `try_take` acquires.
                while self.state.load(Ordering::Relaxed) == PARKED {
                    thread::park();
                }
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::runtime::wait::Wait;
    use std::sync::Arc;

    #[test]
    fn everything_put_is_taken_once_and_in_order() {
        for wait in [Wait::Park, Wait::SpinThenPark, Wait::Spin] {
            let waiting = wait.resolve(1, 2);
            let mailbox = Arc::new(Mailbox::new());
            let taken = Arc::new(std::sync::atomic::AtomicU64::new(0));
            let owner = std::thread::spawn({
                let (mailbox, taken) = (Arc::clone(&mailbox), Arc::clone(&taken));
                move || {
                    mailbox.attach();
                    for expected in 0..10_000 {
                        assert_eq!(mailbox.take(&waiting), expected);
                        taken.store(expected + 1, std::sync::atomic::Ordering::Release);
                    }
                }
            });
            for mail in 0..10_000 {
                while taken.load(std::sync::atomic::Ordering::Acquire) != mail {
                    std::thread::yield_now();
                }
                // SAFETY: one producer, and the mail before was taken.
                unsafe { mailbox.put(mail) };
            }
            owner.join().unwrap();
        }
    }
}
