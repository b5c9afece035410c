//! What a user waits on.

use super::cell::Resolve;
use super::life::Phase;
use crate::device::DeviceError;
use crate::sync::{mutant, thread};
use crate::types::{Class, LaneMask, RequestId};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Why a request gave no output.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Its body panicked.
    #[error("the request's body panicked{}: {message}", .rank.map_or(String::new(), |rank| format!(" on rank {rank}")))]
    Panicked {
        /// On which member of the gang, for a large request.
        rank: Option<usize>,
        /// What the panic said.
        message: String,
    },
    /// The device reported an error while it ran.
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
    /// A member of the gang returned before the others were done with the barrier, or lost its lane.
    #[error("the gang broke: a member left before the others had come to the barrier")]
    GangBroken,
    /// Some members of a large request with steps were done after a step, and others were not: each must say the same after the same step.
    #[error("after a step {done} of {members} members were done: each must be done after the same step")]
    StepsDisagree {
        /// How many were done.
        done: usize,
        /// Of how many.
        members: usize,
    },
    /// It held its lanes for longer than its limit; see [`Request::limit`](super::Request::limit). What it does may go on.
    #[error("it ran for longer than its limit of {limit:?}{}", if .hung.is_empty() { String::new() } else { format!(", and did not let go of lanes {hung}") })]
    TimeLimit {
        /// The limit.
        limit: Duration,
        /// The lanes that it did not let go. They are out of service until what runs there has ended, and a probe has passed.
        hung: LaneMask,
    },
    /// It is large, and lanes have been out of service for longer than [`Recovery::large_wait`](super::Recovery::large_wait), or are lost.
    #[error("lanes {lanes} are out of service, and a large request needs every lane")]
    LanesMissing {
        /// The lanes that are missing.
        lanes: LaneMask,
    },
    /// Its deadline passed before it started; or, if it has steps, the moment by which it must have ended passed at one of them.
    #[error("the deadline passed before the request started, or at one of its steps")]
    Expired,
    /// It could not end any more by when it must, were it started, by its prediction: see [`Request::finish_by`](super::Request::finish_by).
    #[error("it would take {run:?} and could not end in time any more")]
    TooLate {
        /// How long it would take, by its prediction and the error of that.
        run: Duration,
    },
    /// It was cancelled before it started, or, if it has steps, at one of them.
    #[error("the request was cancelled before it started, or at one of its steps")]
    Cancelled,
    /// The node was shut down before it started, or, if it has steps, aborted it at one of them.
    #[error("the node was shut down before the request started, or at one of its steps")]
    ShutDown,
    /// A body waited for a request of its own node, or a waker or drop did that the node ran: it holds a lane, or the dispatcher, that the
    /// other may need, and could wait for itself. That request goes on. Hand the work over instead, submit both from outside, or wait by
    /// [`Ticket::wait_timeout`], which ends.
    #[error("a request waited for another one of its own node while it ran; submit both from outside, or use wait_timeout")]
    WouldDeadlock,
    /// The output was taken already, by an earlier poll.
    #[error("the output was taken already")]
    Taken,
}

/// What became of a cancellation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancel {
    /// The request will not run; its ticket says [`RequestError::Cancelled`].
    Cancelled,
    /// It runs already: it has been asked to stop, and sees that if it looks. With steps it ends at the next one, unless that is its last.
    Running,
    /// It is over.
    Over,
}

/// Stands for a submitted request, and resolves exactly once.
///
/// Await it, or [`wait`](Self::wait) on a thread. Dropping it lets the request run all the same; see [`Ticket::guard`].
#[must_use = "a ticket is the only way to the request's output; drop it explicitly to let the request run unwatched"]
pub struct Ticket<T> {
    cell: Arc<dyn Resolve<T>>,
    taken: bool,
}

impl<T> Ticket<T> {
    pub(crate) fn new(cell: Arc<dyn Resolve<T>>) -> Self {
        Self { cell, taken: false }
    }

    /// The request's number.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.cell.header().job.id
    }

    /// The request's class.
    #[must_use]
    pub fn class(&self) -> Class {
        self.cell.header().job.class
    }

    /// Where the request is in its life. It may be further already.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.cell.header().life.phase()
    }

    /// Takes the request back, if it has not started; asks it to stop, if it runs. Returns at once.
    ///
    /// A cancelled request leaves its queue at once: what waits behind it needs no other event in order to start.
    pub fn cancel(&self) -> Cancel {
        let header = self.cell.header();
        let mut asked = false;
        loop {
            match header.life.phase() {
                Phase::Queued => {
                    if header.give_up(Phase::Queued, Phase::Cancelled) {
                        if !mutant("ticket.cancel:stays-queued") {
                            Arc::clone(&self.cell).withdraw();
                        }
                        return Cancel::Cancelled;
                    }
                }
                // It is on its way to the worker, who will find it cancelled and pass the lane on.
                Phase::Granted => {
                    if header.give_up(Phase::Granted, Phase::Cancelled) {
                        return Cancel::Cancelled;
                    }
                }
                Phase::Running => match header.life.want_cancel() {
                    Phase::Running => return Cancel::Running,
                    // It has just stopped at a step, maybe before it could see that.
                    Phase::Parked => asked = true,
                    Phase::Cancelled if asked => return Cancel::Cancelled,
                    _ => return Cancel::Over,
                },
                Phase::Parked => {
                    if header.give_up(Phase::Parked, Phase::Cancelled) {
                        if !mutant("ticket.cancel:stays-parked") {
                            Arc::clone(&self.cell).withdraw();
                        }
                        return Cancel::Cancelled;
                    }
                }
                // The dispatcher saw it there, and was faster.
                Phase::Cancelled if asked => return Cancel::Cancelled,
                Phase::Completed | Phase::Failed | Phase::Expired | Phase::Cancelled | Phase::ShutDown => return Cancel::Over,
            }
        }
    }

    /// Cancels the request if the guard is dropped before it resolved.
    pub const fn guard(self) -> CancelOnDrop<T> {
        CancelOnDrop { ticket: self, armed: true }
    }

    /// Blocks this thread until the request is over.
    ///
    /// # Errors
    /// Why there is no output. On a thread of the request's own node, from inside a body, say, it is [`RequestError::WouldDeadlock`], unless
    /// the request is over already.
    pub fn wait(mut self) -> Result<T, RequestError> {
        loop {
            if let Some(result) = self.block(None) {
                return result;
            }
        }
    }

    /// Blocks this thread until the request is over, at most for so long. `None`: it is not over; the ticket stays good.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<T, RequestError>> {
        self.block(Some(timeout))
    }

    /// The output if the request is over, without waiting.
    pub fn try_take(&mut self) -> Option<Result<T, RequestError>> {
        self.phase().is_terminal().then(|| self.take())
    }

    fn take(&mut self) -> Result<T, RequestError> {
        if std::mem::replace(&mut self.taken, true) {
            return Err(RequestError::Taken);
        }
        // SAFETY: once, as `taken` says, and every caller has seen a terminal phase.
        unsafe { self.cell.take() }
    }

    /// Registers a waker. Whether the request is over instead.
    fn register(&self, waker: &Waker) -> bool {
        let header = self.cell.header();
        header.waker.register(waker);
        header.life.await_end().is_terminal() && !mutant("ticket.register:looks-away")
    }

    fn block(&mut self, timeout: Option<Duration>) -> Option<Result<T, RequestError>> {
        if let Some(result) = self.try_take() {
            return Some(result);
        }
        // A timeout that the clock cannot hold is none.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if until.is_none() && self.cell.is_own_thread() {
            return Some(Err(RequestError::WouldDeadlock));
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            if self.register(&waker) {
                return Some(self.take());
            }
            match until {
                None => thread::park(),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return self.try_take();
                    }
                    thread::park_timeout(left);
                }
            }
            if let Some(result) = self.try_take() {
                return Some(result);
            }
        }
    }
}

impl<T> Future for Ticket<T> {
    type Output = Result<T, RequestError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ticket = self.get_mut();
        if let Some(result) = ticket.try_take() {
            return Poll::Ready(result);
        }
        // Inside a body nobody polls but a block_on: the same as in `wait`.
        if ticket.cell.is_inside() {
            return Poll::Ready(Err(RequestError::WouldDeadlock));
        }
        if ticket.register(context.waker()) { Poll::Ready(ticket.take()) } else { Poll::Pending }
    }
}

impl<T> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({} request {}, {:?})", self.class(), self.id(), self.phase())
    }
}

/// A ticket that cancels its request if it is dropped first.
#[derive(Debug)]
#[must_use = "dropping the guard cancels the request"]
pub struct CancelOnDrop<T> {
    ticket: Ticket<T>,
    armed: bool,
}

impl<T> CancelOnDrop<T> {
    /// The request's number.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.ticket.id()
    }

    /// Blocks this thread until the request is over; see [`Ticket::wait`].
    ///
    /// # Errors
    /// As there.
    pub fn wait(self) -> Result<T, RequestError> {
        self.disarm().wait()
    }

    /// Blocks this thread until the request is over, at most for so long; see [`Ticket::wait_timeout`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<T, RequestError>> {
        self.ticket.wait_timeout(timeout)
    }

    /// Lets the request run after all, whatever becomes of the ticket.
    pub fn disarm(mut self) -> Ticket<T> {
        self.armed = false;
        Ticket { cell: Arc::clone(&self.ticket.cell), taken: self.ticket.taken }
    }
}

impl<T> Future for CancelOnDrop<T> {
    type Output = Result<T, RequestError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().ticket).poll(context)
    }
}

impl<T> Drop for CancelOnDrop<T> {
    fn drop(&mut self) {
        if self.armed {
            self.ticket.cancel();
        }
    }
}

/// Wakes a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
