//! How fast the simulator is: `cargo run --release -p phalanx-sim --example speed [POLICY [WORKLOAD [REQUESTS]]]`.

use phalanx_sim::WorkloadSpec;
use phalanx_sim::engine::{SimOptions, simulate};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let policy = args.next().unwrap_or_else(|| "balance".to_owned());
    let workload: WorkloadSpec = args.next().unwrap_or_else(|| "mix:load=0.8,share=0.3".to_owned()).parse()?;
    let requests: u64 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let options = SimOptions { requests: Some(requests), ..SimOptions::new(workload.lanes(), policy.parse()?) };

    let start = Instant::now();
    let mut source = workload.source(1);
    for _ in 0..requests {
        std::hint::black_box(phalanx_sim::Source::next_request(&mut source)?);
    }
    let generation = start.elapsed();

    let start = Instant::now();
    let result = simulate(&mut workload.source(1), &options)?;
    let all = start.elapsed();
    println!(
        "{requests} requests, {} events: {all:.2?}, of that {generation:.2?} to generate them; {:.0} ns an event beside that; W_8 {:.2}, {:?}",
        result.events,
        all.saturating_sub(generation).as_nanos() as f64 / result.events as f64,
        result.weighted_number(8.0),
        result.stability,
    );
    Ok(())
}
