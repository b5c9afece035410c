//! Rivals with a runtime of their own.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::{Bench, Samples, pin};

/// Permits: the GPUs of the node.
const PERMITS: u32 = 8;

pub(super) fn semaphore(bench: &Bench, n: u32, samples: &mut [Samples]) {
    tokio(bench, n, samples, 1);
}

pub(super) fn acquire_many(bench: &Bench, n: u32, samples: &mut [Samples]) {
    tokio(bench, n, samples, PERMITS);
}

fn tokio(bench: &Bench, n: u32, samples: &mut [Samples], permits: u32) {
    let cpu = bench.cpu(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).on_thread_start(move || pin::pin(cpu)).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("tokio does not start: {error}"));
    let semaphore = Arc::new(Semaphore::new(PERMITS as usize));
    runtime.block_on(async {
        for i in 0..n {
            let began = Instant::now();
            let semaphore = Arc::clone(&semaphore);
            let task = tokio::spawn(async move {
                let permit = semaphore.acquire_many(permits).await;
                let value = black_box(1);
                drop(permit);
                value
            });
            let value = task.await;
            let ns = began.elapsed().as_nanos() as u64;
            assert!(black_box(value).is_ok(), "a task that does nothing ends");
            if i >= n / 10 {
                samples[0].add(ns);
            }
        }
    });
}

pub(super) fn rayon_broadcast(bench: &Bench, n: u32, samples: &mut [Samples]) {
    let cpus = [bench.cpu(1), bench.cpu(2)];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).start_handler(move |thread| pin::pin(cpus[thread])).build();
    let pool = pool.unwrap_or_else(|error| panic!("rayon does not start: {error}"));
    let ran = AtomicUsize::new(0);
    for i in 0..n {
        let began = Instant::now();
        pool.broadcast(|_| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        let ns = began.elapsed().as_nanos() as u64;
        if i >= n / 10 {
            samples[0].add(ns);
        }
    }
    assert_eq!(ran.into_inner(), 2 * n as usize);
}
