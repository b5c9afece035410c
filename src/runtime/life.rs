//! A request's life on one atomic: whoever changes it first decides, and everybody else sees the decision.
//!
//! ```text
//!                        ┌──► Parked ──┐        (the last worker stops between two steps; the first one goes on)
//!                        │             ▼
//!  Queued ─► Granted ─► Running ─► Completed
//!    │          │          └─────► Failed      (the last worker, or the dispatcher, which gives it up)
//!    ├──────────┼─► Cancelled   (its owner)
//!    ├──────────┼─► Expired     (dispatcher, or the worker at the last moment)
//!    ├──────────┴─► Failed      (the dispatcher gives it up: the lane did not begin, or is not there)
//!    └─► ShutDown               (dispatcher)
//! ```
//! What is parked may go on, or end in any of the ways of what is queued. What runs in steps may also end, at one of them, as Cancelled,
//! Expired or ShutDown.
//!
//! | bits | meaning | set by |
//! |---|---|---|
//! | 0–3 | the phase | see above |
//! | 4 | `CANCEL`: a running request is to stop | owner, dispatcher |
//! | 5 | `AWAITED`: somebody has registered a waker | owner |
//! | 6 | `OVERDUE`, with CANCEL: since its limit has passed while it ran | dispatcher |
//! | 7 | `GIVEN_UP`, with Failed: the dispatcher ended it, and the header says why; the output belongs to the worker, whose body may still run | dispatcher |
//! | 8 | `ABORTED`, with CANCEL: since the node shuts down | dispatcher |
//!
//! A change of phase retries only when one of the other bits came in between, and each of them comes once: six rounds at most.
//!
//! # Orderings
//! Ending (`Release` part) publishes the output that the ticket reads after it saw a terminal phase (`Acquire`). Setting `AWAITED`
//! (`Release`) publishes the registered waker to whoever ends the life (`Acquire` part), which wakes it; so either the owner sees the
//! end when it sets the bit, or whoever ends sees the bit. The bit itself acquires nothing: an owner that finds the end there looks at
//! the phase once more before it touches the output. Granting, starting and asking to stop pass nothing on: the request travels by
//! ring and mailbox, which order it.

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{mutant, order};

/// Where a request is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// Waits for its turn.
    Queued = 0,
    /// Its lane or lanes are decided; its body has not begun.
    Granted = 1,
    /// Its body runs.
    Running = 2,
    /// It has stopped between two of its steps, to go on later.
    Parked = 3,
    /// It ran to its end.
    Completed = 4,
    /// It failed.
    Failed = 5,
    /// Its deadline passed before it began, or at one of its steps.
    Expired = 6,
    /// Its owner took it back before it began, or at one of its steps.
    Cancelled = 7,
    /// The node was shut down before it began, or at one of its steps.
    ShutDown = 8,
}

impl Phase {
    const ALL: [Self; 9] = [
        Self::Queued,
        Self::Granted,
        Self::Running,
        Self::Parked,
        Self::Completed,
        Self::Failed,
        Self::Expired,
        Self::Cancelled,
        Self::ShutDown,
    ];

    /// Whether it is the last one.
    #[inline]
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        self as u32 >= Self::Completed as u32
    }

    /// Whether a request may go from this phase to that one.
    #[must_use]
    pub const fn may_become(self, to: Self) -> bool {
        use Phase::{Cancelled, Completed, Expired, Failed, Granted, Parked, Queued, Running, ShutDown};
        matches!(
            (self, to),
            (Queued, Granted | Cancelled | Expired | ShutDown)
                | (Queued, Failed)
                | (Granted, Running | Cancelled | Expired | Failed)
                | (Running, Parked | Completed | Failed | Cancelled | Expired | ShutDown)
                | (Parked, Running | Failed | Cancelled | Expired | ShutDown)
        )
    }
}

const PHASE: u32 = 0b1111;
const CANCEL: u32 = 1 << 4;
const AWAITED: u32 = 1 << 5;
const OVERDUE: u32 = 1 << 6;
const GIVEN_UP: u32 = 1 << 7;
const ABORTED: u32 = 1 << 8;

const fn phase(bits: u32) -> Phase {
    Phase::ALL[(bits & PHASE) as usize]
}

/// Why what runs is to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Its owner wants it to.
    Cancelled,
    /// Its limit has passed.
    Overdue,
    /// The node is shut down by an abort.
    Aborted,
}

/// The atomic. See the module's page.
#[derive(Debug)]
pub(crate) struct Life(AtomicU32);

/// What became of an attempt to end a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Ending {
    /// It ended by this attempt; somebody waits for it if `awaited`.
    Ended { awaited: bool },
    /// It could not: it is in this phase.
    Refused(Phase),
}

/// Where a life is, and how it came there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) phase: Phase,
    /// The dispatcher failed it; the header says why.
    pub(crate) given_up: bool,
    /// Its limit passed while it ran.
    pub(crate) overdue: bool,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(Phase::Queued as u32))
    }

    /// The phase now. If it is terminal, what was written before the end is seen.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.verdict().phase
    }

    /// The phase now, as [`phase`](Self::phase), and how it came about.
    #[inline]
    pub(crate) fn verdict(&self) -> Verdict {
        // ORDERING: Acquire, with the release of `end`, by which the output comes, and of `give_up`, by which the header's reason does.
        let bits = self.0.load(order("life.verdict", Ordering::Acquire));
        Verdict { phase: phase(bits), given_up: bits & GIVEN_UP != 0, overdue: bits & OVERDUE != 0 }
    }

    /// Whether the owner wants it to stop.
    #[inline]
    pub(crate) fn cancel_wanted(&self) -> bool {
        // ORDERING: Relaxed: a hint that passes nothing on.
        self.0.load(Ordering::Relaxed) & CANCEL != 0
    }

    /// Why it is to stop, if it is.
    #[inline]
    pub(crate) fn cause(&self) -> Option<Cause> {
        // ORDERING: Relaxed: the bits are the whole message.
        let bits = self.0.load(Ordering::Relaxed);
        if bits & CANCEL == 0 {
            return None;
        }
        Some(match () {
            () if bits & OVERDUE != 0 => Cause::Overdue,
            () if bits & ABORTED != 0 => Cause::Aborted,
            () => Cause::Cancelled,
        })
    }

    /// Queued → Granted, unless somebody ended it before.
    #[inline]
    pub(crate) fn grant(&self) -> Result<(), Phase> {
        // ORDERING: Relaxed: see the module's page.
        self.change(Phase::Queued, Phase::Granted, 0, Ordering::Relaxed).map(|_| ())
    }

    /// Granted or Parked → Running, or Running already (another member of the gang was first). Otherwise the phase that it is in.
    #[inline]
    pub(crate) fn start(&self) -> Result<(), Phase> {
        // ORDERING: Relaxed: see the module's page.
        match self.change(Phase::Granted, Phase::Running, 0, Ordering::Relaxed) {
            Ok(_) | Err(Phase::Running) => Ok(()),
            Err(Phase::Parked) => match self.change(Phase::Parked, Phase::Running, 0, Ordering::Relaxed) {
                Ok(_) | Err(Phase::Running) => Ok(()),
                Err(other) => Err(other),
            },
            Err(other) => Err(other),
        }
    }

    /// Running → Parked: it has stopped between two steps. Otherwise the phase that it is in.
    pub(crate) fn park(&self) -> Result<(), Phase> {
        // ORDERING: Relaxed: what it left stays with its lanes, and the release of those passes on that it did.
        self.change(Phase::Running, Phase::Parked, 0, Ordering::Relaxed).map(|_| ())
    }

    /// Ends it, if it is in `from`.
    #[inline]
    pub(crate) fn end(&self, from: Phase, to: Phase) -> Ending {
        debug_assert!(to.is_terminal());
        // ORDERING: AcqRel: releases the output to the ticket, acquires the waker.
        match self.change(from, to, 0, order("life.end", Ordering::AcqRel)) {
            Ok(before) => Ending::Ended { awaited: before & AWAITED != 0 && !mutant("life.end:forgets-awaited") },
            Err(other) => Ending::Refused(other),
        }
    }

    /// Fails it, whether it waits, is about to run or runs: for the dispatcher, after it has written the reason into the header. A worker
    /// that runs it finds out when it wants to end it, and keeps the output.
    #[inline]
    pub(crate) fn give_up(&self) -> Ending {
        // A phase goes forward, so that each is tried once; only what runs may become parked meanwhile, which does not go on without us.
        let mut from = Phase::Queued;
        loop {
            // ORDERING: AcqRel: releases the reason to the ticket, acquires the waker.
            match self.change(from, Phase::Failed, GIVEN_UP, order("life.give_up", Ordering::AcqRel)) {
                Ok(before) => return Ending::Ended { awaited: before & AWAITED != 0 && !mutant("life.give_up:forgets-awaited") },
                Err(other) if other.is_terminal() => return Ending::Refused(other),
                Err(other) => from = other,
            }
        }
    }

    /// Its limit has passed: it is asked to stop.
    pub(crate) fn overdue(&self) {
        // ORDERING: Relaxed: the bits are the whole message.
        self.0.fetch_or(CANCEL | OVERDUE, Ordering::Relaxed);
    }

    /// The node shuts down by an abort: what runs is asked to stop.
    pub(crate) fn abort(&self) {
        // ORDERING: Relaxed: the bits are the whole message.
        self.0.fetch_or(CANCEL | ABORTED, Ordering::Relaxed);
    }

    /// Says that a waker is registered. The phase at that moment: if it is terminal, nobody will wake.
    #[inline]
    pub(crate) fn await_end(&self) -> Phase {
        // ORDERING: Release: the waker, to `end`. The output is acquired by `phase`, which whoever takes it calls.
        phase(self.0.fetch_or(AWAITED, order("life.await_end", Ordering::Release)))
    }

    /// Asks a running request to stop. The phase at that moment.
    #[inline]
    pub(crate) fn want_cancel(&self) -> Phase {
        // ORDERING: Relaxed: the bit is the whole message, and the answer is only told.
        phase(self.0.fetch_or(CANCEL, Ordering::Relaxed))
    }

    fn change(&self, from: Phase, to: Phase, with: u32, success: Ordering) -> Result<u32, Phase> {
        debug_assert!(from.may_become(to), "{from:?} never becomes {to:?}");
        // ORDERING: Relaxed: the expected value; the exchange below has the ordering that counts.
        let mut bits = self.0.load(Ordering::Relaxed);
        loop {
            if phase(bits) != from && !mutant("life.change:from-anywhere") {
                return Err(phase(bits));
            }
            let next = bits & !PHASE | to as u32 | with;
            // ORDERING: failure is Relaxed: the loop looks again.
            match self.0.compare_exchange_weak(bits, next, success, Ordering::Relaxed) {
                Ok(before) => return Ok(before),
                Err(now) => bits = now,
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_life_ends_once() {
        let life = Life::new();
        life.grant().unwrap();
        assert_eq!(life.end(Phase::Queued, Phase::Expired), Ending::Refused(Phase::Granted));
        assert_eq!(life.end(Phase::Granted, Phase::Cancelled), Ending::Ended { awaited: false });
        assert_eq!(life.start(), Err(Phase::Cancelled));
    }

    #[test]
    fn a_life_is_given_up_in_any_phase_but_the_last() {
        for steps in 0..3 {
            let life = Life::new();
            if steps > 0 {
                life.grant().unwrap();
            }
            if steps > 1 {
                life.start().unwrap();
                life.overdue();
                assert!(life.cancel_wanted());
            }
            life.await_end();
            assert_eq!(life.give_up(), Ending::Ended { awaited: true });
            assert_eq!(life.verdict(), Verdict { phase: Phase::Failed, given_up: true, overdue: steps > 1 });
            assert_eq!(life.end(Phase::Running, Phase::Completed), Ending::Refused(Phase::Failed), "the late end");
            assert_eq!(life.give_up(), Ending::Refused(Phase::Failed));
        }
    }

    #[test]
    fn bits_survive_a_change_of_phase() {
        let life = Life::new();
        assert_eq!(life.await_end(), Phase::Queued);
        life.grant().unwrap();
        life.start().unwrap();
        assert_eq!(life.want_cancel(), Phase::Running);
        assert!(life.cancel_wanted());
        assert_eq!(life.end(Phase::Running, Phase::Completed), Ending::Ended { awaited: true });
        assert!(life.cancel_wanted());
    }

    #[test]
    fn a_life_parks_and_goes_on() {
        let life = Life::new();
        assert_eq!(life.park(), Err(Phase::Queued));
        life.grant().unwrap();
        life.start().unwrap();
        for _ in 0..3 {
            life.park().unwrap();
            assert_eq!((life.phase(), life.cause()), (Phase::Parked, None));
            life.start().unwrap();
            assert_eq!(life.start(), Ok(()), "another member");
        }
        life.want_cancel();
        assert_eq!(life.cause(), Some(Cause::Cancelled));
        life.abort();
        assert_eq!(life.cause(), Some(Cause::Aborted));
        life.overdue();
        assert_eq!(life.cause(), Some(Cause::Overdue));
        life.park().unwrap();
        assert_eq!(life.end(Phase::Parked, Phase::Cancelled), Ending::Ended { awaited: false });
        assert_eq!(life.start(), Err(Phase::Cancelled));
        assert_eq!(life.park(), Err(Phase::Cancelled));
    }

    #[test]
    fn terminal_phases_are_final() {
        for from in Phase::ALL {
            for to in Phase::ALL {
                assert!(!(from.is_terminal() && from.may_become(to)));
            }
        }
    }
}
