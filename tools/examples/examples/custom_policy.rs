//! A policy of one's own, tried in the simulator before it drives a node.
//!
//! `cargo run --release -p phalanx-examples --example custom_policy`

use std::time::Duration;

use phalanx::scheduler::{Action, Hold, Policy, PolicySpec, View};
use phalanx::{Class, EmulatedLane, Phalanx, Request, Shutdown};
use phalanx_sim::WorkloadSpec;
use phalanx_sim::engine::{SimOptions, simulate, simulate_with};

/// Smalls until so many larges wait; then all of those in a row.
#[derive(Debug)]
struct Convoy {
    larges: usize,
    on_the_way: bool,
}

impl Policy for Convoy {
    fn name(&self) -> &str {
        "convoy"
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        let larges = view.queued(Class::Large);
        // The last large has nobody to wait for where no small one is left.
        self.on_the_way = larges > 0 && (self.on_the_way || larges >= self.larges || view.queued(Class::Small) == 0);
        let next = if self.on_the_way { Class::Large } else { Class::Small };
        match view.oldest(next) {
            Some(large) if self.on_the_way && view.all_free() => Action::StartLarge(large.job),
            Some(small) if !self.on_the_way && !view.free().is_empty() => Action::StartSmall { job: small.job, backfill: false },
            _ => Action::Hold(Hold { drain: self.on_the_way, wake_at: None }),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workload: WorkloadSpec = "mix:load=0.8".parse()?;
    let options = SimOptions { requests: Some(100_000), ..SimOptions::new(8, PolicySpec::default()) };
    let own = simulate_with(&mut workload.source(1), &options, Box::new(Convoy { larges: 4, on_the_way: false }), &mut ())?;
    let balance = simulate(&mut workload.source(1), &options)?;
    for (name, result) in [("convoy", &own), ("balance", &balance)] {
        let mean = |class| result.class(class).response_ms.mean;
        println!("{name:<8} mean response: small {:8.1} ms, large {:8.1} ms", mean(Class::Small), mean(Class::Large));
    }
    // What was tried there drives a node here, unchanged.
    let node = Phalanx::builder().custom_policy(Box::new(Convoy { larges: 4, on_the_way: false })).build()?;
    let tickets: Vec<_> = (0..40)
        .map(|_| node.submit(Request::small(|lane: &mut EmulatedLane| lane.launch(Duration::from_millis(2)))))
        .collect::<Result<_, _>>()?;
    for ticket in tickets {
        ticket.wait()??;
    }
    println!("40 requests ran under {}", node.policy());
    node.shutdown(Shutdown::Finish);
    Ok(())
}
