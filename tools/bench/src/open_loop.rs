//! Requests at intended times: what a stall costs those that come meanwhile.

use std::time::{Duration, Instant};

use phalanx::{Drive, Request, Shutdown, Ticket, Turn, Wait};

use crate::{Bench, Samples, node, pin};

/// Submits smalls at this rate for a while, whether or not the node keeps up, and counts each from the moment at which it was to be
/// submitted to its resolution. The submitter drives the dispatcher.
///
/// # Panics
/// If the node does not start.
#[must_use]
pub fn open_loop(per_second: f64, span: Duration) -> Samples {
    let bench = Bench { cpus: pin::cpus() };
    let spins = bench.spins(2);
    let node = node::node(&bench, 1, Drive::Turn, Wait::Spin, None);
    let mut samples = Samples::new();
    let gap = Duration::from_secs_f64(1.0 / per_second);
    // Those in flight, oldest first; one lane serves them in the order of their arrival.
    let mut flying: std::collections::VecDeque<(Instant, Ticket<()>)> = std::collections::VecDeque::with_capacity(1024);
    let began = Instant::now();
    let mut intended = began;
    loop {
        let now = Instant::now();
        let over = now.duration_since(began) > span;
        if over && flying.is_empty() {
            break;
        }
        // A full queue refuses: the request stays due, and its wait counts.
        if !over
            && now >= intended
            && let Ok(ticket) = node.submit(Request::small(|_: &mut ()| ()))
        {
            flying.push_back((intended, ticket));
            intended += gap;
        }
        if !matches!(node.turn(), Turn::Progress) && !spins {
            std::thread::yield_now();
        }
        while let Some((due, ticket)) = flying.front_mut() {
            if ticket.try_take().is_none() {
                break;
            }
            samples.add(due.elapsed().as_nanos() as u64);
            flying.pop_front();
        }
    }
    node.shutdown(Shutdown::Finish);
    pin::float(&bench.cpus);
    samples
}
