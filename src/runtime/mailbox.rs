//! The one-slot mailbox of a lane: the dispatcher puts, the lane's worker takes.
//!
//! One atomic counts what was put, and says whether the owner sleeps; the owner counts what it took, on its own stack:
//!
//! ```text
//!          put                      put
//!  n, awake ──► n + 1, awake    n, PARKED ──► n + 1, awake (and unpark)
//!  n, awake ──► n, PARKED       (the owner, who has taken n)
//! ```
//! So an owner that spins only reads, and what it waits for comes to it on one cache line, by one write. A mailbox is only put to while its
//! lane is reserved and its previous mail was taken. Going to sleep and putting meet on the same atomic: one of them comes second and sees
//! the other.

use super::wait::Waiting;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{UnsafeCell, mutant, order, thread};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// The owner sleeps. The number of the latest mail is in the bits above.
const PARKED: u32 = 1;

/// One slot, one producer, one consumer. What it carries is plain data.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mailbox<M> {
    state: AtomicU32,
    mail: UnsafeCell<Slot<M>>,
    owner: OnceLock<thread::Thread>,
}

#[derive(Debug)]
struct Slot<M> {
    /// The number of this mail, as it is in the state: the producer counts here.
    number: u32,
    mail: MaybeUninit<M>,
}

/// How many the owner has taken. One for each mailbox, with its owner.
#[derive(Debug, Default)]
pub(crate) struct Taken(u32);

// SAFETY: the mail is copied from the producer's thread to the consumer's; `state` says which of the two may touch it.
unsafe impl<M: Copy + Send> Sync for Mailbox<M> {}

impl<M: Copy> Mailbox<M> {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            mail: UnsafeCell::new(Slot { number: 0, mail: MaybeUninit::uninit() }),
            owner: OnceLock::new(),
        }
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

    /// Puts mail into the box, and wakes its owner if it sleeps, which it may only if it `parks`.
    ///
    /// # Safety
    /// No other thread puts at the same time, and whatever was put before has been taken, which the caller knows by a
    /// happens-before edge: the reservation of a lane whose holder released it after it had taken its mail.
    #[inline]
    pub(crate) unsafe fn put(&self, mail: M, parks: bool) {
        let next = self.mail.with_mut(|slot| {
            // SAFETY: by the contract nobody else is at the slot: the owner looks at it only once the number below is in the state.
            let slot = unsafe { &mut *slot };
            slot.mail.write(mail);
            slot.number = slot.number.wrapping_add(PARKED + 1);
            slot.number
        });
        if !parks {
            // ORDERING: Release, with the Acquire in `try_take`, as below. Without a sleeper nothing need be seen, and the producer need not
            // wait until the line is its own.
            self.state.store(next, order("mailbox.put", Ordering::Release));
            return;
        }
        // ORDERING: Release, with the Acquire in `try_take`: the mail is seen by whoever sees the number. A read-modify-write, so that a
        // PARKED that came in between is seen and answered.
        let before = self.state.swap(next, order("mailbox.put", Ordering::Release));
        if before & PARKED != 0 && !mutant("mailbox.put:wakes-nobody") {
            self.unpark();
        }
    }

    /// Takes the mail, if there is some. For the owner only.
    #[inline]
    fn try_take(&self, taken: &mut Taken) -> Option<M> {
        // ORDERING: Acquire, with the Release in `put`.
        let number = self.state.load(order("mailbox.try_take", Ordering::Acquire)) & !PARKED;
        if number == taken.0 {
            return None;
        }
        debug_assert_eq!(number, taken.0.wrapping_add(2), "mail was put before the last was taken");
        taken.0 = number;
        let slot = self.mail.with(|slot| {
            // SAFETY: the number was seen, so the producer is done with the slot, and it will not put again before we have released the lane.
            unsafe { (*slot).mail }
        });
        // SAFETY: and it has written it.
        Some(unsafe { slot.assume_init() })
    }

    /// Waits for mail and takes it. For the owner only.
    pub(crate) fn take(&self, taken: &mut Taken, waiting: &Waiting) -> M {
        loop {
            if let Some(mail) = waiting.spin(|| self.try_take(taken)) {
                return mail;
            }
            let parked = taken.0 | PARKED;
            // ORDERING: Relaxed both: if it fails the mail is there, and `try_take` acquires it; if it succeeds nothing is passed on.
            if self.state.compare_exchange(taken.0, parked, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                // ORDERING: Relaxed: only whether to go on sleeping; `try_take` acquires.
                while self.state.load(Ordering::Relaxed) == parked {
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
    use crate::runtime::worker::Mail;
    use std::sync::Arc;

    /// A worker that waits for mail waits for one line.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn state_and_mail_share_one_cache_line() {
        type Box = Mailbox<Mail<()>>;
        let end = std::mem::offset_of!(Box, mail) + size_of::<Slot<Mail<()>>>();
        assert!(end <= 64, "the mail ends at byte {end}");
    }

    #[test]
    fn everything_put_is_taken_once_and_in_order() {
        const MAILS: u64 = 3_000;
        for wait in [Wait::Park, Wait::SpinThenPark, Wait::Spin] {
            let waiting = wait.resolve(1, 2);
            let mailbox = Arc::new(Mailbox::new());
            let taken = Arc::new(std::sync::atomic::AtomicU64::new(0));
            let owner = std::thread::spawn({
                let (mailbox, taken) = (Arc::clone(&mailbox), Arc::clone(&taken));
                move || {
                    mailbox.attach();
                    let mut own = Taken::default();
                    for expected in 0..MAILS {
                        assert_eq!(mailbox.take(&mut own, &waiting), expected);
                        taken.store(expected + 1, std::sync::atomic::Ordering::Release);
                    }
                }
            });
            for mail in 0..MAILS {
                while taken.load(std::sync::atomic::Ordering::Acquire) != mail {
                    std::thread::yield_now();
                }
                // SAFETY: one producer, and the mail before was taken.
                unsafe { mailbox.put(mail, waiting.parks()) };
            }
            owner.join().unwrap();
        }
    }
}
