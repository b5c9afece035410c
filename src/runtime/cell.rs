//! A submitted request: one allocation that ring, dispatcher, worker and ticket share.
//!
//! It holds the body until it runs and the output until the ticket takes it. Three faces hide what it is made of: [`Runnable`] from the
//! worker, which knows the lane's type but not the output's; [`Resolve`] from the ticket, which knows the output's type but not the
//! lane's; and [`Header`], which needs neither.
//!
//! `std::sync::Arc` counts the owners, under the models too: loom's own cannot be made into a trait object.

use super::clock::Clock;
use super::gang::{Gang, GangBroken};
use super::life::{Cause, Ending, Life, Phase};
use super::node::Shared;
use super::ticket::RequestError;
use crate::scheduler::Job;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{AtomicWaker, UnsafeCell, mutant, order};
use crate::types::{LaneId, LaneMask, Nanos, RequestId};
use crate::word::Word;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// No slot: on its way to the dispatcher, not in the scheduler's table yet.
pub(crate) const NO_SLOT: u32 = u32::MAX;
/// Neither in the ring nor in the table any more, but its owner cancelled it, and the dispatcher has still to be told.
pub(crate) const GONE: u32 = u32::MAX - 1;
/// Still in the ring, but the dispatcher was told that its owner cancelled it.
pub(crate) const WITHDRAWN: u32 = u32::MAX - 2;
/// Started, with steps: whoever cancels it while it is parked tells the dispatcher, who looks for it there.
pub(crate) const STARTED: u32 = u32::MAX - 3;

/// What is the same for all requests. The life first: it is what the lanes and the ticket look at.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) life: Life,
    /// Its slot in the scheduler's table while it has one, or one of the values above. The dispatcher's alone: an atomic only because it is shared.
    slot: AtomicU32,
    /// How long it may hold its lanes; 0: as long as the node lets it. Its owner's until it is submitted, the dispatcher's from then on.
    limit_ns: AtomicU64,
    /// Why the dispatcher gave it up: the lanes, and `MISSING` or not. For one that expired since it could not end in time any more: how long
    /// it would have taken, in ns.
    reason: AtomicU64,
    pub(crate) waker: AtomicWaker,
    pub(crate) job: Job,
}

/// In [`Header::reason`]: the lanes are those that it waited for. Else they are those that it did not let go.
const MISSING: u64 = 1 << 63;

impl Header {
    pub(crate) fn new(job: Job, limit: Option<Nanos>) -> Self {
        // No limit at all is one that is never reached; none of nothing is as short as can be.
        let limit_ns = AtomicU64::new(limit.map_or(0, |limit| limit.0.max(1)));
        let (slot, reason) = (AtomicU32::new(NO_SLOT), AtomicU64::new(0));
        Self { life: Life::new(), waker: AtomicWaker::new(), job, slot, limit_ns, reason }
    }

    /// The limit that it was given.
    pub(crate) fn limit(&self) -> Option<Nanos> {
        // ORDERING: Relaxed: ring, mailbox and the life's end pass it on with the request.
        Some(Nanos(self.limit_ns.load(Ordering::Relaxed))).filter(|limit| limit.0 > 0)
    }

    /// For the dispatcher: the limit that it runs under.
    pub(crate) fn set_limit(&self, limit: Nanos) {
        // ORDERING: Relaxed, as above.
        self.limit_ns.store(limit.0, Ordering::Relaxed);
    }

    /// For the dispatcher, before it gives up a request that did not let these lanes go.
    pub(crate) fn blame_hung(&self, lanes: LaneMask) {
        // ORDERING: Relaxed: `Life::give_up` passes it on.
        self.reason.store(lanes.bits(), Ordering::Relaxed);
    }

    /// For the dispatcher, before it gives up a request that waited for these lanes.
    fn blame_missing(&self, lanes: LaneMask) {
        // ORDERING: Relaxed, as above.
        self.reason.store(lanes.bits() | MISSING, Ordering::Relaxed);
    }

    /// For the dispatcher: sheds a queued request, which would take so long. Whether this was what ended it.
    pub(crate) fn shed(&self, run: Nanos) -> bool {
        // ORDERING: Relaxed: `Life::end` passes it on. 0 means that its deadline has passed.
        self.reason.store(run.0.max(1), Ordering::Relaxed);
        self.give_up(Phase::Queued, Phase::Expired)
    }

    /// Why it expired, which it did.
    fn expired_for(&self) -> RequestError {
        // ORDERING: Relaxed: `Life::verdict` has acquired it.
        match self.reason.load(Ordering::Relaxed) {
            0 => RequestError::Expired,
            run => RequestError::TooLate { run: Duration::from_nanos(run) },
        }
    }

    /// Why the dispatcher gave it up, which it did.
    fn given_up_for(&self) -> RequestError {
        // ORDERING: Relaxed: `Life::verdict` has acquired it.
        let reason = self.reason.load(Ordering::Relaxed);
        let lanes = LaneMask::from_bits(reason & !MISSING);
        if reason & MISSING != 0 { RequestError::LanesMissing { lanes } } else { self.over_time(lanes) }
    }

    /// Why it ended by having been asked to stop, which it did by itself.
    pub(crate) fn stopped_for(&self, cause: Cause) -> RequestError {
        match cause {
            Cause::Cancelled => RequestError::Cancelled,
            Cause::Overdue => self.over_time(LaneMask::NONE),
            Cause::Aborted => RequestError::ShutDown,
        }
    }

    /// For the dispatcher: ends what is parked, since it was to stop before it stood there. Whether it was.
    pub(crate) fn end_parked(&self) -> bool {
        match self.life.cause() {
            None => return false,
            Some(Cause::Cancelled) => self.give_up(Phase::Parked, Phase::Cancelled),
            Some(Cause::Aborted) => self.give_up(Phase::Parked, Phase::ShutDown),
            Some(Cause::Overdue) => {
                self.blame_hung(LaneMask::NONE);
                self.give_up_any()
            }
        };
        true
    }

    fn over_time(&self, hung: LaneMask) -> RequestError {
        RequestError::TimeLimit { limit: self.limit().unwrap_or_default().into(), hung }
    }

    // ORDERING: Relaxed in both: one thread at a time drives the dispatcher, and whatever hands it over synchronises.
    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slot(&self, slot: u32) {
        self.slot.store(slot, Ordering::Relaxed);
    }

    /// Ends a request that never ran. Whether this was what ended it.
    pub(crate) fn give_up(&self, from: Phase, to: Phase) -> bool {
        match self.life.end(from, to) {
            Ending::Ended { awaited } => {
                if awaited {
                    self.wake();
                }
                true
            }
            Ending::Refused(_) => false,
        }
    }

    /// Fails a queued or parked request that waits for these lanes in vain. Whether this was what ended it.
    pub(crate) fn fail_missing(&self, lanes: LaneMask) -> bool {
        self.blame_missing(lanes);
        self.give_up_any()
    }

    /// Fails it, whatever it does, for the reason that was written down. Whether this was what ended it.
    fn give_up_any(&self) -> bool {
        match self.life.give_up() {
            Ending::Ended { awaited } => {
                if awaited {
                    self.wake();
                }
                true
            }
            Ending::Refused(_) => false,
        }
    }

    /// Wakes who waits for the end.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            wake_quietly(waker);
        }
    }
}

/// Wakes. The waker is the user's code: a panic in it must not take the node's thread along.
pub(crate) fn wake_quietly(waker: Waker) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        forget_payload(payload);
    }
}

/// The lane's face of a request.
pub(crate) trait Runnable<L>: Send + Sync {
    fn header(&self) -> &Header;

    /// Runs the body on this lane, catching its panic, and keeps what it returned.
    ///
    /// # Safety
    /// Called at most once for each lane and each time that the request was granted it, by the worker of that lane, while it is Running.
    unsafe fn run(&self, lane: &mut L, here: &Here<'_>) -> Stretch;

    /// This lane failed the request; the first failure of all lanes is the one that the ticket gets. Replaces what `run` kept.
    ///
    /// # Safety
    /// As [`Runnable::run`]; not after [`Runnable::settle`] of the same lane.
    unsafe fn fail(&self, lane: LaneId, error: RequestError);

    /// This lane is done with the request, or, if it `parked`, for now. The last one ends its life, or parks it; then whether somebody waits
    /// for the end is told.
    ///
    /// # Safety
    /// Exactly once for each lane and each time that the request was granted it, after all else that the lane does with it.
    unsafe fn settle(&self, parked: bool) -> Settled;

    /// Drops what a request with steps keeps on this lane in between, if there is something.
    ///
    /// # Safety
    /// By the worker of the lane, while it does not run the request.
    unsafe fn abandon(&self, _lane: LaneId) {}
}

/// Where a body runs.
pub(crate) struct Here<'run> {
    pub(crate) lane: LaneId,
    pub(crate) gang: Option<&'run Gang<'run>>,
    pub(crate) word: &'run dyn Word,
    pub(crate) clock: &'run Clock,
}

/// How a body left its lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stretch {
    /// It is over. If it is a gang's, its peers find that out at the barrier, if they still have one.
    Over,
    /// It is over, and its peers must be told that it will not come to the barrier any more.
    Broken,
    /// It has stopped between two of its steps, as it was asked to; what it needs to go on is kept for this lane.
    Parked,
}

/// What became of a request when a lane was done with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Settled {
    /// Other lanes still have it.
    NotYet,
    /// It is over, and nobody waits for it.
    Over,
    /// It is over, and its waker must be woken, best after the lane is released.
    Awaited,
    /// It has stopped on all lanes, and waits to go on.
    Parked,
}

impl From<Ending> for Settled {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Ended { awaited: true } => Self::Awaited,
            Ending::Ended { awaited: false } | Ending::Refused(_) => Self::Over,
        }
    }
}

/// The ticket's face of a request.
pub(crate) trait Resolve<T>: Send + Sync {
    fn header(&self) -> &Header;

    /// Takes the output, or the reason why there is none.
    ///
    /// # Safety
    /// Once, after a terminal phase was seen.
    unsafe fn take(&self) -> Result<T, RequestError>;

    /// Tells the dispatcher that the request, which is Cancelled, need not be queued any more.
    fn withdraw(self: Arc<Self>);

    /// Whether the current thread belongs to the request's node, and would wait for itself.
    fn is_own_thread(&self) -> bool;

    /// Whether the current thread runs the body of a request of the same node.
    fn is_inside(&self) -> bool;
}

/// The output of a request, or why there is none: which is rare, and boxed, so that a small output shares a cache line with the life.
pub(crate) type Output<T> = UnsafeCell<Option<Result<T, Box<RequestError>>>>;

pub(crate) fn take_output<T>(header: &Header, output: &Output<T>) -> Result<T, RequestError> {
    let verdict = header.life.verdict();
    match verdict.phase {
        Phase::Expired => Err(header.expired_for()),
        Phase::Cancelled => Err(RequestError::Cancelled),
        Phase::ShutDown => Err(RequestError::ShutDown),
        _ if verdict.given_up && !mutant("cell.take:ignores-given-up") => Err(header.given_up_for()),
        _ => {
            // SAFETY: the phase is terminal, and not by the dispatcher over the lanes' heads, so the lanes are done with the cell, and
            // their writes are seen (`Life::verdict` acquires); the one ticket calls this once.
            match output.with_mut(|output| unsafe { (*output).take() }) {
                Some(Ok(value)) => Ok(value),
                None => Err(RequestError::Taken),
                // What broke the gang was its limit.
                Some(Err(error)) if *error == RequestError::GangBroken && verdict.overdue => {
                    Err(header.over_time(LaneMask::NONE))
                }
                Some(Err(error)) => Err(*error),
            }
        }
    }
}

/// A small request that runs, as its body sees it.
#[derive(Clone, Copy)]
pub struct Running<'run> {
    header: &'run Header,
}

impl Running<'_> {
    /// The request that runs.
    #[must_use]
    pub fn request(&self) -> RequestId {
        self.header.job.id
    }

    /// Whether the request is to stop: its owner wants it to, its limit has passed, or the node shuts down by
    /// [`Shutdown::Abort`](super::Shutdown::Abort). What the body returns then is its output, as ever.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.header.life.cancel_wanted()
    }
}

impl std::fmt::Debug for Running<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running(request {})", self.request())
    }
}

/// A small request.
///
/// What its worker touches comes first and, where body and output are small, lies on the allocation's first cache line: so a request costs
/// one line there and back. It is not aligned to one, since that makes an allocation three times as dear; allocators that hand out
/// pieces of this size at multiples of it, as mimalloc does, align it all the same. The count of owners lies there, too: only the side that
/// submits and dispatches counts.
#[repr(C)]
pub(crate) struct SmallCell<L, T, F> {
    output: Output<T>,
    body: UnsafeCell<Option<F>>,
    header: Header,
    shared: Arc<Shared<L>>,
}

// SAFETY: body and output are moved to the worker and to the ticket, one after the other, as `Life` says; nobody shares them.
unsafe impl<L, T: Send, F: Send> Sync for SmallCell<L, T, F> {}
// SAFETY: as above; `Shared` is Send and Sync for every L, since lanes never leave their threads.
unsafe impl<L, T: Send, F: Send> Send for SmallCell<L, T, F> {}

impl<L, T, F> SmallCell<L, T, F> {
    pub(crate) fn new(job: Job, limit: Option<Nanos>, body: F, shared: Arc<Shared<L>>) -> Self {
        Self { header: Header::new(job, limit), body: UnsafeCell::new(Some(body)), output: UnsafeCell::new(None), shared }
    }

    /// # Safety
    /// Only the worker that runs it, before it settles.
    unsafe fn keep(&self, result: Result<T, Box<RequestError>>) {
        // SAFETY: by the contract nobody else is at the output.
        self.output.with_mut(|output| unsafe { *output = Some(result) });
    }
}

impl<L, T, F> Runnable<L> for SmallCell<L, T, F>
where
    L: 'static,
    T: Send + 'static,
    F: FnOnce(&mut L, &Running<'_>) -> T + Send + 'static,
{
    fn header(&self) -> &Header {
        &self.header
    }

    unsafe fn run(&self, lane: &mut L, _: &Here<'_>) -> Stretch {
        // SAFETY: only the worker touches the body, and only here.
        let Some(body) = self.body.with_mut(|body| unsafe { (*body).take() }) else { return Stretch::Over };
        let result = catch_unwind(AssertUnwindSafe(|| body(lane, &Running { header: &self.header })));
        let result = result.map_err(|payload| Box::new(RequestError::Panicked { rank: None, message: message_of(payload) }));
        // SAFETY: this is the worker, and it has not settled.
        unsafe { self.keep(result) };
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

    unsafe fn settle(&self, _: bool) -> Settled {
        // SAFETY: the worker is still the only one at the output.
        let completed = self.output.with(|output| matches!(unsafe { &*output }, Some(Ok(_))));
        let ending = self.header.life.end(Phase::Running, if completed { Phase::Completed } else { Phase::Failed });
        if let Ending::Refused(_) = ending {
            // It was given up meanwhile, and the ticket keeps away from the output.
            // SAFETY: the worker is still the only one at the output.
            drop_quietly(self.output.with_mut(|output| unsafe { (*output).take() }));
        }
        ending.into()
    }
}

impl<L, T, F> Resolve<T> for SmallCell<L, T, F>
where
    L: 'static,
    T: Send + 'static,
    F: FnOnce(&mut L, &Running<'_>) -> T + Send + 'static,
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

/// What the lanes of a gang return, and why they do not.
pub(crate) struct Members<M> {
    /// One for each lane, written by that lane alone.
    values: Box<[UnsafeCell<Option<M>>]>,
    /// Lanes that have not settled.
    left: AtomicU32,
    /// Whether a lane has claimed `cause`.
    caused: AtomicU32,
    cause: UnsafeCell<Option<RequestError>>,
    /// Made by the submitter with room for all, so that no worker allocates.
    output: Output<Vec<M>>,
}

// SAFETY: each value is written by its lane and moved by the last one; the cause is written by the one lane that claimed it.
unsafe impl<M: Send> Sync for Members<M> {}
// SAFETY: as above.
unsafe impl<M: Send> Send for Members<M> {}

impl<M> Members<M> {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            values: (0..lanes).map(|_| UnsafeCell::new(None)).collect(),
            left: AtomicU32::new(lanes as u32),
            caused: AtomicU32::new(0),
            cause: UnsafeCell::new(None),
            output: UnsafeCell::new(Some(Ok(Vec::with_capacity(lanes)))),
        }
    }

    /// The first lane's reason is the one that the ticket gets.
    pub(crate) fn blame(&self, error: RequestError) {
        // ORDERING: Relaxed: it decides who writes the cause; `left` publishes what was written.
        if self.caused.swap(1, Ordering::Relaxed) == 0 || mutant("cell.blame:every-lane") {
            // SAFETY: only the first lane comes here, and readers wait until every lane has settled.
            self.cause.with_mut(|cause| unsafe { *cause = Some(error) });
        }
    }

    /// Keeps what this lane returned.
    ///
    /// # Safety
    /// By the worker of the lane, before it settles.
    pub(crate) unsafe fn keep(&self, lane: LaneId, value: M) {
        // SAFETY: this lane's own place.
        self.values[lane.index()].with_mut(|place| unsafe { *place = Some(value) });
    }

    /// As [`Runnable::fail`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn fail(&self, lane: LaneId, error: RequestError) {
        // SAFETY: this lane's own place.
        let value = self.values[lane.index()].with_mut(|place| unsafe { (*place).take() });
        drop_quietly(value);
        self.blame(error);
    }

    /// As [`Runnable::settle`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn settle(&self, header: &Header, parked: bool) -> Settled {
        // ORDERING: AcqRel: releases this lane's value and cause; the last lane acquires everybody's.
        if self.left.fetch_sub(1, order("cell.settle", Ordering::AcqRel)) != 1 {
            return Settled::NotYet;
        }
        // SAFETY: every other lane has settled, and its writes are seen.
        let cause = self.cause.with_mut(|cause| unsafe { (*cause).take() });
        if parked && cause.is_none() {
            // ORDERING: Relaxed: the lanes' next holder, which is the next to count here, acquires their release.
            if !mutant("cell.settle:keeps-count") {
                self.left.store(self.values.len() as u32, Ordering::Relaxed);
            }
            return if header.life.park().is_ok() { Settled::Parked } else { Settled::Over };
        }
        let phase = self.output.with_mut(|output| {
            // SAFETY: the ticket comes only after the life has ended, below.
            let output = unsafe { &mut *output };
            let Some(Ok(values)) = output else { return Phase::Failed };
            for place in &self.values {
                // SAFETY: as for the cause.
                values.extend(place.with_mut(|place| unsafe { (*place).take() }));
            }
            if cause.is_none() && values.len() == self.values.len() {
                return Phase::Completed;
            }
            // One by one: two panics at once, of two drops in one vector, would end the process.
            values.drain(..).for_each(drop_quietly);
            let cause = cause.unwrap_or(RequestError::GangBroken);
            let phase = phase_of(&cause);
            *output = Some(Err(Box::new(cause)));
            phase
        });
        let ending = header.life.end(Phase::Running, phase);
        if let Ending::Refused(_) = ending {
            // It was given up meanwhile, and the ticket keeps away from the output.
            // SAFETY: every other lane has settled: this one is the only one at the output.
            if let Some(Ok(values)) = self.output.with_mut(|output| unsafe { (*output).take() }) {
                values.into_iter().for_each(drop_quietly);
            }
        }
        ending.into()
    }

    pub(crate) fn take(&self, header: &Header) -> Result<Vec<M>, RequestError> {
        take_output(header, &self.output)
    }
}

/// A gang that was given up may leave values of members that had settled. One by one, as above.
#[cfg(not(loom))]
impl<M> Drop for Members<M> {
    fn drop(&mut self) {
        for place in &self.values {
            // SAFETY: the last owner is alone. (loom does not see the counter by which it knows, and would call this a race.)
            drop_quietly(place.with_mut(|place| unsafe { (*place).take() }));
        }
    }
}

/// How a life ends that this error ends.
pub(crate) const fn phase_of(error: &RequestError) -> Phase {
    match error {
        RequestError::Cancelled => Phase::Cancelled,
        RequestError::Expired => Phase::Expired,
        RequestError::ShutDown => Phase::ShutDown,
        _ => Phase::Failed,
    }
}

/// A large request: one body, run by every lane.
pub(crate) struct LargeCell<L, M, F> {
    header: Header,
    body: F,
    members: Members<M>,
    shared: Arc<Shared<L>>,
}

impl<L, M, F> LargeCell<L, M, F> {
    pub(crate) fn new(job: Job, limit: Option<Nanos>, body: F, lanes: usize, shared: Arc<Shared<L>>) -> Self {
        Self { header: Header::new(job, limit), body, members: Members::new(lanes), shared }
    }
}

impl<L, M, F> Runnable<L> for LargeCell<L, M, F>
where
    L: 'static,
    M: Send + 'static,
    F: Fn(&mut L, &Gang<'_>) -> Result<M, GangBroken> + Send + Sync + 'static,
{
    fn header(&self) -> &Header {
        &self.header
    }

    unsafe fn run(&self, lane: &mut L, here: &Here<'_>) -> Stretch {
        let Some(gang) = here.gang else { return Stretch::Over };
        match catch_unwind(AssertUnwindSafe(|| (self.body)(lane, gang))) {
            Ok(Ok(value)) => {
                // SAFETY: this is the lane's worker, and it has not settled.
                unsafe { self.members.keep(here.lane, value) };
                Stretch::Over
            }
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
}

impl<L, M, F> Resolve<Vec<M>> for LargeCell<L, M, F>
where
    L: 'static,
    M: Send + 'static,
    F: Fn(&mut L, &Gang<'_>) -> Result<M, GangBroken> + Send + Sync + 'static,
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

/// What a panic said.
pub(crate) fn message_of(payload: Box<dyn Any + Send>) -> String {
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a message".to_owned(),
    };
    forget_payload(payload);
    message
}

/// Drops a panic's payload. Its own drop may panic again; that one is leaked.
pub(crate) fn forget_payload(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// Drops what belongs to a user: a panic in it must not take the node's thread along.
pub(crate) fn drop_quietly<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        forget_payload(payload);
    }
}

#[cfg(all(test, target_pointer_width = "64", not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// The two counts of an `Arc`, which come before the cell.
    const COUNTS: usize = 2 * size_of::<usize>();

    /// The line that a worker writes, of a small request with a small body and output.
    #[test]
    fn life_body_and_output_share_one_cache_line() {
        type Cell<T, F> = SmallCell<(), T, F>;
        fn life_ends<T, F>(_: F) -> usize {
            let life = offset_of!(Cell<T, F>, header) + offset_of!(Header, life);
            COUNTS + life + size_of::<Life>()
        }
        let captured = [0_u64; 2];
        let end = life_ends::<u64, _>(move || captured);
        assert!(end <= 64, "the life ends at byte {end}");
        let end = life_ends::<u32, _>(|| ());
        assert!(end <= 48, "{end}");
    }
}
