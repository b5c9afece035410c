//! Rivals that sleep.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crossbeam_channel::bounded;

use super::{Body, body};
use crate::{Bench, Samples, pin};

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Body>,
    done: Option<u32>,
    quit: bool,
}

pub(super) fn mutex_condvar(bench: &Bench, n: u32, samples: &mut [Samples]) {
    let queue: Mutex<Queue> = Mutex::default();
    let (arrived, finished) = (Condvar::new(), Condvar::new());
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let wait = |on: &Condvar, guard: MutexGuard<'_, Queue>, until: fn(&Queue) -> bool| {
        drop(on.wait_while(guard, |queue| !until(queue)).unwrap_or_else(PoisonError::into_inner));
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            pin::pin(bench.cpu(1));
            loop {
                wait(&arrived, lock(), |queue| queue.quit || !queue.waiting.is_empty());
                let next = lock().waiting.pop_front();
                let Some(run) = next else { return };
                let value = run();
                lock().done = Some(value);
                finished.notify_one();
            }
        });
        for i in 0..n {
            let began = Instant::now();
            lock().waiting.push_back(body());
            arrived.notify_one();
            wait(&finished, lock(), |queue| queue.done.is_some());
            black_box(lock().done.take());
            let ns = began.elapsed().as_nanos() as u64;
            if i >= n / 10 {
                samples[0].add(ns);
            }
        }
        lock().quit = true;
        arrived.notify_one();
    });
}

pub(super) fn crossbeam_block(bench: &Bench, n: u32, samples: &mut [Samples]) {
    let (send, receive) = bounded::<Body>(64);
    let (done, resolved) = bounded::<u32>(64);
    thread::scope(|scope| {
        scope.spawn(move || {
            pin::pin(bench.cpu(1));
            for run in receive {
                if done.send(run()).is_err() {
                    return;
                }
            }
        });
        for i in 0..n {
            let began = Instant::now();
            let sent = send.send(body());
            assert!(sent.is_ok(), "the runner lives as long as the sender");
            let value = resolved.recv();
            let ns = began.elapsed().as_nanos() as u64;
            assert!(black_box(value).is_ok(), "the runner answers each");
            if i >= n / 10 {
                samples[0].add(ns);
            }
        }
        drop(send);
    });
}
