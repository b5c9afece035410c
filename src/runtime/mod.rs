//! The runtime: real threads, real time.
//!
//! ```text
//!  submit ──► door ──► ring ──► dispatcher ──► state word ──► mailbox ──► worker ──► ticket
//!             exact    MPMC     one thread     reserve        one slot    one a lane
//!             caps     bounded  scheduler      or gang        park/unpark pinned
//!                                  ▲                                        │
//!                                  └──────── release (word), bell ──────────┘
//! ```
//! | file | holds | who runs it |
//! |---|---|---|
//! | `request`, `ticket` | what a user submits, and waits on | user's threads |
//! | `admission` | the door: exact caps, closed at shutdown | submitters, dispatcher |
//! | `cell`, `life` | the shared request, and the atomic that says where it is in its life | all |
//! | `steps` | requests that stop between two steps, and what they keep on their lanes | workers |
//! | `dispatcher` | events, decisions, reservations | the dispatcher |
//! | `faults` | which lanes are out of service, and when they are tried again | the dispatcher |
//! | `health` | what monitors read, past the queue | the dispatcher, user's threads |
//! | `mailbox`, `worker`, `gang` | hand-over, execution, the barrier | workers |
//! | `wait` | how threads wait, and why no wake-up is lost | all |
//! | `node` | what is shared; building, shutting down | user's threads |
//! | `clock`, `affinity` | the node's time; which CPU each thread is pinned to | all |

mod admission;
mod affinity;
mod cell;
mod clock;
mod dispatcher;
mod faults;
mod gang;
mod health;
mod life;
mod mailbox;
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub mod model;
mod node;
mod request;
mod steps;
mod ticket;
mod wait;
mod worker;

pub use admission::Admission;
pub use affinity::{Pinning, Placement};
pub use cell::Running;
pub use faults::{Fault, Recovery, Watchdog};
pub use gang::{Gang, GangBroken};
pub use health::{Health, LaneHealth, LaneState};
pub use life::Phase;
pub use node::{BuildError, Builder, Drive, EventReader, NodeSnapshot, Phalanx, Shutdown, ShutdownReport, Turn};
pub use request::{RejectReason, Rejected, Request};
pub use steps::Step;
pub use ticket::{Cancel, CancelOnDrop, RequestError, Ticket};
pub use wait::Wait;
