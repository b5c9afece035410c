//! How a thread waits: spinning, parked, or the one and then the other; and the bell that wakes the dispatcher.
//!
//! # No wake-up is lost
//! There are three places where a thread of the node sleeps.
//!
//! * **The dispatcher**, on its [`Bell`]. It says that it sleeps (`ASLEEP`), *then* looks once more at everything that it could miss,
//!   *then* parks. Whoever has something for it publishes that, *then* looks whether it sleeps. Between the two steps each side
//!   has a sequentially consistent fence, so the two looks cannot both miss: either the dispatcher sees what was published, or the
//!   publisher sees `ASLEEP` and unparks it. The flag itself is only ever changed by read-modify-writes, on both sides, so that
//!   of several publishers exactly one pays for the unpark.
//! * **A worker**, on its [mailbox](super::mailbox): empty, full and parked are three values of one atomic, so there is nothing to order.
//! * **A gang member**, at the barrier: it parks after it has arrived, and every transition of the word that can end its wait says
//!   whom to unpark. An unpark before the park is kept as a token, and after each wake-up the member judges the word again.
//!
//! A thread has one park token for all its sleeps. A token that comes too early or from another sleep makes a loop look once more and
//! park again; it never takes one away.

use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::{hint, mutant, order, thread};
use std::sync::OnceLock;
use std::time::Duration;

/// How the node's threads wait for work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// [`Wait::SpinThenPark`] if the process may use a CPU for each lane, one for the dispatcher and one for a submitter (under
    /// [`Drive::Turn`](super::Drive::Turn) these two are one), else [`Wait::Park`].
    #[default]
    Auto,
    /// Never sleep: the shortest reaction, and one CPU each for the dispatcher and every lane. With fewer CPUs than [`Wait::Auto`] asks
    /// for the threads yield between looks, since a bare spin would take the CPU from the thread that it waits for.
    Spin,
    /// Spin for some ten microseconds, then park.
    SpinThenPark,
    /// Park at once: no CPU is used while nothing happens.
    Park,
}

/// A [`Wait`] that has been resolved for this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    spins: u32,
    parks: bool,
    yields: bool,
}

/// How often a spinning thread looks before it parks: some 10 to 20 microseconds, about what a park and unpark cost together, so that
/// waiting is never more than twice as dear as it would have been with foresight.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 1_000 };

impl Wait {
    /// For a process that may use so many CPUs, and a node of so many threads, whoever submits to it included.
    pub(crate) fn resolve(self, cpus: usize, threads: usize) -> Waiting {
        let enough = cpus >= threads;
        match self {
            Self::Auto if enough => Waiting { spins: SPINS, parks: true, yields: false },
            Self::Auto | Self::Park => Waiting { spins: 0, parks: true, yields: false },
            Self::Spin => Waiting { spins: u32::MAX, parks: false, yields: !enough },
            Self::SpinThenPark => Waiting { spins: SPINS, parks: true, yields: !enough },
        }
    }
}

impl Waiting {
    /// Whether threads ever sleep: if not, nobody needs to be woken.
    #[inline]
    pub(crate) fn parks(&self) -> bool {
        self.parks
    }

    /// Whether a look follows the last one at once.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        !self.yields && self.spins > 0
    }

    /// Looks for something until it is there, or until it is time to park. `None`: park now.
    #[inline]
    pub(crate) fn spin<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let mut spun = 0;
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            if self.parks && spun >= self.spins {
                return None;
            }
            spun = spun.saturating_add(1);
            if self.yields { thread::yield_now() } else { hint::spin_loop() }
        }
    }
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.spins, self.parks, self.yields) {
            (0, true, _) => "park",
            (_, true, _) => "spin, then park",
            (_, false, true) => "spin, yielding",
            (_, false, false) => "spin",
        })
    }
}

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// Wakes the dispatcher. See the module's page for why no ring is missed.
#[derive(Debug)]
pub(crate) struct Bell {
    state: AtomicU32,
    sleeper: OnceLock<thread::Thread>,
    /// Nobody ever sleeps on it: the dispatcher spins, or an embedder drives it.
    silent: bool,
}

impl Bell {
    pub(crate) fn new(silent: bool) -> Self {
        Self { state: AtomicU32::new(AWAKE), sleeper: OnceLock::new(), silent }
    }

    /// Makes the current thread the one that sleeps here. The first call counts.
    pub(crate) fn attach(&self) {
        let _ = self.sleeper.set(thread::current());
    }

    /// Whether this thread is the one that sleeps here.
    pub(crate) fn is_sleeper(&self, id: thread::ThreadId) -> bool {
        self.sleeper.get().is_some_and(|sleeper| sleeper.id() == id)
    }

    /// Something was published for the dispatcher.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.silent || mutant("bell.ring:silent") {
            return;
        }
        // ORDERING: SeqCst fence, with the one in `sleep`: what was published before it is seen by the sleeper's last look, or the
        // load after it sees ASLEEP.
        fence(order("bell.ring", Ordering::SeqCst));
        // ORDERING: Relaxed: the fence orders it. The swap too: it passes nothing on but the token, and unpark synchronises itself.
        if self.state.load(Ordering::Relaxed) == ASLEEP
            && self.state.swap(AWAKE, Ordering::Relaxed) == ASLEEP
            && let Some(sleeper) = self.sleeper.get()
        {
            sleeper.unpark();
        }
    }

    /// Sleeps until the bell rings, the time is over, or `idle`, asked once more after it was said that the caller sleeps, says no.
    /// May return early.
    pub(crate) fn sleep(&self, timeout: Option<Duration>, idle: impl FnOnce() -> bool) {
        // ORDERING: Relaxed: the fence below orders it before the looks of `idle`.
        if !mutant("bell.sleep:says-nothing") {
            self.state.swap(ASLEEP, Ordering::Relaxed);
        }
        // ORDERING: SeqCst fence, with the one in `ring`.
        fence(order("bell.sleep", Ordering::SeqCst));
        if idle() || mutant("bell.sleep:looks-once") {
            match timeout {
                None => thread::park(),
                Some(timeout) => thread::park_timeout(timeout),
            }
        }
        // ORDERING: Relaxed: what woke us is found by looking again, each place with an ordering of its own.
        self.state.swap(AWAKE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cpus_never_spin_barely() {
        for wait in [Wait::Auto, Wait::Spin, Wait::SpinThenPark, Wait::Park] {
            let waiting = wait.resolve(9, 10);
            assert!(waiting.spins == 0 || waiting.yields, "{wait:?} would spin barely on too few CPUs");
        }
        assert_eq!(Wait::Auto.resolve(10, 10), Wait::SpinThenPark.resolve(10, 10));
        assert!(!Wait::Spin.resolve(10, 10).yields);
    }
}
