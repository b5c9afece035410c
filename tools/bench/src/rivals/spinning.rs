//! Rivals that never sleep.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use crossbeam_channel::{TryRecvError, bounded};
use crossbeam_utils::CachePadded;

use super::{Body, body};
use crate::limit::relax;
use crate::{Bench, Samples, pin};

const EMPTY: u32 = 0;
const FULL: u32 = 1;
const DONE: u32 = 2;

pub(super) fn greedy_cas(bench: &Bench, n: u32, samples: &mut [Samples]) {
    let spins = bench.spins(2);
    let free = CachePadded::new(AtomicU32::new(1));
    let state = CachePadded::new(AtomicU32::new(EMPTY));
    // The lock is never contended: `state` says whose turn it is. It stands in for an unsafe cell.
    let slot: CachePadded<Mutex<Option<Body>>> = CachePadded::new(Mutex::new(None));
    let quit = AtomicBool::new(false);
    let take = || slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin::pin(bench.cpu(1));
            while !quit.load(Ordering::Relaxed) {
                if state.load(Ordering::Acquire) != FULL {
                    relax(spins);
                    continue;
                }
                if let Some(run) = take() {
                    black_box(run());
                }
                free.fetch_add(1, Ordering::Relaxed);
                state.store(DONE, Ordering::Release);
            }
        });
        for i in 0..n {
            let began = Instant::now();
            while free.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_err() {
                relax(spins);
            }
            *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(body());
            state.store(FULL, Ordering::Release);
            while state.load(Ordering::Acquire) != DONE {
                relax(spins);
            }
            state.store(EMPTY, Ordering::Relaxed);
            let ns = began.elapsed().as_nanos() as u64;
            if i >= n / 10 {
                samples[0].add(ns);
            }
        }
        quit.store(true, Ordering::Relaxed);
    });
}

pub(super) fn crossbeam_spin(bench: &Bench, n: u32, samples: &mut [Samples]) {
    let spins = bench.spins(2);
    let (send, receive) = bounded::<Body>(64);
    let (done, resolved) = bounded::<u32>(64);
    thread::scope(|scope| {
        scope.spawn(move || {
            pin::pin(bench.cpu(1));
            loop {
                match receive.try_recv() {
                    Ok(run) => {
                        if done.send(run()).is_err() {
                            return;
                        }
                    }
                    Err(TryRecvError::Empty) => relax(spins),
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        });
        for i in 0..n {
            let began = Instant::now();
            let sent = send.send(body());
            assert!(sent.is_ok(), "the runner lives as long as the sender");
            let value = loop {
                match resolved.try_recv() {
                    Ok(value) => break value,
                    Err(_) => relax(spins),
                }
            };
            let ns = began.elapsed().as_nanos() as u64;
            black_box(value);
            if i >= n / 10 {
                samples[0].add(ns);
            }
        }
        drop(send);
    });
}
