//! The generator: submits requests at the times at which they are to arrive.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use phalanx::observe::{Outcome, Terminal};
use phalanx::{Class, Emulated, EmulatedLane, Gang, ModelKey, Nanos, Phalanx, Request, RequestId, Step};
use phalanx_sim::record::Stage;
use phalanx_sim::{Names, Source, TraceRequest};

use super::Stop;
use crate::fail::Fail;

/// The longest sleep: how late a request to stop is seen.
const NAP: Duration = Duration::from_millis(20);

/// What the generator measured of itself.
#[derive(Debug)]
pub(crate) struct Generated {
    /// From the moment at which a request was to be submitted to its submission. An open loop does not wait for the node, so this
    /// is the generator's own fault, or the machine's: with too few cores its thread has to wait for one.
    pub(crate) lateness: Stage,
}

/// Submits everything that the source gives, each at its time, until the source ends or the run is to stop. Refusals, of which the
/// node keeps no record, are sent to the collector.
pub(crate) fn generate(
    node: &Phalanx<Emulated>,
    mut source: Box<dyn Source + Send>,
    refusals: &Sender<Outcome>,
    stop: &Stop,
) -> Result<Generated, Fail> {
    precise_sleep();
    let mut generated = Generated { lateness: Stage::new() };
    let mut refused = 0;
    let start = node.now();
    while let Some(request) = source.next_request().inspect_err(|_| stop.ask())? {
        let due = start + request.arrival;
        let model = model_key(source.models(), request.model);
        if !sleep_until(node, due, stop) {
            break;
        }
        let now = node.now();
        generated.lateness.add(now - due);
        if !submit(node, &request, model) {
            let slo_met = request.target.map(|_| false);
            // Without a number of the node's own it gets one from the other end, where no other comes to.
            let id = RequestId(u64::MAX - refused);
            refused += 1;
            let outcome = Outcome {
                outcome: Terminal::Rejected,
                id,
                class: request.class,
                submitted: now,
                started: None,
                ended: now,
                slo_met,
            };
            if refusals.send(outcome).is_err() {
                break;
            }
        }
    }
    Ok(generated)
}

/// Sleeps until the moment has come. Whether it has; else the run is to stop.
fn sleep_until(node: &Phalanx<Emulated>, due: Nanos, stop: &Stop) -> bool {
    loop {
        if stop.asked() {
            return false;
        }
        let left = due - node.now();
        if left == Nanos::ZERO {
            return true;
        }
        thread::sleep(Duration::from(left).min(NAP));
    }
}

/// Whether it was taken.
fn submit(node: &Phalanx<Emulated>, request: &TraceRequest, model: ModelKey) -> bool {
    let work = Duration::from(request.service);
    // A step that takes all of it is none.
    let step = request.step.map(Duration::from).filter(|&step| !step.is_zero() && step < work);
    // Dropping a ticket lets its request run: how it ends is told by the event log.
    match (request.class, step) {
        (Class::Small, None) => {
            // A launch that the device refuses is reported by the device once more, at the request's end.
            let body = move |lane: &mut EmulatedLane| drop(lane.launch(work));
            node.submit(told(Request::small(body), request, model)).is_ok()
        }
        (Class::Small, Some(step)) => {
            let body = move |lane: &mut EmulatedLane, left: &mut Duration| {
                if take_step(lane, left, step) { Step::Done(()) } else { Step::Continue }
            };
            let body = Request::small_steps(move |_: &mut EmulatedLane| work, body).step_length(step);
            node.submit(told(body, request, model)).is_ok()
        }
        (Class::Large, None) => {
            let body = move |lane: &mut EmulatedLane, gang: &Gang<'_>| {
                drop(lane.launch(work));
                lane.synchronize();
                // A result of all GPUs is there when the last has given its part: none leaves before.
                gang.barrier()
            };
            node.submit(told(Request::large(body), request, model)).is_ok()
        }
        (Class::Large, Some(step)) => {
            let body = move |lane: &mut EmulatedLane, _: &Gang<'_>, left: &mut Duration| {
                Ok(if take_step(lane, left, step) { Step::Done(()) } else { Step::Continue })
            };
            let body = Request::large_steps(move |_: &mut EmulatedLane, _: &Gang<'_>| work, body).step_length(step);
            node.submit(told(body, request, model)).is_ok()
        }
    }
}

/// One step of what is left. Whether it was the last.
fn take_step(lane: &mut EmulatedLane, left: &mut Duration, step: Duration) -> bool {
    let now = step.min(*left);
    drop(lane.launch(now));
    lane.synchronize();
    *left -= now;
    left.is_zero()
}

/// What the scheduler is told of it.
fn told<T>(mut told: Request<EmulatedLane, T>, request: &TraceRequest, model: ModelKey) -> Request<EmulatedLane, T> {
    if model.is_some() {
        told = told.model_key(model);
    }
    if let Some(deadline) = request.deadline {
        told = told.deadline(deadline.into());
    }
    if let Some(target) = request.target {
        told = told.target(target.into());
    }
    if let Some(expected) = request.expected {
        told = told.expected(expected.into());
    }
    told
}

fn model_key(models: &Names, model: u32) -> ModelKey {
    models.get(model).map_or(ModelKey::NONE, ModelKey::of)
}

/// On Linux a sleep ends up to 50 µs late unless one asks for better.
fn precise_sleep() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
