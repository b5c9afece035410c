//! A device of one's own: what a lane is, and what happens before and after each request on it.
//!
//! `cargo run --release -p phalanx-examples --example custom_device`

use std::sync::atomic::{AtomicU64, Ordering};

use phalanx::{Device, DeviceError, LaneId, Phalanx, Request, RequestId, Shutdown};

/// Boards that multiply numbers. A driver's context would be opened where `Board` is made: on the lane's own thread.
#[derive(Default)]
struct Boards {
    opened: AtomicU64,
}

/// One of them, which only its lane's thread ever touches.
struct Board {
    factor: u64,
    served: u64,
}

impl Board {
    fn multiply(&mut self, number: u64) -> u64 {
        self.factor * number
    }
}

impl Device for Boards {
    type Lane = Board;

    fn describe(&self) -> String {
        "boards that multiply".to_owned()
    }

    fn open(&self, lane: LaneId) -> Result<Board, DeviceError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Board { factor: lane.index() as u64 + 1, served: 0 })
    }

    fn begin(&self, _: &mut Board, _: RequestId) -> Result<(), DeviceError> {
        Ok(())
    }

    /// What was launched must have ended when this returns: the lane is given to the next request then. An error here fails the request,
    /// or, as `DeviceFault::Lane`, takes the lane out of service.
    fn finish(&self, board: &mut Board, _: RequestId) -> Result<(), DeviceError> {
        board.served += 1;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Phalanx::builder().lanes(4).device(Boards::default()).build()?;
    let products: Vec<_> = (1..=8)
        .map(|number| node.submit(Request::small(move |board: &mut Board| board.multiply(number))))
        .collect::<Result<_, _>>()?;
    for (number, product) in (1..).zip(products) {
        println!("{number} times its lane's factor is {}", product.wait()?);
    }
    println!("{} boards of `{}`", node.device().opened.load(Ordering::Relaxed), node.device().describe());
    node.shutdown(Shutdown::Finish);
    Ok(())
}
