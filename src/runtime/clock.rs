//! The node's time: monotonic nanoseconds since it was built.

use crate::types::Nanos;
use std::time::Instant;

/// Reads the monotonic clock, counted from the node's start. It never steps back, whatever is done to the machine's wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Now.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        Nanos::from(self.origin.elapsed())
    }
}
