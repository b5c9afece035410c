//! Phalanx itself: submit, run on a lane, resolved.

use std::hint::black_box;
use std::time::Instant;

use phalanx::observe::What;
use phalanx::runtime::Pinning;
use phalanx::scheduler::{Decision, Event};
use phalanx::{Class, Device, DeviceError, Drive, LaneId, Nanos, Phalanx, Request, RequestId, Shutdown, Turn, Wait};

use crate::limit::relax;
use crate::{Bench, Measure, Samples, pin};

/// A device that does nothing: what is left is scheduling.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Device for Nothing {
    type Lane = ();

    fn describe(&self) -> String {
        "a device that does nothing".to_owned()
    }

    fn open(&self, _: LaneId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn begin(&self, (): &mut (), _: RequestId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn finish(&self, (): &mut (), _: RequestId) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A node of so many lanes, from the second CPU on, so that the submitter has the first; policy, deadlines and statistics as always.
pub(crate) fn node(bench: &Bench, lanes: usize, drive: Drive, wait: Wait, events: Option<usize>) -> Phalanx<Nothing> {
    // The workers first, then the dispatcher, then, where there are enough, none twice.
    let cpus = (0..=lanes).map(|n| bench.cpu(n + 1)).collect();
    let builder = Phalanx::builder().lanes(lanes).device(Nothing).drive(drive).wait(wait).pinning(Pinning::Cpus(cpus));
    let builder = builder.queue(Class::Small, 1024).queue(Class::Large, 1024);
    let builder = match events {
        Some(records) => builder.events(records),
        None => builder,
    };
    pin::float(&bench.cpus);
    let node = builder.build().unwrap_or_else(|error| panic!("a node of {lanes} lanes: {error}"));
    pin::pin(bench.cpu(0));
    node
}

fn request() -> Request<(), u32> {
    Request::small(|_: &mut ()| black_box(1))
        .expected(std::time::Duration::from_micros(1))
        .deadline(std::time::Duration::from_secs(60))
}

/// Submits one small request and waits for it as its submitter would.
fn round_trip(node: &Phalanx<Nothing>, turns: bool, spins: bool) -> u64 {
    let began = Instant::now();
    let Ok(mut ticket) = node.submit(request()) else { panic!("an empty node takes a request") };
    loop {
        if turns && !matches!(node.turn(), Turn::Progress) && !spins {
            std::thread::yield_now();
        }
        match ticket.try_take() {
            Some(Ok(value)) => {
                black_box(value);
                return began.elapsed().as_nanos() as u64;
            }
            Some(Err(error)) => panic!("a request that does nothing failed: {error}"),
            None if turns => {}
            None => relax(spins),
        }
    }
}

pub(crate) const TURN: Measure = Measure {
    figures: &[(
        "turn_rtt",
        "Phalanx: submit, decide, reserve, hand over, run, resolved; the submitter drives the dispatcher by turn()",
    )],
    slow: 1,
    note: |cpus| (cpus < 2).then(|| "one CPU: submitter and worker share it".to_owned()),
    run: |bench, n, samples| {
        let node = node(bench, 1, Drive::Turn, Wait::Spin, None);
        for i in 0..n {
            let ns = round_trip(&node, true, bench.spins(2));
            if i >= n / 10 {
                samples[0].add(ns);
            }
        }
        node.shutdown(Shutdown::Finish);
    },
};

pub(crate) const DISPATCHER: Measure = Measure {
    figures: &[("dispatcher_rtt", "the same by the node's own dispatcher thread: one hop more")],
    slow: 10,
    note: |cpus| {
        (cpus < 3).then(|| format!("{cpus} CPUs for 3 threads: dispatcher and worker share one and yield it to each other"))
    },
    run: |bench, n, samples| {
        let node = node(bench, 1, Drive::Thread, Wait::Spin, None);
        for i in 0..n {
            let ns = round_trip(&node, false, bench.spins(3));
            if i >= n / 10 {
                samples[0].add(ns);
            }
        }
        node.shutdown(Shutdown::Finish);
    },
};

pub(crate) const STAGES: Measure = Measure {
    figures: &[
        ("stage.submit_to_dequeued", "of turn_rtt: from submit's clock to the dispatcher's"),
        (
            "stage.dequeued_to_reserved",
            "0 for one request: a turn reads its clock once, so that deciding counts to the next stage",
        ),
        ("stage.reserved_to_started", "deciding, reserving, handing over to the worker's CPU"),
        ("stage.started_to_finished", "the body"),
        ("stage.finished_to_resolved", "back to the submitter's CPU: it sees the ticket"),
        ("stage.finished_to_noticed", "the dispatcher sees the release"),
    ],
    slow: 4,
    note: |_| Some("measured apart from turn_rtt, since the event log and two clocks more take their time".to_owned()),
    run: stages,
};

fn stages(bench: &Bench, n: u32, samples: &mut [Samples]) {
    let spins = bench.spins(2);
    let node = node(bench, 1, Drive::Turn, Wait::Spin, Some(1 << 12));
    let Some(mut events) = node.take_events() else { panic!("the node was built to keep a log") };
    for i in 0..n {
        let Ok(mut ticket) = node.submit(request()) else { panic!("an empty node takes a request") };
        let resolved = loop {
            if !matches!(node.turn(), Turn::Progress) && !spins {
                std::thread::yield_now();
            }
            if ticket.try_take().is_some() {
                break node.now();
            }
        };
        // So that its end is in the log.
        let (mut arrival, mut dequeued, mut noticed, mut span) = (Nanos::ZERO, Nanos::ZERO, None, None);
        while noticed.is_none() {
            node.turn();
            while let Some(record) = events.pop() {
                match record.what {
                    What::Event(Event::Arrive(job)) => (arrival, dequeued) = (job.arrival, record.now),
                    What::Event(Event::Finish { .. }) => noticed = Some(record.now),
                    What::Span(of) => span = Some(of),
                    What::Decision(Decision::Admit(_))
                    | What::Event(_)
                    | What::Decision(_)
                    | What::Outcome(_)
                    | What::Lane(_) => {}
                    What::Lost { lost } => panic!("{lost} records were lost though each was read at once"),
                }
            }
        }
        let (Some(span), Some(noticed)) = (span, noticed) else { panic!("a request that ran leaves a span") };
        if i >= n / 10 {
            let stages = [
                (arrival, dequeued),
                (dequeued, span.reserved),
                (span.reserved, span.started),
                (span.started, span.ended),
                (span.ended, resolved),
                (span.ended, noticed),
            ];
            for (samples, (from, to)) in samples.iter_mut().zip(stages) {
                samples.add((to - from).0);
            }
        }
    }
    node.shutdown(Shutdown::Finish);
}
