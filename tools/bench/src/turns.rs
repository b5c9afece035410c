//! What a request costs the thread that turns the dispatcher, over real lanes: with what comes from their CPUs.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use phalanx::runtime::Pinning;
use phalanx::{Class, Drive, Phalanx, Request, Shutdown, Ticket, Turn, Wait};

use crate::node::Nothing;
use crate::pin;

/// Requests in a batch, whose mean is one measurement.
const BATCH: u32 = 64;
const BATCHES: usize = 200;

/// Means of batches, in nanoseconds a request: the time of the turns that did something, while so many lanes are kept busy with smalls that
/// do nothing and so many more are queued. Turns that found nothing are left out: they only wait.
///
/// # Panics
/// If the node does not start.
pub(crate) fn turns(lanes: usize, queued: usize) -> Vec<u64> {
    let cpus = pin::cpus();
    // The first CPU is the dispatcher's; the lanes share the others.
    let others = if cpus.len() > 1 { &cpus[1..] } else { &cpus[..] };
    let workers = others.iter().copied().cycle().take(lanes).collect();
    let builder = Phalanx::builder().lanes(lanes).device(Nothing).drive(Drive::Turn).wait(Wait::Spin);
    let builder = builder.pinning(Pinning::Cpus(workers)).queue(Class::Small, 2 * (lanes + queued));
    pin::float(&cpus);
    let node = builder.build().unwrap_or_else(|error| panic!("a node of {lanes} lanes: {error}"));
    pin::pin(cpus[0]);
    let mut flying: VecDeque<Ticket<()>> = VecDeque::with_capacity(lanes + queued);
    let (mut ended, mut spent_ns) = (0, 0);
    // One more, which warms up.
    let mut means = Vec::with_capacity(BATCHES + 1);
    while means.len() <= BATCHES {
        while flying.len() < lanes + queued {
            let Ok(ticket) = node.submit(Request::small(|(): &mut ()| black_box(()))) else { break };
            flying.push_back(ticket);
        }
        let began = Instant::now();
        let turn = node.turn();
        let took = began.elapsed();
        if matches!(turn, Turn::Progress) {
            spent_ns += took.as_nanos() as u64;
        } else if cpus.len() == 1 {
            std::thread::yield_now();
        }
        while flying.front().is_some_and(|ticket| ticket.phase().is_terminal()) {
            flying.pop_front();
            ended += 1;
            if ended == BATCH {
                means.push(spent_ns / u64::from(BATCH));
                (ended, spent_ns) = (0, 0);
            }
        }
    }
    drop(flying);
    node.shutdown(Shutdown::Abort);
    pin::float(&cpus);
    means.split_off(1)
}
