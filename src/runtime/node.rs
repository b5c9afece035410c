//! The node: what its threads share, how it is built, used and shut down.

use super::admission::{Admission, Door};
use super::affinity::{self, Pinning, Placement};
use super::cell::Runnable;
use super::clock::Clock;
use super::dispatcher::Dispatcher;
use super::faults::{Recovery, Watchdog};
use super::health::{Health, Plate, Pulse};
use super::mailbox::Mailbox;
use super::request::{RejectReason, Rejected, Request};
use super::ticket::Ticket;
use super::wait::{Bell, Wait, Waiting};
use super::worker::{Mail, Report, Worker};
use crate::device::{Device, DeviceError, DeviceFault, Emulated};
use crate::observe::{Record, Terminal};
use crate::scheduler::{Job, Limits, LimitsError, MAX_PARKED, Policy, PolicySpec, Scheduler, Sharing};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{ArrayQueue, Condvar, Mutex, MutexGuard, UnsafeCell, body, mutant, order, thread, thread_token};
use crate::types::{Class, LaneId, LaneMask, MAX_LANES, Nanos, RequestId, TenantKey};
use crate::word::{View, Word, new_word};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How a node is shut down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Shutdown {
    /// Take no more requests; run those that are queued.
    Finish,
    /// Take no more requests; those that are queued resolve as [`RequestError::ShutDown`](super::RequestError::ShutDown). What runs,
    /// runs to its end: no call stops a GPU's work.
    Abort,
}

/// What belongs to one lane, apart from its device.
pub(crate) struct LaneBox<L> {
    /// Written by the dispatcher alone, but for a worker that goes to sleep.
    pub(crate) mailbox: CachePadded<Mailbox<Mail<L>>>,
    /// Written by the worker alone.
    report: CachePadded<UnsafeCell<Report>>,
    pub(crate) plate: Plate,
    /// What the device last said against the lane.
    error: Mutex<Option<DeviceError>>,
    /// What was given up and still holds the lane: its worker uses it. It lives as long as the lane, if that never is let go.
    late: Mutex<Option<Arc<dyn Runnable<L>>>>,
}

// SAFETY: the report is written by the lane's worker while it holds the lane, and read by the dispatcher after it has seen the release.
unsafe impl<L> Sync for LaneBox<L> {}
// SAFETY: mail is Send, a report is plain data; no lane of type L is in here.
unsafe impl<L> Send for LaneBox<L> {}

impl<L> LaneBox<L> {
    fn new() -> Self {
        Self {
            mailbox: CachePadded::new(Mailbox::new()),
            report: CachePadded::new(UnsafeCell::new(Report::default())),
            plate: Plate::new(),
            error: Mutex::new(None),
            late: Mutex::new(None),
        }
    }

    /// For the dispatcher: keeps what it gave up until its worker has let it go; or, with `None`, gives it back then.
    pub(crate) fn swap_late(&self, request: Option<Arc<dyn Runnable<L>>>) -> Option<Arc<dyn Runnable<L>>> {
        std::mem::replace(&mut *self.late.lock().unwrap_or_else(std::sync::PoisonError::into_inner), request)
    }

    /// Where the report is, to be prefetched.
    #[inline]
    pub(crate) fn report_line(&self) -> *const u8 {
        std::ptr::from_ref(&*self.report).cast()
    }

    /// Keeps what the device said. It never waits: if a monitor reads the last error just now, that one stays.
    pub(crate) fn keep_error(&self, error: &DeviceError) {
        if let Ok(mut place) = self.error.try_lock() {
            *place = Some(error.clone());
        }
    }

    pub(crate) fn last_error(&self) -> Option<DeviceError> {
        self.error.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Leaves a report for the dispatcher. For the lane's worker, before it releases the lane.
    pub(crate) fn leave(&self, report: Report) {
        // SAFETY: the worker holds the lane, so the dispatcher stays away.
        self.report.with_mut(|place| unsafe { *place = report });
    }

    /// Reads the report.
    ///
    /// # Safety
    /// Only the dispatcher, after it has seen the lane's release with acquire and before it reserves the lane again.
    pub(crate) unsafe fn report(&self) -> Report {
        // SAFETY: by the contract the worker does not write now, and its writes are seen.
        self.report.with(|place| unsafe { *place })
    }
}

/// What all threads of a node share.
pub(crate) struct Shared<L> {
    pub(crate) word: Box<dyn Word>,
    pub(crate) lanes: usize,
    pub(crate) clock: Clock,
    pub(crate) waiting: Waiting,
    pub(crate) bell: CachePadded<Bell>,
    pub(crate) ingress: ArrayQueue<Arc<dyn Runnable<L>>>,
    pub(crate) cancelled: ArrayQueue<Arc<dyn Runnable<L>>>,
    pub(crate) counters: CachePadded<Counters>,
    pub(crate) pulse: CachePadded<Pulse>,
    boxes: Box<[CachePadded<LaneBox<L>>]>,
    doors: [CachePadded<Door>; 2],
    /// Where the small queue is shared between tenants: how, and a door for each line of it.
    lines: Option<(Sharing, Box<[CachePadded<Door>]>)>,
    next_id: CachePadded<AtomicU64>,
    closing: AtomicU32,
    stopping: AtomicBool,
    stopped: Latch,
    /// The lanes for which larges wait no longer; none while they may come.
    missing: AtomicU64,
    /// The token of the thread that drives the dispatcher, 0 for none.
    driving: CachePadded<AtomicUsize>,
}

const OPEN: u32 = 0;
const FINISH: u32 = 1;
const ABORT: u32 = 2;

impl<L> Shared<L> {
    fn new(word: Box<dyn Word>, limits: &Limits, waiting: Waiting, silent: bool) -> Self {
        let queue = Class::ALL.map(|class| limits.queue_capacity(class));
        Self {
            word,
            lanes: limits.lanes(),
            clock: Clock::start(),
            waiting,
            bell: CachePadded::new(Bell::new(silent)),
            // The doors let in no more than this, so that a push never fails.
            ingress: ArrayQueue::new(queue[0] + queue[1]),
            // A request is cancelled while it is queued at most once, and counts at the door until that is dealt with; or else while it is
            // parked. Of those no more come in a turn of the dispatcher than there are lanes, of which it deals with `ARRIVALS` at least.
            cancelled: ArrayQueue::new((queue[0] + queue[1]).div_ceil(4) * 5 + 4 * (MAX_LANES + 1) * MAX_PARKED),
            counters: CachePadded::default(),
            pulse: CachePadded::new(Pulse::new()),
            boxes: (0..limits.lanes()).map(|_| CachePadded::new(LaneBox::new())).collect(),
            doors: queue.map(|capacity| CachePadded::new(Door::new(capacity))),
            lines: limits
                .shared()
                .map(|sharing| (sharing, (0..sharing.lines).map(|_| CachePadded::new(Door::new(sharing.most))).collect())),
            next_id: CachePadded::new(AtomicU64::new(0)),
            closing: AtomicU32::new(OPEN),
            stopping: AtomicBool::new(false),
            stopped: Latch::new(),
            missing: AtomicU64::new(0),
            driving: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// For the dispatcher: says which lanes larges wait for in vain.
    pub(crate) fn set_missing(&self, lanes: LaneMask) {
        // ORDERING: Relaxed: the bits are the whole message. The dispatcher fails those that passed before it is seen.
        self.missing.store(lanes.bits(), Ordering::Relaxed);
    }

    /// The lanes for which larges wait in vain.
    #[inline]
    pub(crate) fn missing(&self) -> LaneMask {
        // ORDERING: Relaxed, as above.
        LaneMask::from_bits(self.missing.load(Ordering::Relaxed))
    }

    /// Whether the dispatcher has done its last turn.
    pub(crate) fn has_ended(&self) -> bool {
        // ORDERING: Relaxed: for monitors; it orders nothing.
        self.stopping.load(Ordering::Relaxed)
    }

    /// Whether a request of this class would wait in vain.
    #[inline]
    fn lacks_lanes(&self, class: Class) -> Result<(), RejectReason> {
        if class == Class::Large {
            let lanes = self.missing();
            if !lanes.is_empty() {
                return Err(RejectReason::LanesMissing { lanes });
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn lane(&self, lane: LaneId) -> &LaneBox<L> {
        &self.boxes[lane.index()]
    }

    #[inline]
    pub(crate) fn door(&self, class: Class) -> &Door {
        &self.doors[class.index()]
    }

    /// The door of a tenant's line, if it has one.
    #[inline]
    fn line(&self, class: Class, tenant: TenantKey) -> Option<&Door> {
        match &self.lines {
            Some((sharing, doors)) if class == Class::Small => Some(&doors[sharing.line(tenant)]),
            _ => None,
        }
    }

    /// A request of this class and tenant comes in, if there is room for it.
    #[inline]
    fn enter(&self, class: Class, tenant: TenantKey) -> Result<(), RejectReason> {
        let line = self.line(class, tenant);
        if let Some(line) = line {
            line.enter().map_err(|_| RejectReason::TenantFull)?;
        }
        self.door(class).enter().inspect_err(|_| {
            if let Some(line) = line {
                line.leave();
            }
        })
    }

    /// A request has left the queue.
    #[inline]
    pub(crate) fn leave(&self, job: &Job) {
        if let Some(line) = self.line(job.class, job.tenant) {
            line.leave();
        }
        self.door(job.class).leave();
    }

    /// Ends the parks of these lanes' workers.
    #[inline]
    pub(crate) fn unpark(&self, lanes: LaneMask) {
        if self.waiting.parks() {
            for lane in lanes {
                self.lane(lane).mailbox.unpark();
            }
        }
    }

    pub(crate) fn closing(&self) -> Option<Shutdown> {
        // ORDERING: Acquire, with the Release in `close`: who sees how to end sees the doors shut.
        match self.closing.load(order("node.closing", Ordering::Acquire)) {
            OPEN => None,
            FINISH => Some(Shutdown::Finish),
            _ => Some(Shutdown::Abort),
        }
    }

    /// Shuts the doors and says how to end. A later Abort overrides Finish, never the reverse.
    pub(crate) fn close(&self, how: Shutdown) {
        for door in &self.doors {
            door.close();
        }
        let how = match how {
            Shutdown::Finish => FINISH,
            Shutdown::Abort => ABORT,
        };
        // ORDERING: Release, with the Acquire in `closing`: a dispatcher that saw this but found a door still open would go to sleep for
        // good, since its last look before that is at this flag alone. The bell orders it before that look.
        self.closing.fetch_max(how, order("node.close", Ordering::Release));
        if !mutant("node.close:no-bell") {
            self.bell.ring();
        }
    }

    /// Hands the dispatcher a request that was cancelled while it was queued.
    pub(crate) fn withdraw(&self, request: Arc<dyn Runnable<L>>) {
        let full = self.cancelled.push(request).is_err();
        debug_assert!(!full, "a request was cancelled twice");
        if !mutant("node.withdraw:no-bell") {
            self.bell.ring();
        }
    }

    /// A number that no other living node has.
    pub(crate) fn token(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Whether the current thread runs the body of one of the node's requests.
    pub(crate) fn is_inside(&self) -> bool {
        body::is_inside(self.token())
    }

    /// Whether this thread drives the dispatcher, further up its stack.
    fn is_driven_by_this_thread(&self) -> bool {
        // ORDERING: Relaxed: a thread looks here only for its own token, and only it writes that.
        self.driving.load(Ordering::Relaxed) == thread_token()
    }

    /// Whether the current thread is one of the node's own, which must not wait for the node.
    pub(crate) fn is_own_thread(&self) -> bool {
        let me = thread::current().id();
        self.is_driven_by_this_thread() || self.bell.is_sleeper(me) || self.boxes.iter().any(|lane| lane.mailbox.is_owner(me))
    }
}

/// Counts of requests by class and end. Written by the dispatcher, but for refusals.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    submitted: [AtomicU64; 2],
    over: [[AtomicU64; 6]; 2],
    queued: [AtomicU64; 2],
    draining: AtomicBool,
    /// Whether anybody wants `waits_ns`.
    wanted: AtomicBool,
    /// How long a request that comes now is expected to wait, by class, plus 1; 0: nobody knows.
    waits_ns: [AtomicU64; 2],
    /// Requests that were expected to be too late.
    late: CachePadded<AtomicU32>,
    /// By submitters, and therefore on a line of its own.
    rejected: CachePadded<[AtomicU64; 2]>,
}

impl Counters {
    /// The dispatcher took a request in.
    pub(crate) fn submitted(&self, class: Class) {
        bump(&self.submitted[class.index()]);
    }

    /// The dispatcher saw a request's end.
    pub(crate) fn over(&self, class: Class, terminal: Terminal) {
        debug_assert_ne!(terminal, Terminal::Rejected, "refusals are counted by submitters");
        bump(&self.over[class.index()][terminal as usize]);
    }

    /// How many submitters of a class have been turned away.
    pub(crate) fn turned_away(&self, class: Class) -> u64 {
        // ORDERING: Relaxed: a count, which orders nothing.
        self.rejected[class.index()].load(Ordering::Relaxed)
    }

    /// A submitter was turned away at the door.
    fn rejected(&self, class: Class) {
        // ORDERING: Relaxed: a count for people, which orders nothing.
        self.rejected[class.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether estimates are wanted.
    #[inline]
    pub(crate) fn wants_estimates(&self) -> bool {
        // ORDERING: Relaxed: it is set once, and the dispatcher sees it soon.
        self.wanted.load(Ordering::Relaxed)
    }

    pub(crate) fn publish_waits(&self, waits: [Option<Nanos>; 2]) {
        for (place, wait) in self.waits_ns.iter().zip(waits) {
            // ORDERING: Relaxed: numbers for people, which order nothing.
            place.store(wait.map_or(0, |wait| wait.0.saturating_add(1)), Ordering::Relaxed);
        }
    }

    /// How long a request of this class that comes now is expected to wait.
    fn wait(&self, class: Class) -> Option<Nanos> {
        // ORDERING: Relaxed, as above.
        self.waits_ns[class.index()].load(Ordering::Relaxed).checked_sub(1).map(Nanos)
    }

    pub(crate) fn publish(&self, queued: [usize; 2], draining: bool) {
        // ORDERING: Relaxed: numbers for people, which order nothing.
        for class in Class::ALL {
            self.queued[class.index()].store(queued[class.index()] as u64, Ordering::Relaxed);
        }
        self.draining.store(draining, Ordering::Relaxed);
    }
}

/// Adds one to a counter that only the dispatcher writes: a plain load and store, some ten times cheaper than a locked addition.
fn bump(counter: &AtomicU64) {
    // ORDERING: Relaxed: a count for people, which orders nothing; there is one writer.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// The node at one moment, for people and monitors. The parts are read one after the other: only at a quiet moment do they agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeSnapshot {
    /// How many lanes there are.
    pub lanes: usize,
    /// Lanes that a request holds.
    pub busy: LaneMask,
    /// Lanes out of service.
    pub offline: LaneMask,
    /// Whether a large request holds all lanes.
    pub gang_running: bool,
    /// Whether lanes are kept free for a waiting large request.
    pub draining: bool,
    /// Requests that wait, by class.
    pub queued: [u64; 2],
    /// Requests that were taken in, by class. At a quiet moment it is the sum of the first five ends of `over`.
    pub submitted: [u64; 2],
    /// Requests by class and end, in the order of [`Terminal::ALL`].
    pub over: [[u64; 6]; 2],
}

impl NodeSnapshot {
    /// How many requests of a class ended like this.
    #[must_use]
    pub const fn count(&self, class: Class, terminal: Terminal) -> u64 {
        self.over[class.index()][terminal as usize]
    }

    /// Requests of a class that were taken in and are not over.
    #[must_use]
    pub fn in_flight(&self, class: Class) -> u64 {
        let over: u64 = self.over[class.index()].iter().sum();
        self.submitted[class.index()].saturating_sub(over - self.count(class, Terminal::Rejected))
    }
}

/// What a shutdown left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Whether every request is over, and every lane free but those that hang. It is not if the shutdown was called from within a request:
    /// it goes on then.
    pub complete: bool,
    /// Lanes on which something still runs: after a complete shutdown, those that hang.
    pub busy: LaneMask,
    /// Lanes out of service.
    pub offline: LaneMask,
    /// The names of the threads that had not ended, of those that this call waited for. They own what they still use.
    pub detached: Vec<String>,
}

/// A door that opens once: cold code waits at it.
struct Latch {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Latch {
    fn new() -> Self {
        Self { open: Mutex::new(false), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn open(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut open = self.lock();
        while !*open {
            open = self.changed.wait(open).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

/// Who drives the dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Drive {
    /// A thread of the node's own.
    #[default]
    Thread,
    /// A thread of yours that calls [`Phalanx::turn`]: one hop less, and nothing happens unless it is called. Nobody is told when there is
    /// something to do: turn in a loop. Do not block on a ticket on the thread that turns, unless another one turns too: it would wait for
    /// itself.
    Turn,
}

/// The dispatcher, which one thread at a time may drive.
struct Driver<L> {
    taken: AtomicBool,
    shared: Arc<Shared<L>>,
    dispatcher: UnsafeCell<Dispatcher<L>>,
}

// SAFETY: `taken` lets one thread in at a time, and what is inside may be sent between threads: requests are Send, policies are Send.
unsafe impl<L> Sync for Driver<L> {}
// SAFETY: as above.
unsafe impl<L> Send for Driver<L> {}

impl<L> Driver<L> {
    /// Drives, unless another thread does. A thread that drives for ever never lets go.
    fn drive<R>(&self, drive: impl FnOnce(&mut Dispatcher<L>) -> R) -> Option<R> {
        // ORDERING: Acquire, with the Release below: the last driver's changes are seen. A refusal writes nothing: a swap's `true` would
        // race with the driver's `false`.
        let taken = self.taken.compare_exchange(false, true, order("driver.take", Ordering::Acquire), Ordering::Relaxed);
        if taken.is_err() && !mutant("driver.take:twice") {
            return None;
        }
        // ORDERING: Relaxed: see `is_driven_by_this_thread`.
        self.shared.driving.store(thread_token(), Ordering::Relaxed);
        // SAFETY: only one thread sees `false` become `true` at a time.
        let result = self.dispatcher.with_mut(|dispatcher| drive(unsafe { &mut *dispatcher }));
        self.shared.driving.store(0, Ordering::Relaxed);
        // ORDERING: Release, with the Acquire above.
        self.taken.store(false, order("driver.leave", Ordering::Release));
        Some(result)
    }
}

/// What a [`turn`](Phalanx::turn) did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Turn {
    /// Something had happened and was acted on: turn again.
    Progress,
    /// Nothing had happened. Turn again at this moment at the latest, or when something has been submitted, cancelled or released.
    Idle {
        /// When a timer is due, if one is set.
        wake_at: Option<Nanos>,
    },
    /// Another thread is turning.
    Busy,
    /// The node has shut down: there is nothing left to do.
    Done,
    /// The node has a dispatcher thread of its own: it was not built with [`Drive::Turn`].
    NotYours,
}

/// The event log's reading end.
#[derive(Debug)]
pub struct EventReader {
    ring: rtrb::Consumer<Record>,
}

impl EventReader {
    /// The next record, if there is one.
    pub fn pop(&mut self) -> Option<Record> {
        self.ring.pop().ok()
    }

    /// Whether the node is gone, so that no more will come once [`pop`](Self::pop) gives none.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ring.is_abandoned()
    }
}

/// A node: eight lanes, or fewer, and who runs on them.
///
/// Share it by reference or in an [`Arc`]. Dropping it is a [`Shutdown::Abort`].
pub struct Phalanx<D: Device> {
    shared: Arc<Shared<D::Lane>>,
    driver: Arc<Driver<D::Lane>>,
    device: Arc<D>,
    drive: Drive,
    policy: String,
    placement: Placement,
    unpinned: LaneMask,
    threads: Mutex<Vec<(Option<LaneId>, thread::JoinHandle<()>)>>,
    admission: Admission,
    /// How long a shutdown waits for a worker that has let go of its lane.
    patience: Option<Duration>,
    events: Mutex<Option<EventReader>>,
}

impl Phalanx<Emulated> {
    /// Begins to build a node: eight lanes of emulated GPUs, unless told otherwise.
    pub fn builder() -> Builder<Emulated> {
        Builder {
            lanes: MAX_LANES,
            device: Emulated::default(),
            policy: Chosen::Spec(PolicySpec::default()),
            queue: [Limits::DEFAULT_QUEUE; 2],
            wait: Wait::Auto,
            pinning: Pinning::Auto,
            drive: Drive::Thread,
            recovery: Some(Recovery::default()),
            watchdog: Watchdog::default(),
            admission: Admission::All,
            sharing: None,
            events: None,
        }
    }
}

enum Chosen {
    Spec(PolicySpec),
    Own(Box<dyn Policy>),
}

/// Builds a [`Phalanx`].
#[must_use = "a builder builds nothing until `build` is called"]
pub struct Builder<D> {
    lanes: usize,
    device: D,
    policy: Chosen,
    queue: [usize; 2],
    wait: Wait,
    pinning: Pinning,
    drive: Drive,
    recovery: Option<Recovery>,
    watchdog: Watchdog,
    admission: Admission,
    sharing: Option<Sharing>,
    events: Option<usize>,
}

/// Why a node was not built. Whatever had been started has been stopped again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The state word has room for 1 to [`MAX_LANES`] lanes.
    #[error("{0} lanes: a node has 1 to {MAX_LANES}")]
    Lanes(usize),
    /// A queue's capacity cannot be.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The device did not open a lane.
    #[error("the device did not open: {0}")]
    Device(#[from] DeviceError),
    /// The event log's ring cannot be of this size.
    #[error("an event log ring of {0} records: it holds 1 to {max}", max = Builder::<()>::MAX_EVENTS)]
    Events(usize),
    /// The operating system did not start a thread.
    #[error("a thread of the node could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl Builder<()> {
    /// The most records that an event log's ring holds.
    pub const MAX_EVENTS: usize = 1 << 24;
}

impl<D: Device> Builder<D> {
    /// How many lanes, 1 to [`MAX_LANES`].
    pub const fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// What the lanes run on.
    pub fn device<E: Device>(self, device: E) -> Builder<E> {
        let Self { lanes, device: _, policy, queue, wait, pinning, drive, recovery, watchdog, admission, sharing, events } = self;
        Builder { lanes, device, policy, queue, wait, pinning, drive, recovery, watchdog, admission, sharing, events }
    }

    /// Who starts next.
    pub fn policy(mut self, policy: PolicySpec) -> Self {
        self.policy = Chosen::Spec(policy);
        self
    }

    /// Who starts next, by a policy of your own. If it panics the node shuts down: every ticket resolves.
    pub fn custom_policy(mut self, policy: Box<dyn Policy>) -> Self {
        self.policy = Chosen::Own(policy);
        self
    }

    /// How many requests of a class may wait. One more is rejected.
    pub const fn queue(mut self, class: Class, capacity: usize) -> Self {
        self.queue[class.index()] = capacity;
        self
    }

    /// How threads wait for work.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Which CPUs the threads are pinned to.
    pub fn pinning(mut self, pinning: Pinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// Who drives the dispatcher.
    pub const fn drive(mut self, drive: Drive) -> Self {
        self.drive = drive;
        self
    }

    /// How lanes that are out of service come back. `None`: they never do.
    pub fn recovery(mut self, recovery: impl Into<Option<Recovery>>) -> Self {
        self.recovery = recovery.into();
        self
    }

    /// Which requests are taken in.
    pub const fn admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// Shares the small queue between tenants, whom requests name by [`Request::tenant`]; else it is one queue for all.
    pub const fn sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = Some(sharing);
        self
    }

    /// How long requests may hold their lanes.
    pub const fn watchdog(mut self, watchdog: Watchdog) -> Self {
        self.watchdog = watchdog;
        self
    }

    /// Keeps an event log: a ring of this many records, 1 to [`Builder::MAX_EVENTS`], between the dispatcher and
    /// [`Phalanx::take_events`].
    pub const fn events(mut self, records: usize) -> Self {
        self.events = Some(records);
        self
    }

    /// Opens the lanes on their threads and starts the dispatcher.
    ///
    /// # Errors
    /// See [`BuildError`]. Nothing is left running then.
    pub fn build(self) -> Result<Phalanx<D>, BuildError> {
        let Some(word) = new_word(self.lanes) else { return Err(BuildError::Lanes(self.lanes)) };
        if let Some(records) = self.events.filter(|records| !(1..=Builder::<()>::MAX_EVENTS).contains(records)) {
            return Err(BuildError::Events(records));
        }
        let mut limits = Limits::new(self.lanes)?;
        for class in Class::ALL {
            limits = limits.queue(class, self.queue[class.index()])?;
        }
        if let Some(sharing) = self.sharing {
            limits = limits.sharing(sharing)?;
        }
        let (policy, name) = match self.policy {
            Chosen::Spec(spec) => (spec.build(self.lanes), spec.to_string()),
            Chosen::Own(policy) => {
                let name = policy.name().to_owned();
                (policy, name)
            }
        };
        // What is allowed is read before anything is pinned.
        let placement = Placement::choose(&self.pinning, self.lanes);
        // The workers, the submitter, and the dispatcher where it is not the submitter's own.
        let threads = self.lanes + if self.drive == Drive::Turn { 1 } else { 2 };
        let waiting = self.wait.resolve(placement.cpus(), threads);
        let silent = !waiting.parks() || self.drive == Drive::Turn;
        let shared = Arc::new(Shared::new(word, &limits, waiting, silent));
        if self.admission != Admission::All {
            // ORDERING: Relaxed: nobody else is there yet.
            shared.counters.wanted.store(true, Ordering::Relaxed);
        }
        let (log, events) = self.events.map(rtrb::RingBuffer::new).unzip();
        let dispatcher = Dispatcher::new(Arc::clone(&shared), Scheduler::new(limits, policy), self.recovery, self.watchdog, log);
        let driver = Arc::new(Driver {
            taken: AtomicBool::new(false),
            shared: Arc::clone(&shared),
            dispatcher: UnsafeCell::new(dispatcher),
        });
        let mut node = Phalanx {
            shared,
            driver,
            device: Arc::new(self.device),
            // Until the dispatcher's thread runs, whoever gives up drives the shutdown himself.
            drive: Drive::Turn,
            policy: name,
            placement,
            unpinned: LaneMask::NONE,
            threads: Mutex::new(Vec::with_capacity(self.lanes + 1)),
            patience: self.watchdog.abort,
            admission: self.admission,
            events: Mutex::new(events.map(|ring| EventReader { ring })),
        };
        // If this fails the node is dropped, which stops what was started.
        node.start(self.drive)?;
        Ok(node)
    }
}

impl<D: fmt::Debug> fmt::Debug for Builder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("lanes", &self.lanes).field("device", &self.device).finish_non_exhaustive()
    }
}

/// A lane, whether its worker is pinned as it should be, and whether the device opened it.
type Said = (LaneId, bool, Result<(), DeviceError>);

/// What the workers say of their lanes while the node is built.
struct Opening {
    said: Mutex<Vec<Said>>,
    changed: Condvar,
}

impl Opening {
    fn say(&self, lane: LaneId, pinned: bool, opened: Result<(), DeviceError>) {
        self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((lane, pinned, opened));
        self.changed.notify_all();
    }
}

impl<D: Device> Phalanx<D> {
    fn start(&mut self, drive: Drive) -> Result<(), BuildError> {
        let opening = Arc::new(Opening { said: Mutex::new(Vec::new()), changed: Condvar::new() });
        for lane in LaneMask::first(self.shared.lanes) {
            let (shared, device, opening) = (Arc::clone(&self.shared), Arc::clone(&self.device), Arc::clone(&opening));
            let cpu = self.placement.workers[lane.index()];
            let worker = thread::Builder::new().name(worker_name(lane)).spawn(move || {
                let pinned = cpu.is_none_or(affinity::pin);
                shared.lane(lane).mailbox.attach();
                let opened = catch_unwind(AssertUnwindSafe(|| device.open(lane))).unwrap_or_else(|_| {
                    Err(DeviceError::new(lane, DeviceFault::Lane, "the device panicked while it was opened"))
                });
                match opened {
                    Ok(opened) => {
                        opening.say(lane, pinned, Ok(()));
                        drop(opening);
                        Worker { lane, device: &*device, shared: &shared }.serve(opened);
                    }
                    Err(error) => opening.say(lane, pinned, Err(error)),
                }
            })?;
            self.threads().push((Some(lane), worker));
        }
        let mut said = opening.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while said.len() < self.shared.lanes {
            said = opening.changed.wait(said).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        self.unpinned = said.iter().filter(|(_, pinned, _)| !pinned).map(|(lane, ..)| *lane).collect();
        for (_, _, opened) in said.drain(..) {
            opened?;
        }
        drop(said);
        if drive == Drive::Thread {
            let (shared, driver, cpu) = (Arc::clone(&self.shared), Arc::clone(&self.driver), self.placement.dispatcher);
            let dispatcher = thread::Builder::new().name("phalanx-dispatcher".to_owned()).spawn(move || {
                if let Some(cpu) = cpu {
                    affinity::pin(cpu);
                }
                crate::os::precise_sleep();
                shared.bell.attach();
                driver.drive(|dispatcher| {
                    while !dispatcher.is_done() {
                        if !dispatcher.turn() {
                            dispatcher.wait();
                        }
                    }
                    shared.stop();
                    dispatcher.finish_log();
                });
            })?;
            self.threads().push((None, dispatcher));
        }
        self.drive = drive;
        Ok(())
    }

    fn threads(&self) -> MutexGuard<'_, Vec<(Option<LaneId>, thread::JoinHandle<()>)>> {
        self.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Hands a request to the node. Returns at once.
    ///
    /// # Errors
    /// [`Rejected`], with the request in it, if the queue of its class is full, the node is shut down, or it is large and lanes are missing for
    /// too long; see [`RejectReason`].
    pub fn submit<T>(&self, request: Request<D::Lane, T>) -> Result<Ticket<T>, Rejected<Request<D::Lane, T>>> {
        let class = request.class();
        let taken = self
            .shared
            .lacks_lanes(class)
            .and_then(|()| self.in_time(&request))
            .and_then(|()| self.shared.enter(class, request.owner()));
        if let Err(reason) = taken {
            self.shared.counters.rejected(class);
            return Err(Rejected { request, reason, starts_in: self.estimate_start(class) });
        }
        // ORDERING: Relaxed: a number, unique by the counter's own order.
        let id = RequestId(self.shared.next_id.fetch_add(1, Ordering::Relaxed));
        let now = self.shared.clock.now();
        let (lane_face, ticket_face) = request.into_cell(id, now, self.shared.lanes, Arc::clone(&self.shared));
        let full = self.shared.ingress.push(lane_face).is_err();
        assert!(!full, "the ring holds as many requests as the doors let in");
        if !mutant("node.submit:no-bell") {
            self.shared.bell.ring();
        }
        Ok(Ticket::new(ticket_face))
    }

    /// Whether the request may be expected to start by its deadline, if that is asked.
    #[inline]
    fn in_time<T>(&self, request: &Request<D::Lane, T>) -> Result<(), RejectReason> {
        let (Admission::InTime { probe }, Some(deadline)) = (self.admission, request.must_start_in()) else { return Ok(()) };
        let starts_in = self.shared.counters.wait(request.class());
        match starts_in.filter(|&wait| wait > deadline) {
            None => Ok(()),
            Some(starts_in) => {
                // ORDERING: Relaxed: the counter's own order picks one in so many.
                let number = self.shared.counters.late.fetch_add(1, Ordering::Relaxed);
                let probes = number.checked_rem(probe).unwrap_or(0) == 0;
                if probes { Ok(()) } else { Err(RejectReason::TooLate { starts_in: starts_in.into() }) }
            }
        }
    }

    /// In how long a request of this class that is submitted now is expected to start, as if all were served in the order of arrival: see
    /// [`Scheduler::estimate_wait`]. The dispatcher keeps the estimate, from the first time on that it is asked for, or if
    /// [`Admission::InTime`] needs it: this only reads it.
    ///
    /// `None` if it cannot be told, or not yet.
    #[must_use]
    pub fn estimate_start(&self, class: Class) -> Option<Duration> {
        let counters = &self.shared.counters;
        if !counters.wants_estimates() {
            // ORDERING: Relaxed: the dispatcher sees it in its next turn, for which the bell is rung.
            counters.wanted.store(true, Ordering::Relaxed);
            self.shared.bell.ring();
        }
        counters.wait(class).map(Duration::from)
    }

    /// Lets the dispatcher take in what has happened, on the calling thread, if the node was built with [`Drive::Turn`].
    pub fn turn(&self) -> Turn {
        if self.drive == Drive::Thread {
            return Turn::NotYours;
        }
        turn(&self.driver, &self.shared)
    }

    /// Shuts the node down and waits until it has: every ticket is resolved then, every thread has ended but those that hang. It may be
    /// called any number of times, by any number of threads; an Abort that comes after a Finish overrides it.
    ///
    /// It is bounded: an Abort takes no longer than [`Watchdog::abort`] and twice [`Watchdog::grace`] for what runs, a Finish no longer than
    /// the limits of what is queued and runs. What is past that is given up: its ticket resolves, its thread is detached and named in the
    /// report, and ends when it can.
    ///
    /// From within a request, or from code of yours that a [`turn`](Self::turn) runs, it returns at once, since that is among what would be
    /// waited for. The shutdown goes on, under [`Drive::Turn`] as long as somebody turns.
    pub fn shutdown(&self, how: Shutdown) -> ShutdownReport {
        self.shared.close(how);
        let own = self.shared.is_own_thread();
        let mut hung = LaneMask::NONE;
        if !own {
            if self.drive == Drive::Turn {
                turn_to_the_end(&self.driver, &self.shared);
            }
            self.shared.stopped.wait();
            // Held until all have ended: who comes second waits for that here. The node's own threads never come here.
            let View { busy, offline, .. } = self.shared.word.load();
            hung = busy & offline;
            for (lane, thread) in self.threads().drain(..) {
                match lane {
                    // It ends by itself, if it ever can.
                    Some(lane) if hung.contains(lane) => drop(thread),
                    Some(lane) => {
                        if !join(thread, self.patience) {
                            hung = hung.with(lane);
                        }
                    }
                    None => {
                        // A thread's panic was caught in it; there is nothing to learn here.
                        let _ = thread.join();
                    }
                }
            }
        }
        let View { busy, offline, .. } = self.shared.word.load();
        let detached = hung.into_iter().map(worker_name).collect();
        ShutdownReport { complete: !own, busy, offline, detached }
    }

    /// The node at this moment.
    #[must_use]
    pub fn snapshot(&self) -> NodeSnapshot {
        let view = self.shared.word.load();
        let counters = &self.shared.counters;
        // ORDERING: Relaxed: numbers for people, which order nothing.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let draining = counters.draining.load(Ordering::Relaxed);
        let mut over = [0, 1].map(|class| [0, 1, 2, 3, 4, 5].map(|end| read(&counters.over[class][end])));
        for class in Class::ALL {
            over[class.index()][Terminal::Rejected as usize] = counters.turned_away(class);
        }
        NodeSnapshot {
            lanes: self.shared.lanes,
            busy: view.busy,
            offline: view.offline,
            gang_running: view.is_gang(),
            draining,
            queued: [0, 1].map(|class| read(&counters.queued[class])),
            submitted: [0, 1].map(|class| read(&counters.submitted[class])),
            over,
        }
    }

    /// Every lane's health, and whether the node is live and ready. It reads what the dispatcher has written, passes through no queue, and
    /// waits for nobody: a node that is stuck answers, too.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// The event log's reading end, once, if the node was built to keep one.
    pub fn take_events(&self) -> Option<EventReader> {
        self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    /// The node's time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.shared.clock.now()
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The device that the lanes were opened on.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The policy, with its settings.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Which CPUs the threads were to be pinned to.
    #[must_use]
    pub const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The lanes whose workers could not be pinned; they float.
    #[must_use]
    pub const fn unpinned(&self) -> LaneMask {
        self.unpinned
    }

    /// How the threads wait, in words.
    #[must_use]
    pub fn waiting(&self) -> String {
        self.shared.waiting.to_string()
    }
}

impl<L> Shared<L> {
    /// The dispatcher is done: lets the workers go, and those who wait for the end. The first call counts.
    fn stop(&self) {
        // ORDERING: Relaxed: it only picks the first; the lanes were seen free by the one dispatcher before.
        if self.stopping.swap(true, Ordering::Relaxed) && !mutant("node.stop:twice") {
            return;
        }
        // A lane that hangs is out of service: its worker ends by itself, when it releases the lane and finds the node closed.
        for lane in LaneMask::first(self.lanes) & !self.word.load().busy {
            // SAFETY: the lane is free, so its mailbox is empty (or its worker has ended, and nobody takes), and the dispatcher, which
            // alone puts, has ended with this.
            unsafe { self.lane(lane).mailbox.put(Mail::Quit, self.waiting.parks()) };
        }
        self.stopped.open();
    }
}

impl<D: Device> Drop for Phalanx<D> {
    fn drop(&mut self) {
        let report = self.shutdown(Shutdown::Abort);
        if !report.complete && self.drive == Drive::Turn {
            // The last owner was a request, or something that a turn ran: nobody is left to turn, and tickets wait.
            let (driver, shared) = (Arc::clone(&self.driver), Arc::clone(&self.shared));
            let last = thread::Builder::new().name("phalanx-last-turns".to_owned());
            // If the system gives no thread, what was queued is leaked; there is nobody to tell.
            let _ = last.spawn(move || turn_to_the_end(&driver, &shared));
        }
    }
}

fn worker_name(lane: LaneId) -> String {
    format!("phalanx-lane-{lane}")
}

/// Waits for the end of a worker that has let go of its lane, and may still be in what its last request captured. Whether it ended.
#[cfg(not(any(loom, shuttle)))]
fn join(thread: thread::JoinHandle<()>, patience: Option<Duration>) -> bool {
    let began = std::time::Instant::now();
    while !thread.is_finished() {
        if patience.is_some_and(|patience| began.elapsed() > patience) {
            return false;
        }
        thread::park_timeout(Duration::from_micros(50));
    }
    let _ = thread.join();
    true
}

/// The models' threads all end.
#[cfg(any(loom, shuttle))]
fn join(thread: thread::JoinHandle<()>, _: Option<Duration>) -> bool {
    let _ = thread.join();
    true
}

/// One turn on this thread.
fn turn<L: 'static>(driver: &Driver<L>, shared: &Shared<L>) -> Turn {
    let turn = driver.drive(|dispatcher| {
        let progress = dispatcher.turn();
        if dispatcher.is_done() {
            shared.stop();
            Turn::Done
        } else if progress {
            Turn::Progress
        } else {
            Turn::Idle { wake_at: dispatcher.wake_at() }
        }
    });
    turn.unwrap_or(Turn::Busy)
}

/// Turns until the node has shut down, which it has been told to.
fn turn_to_the_end<L: 'static>(driver: &Driver<L>, shared: &Shared<L>) {
    loop {
        match turn(driver, shared) {
            Turn::Done => break,
            Turn::Progress => {}
            // What is waited for are requests that run: a tenth of a millisecond more or less does not matter.
            _ => thread::park_timeout(Duration::from_micros(100)),
        }
    }
    driver.drive(Dispatcher::finish_log);
}

impl<D: Device> fmt::Debug for Phalanx<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phalanx").field("policy", &self.policy).field("snapshot", &self.snapshot()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Nothing that one thread writes on the way of a request shares a cache line, or the pair of lines that a processor fetches at once, with
    /// what another writes.
    #[test]
    fn no_false_sharing() {
        type Node = Shared<()>;
        let pair = align_of::<CachePadded<u8>>();
        let padded = [
            ("bell: submitters read, the dispatcher writes", offset_of!(Node, bell)),
            ("counters: the dispatcher", offset_of!(Node, counters)),
            ("pulse: the dispatcher", offset_of!(Node, pulse)),
            ("doors: submitters and the dispatcher", offset_of!(Node, doors)),
            ("next_id: submitters", offset_of!(Node, next_id)),
            ("driving: whoever turns", offset_of!(Node, driving)),
        ];
        for (name, at) in padded {
            assert_eq!(at % pair, 0, "{name}");
        }
        assert_eq!(size_of::<CachePadded<Door>>() % pair, 0);
        let lane = [
            ("mailbox: the dispatcher", offset_of!(LaneBox<()>, mailbox)),
            ("report: the worker", offset_of!(LaneBox<()>, report)),
        ];
        for (name, at) in lane {
            assert_eq!(at % pair, 0, "{name}");
        }
        // Counts of the dispatcher's, and of the submitters that are turned away.
        let (late, rejected) = (offset_of!(Counters, late), offset_of!(Counters, rejected));
        assert!(late % pair == 0 && rejected % pair == 0 && late != rejected);
        assert!(size_of::<Report>() <= 64 && size_of::<CachePadded<Bell>>() == pair);
    }
}
