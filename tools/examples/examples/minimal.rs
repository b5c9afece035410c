//! The least: a node of eight emulated GPUs, a small request, a large one.
//!
//! `cargo run --release -p phalanx-examples --example minimal`

use std::time::Duration;

use phalanx::{EmulatedLane, Gang, Phalanx, Request, Shutdown};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Phalanx::builder().build()?;
    let small = node.submit(Request::small(|lane: &mut EmulatedLane| {
        lane.launch(Duration::from_millis(5))?;
        Ok::<_, phalanx::DeviceError>("one GPU")
    }))?;
    let large = node.submit(Request::large(|lane: &mut EmulatedLane, gang: &Gang<'_>| {
        let launched = lane.launch(Duration::from_millis(20));
        gang.barrier()?;
        Ok(launched.map(|()| gang.rank()))
    }))?;
    println!("small: {}", small.wait()??);
    println!("large: ranks {:?}", large.wait()?.into_iter().collect::<Result<Vec<_>, _>>()?);
    node.shutdown(Shutdown::Finish);
    Ok(())
}
