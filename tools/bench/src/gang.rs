//! A gang of two: from its reservation to both members running.

use phalanx::observe::What;
use phalanx::{Drive, Gang, Request, Shutdown, Wait};

use crate::{Bench, Measure, Samples, node};

pub(crate) const GANG: Measure = Measure {
    figures: &[
        ("gang_start", "a gang of two: from the reservation until both members run"),
        ("gang_skew", "between the starts of its members"),
    ],
    slow: 20,
    note: |cpus| (cpus < 3).then(|| format!("{cpus} CPUs for 3 threads: the submitter shares its own with a member")),
    run,
};

fn run(bench: &Bench, n: u32, samples: &mut [Samples]) {
    let node = node::node(bench, 2, Drive::Turn, Wait::Spin, Some(1 << 12));
    let Some(mut events) = node.take_events() else { panic!("the node was built to keep a log") };
    for i in 0..n {
        let Ok(mut ticket) = node.submit(Request::large(|_: &mut (), _: &Gang| Ok(()))) else {
            panic!("an empty node takes a request")
        };
        let mut spans = Vec::with_capacity(2);
        while spans.len() < 2 {
            node.turn();
            while let Some(record) = events.pop() {
                if let What::Span(span) = record.what {
                    spans.push(span);
                }
            }
            if !bench.spins(3) {
                std::thread::yield_now();
            }
        }
        while ticket.try_take().is_none() {
            node.turn();
        }
        if i >= n / 10 {
            let (first, last) = (spans[0].started.min(spans[1].started), spans[0].started.max(spans[1].started));
            samples[0].add((last - spans[0].reserved).0);
            samples[1].add((last - first).0);
        }
    }
    node.shutdown(Shutdown::Finish);
}
