//! A submitted request: one allocation that ring, dispatcher, worker and ticket share.
//!
//! It holds the body until it runs and the output until the ticket takes it. Three faces hide what it is made of: [`Runnable`] from the
//! worker, which knows the lane's type but not the output's; [`Resolve`] from the ticket, which knows the output's type but not the
//! lane's; and [`Header`], which needs neither.
//!
//! `std::sync::Arc` counts the owners, under the models too: loom's own cannot be made into a trait object.

use super::gang::{Gang, GangBroken};
use super::life::{Ending, Life, Phase};
use super::node::Shared;
use super::ticket::RequestError;
use crate::scheduler::Job;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{AtomicWaker, UnsafeCell, mutant, order};
use crate::types::{LaneId, LaneMask, Nanos, RequestId};
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

    /// Fails a queued request that waits for these lanes in vain. Whether this was what ended it.
    pub(crate) fn fail_missing(&self, lanes: LaneMask) -> bool {
        self.blame_missing(lanes);
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

    /// Runs the body on this lane, catching its panic, and keeps what it returned. Whether the member's peers must be told that it
    /// will not come to the barrier any more.
    ///
    /// # Safety
    /// Called at most once for each lane that the request was granted, by the worker of that lane, while it is Running.
    unsafe fn run(&self, lane: &mut L, gang: Option<&Gang<'_>>) -> Peers;

    /// This lane failed the request; the first failure of all lanes is the one that the ticket gets. Replaces what `run` kept.
    ///
    /// # Safety
    /// As [`Runnable::run`]; not after [`Runnable::settle`] of the same lane.
    unsafe fn fail(&self, lane: LaneId, error: RequestError);

    /// This lane is done with the request. The last one ends its life; then whether somebody waits for that is told.
    ///
    /// # Safety
    /// Exactly once for each lane that the request was granted, after all else that the lane does with it.
    unsafe fn settle(&self) -> Settled;
}

/// What a member's end means for the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peers {
    /// Nothing: they find out at the barrier, if they still have one.
    Unaware,
    /// They must be told that the gang is broken.
    Abort,
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
type Output<T> = UnsafeCell<Option<Result<T, Box<RequestError>>>>;

fn take_output<T>(header: &Header, output: &Output<T>) -> Result<T, RequestError> {
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

    unsafe fn run(&self, lane: &mut L, _: Option<&Gang<'_>>) -> Peers {
        // SAFETY: only the worker touches the body, and only here.
        let Some(body) = self.body.with_mut(|body| unsafe { (*body).take() }) else { return Peers::Unaware };
        let result = catch_unwind(AssertUnwindSafe(|| body(lane, &Running { header: &self.header })));
        let result = result.map_err(|payload| Box::new(RequestError::Panicked { rank: None, message: message_of(payload) }));
        // SAFETY: this is the worker, and it has not settled.
        unsafe { self.keep(result) };
        Peers::Unaware
    }

    unsafe fn fail(&self, _: LaneId, error: RequestError) {
        // SAFETY: as in `run`. The body's own panic is the better explanation and stays.
        let unwanted = self.output.with_mut(|output| match unsafe { &mut *output } {
            Some(Err(_)) => None,
            output => output.replace(Err(Box::new(error))),
        });
        drop_quietly(unwanted);
    }

    unsafe fn settle(&self) -> Settled {
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

/// A large request: one body, run by every lane.
pub(crate) struct LargeCell<L, M, F> {
    header: Header,
    body: F,
    /// One for each lane, written by that lane alone.
    members: Box<[UnsafeCell<Option<M>>]>,
    /// Lanes that have not settled.
    left: AtomicU32,
    /// Whether a lane has claimed `cause`.
    caused: AtomicU32,
    cause: UnsafeCell<Option<RequestError>>,
    /// Made by the submitter with room for all, so that no worker allocates.
    output: Output<Vec<M>>,
    shared: Arc<Shared<L>>,
}

// SAFETY: the body is shared by the lanes (`F: Sync`); each member's value is written by its lane and moved by the last one; the cause
// is written by the one lane that claimed it.
unsafe impl<L, M: Send, F: Send + Sync> Sync for LargeCell<L, M, F> {}
// SAFETY: as above; `Shared` is Send and Sync for every L.
unsafe impl<L, M: Send, F: Send + Sync> Send for LargeCell<L, M, F> {}

impl<L, M, F> LargeCell<L, M, F> {
    pub(crate) fn new(job: Job, limit: Option<Nanos>, body: F, lanes: usize, shared: Arc<Shared<L>>) -> Self {
        Self {
            header: Header::new(job, limit),
            body,
            members: (0..lanes).map(|_| UnsafeCell::new(None)).collect(),
            left: AtomicU32::new(lanes as u32),
            caused: AtomicU32::new(0),
            cause: UnsafeCell::new(None),
            output: UnsafeCell::new(Some(Ok(Vec::with_capacity(lanes)))),
            shared,
        }
    }

    fn blame(&self, error: RequestError) {
        // ORDERING: Relaxed: it decides who writes the cause; `left` publishes what was written.
        if self.caused.swap(1, Ordering::Relaxed) == 0 || mutant("cell.blame:every-lane") {
            // SAFETY: only the first lane comes here, and readers wait until every lane has settled.
            self.cause.with_mut(|cause| unsafe { *cause = Some(error) });
        }
    }
}

/// A gang that was given up may leave values of members that had settled. One by one, as above.
#[cfg(not(loom))]
impl<L, M, F> Drop for LargeCell<L, M, F> {
    fn drop(&mut self) {
        for member in &self.members {
            // SAFETY: the last owner is alone. (loom does not see the counter by which it knows, and would call this a race.)
            drop_quietly(member.with_mut(|member| unsafe { (*member).take() }));
        }
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

    unsafe fn run(&self, lane: &mut L, gang: Option<&Gang<'_>>) -> Peers {
        let Some(gang) = gang else { return Peers::Unaware };
        match catch_unwind(AssertUnwindSafe(|| (self.body)(lane, gang))) {
            Ok(Ok(value)) => {
                // SAFETY: this lane's own place.
                self.members[gang.rank()].with_mut(|member| unsafe { *member = Some(value) });
                Peers::Unaware
            }
            Ok(Err(GangBroken)) => Peers::Abort,
            Err(payload) => {
                self.blame(RequestError::Panicked { rank: Some(gang.rank()), message: message_of(payload) });
                Peers::Abort
            }
        }
    }

    unsafe fn fail(&self, lane: LaneId, error: RequestError) {
        // SAFETY: this lane's own place.
        let value = self.members[lane.index()].with_mut(|member| unsafe { (*member).take() });
        drop_quietly(value);
        self.blame(error);
    }

    unsafe fn settle(&self) -> Settled {
        // ORDERING: AcqRel: releases this lane's member and cause; the last lane acquires everybody's.
        if self.left.fetch_sub(1, order("cell.settle", Ordering::AcqRel)) != 1 {
            return Settled::NotYet;
        }
        // SAFETY: every other lane has settled, and its writes are seen.
        let cause = self.cause.with_mut(|cause| unsafe { (*cause).take() });
        let completed = self.output.with_mut(|output| {
            // SAFETY: the ticket comes only after the life has ended, below.
            let output = unsafe { &mut *output };
            let Some(Ok(values)) = output else { return false };
            for member in &self.members {
                // SAFETY: as for the cause.
                values.extend(member.with_mut(|member| unsafe { (*member).take() }));
            }
            if cause.is_none() && values.len() == self.members.len() {
                return true;
            }
            // One by one: two panics at once, of two drops in one vector, would end the process.
            values.drain(..).for_each(drop_quietly);
            *output = Some(Err(Box::new(cause.unwrap_or(RequestError::GangBroken))));
            false
        });
        let ending = self.header.life.end(Phase::Running, if completed { Phase::Completed } else { Phase::Failed });
        if let Ending::Refused(_) = ending {
            // It was given up meanwhile, and the ticket keeps away from the output.
            // SAFETY: every other lane has settled: this one is the only one at the output.
            if let Some(Ok(values)) = self.output.with_mut(|output| unsafe { (*output).take() }) {
                values.into_iter().for_each(drop_quietly);
            }
        }
        ending.into()
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

/// What a panic said.
fn message_of(payload: Box<dyn Any + Send>) -> String {
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
