//! The node's time: monotonic nanoseconds since it was built.

use crate::types::Nanos;

/// Reads the monotonic clock, counted from the node's start. It never steps back, whatever is done to the machine's wall clock.
#[cfg(not(any(loom, shuttle)))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
}

#[cfg(not(any(loom, shuttle)))]
impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    /// Now.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        Nanos::from(self.origin.elapsed())
    }
}

/// The time of a model, which must be the same whenever its schedule is. Under loom it stands still until the model advances it; under
/// shuttle each look is a microsecond later than the last one, so that deadlines pass at any point of a schedule.
#[cfg(any(loom, shuttle))]
#[derive(Debug)]
pub(crate) struct Clock {
    now: crate::sync::atomic::AtomicU64,
}

#[cfg(any(loom, shuttle))]
impl Clock {
    pub(crate) fn start() -> Self {
        Self { now: crate::sync::atomic::AtomicU64::new(0) }
    }

    /// Now.
    pub(crate) fn now(&self) -> Nanos {
        if cfg!(shuttle) {
            self.advance(Nanos::from_micros(1));
        }
        // ORDERING: Relaxed: what a clock shows orders nothing.
        Nanos(self.now.load(crate::sync::atomic::Ordering::Relaxed))
    }

    /// Lets time pass.
    pub(crate) fn advance(&self, by: Nanos) {
        // ORDERING: Relaxed, as above.
        self.now.fetch_add(by.0, crate::sync::atomic::Ordering::Relaxed);
    }
}
