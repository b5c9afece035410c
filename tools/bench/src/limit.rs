//! The machine's own limit: what two cache-line transfers cost, and the clock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use crossbeam_utils::CachePadded;

use crate::{Bench, Measure, Samples, pin};

pub(crate) const CLOCK: Measure = Measure {
    figures: &[("clock", "the harness itself: reading the clock twice, which is in every figure below")],
    slow: 1,
    note: |_| None,
    run: |_, n, samples| {
        for _ in 0..n {
            let began = Instant::now();
            samples[0].add(began.elapsed().as_nanos() as u64);
        }
    },
};

pub(crate) const PINGPONG: Measure = Measure {
    figures: &[("pingpong_rtt", "the limit: a cache line there and back between two pinned threads")],
    slow: 1,
    note: |cpus| (cpus < 2).then(|| "one CPU: the threads share it".to_owned()),
    run: pingpong,
};

/// Spins where the other thread has a CPU of its own, and else gives it ours.
pub(crate) fn relax(spins: bool) {
    if spins { std::hint::spin_loop() } else { thread::yield_now() }
}

const QUIT: u32 = u32::MAX;

fn pingpong(bench: &Bench, n: u32, samples: &mut [Samples]) {
    let spins = bench.spins(2);
    let (ping, pong) = (CachePadded::new(AtomicU32::new(0)), CachePadded::new(AtomicU32::new(0)));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin::pin(bench.cpu(1));
            let mut seen = 0;
            loop {
                let now = ping.load(Ordering::Acquire);
                if now == QUIT {
                    return;
                }
                if now == seen {
                    relax(spins);
                } else {
                    seen = now;
                    pong.store(now, Ordering::Release);
                }
            }
        });
        for i in 1..=n {
            let began = Instant::now();
            ping.store(i, Ordering::Release);
            while pong.load(Ordering::Acquire) != i {
                relax(spins);
            }
            let ns = began.elapsed().as_nanos() as u64;
            if i > n / 10 {
                samples[0].add(ns);
            }
        }
        ping.store(QUIT, Ordering::Release);
    });
}
