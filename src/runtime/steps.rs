//! Requests that stop between two of their steps, and go on later on the lanes that they had.
//!
//! What such a request keeps in between lies in its cell, but belongs to the lane, or to each of its lanes: made there, used there, and dropped
//! there, it need be neither `Send` nor small. A worker owns a share of each cell that keeps something on its lane, so that whoever else lets
//! go of the cell never drops it; see `worker`.
//!
//! A small one looks at its lane's `ask` bit after each step. The members of a large one meet at the barrier after each step: the arrival that
//! completes it turns the asks of all lanes into the one STOP that all of them see. What else they must agree on, they vote on just before
//! they come there: who was done, and who saw a reason to end. There are two ballots, for odd and for even steps, since a member can be one
//! step ahead, never two; a ballot that has votes is the last one, and so none is ever cleared.

use super::cell::{
    Header, Here, Members, Output, Resolve, Runnable, Settled, Stretch, drop_quietly, message_of, phase_of, take_output,
};
use super::clock::Clock;
use super::gang::{Gang, GangBroken};
use super::life::{Cause, Ending, Phase};
use super::node::Shared;
use super::ticket::RequestError;
use crate::scheduler::Job;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{UnsafeCell, mutant};
use crate::types::{LaneId, Nanos};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What a step of a request says: see [`Request::small_steps`](super::Request::small_steps) and
/// [`Request::large_steps`](super::Request::large_steps).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<T> {
    /// There is more to do.
    Continue,
    /// It is done, and this is its output.
    Done(T),
}

/// What one lane keeps of a request in between. The lane's worker alone is ever at it.
struct Kept<S>(UnsafeCell<Option<S>>);

impl<S> Kept<S> {
    fn nothing() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// # Safety
    /// By the worker of the lane that it belongs to, of which nothing else is at it.
    #[expect(clippy::mut_from_ref, reason = "the contract says who may")]
    unsafe fn get(&self) -> &mut Option<S> {
        // SAFETY: the contract.
        self.0.with_mut(|kept| unsafe { &mut *kept })
    }
}

/// Why a request with steps ends at one of them, if it does: it was asked to stop, or is of no use any more.
fn end_of(header: &Header, clock: &Clock) -> Option<Cut> {
    match header.life.cause() {
        Some(cause) => Some(Cut::Asked(cause)),
        // The clock is looked at for those only to whom it means something.
        None => header.job.finish_by.filter(|&by| by < clock.now()).map(|_| Cut::Expired),
    }
}

/// Why a request ends at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    Asked(Cause),
    Expired,
}

impl Cut {
    const ALL: [Self; 4] =
        [Self::Asked(Cause::Overdue), Self::Asked(Cause::Aborted), Self::Asked(Cause::Cancelled), Self::Expired];

    fn error(self, header: &Header) -> RequestError {
        match self {
            Self::Asked(cause) => header.stopped_for(cause),
            Self::Expired => RequestError::Expired,
        }
    }
}

/// A small request with steps.
pub(crate) struct SmallSteps<L, T, S, I, F> {
    header: Header,
    make: UnsafeCell<Option<I>>,
    step: UnsafeCell<F>,
    kept: Kept<S>,
    output: Output<T>,
    shared: Arc<Shared<L>>,
}

// SAFETY: `make`, `step` and the output are moved to the worker, and the output to the ticket, one after the other, as `Life` says. What is
// kept is made, used and dropped by the worker of one lane, which owns a share of this for as long as something is kept, so that nobody else
// ever drops it.
unsafe impl<L, T: Send, S, I: Send, F: Send> Sync for SmallSteps<L, T, S, I, F> {}
// SAFETY: as above; `Shared` is Send and Sync for every L.
unsafe impl<L, T: Send, S, I: Send, F: Send> Send for SmallSteps<L, T, S, I, F> {}

impl<L, T, S, I, F> SmallSteps<L, T, S, I, F>
where
    I: FnOnce(&mut L) -> S,
    F: FnMut(&mut L, &mut S) -> Step<T>,
{
    pub(crate) fn new(job: Job, limit: Option<Nanos>, make: I, step: F, shared: Arc<Shared<L>>) -> Self {
        Self {
            header: Header::new(job, limit),
            make: UnsafeCell::new(Some(make)),
            step: UnsafeCell::new(step),
            kept: Kept::nothing(),
            output: UnsafeCell::new(None),
            shared,
        }
    }

    /// `None`: it stops.
    ///
    /// # Safety
    /// As [`Runnable::run`].
    unsafe fn steps(&self, lane: &mut L, here: &Here<'_>) -> Option<Result<T, RequestError>> {
        // SAFETY: only the worker is at these, and only here.
        let kept = unsafe { self.kept.get() };
        // SAFETY: as above.
        let make = self.make.with_mut(|make| unsafe { (*make).take() });
        self.step.with_mut(|step| {
            // SAFETY: as above.
            let step = unsafe { &mut *step };
            if let Some(cut) = end_of(&self.header, here.clock) {
                return Some(Err(cut.error(&self.header)));
            }
            if let Some(make) = make {
                *kept = Some(make(lane));
            }
            let Some(state) = kept else { return Some(Err(RequestError::Taken)) };
            loop {
                if let Step::Done(value) = step(lane, state) {
                    return Some(Ok(value));
                }
                if let Some(cut) = end_of(&self.header, here.clock) {
                    return Some(Err(cut.error(&self.header)));
                }
                if here.word.is_asked(here.lane) {
                    return None;
                }
            }
        })
    }
}

impl<L, T, S, I, F> Runnable<L> for SmallSteps<L, T, S, I, F>
where
    L: 'static,
    T: Send + 'static,
    S: 'static,
    I: FnOnce(&mut L) -> S + Send + 'static,
    F: FnMut(&mut L, &mut S) -> Step<T> + Send + 'static,
{
    fn header(&self) -> &Header {
        &self.header
    }

    unsafe fn run(&self, lane: &mut L, here: &Here<'_>) -> Stretch {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller's contract.
            unsafe { self.steps(lane, here) }
        }));
        let result = match ran {
            Ok(None) => return Stretch::Parked,
            Ok(Some(result)) => result.map_err(Box::new),
            Err(payload) => Err(Box::new(RequestError::Panicked { rank: None, message: message_of(payload) })),
        };
        // SAFETY: this is the worker, and it has not settled.
        self.output.with_mut(|output| unsafe { *output = Some(result) });
        Stretch::Over
    }

    unsafe fn fail(&self, _: LaneId, error: RequestError) {
        // SAFETY: as in `run`. The body's own panic is the better explanation and stays.
        let unwanted = self.output.with_mut(|output| match unsafe { &mut *output } {
            Some(Err(_)) => None,
            output => output.replace(Err(Box::new(error))),
        });
        drop_quietly(unwanted);
    }

    unsafe fn settle(&self, parked: bool) -> Settled {
        // SAFETY: the worker is still the only one at the output.
        let ended = self.output.with(|output| match unsafe { &*output } {
            Some(Ok(_)) => Some(Phase::Completed),
            Some(Err(error)) => Some(phase_of(error)),
            None => None,
        });
        if let (None, true) = (ended, parked) {
            return if self.header.life.park().is_ok() { Settled::Parked } else { Settled::Over };
        }
        let ending = self.header.life.end(Phase::Running, ended.unwrap_or(Phase::Failed));
        if let Ending::Refused(_) = ending {
            // It was given up meanwhile, and the ticket keeps away from the output.
            // SAFETY: the worker is still the only one at the output.
            drop_quietly(self.output.with_mut(|output| unsafe { (*output).take() }));
        }
        ending.into()
    }

    unsafe fn abandon(&self, _: LaneId) {
        // SAFETY: the caller's contract.
        drop_quietly(unsafe { self.kept.get() }.take());
    }
}

impl<L, T, S, I, F> Resolve<T> for SmallSteps<L, T, S, I, F>
where
    L: 'static,
    T: Send + 'static,
    S: 'static,
    I: FnOnce(&mut L) -> S + Send + 'static,
    F: FnMut(&mut L, &mut S) -> Step<T> + Send + 'static,
{
    fn header(&self) -> &Header {
        &self.header
    }

    unsafe fn take(&self) -> Result<T, RequestError> {
        take_output(&self.header, &self.output)
    }

    fn withdraw(self: Arc<Self>) {
        let shared = Arc::clone(&self.shared);
        shared.withdraw(self);
    }

    fn is_own_thread(&self) -> bool {
        self.shared.is_own_thread()
    }

    fn is_inside(&self) -> bool {
        self.shared.is_inside()
    }
}

/// Votes of members that are done: they count up from here.
const DONE: u32 = 1 << 8;

/// A large request with steps.
pub(crate) struct LargeSteps<L, M, S, I, F> {
    header: Header,
    make: I,
    step: F,
    /// By lane.
    kept: Box<[Kept<S>]>,
    /// The votes of the even and of the odd steps: how many are done, and above the reasons to end, by their place in [`Cut::ALL`].
    ballots: [AtomicU32; 2],
    members: Members<M>,
    shared: Arc<Shared<L>>,
}

// SAFETY: `make` and `step` are shared by the lanes (`Sync`); what is kept as in `SmallSteps`, by lane.
unsafe impl<L, M: Send, S, I: Send + Sync, F: Send + Sync> Sync for LargeSteps<L, M, S, I, F> {}
// SAFETY: as above.
unsafe impl<L, M: Send, S, I: Send + Sync, F: Send + Sync> Send for LargeSteps<L, M, S, I, F> {}

impl<L, M, S, I, F> LargeSteps<L, M, S, I, F>
where
    I: Fn(&mut L, &Gang<'_>) -> S,
    F: Fn(&mut L, &Gang<'_>, &mut S) -> Result<Step<M>, GangBroken>,
{
    pub(crate) fn new(job: Job, limit: Option<Nanos>, make: I, step: F, lanes: usize, shared: Arc<Shared<L>>) -> Self {
        Self {
            header: Header::new(job, limit),
            make,
            step,
            kept: (0..lanes).map(|_| Kept::nothing()).collect(),
            ballots: [AtomicU32::new(0), AtomicU32::new(0)],
            members: Members::new(lanes),
            shared,
        }
    }

    /// Whether it stops; else it is over, and the value is kept, or somebody is blamed.
    ///
    /// # Safety
    /// As [`Runnable::run`].
    unsafe fn steps(&self, lane: &mut L, here: &Here<'_>, gang: &Gang<'_>) -> Result<bool, GangBroken> {
        // SAFETY: only this lane's worker is at it, and only here.
        let kept = unsafe { self.kept[here.lane.index()].get() };
        let state = match kept {
            Some(state) => state,
            None => kept.insert((self.make)(lane, gang)),
        };
        for ballot in self.ballots.iter().cycle() {
            let mut vote = 0;
            let value = match (self.step)(lane, gang, state)? {
                Step::Continue => None,
                Step::Done(value) => {
                    vote = DONE;
                    Some(value)
                }
            };
            if let Some(cut) = end_of(&self.header, here.clock) {
                let reason = 1 << Cut::ALL.iter().position(|&of| of == cut).unwrap_or(0);
                // ORDERING: Relaxed: the barrier passes it on.
                ballot.fetch_or(reason, Ordering::Relaxed);
            }
            if vote > 0 && !mutant("steps.vote:not-cast") {
                // ORDERING: Relaxed, as above.
                ballot.fetch_add(vote, Ordering::Relaxed);
            }
            let stop = gang.pass()?;
            // ORDERING: Relaxed: every member voted before the barrier, and none votes here again before all have come to the next one.
            let votes = ballot.load(Ordering::Relaxed);
            let done = (votes / DONE) as usize;
            if let (Some(value), true) = (value, done == gang.size()) {
                // SAFETY: this is the lane's worker, and it has not settled.
                unsafe { self.members.keep(here.lane, value) };
                return Ok(false);
            }
            if done > 0 {
                self.members.blame(RequestError::StepsDisagree { done, members: gang.size() });
                return Ok(false);
            }
            if let Some((_, cut)) = Cut::ALL.iter().enumerate().find(|(at, _)| votes >> at & 1 == 1) {
                self.members.blame(cut.error(&self.header));
                return Ok(false);
            }
            if stop {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<L, M, S, I, F> Runnable<L> for LargeSteps<L, M, S, I, F>
where
    L: 'static,
    M: Send + 'static,
    S: 'static,
    I: Fn(&mut L, &Gang<'_>) -> S + Send + Sync + 'static,
    F: Fn(&mut L, &Gang<'_>, &mut S) -> Result<Step<M>, GangBroken> + Send + Sync + 'static,
{
    fn header(&self) -> &Header {
        &self.header
    }

    unsafe fn run(&self, lane: &mut L, here: &Here<'_>) -> Stretch {
        let Some(gang) = here.gang else { return Stretch::Over };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller's contract.
            unsafe { self.steps(lane, here, gang) }
        }));
        match ran {
            Ok(Ok(true)) => Stretch::Parked,
            Ok(Ok(false)) => Stretch::Over,
            Ok(Err(GangBroken)) => Stretch::Broken,
            Err(payload) => {
                self.members.blame(RequestError::Panicked { rank: Some(gang.rank()), message: message_of(payload) });
                Stretch::Broken
            }
        }
    }

    unsafe fn fail(&self, lane: LaneId, error: RequestError) {
        // SAFETY: the caller's contract.
        unsafe { self.members.fail(lane, error) };
    }

    unsafe fn settle(&self, parked: bool) -> Settled {
        // SAFETY: the caller's contract.
        unsafe { self.members.settle(&self.header, parked) }
    }

    unsafe fn abandon(&self, lane: LaneId) {
        // SAFETY: the caller's contract.
        drop_quietly(unsafe { self.kept[lane.index()].get() }.take());
    }
}

impl<L, M, S, I, F> Resolve<Vec<M>> for LargeSteps<L, M, S, I, F>
where
    L: 'static,
    M: Send + 'static,
    S: 'static,
    I: Fn(&mut L, &Gang<'_>) -> S + Send + Sync + 'static,
    F: Fn(&mut L, &Gang<'_>, &mut S) -> Result<Step<M>, GangBroken> + Send + Sync + 'static,
{
    fn header(&self) -> &Header {
        &self.header
    }

    unsafe fn take(&self) -> Result<Vec<M>, RequestError> {
        self.members.take(&self.header)
    }

    fn withdraw(self: Arc<Self>) {
        let shared = Arc::clone(&self.shared);
        shared.withdraw(self);
    }

    fn is_own_thread(&self) -> bool {
        self.shared.is_own_thread()
    }

    fn is_inside(&self) -> bool {
        self.shared.is_inside()
    }
}
