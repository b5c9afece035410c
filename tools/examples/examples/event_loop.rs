//! The dispatcher driven by a loop of one's own: no thread more, and one hop less.
//!
//! `cargo run --release -p phalanx-examples --example event_loop`

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use phalanx::{Drive, EmulatedLane, Phalanx, Request, Shutdown, Ticket, Turn};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Phalanx::builder().drive(Drive::Turn).build()?;
    let (mut next, mut flying) = (Instant::now(), VecDeque::<(Instant, Ticket<_>)>::new());
    let (mut sent, mut slowest) = (0, Duration::ZERO);
    // A loop that has something else to do, too: here it sends a request each millisecond.
    while sent < 200 || !flying.is_empty() {
        if sent < 200 && Instant::now() >= next {
            let request = Request::small(|lane: &mut EmulatedLane| lane.launch(Duration::from_millis(3)));
            flying.push_back((Instant::now(), node.submit(request)?));
            (sent, next) = (sent + 1, next + Duration::from_millis(1));
        }
        match node.turn() {
            // Something happened: look again at once.
            Turn::Progress => {}
            // Nothing did. A loop with a poller of its own would wait there, until `wake_at` at the latest.
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
        flying.retain_mut(|(began, ticket)| match ticket.try_take() {
            Some(result) => {
                slowest = slowest.max(began.elapsed());
                if let Err(error) = result.map_err(|error| error.to_string()).and_then(|ran| ran.map_err(|e| e.to_string())) {
                    eprintln!("a request failed: {error}");
                }
                false
            }
            None => true,
        });
    }
    println!("200 requests of 3 ms; the slowest took {slowest:?}");
    node.shutdown(Shutdown::Finish);
    Ok(())
}
