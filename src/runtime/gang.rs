//! A gang member's handle: its rank, and the barrier.

use super::cell::Header;
use super::wait::Waiting;
use crate::sync::{mutant, thread};
use crate::types::{Epoch, LaneId, LaneMask, RequestId};
use crate::word::{Arrival, Verdict, Word};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// One member of a running gang: what the body of a large request gets beside its lane.
///
/// It belongs to its worker thread and to this run: it is neither `Send` nor `Sync`, and cannot outlive the body.
///
/// ```compile_fail
/// fn needs_send<T: Send>() {}
/// needs_send::<phalanx::Gang<'static>>();
/// ```
pub struct Gang<'run> {
    word: &'run dyn Word,
    wake: &'run dyn Fn(LaneMask),
    waiting: Waiting,
    lane: LaneId,
    size: usize,
    header: &'run Header,
    epoch: Cell<Epoch>,
    /// It stands for the worker's thread.
    _not_send: PhantomData<*const ()>,
}

/// The gang will not be complete again: a member failed, returned early, or lost its lane. Return it from the body (`?`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the gang is broken: not every member comes to the barrier")]
#[non_exhaustive]
pub struct GangBroken;

impl<'run> Gang<'run> {
    pub(crate) fn new(
        word: &'run dyn Word,
        wake: &'run dyn Fn(LaneMask),
        waiting: Waiting,
        lane: LaneId,
        size: usize,
        header: &'run Header,
        epoch: Epoch,
    ) -> Self {
        Self { word, wake, waiting, lane, size, header, epoch: Cell::new(epoch), _not_send: PhantomData }
    }

    /// Which member this is, 0 to [`size`](Self::size) − 1. It is the index of its lane.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.lane.index()
    }

    /// How many members there are: every lane of the node.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The request that runs.
    #[must_use]
    pub fn request(&self) -> RequestId {
        self.header.job.id
    }

    /// Whether the request's owner wants it to stop. Members may see it at different moments: agree at a barrier before acting on it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.header.life.cancel_wanted()
    }

    /// Waits until every member has come to the barrier; it can be used any number of times. What a member wrote before it is seen by
    /// every member after it.
    ///
    /// # Errors
    /// [`GangBroken`] once a member has failed, panicked or returned: for all members that are not through, and for ever.
    pub fn barrier(&self) -> Result<(), GangBroken> {
        self.pass().map(|_| ())
    }

    /// The barrier. Whether the gang is to stop at its next step, which is the same for all members: whoever completes the barrier decides it.
    pub(crate) fn pass(&self) -> Result<bool, GangBroken> {
        let epoch = self.epoch.get();
        match self.word.arrive(self.lane, epoch) {
            Arrival::Completed { wake, stop } => {
                if !mutant("gang.barrier:wakes-nobody") {
                    (self.wake)(wake);
                }
                Ok(self.through(epoch, stop))
            }
            Arrival::Waiting => loop {
                let judged = self.waiting.spin(|| match self.word.judge(epoch) {
                    Verdict::Wait => None,
                    verdict => Some(verdict),
                });
                match judged {
                    Some(Verdict::Through { stop }) => return Ok(self.through(epoch, stop)),
                    Some(_) => return Err(GangBroken),
                    // Whoever ends this wait unparks all that have arrived; see the page of `wait`.
                    None => thread::park(),
                }
            },
            Arrival::Refused(_) => Err(GangBroken),
        }
    }

    fn through(&self, epoch: Epoch, stop: bool) -> bool {
        self.epoch.set(Epoch::new(epoch.get().wrapping_add(1)));
        if mutant("gang.pass:looks-itself") { self.word.is_asked(self.lane) } else { stop }
    }

    /// Breaks the gang, since this member will not come to the barrier again.
    pub(crate) fn abort(&self) {
        if let Ok(aborted) = self.word.abort_gang(Some(self.epoch.get()))
            && !mutant("gang.abort:wakes-nobody")
        {
            (self.wake)(aborted.wake);
        }
    }
}

impl fmt::Debug for Gang<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gang(request {}, rank {} of {})", self.request(), self.rank(), self.size)
    }
}
