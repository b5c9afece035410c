//! The node's time: monotonic nanoseconds since it was built.
//!
//! On x86-64 it is read from the processor's time-stamp counter, which takes a third of what the operating system's call takes, where
//! Linux itself keeps its time by that counter: it does so only if the counter runs at one rate in all sleep states and shows the same
//! on all CPUs. The rate is measured once a process against the operating system's monotonic clock, over some milliseconds, and is good to
//! about ten millionths. Elsewhere it is that clock.

use crate::types::Nanos;

/// Reads the monotonic clock, counted from the node's start. It never steps back, whatever is done to the machine's wall clock.
#[cfg(not(any(loom, shuttle)))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The operating system's.
    System { origin: std::time::Instant },
    /// The processor's.
    #[cfg(target_arch = "x86_64")]
    Counter { origin: u64, rate: counter::Rate },
}

#[cfg(not(any(loom, shuttle)))]
impl Clock {
    pub(crate) fn start() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(rate) = counter::rate() {
            return Self::Counter { origin: counter::read(), rate };
        }
        Self::System { origin: std::time::Instant::now() }
    }

    /// Now.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        match *self {
            Self::System { origin } => Nanos::from(origin.elapsed()),
            #[cfg(target_arch = "x86_64")]
            // The counters of two CPUs may be some ticks apart, so that one may show less than the origin just after it.
            Self::Counter { origin, rate } => rate.nanos(counter::read().saturating_sub(origin)),
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
mod counter {
    use crate::sync::thread;
    use crate::types::Nanos;
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    /// Nanoseconds a tick, times 2^32.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Rate(u64);

    impl Rate {
        #[inline]
        pub(super) fn nanos(self, ticks: u64) -> Nanos {
            // 64 bits of nanoseconds are more than 500 years.
            Nanos(((u128::from(ticks) * u128::from(self.0)) >> 32) as u64)
        }
    }

    /// The counter, read after everything before it: a time must not be older than what was seen before it was read.
    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 has SSE2, whose instruction this is; it only waits for what is before it.
        unsafe { _mm_lfence() };
        // SAFETY: every x86-64 has it; an operating system that forbids it to programs does not keep its own time by it (`rate`).
        unsafe { _rdtsc() }
    }

    /// The counter's rate, if it may be relied on. Measured once a process.
    pub(super) fn rate() -> Option<Rate> {
        static RATE: OnceLock<Option<Rate>> = OnceLock::new();
        *RATE.get_or_init(|| {
            const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            let source = std::fs::read_to_string(SOURCE).ok()?;
            (source.trim() == "tsc").then(measure).flatten()
        })
    }

    /// How long the rate is measured: the two readings at its ends, each some 20 ns uncertain, are then good to some millionths.
    const SPAN: Duration = Duration::from_millis(5);
    /// How often both clocks are read at each end; the closest pair counts.
    const TRIES: usize = 32;

    fn measure() -> Option<Rate> {
        let (ticks, began) = both();
        while began.elapsed() < SPAN {
            // A token left over from another sleep ends it early.
            thread::park_timeout(SPAN);
        }
        let (last, ended) = both();
        let (ticks, ns) = (last.checked_sub(ticks)?, ended.duration_since(began).as_nanos());
        // From 0.1 to 100 GHz: what is outside is no counter to rely on.
        let rate = (ns << 32).checked_div(u128::from(ticks))?;
        ((1 << 32) / 100..=(1_u128 << 32) * 10).contains(&rate).then_some(Rate(rate as u64))
    }

    /// The counter and the operating system's clock at the same moment, as nearly as can be.
    fn both() -> (u64, Instant) {
        let pair = || {
            let before = read();
            let now = Instant::now();
            let after = read();
            (after.wrapping_sub(before), (before / 2 + after / 2, now))
        };
        (0..TRIES).map(|_| pair()).min_by_key(|&(width, _)| width).map_or_else(|| pair().1, |(_, both)| both)
    }

    #[cfg(test)]
    mod tests {
        use super::super::Clock;
        use crate::sync::thread;
        use crate::types::Nanos;
        use std::time::{Duration, Instant};

        #[test]
        fn it_agrees_with_the_operating_systems_clock_and_never_steps_back() {
            let (clock, began) = (Clock::start(), Instant::now());
            let mut last = Nanos::ZERO;
            while began.elapsed() < Duration::from_millis(200) {
                let (before, now, after) = (began.elapsed(), clock.now(), began.elapsed());
                assert!(now >= last);
                last = now;
                // A ten-thousandth, and what lies between the two starts.
                let slack = Nanos(Nanos::from(after).0 / 10_000 + 100_000);
                assert!(now + slack >= Nanos::from(before) && now <= Nanos::from(after) + slack, "{before:?} {now:?} {after:?}");
            }
        }

        #[test]
        fn threads_see_one_time() {
            let clock = Clock::start();
            let (send, receive) = std::sync::mpsc::channel();
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let send = send.clone();
                    thread::spawn(move || (0..10_000).for_each(|_| send.send(clock.now()).unwrap()))
                })
                .collect();
            drop(send);
            // What was sent before it was received is not later than its receipt.
            for sent in receive {
                assert!(sent <= clock.now());
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
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
