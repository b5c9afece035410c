//! How costs grow: with lanes, with what is queued, with submitters; and what follows for how short requests may be.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use phalanx::scheduler::PolicySpec;
use phalanx::{Class, Drive, Phalanx, Request, Shutdown, Turn, Wait};
use serde::Serialize;

use crate::node::Nothing;
use crate::pin;
use crate::single::Events;
use crate::turns::turns;

/// The costs, each beside what it grows with.
#[derive(Clone, Debug, Serialize)]
pub struct Scaling {
    /// The pure scheduler, one event, by lanes, with as many smalls queued as there are lanes.
    pub lanes: Vec<Point>,
    /// The same at eight lanes, by smalls queued; and where requests bring predictions, which a drain's backfill looks through.
    pub queued: Vec<Point>,
    /// What a request costs the thread that turns the dispatcher, over real lanes that do nothing, by lanes: deciding, reserving, handing over,
    /// and seeing the end.
    pub turns_by_lanes: Vec<Point>,
    /// The same on one lane, by smalls queued.
    pub turns_by_queued: Vec<Point>,
    /// One request submitted, by threads that submit at the same time, while nobody takes them in: what each of them waits for it.
    pub submitters: Vec<Point>,
    /// What one dispatcher can do: derived from `turns_by_lanes` at eight lanes, not measured.
    pub saturation: Vec<Saturation>,
    /// Derived likewise: so long must requests be on average for one dispatcher to keep eight lanes busy.
    pub saturates_below_us: f64,
}

/// A measured cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Lanes, requests queued, or threads.
    pub of: usize,
    /// The median of the batches' means, in nanoseconds.
    pub ns_p50: u64,
    /// The 99th percentile of the same.
    pub ns_p99: u64,
}

/// Eight lanes kept busy by smalls of one length.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Saturation {
    /// How long each runs.
    pub request_us: u64,
    /// How many a second it takes to keep eight lanes busy.
    pub requests_per_s: f64,
    /// The share of its time that the dispatcher needs for them; above 1 it cannot.
    pub dispatcher_busy: f64,
}

const LANES: usize = 8;
const QUEUED: [usize; 5] = [0, 10, 100, 1_000, 4_000];
const BATCH: u32 = 64;
const BATCHES: usize = 400;
/// Requests of each thread in a batch of [`submit`].
const SUBMITS: usize = 200;

/// Measures all.
#[must_use]
pub fn scaling() -> Scaling {
    let lanes = [1, 2, 4, 8].map(|lanes| point(lanes, events(lanes, lanes)));
    let queued = QUEUED.map(|queued| point(queued, events(LANES, queued)));
    let turns_by_lanes = [1, 2, 4, LANES].map(|lanes| point(lanes, turns(lanes, 0)));
    let turns_by_queued = QUEUED.map(|queued| point(queued, turns(1, queued)));
    let submitters = [1, 2, 4].map(|threads| point(threads, submit(threads)));
    let turn_ns = turns_by_lanes[turns_by_lanes.len() - 1].ns_p50 as f64;
    let saturation = [1, 10, 100, 1_000].map(|request_us| {
        let requests_per_s = LANES as f64 * 1e6 / request_us as f64;
        Saturation { request_us, requests_per_s, dispatcher_busy: requests_per_s * turn_ns * 1e-9 }
    });
    Scaling {
        lanes: lanes.into(),
        queued: queued.into(),
        turns_by_lanes: turns_by_lanes.into(),
        turns_by_queued: turns_by_queued.into(),
        submitters: submitters.into(),
        saturation: saturation.into(),
        saturates_below_us: LANES as f64 * turn_ns / 1e3,
    }
}

fn point(of: usize, mut ns: Vec<u64>) -> Point {
    ns.sort_unstable();
    let at = |share: f64| ns[((ns.len() - 1) as f64 * share) as usize];
    Point { of, ns_p50: at(0.5), ns_p99: at(0.99) }
}

/// Means of batches of events.
fn events(lanes: usize, queued: usize) -> Vec<u64> {
    let mut events = Events::of(lanes, PolicySpec::default().build(lanes), queued).with_models(7, true);
    // Until as many are queued, and the averages have settled.
    for _ in 0..10 * queued + 10_000 {
        events.next_event();
    }
    let batch = || {
        let began = Instant::now();
        for _ in 0..BATCH {
            events.next_event();
        }
        began.elapsed().as_nanos() as u64 / u64::from(BATCH)
    };
    std::iter::repeat_with(batch).take(BATCHES).collect()
}

/// Means of batches of submissions: each thread of each batch is one.
fn submit(threads: usize) -> Vec<u64> {
    let cpus = pin::cpus();
    pin::float(&cpus);
    let capacity = threads * SUBMITS;
    let node = Phalanx::builder().lanes(1).device(Nothing).drive(Drive::Turn).wait(Wait::Park);
    let node = node.queue(Class::Small, capacity).build().unwrap_or_else(|error| panic!("a node of one lane: {error}"));
    let mut all = Vec::new();
    for _ in 0..60 {
        let start = Barrier::new(threads);
        let batch = || {
            start.wait();
            let mut tickets = Vec::with_capacity(SUBMITS);
            let began = Instant::now();
            for _ in 0..SUBMITS {
                tickets.push(node.submit(Request::small(|_: &mut ()| black_box(()))));
            }
            let ns = began.elapsed().as_nanos() as u64 / SUBMITS as u64;
            (ns, tickets)
        };
        let batch = &batch;
        let batches: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(batch)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        for (ns, tickets) in batches {
            all.push(ns);
            for ticket in tickets {
                let Ok(ticket) = ticket else { panic!("the queue has room for all") };
                // It is run, so that the queue is empty for the next batch.
                while !ticket.phase().is_terminal() {
                    node.turn();
                    std::thread::yield_now();
                }
            }
        }
        while matches!(node.turn(), Turn::Progress) {}
    }
    node.shutdown(Shutdown::Finish);
    all
}
