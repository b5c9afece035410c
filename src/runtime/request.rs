//! What a user submits.

use super::cell::{LargeCell, Resolve, Runnable, Running, SmallCell};
use super::gang::{Gang, GangBroken};
use super::node::Shared;
use crate::scheduler::Job;
use crate::types::{Class, LaneMask, ModelKey, Nanos, RequestId, TenantKey};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A request that has not been submitted yet: a body to run on one lane or on all, and what the scheduler should know about it.
///
/// `L` is the lane type of the node's device, `T` what the ticket will give. The compiler often needs to be told the lane's type in the
/// closure.
///
/// ```
/// use phalanx::{EmulatedLane, Gang, Request};
/// use std::time::Duration;
///
/// let small = Request::small(|lane: &mut EmulatedLane| lane.launch(Duration::from_millis(5)))
///     .model("llama-8b")
///     .deadline(Duration::from_millis(200));
/// let large = Request::large(|lane: &mut EmulatedLane, gang: &Gang| {
///     gang.barrier()?;
///     Ok(gang.rank())
/// })
/// .expected(Duration::from_millis(400));
/// ```
#[must_use = "a request does nothing until it is submitted"]
pub struct Request<L, T> {
    class: Class,
    options: Options,
    body: Box<dyn Body<L, T>>,
}

// SAFETY: a shared request shows its class and options; the body, which need not be Sync, is reached only through the request's owner.
unsafe impl<L, T> Sync for Request<L, T> {}

/// What the scheduler is told beside the class.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    model: ModelKey,
    tenant: TenantKey,
    deadline: Span,
    finish_by: Span,
    target: Span,
    expected: Span,
    limit: Span,
}

/// A span that may be missing, in half the room: a request is handed back by value.
#[derive(Clone, Copy)]
struct Span(u64);

impl Span {
    const NONE: u64 = u64::MAX;

    fn new(span: Duration) -> Self {
        // What the clock cannot hold is for ever, and not missing.
        Self(Nanos::from(span).0.min(Self::NONE - 1))
    }

    fn get(self) -> Option<Nanos> {
        (self.0 != Self::NONE).then_some(Nanos(self.0))
    }
}

impl Default for Span {
    fn default() -> Self {
        Self(Self::NONE)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// The two faces of a submitted request.
pub(crate) type Cells<L, T> = (Arc<dyn Runnable<L>>, Arc<dyn Resolve<T>>);

/// A body that does not show what closure it is.
trait Body<L, T>: Send {
    fn into_cell(self: Box<Self>, job: Job, limit: Option<Nanos>, lanes: usize, shared: Arc<Shared<L>>) -> Cells<L, T>;
}

struct SmallBody<F>(F);

impl<L, T, F> Body<L, T> for SmallBody<F>
where
    L: 'static,
    T: Send + 'static,
    F: FnOnce(&mut L, &Running<'_>) -> T + Send + 'static,
{
    fn into_cell(self: Box<Self>, job: Job, limit: Option<Nanos>, _: usize, shared: Arc<Shared<L>>) -> Cells<L, T> {
        let cell = Arc::new(SmallCell::new(job, limit, self.0, shared));
        (Arc::clone(&cell) as Arc<dyn Runnable<L>>, cell)
    }
}

struct LargeBody<F>(F);

impl<L, M, F> Body<L, Vec<M>> for LargeBody<F>
where
    L: 'static,
    M: Send + 'static,
    F: Fn(&mut L, &Gang<'_>) -> Result<M, GangBroken> + Send + Sync + 'static,
{
    fn into_cell(self: Box<Self>, job: Job, limit: Option<Nanos>, lanes: usize, shared: Arc<Shared<L>>) -> Cells<L, Vec<M>> {
        let cell = Arc::new(LargeCell::new(job, limit, self.0, lanes, shared));
        (Arc::clone(&cell) as Arc<dyn Runnable<L>>, cell)
    }
}

impl<L: 'static, T: Send + 'static> Request<L, T> {
    /// A request that needs one lane. The ticket gives what the body returns.
    pub fn small<F>(body: F) -> Self
    where
        F: FnOnce(&mut L) -> T + Send + 'static,
    {
        Self::interruptible(move |lane, _| body(lane))
    }

    /// A small request whose body can see that it is to stop, as a gang's can by [`Gang::is_cancelled`].
    ///
    /// ```
    /// use phalanx::{EmulatedLane, Phalanx, Request, Running};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = Phalanx::builder().lanes(1).build()?;
    /// let mut ticket = node.submit(Request::interruptible(|lane: &mut EmulatedLane, running: &Running| {
    ///     (0..1_000).take_while(|_| {
    ///         lane.launch(Duration::from_millis(1)).unwrap();
    ///         lane.synchronize();
    ///         !running.is_cancelled()
    ///     }).count()
    /// }))?;
    /// assert!(ticket.wait_timeout(Duration::from_millis(20)).is_none());
    /// ticket.cancel();
    /// assert!(ticket.wait()? < 1_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn interruptible<F>(body: F) -> Self
    where
        F: FnOnce(&mut L, &Running<'_>) -> T + Send + 'static,
    {
        Self { class: Class::Small, options: Options::default(), body: Box::new(SmallBody(body)) }
    }
}

impl<L: 'static, M: Send + 'static> Request<L, Vec<M>> {
    /// A request that needs every lane at once. The body runs on each, with its rank; it begins when all have arrived. The ticket gives
    /// what the members returned, in the order of their ranks.
    pub fn large<F>(body: F) -> Self
    where
        F: Fn(&mut L, &Gang<'_>) -> Result<M, GangBroken> + Send + Sync + 'static,
    {
        Self { class: Class::Large, options: Options::default(), body: Box::new(LargeBody(body)) }
    }
}

impl<L, T> Request<L, T> {
    /// What it runs: requests of one model share a history of run times, by which the next ones are predicted.
    pub fn model(self, name: &str) -> Self {
        self.model_key(ModelKey::of(name))
    }

    /// The same with a key of your own.
    pub fn model_key(mut self, key: ModelKey) -> Self {
        self.options.model = key;
        self
    }

    /// Whose it is. It counts where the node's small queue is shared between tenants: [`Builder::sharing`](super::Builder::sharing).
    pub fn tenant(self, name: &str) -> Self {
        self.tenant_key(TenantKey::of(name))
    }

    /// The same with a key of your own.
    pub fn tenant_key(mut self, key: TenantKey) -> Self {
        self.options.tenant = key;
        self
    }

    /// If it has not started by so long after its submission, it is not started any more and its ticket says
    /// [`RequestError::Expired`](super::RequestError::Expired). Zero expires it at once; more than the clock can hold is for ever. It
    /// is a span from now, so that it cannot lie in the past, and no number of seconds, so that it can be neither negative nor NaN.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.options.deadline = Span::new(after);
        self
    }

    /// By when, counted from its submission, it must have ended to be of use. Once it could not any more were it started now, by its predicted
    /// run and the mean error of such predictions, it is shed: it is not started any more, and its ticket says
    /// [`RequestError::TooLate`](super::RequestError::TooLate); at once, if it is so when it comes. What has started runs to its end. One in
    /// 16 is let through as if it took no time, so that a prediction that has become too long is found out.
    ///
    /// ```
    /// use phalanx::{EmulatedLane, Phalanx, Request, RequestError};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = Phalanx::builder().lanes(1).build()?;
    /// let request = || Request::small(|_: &mut EmulatedLane| ()).expected(Duration::from_millis(50));
    /// assert_eq!(node.submit(request().finish_by(Duration::from_secs(5)))?.wait(), Ok(()));
    /// let shed = (0..20).filter(|_| {
    ///     let hopeless = node.submit(request().finish_by(Duration::from_micros(1)));
    ///     matches!(hopeless.unwrap().wait(), Err(RequestError::TooLate { .. } | RequestError::Expired))
    /// });
    /// assert!(shed.count() >= 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn finish_by(mut self, after: Duration) -> Self {
        self.options.finish_by = Span::new(after);
        self
    }

    /// By when, counted from its submission, it should have ended. It orders requests and is counted; nothing is dropped for it.
    pub fn target(mut self, after: Duration) -> Self {
        self.options.target = Span::new(after);
        self
    }

    /// How long it is expected to run.
    pub fn expected(mut self, run_time: Duration) -> Self {
        self.options.expected = Span::new(run_time);
        self
    }

    /// How long it may hold its lanes. Past that it is asked to stop, and a gang is broken, so that members at the barrier leave; past
    /// [`Watchdog::grace`](super::Watchdog::grace) it is given up: its ticket says [`RequestError::TimeLimit`](super::RequestError::TimeLimit),
    /// and the lanes that it has not let go are out of service until it does. Without a limit of its own it has the node's; see
    /// [`Watchdog`](super::Watchdog). [`Duration::MAX`] is none at all.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.options.limit = Span::new(limit);
        self
    }

    /// Small or large.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// When it must have started, from now: by its deadline, or to end when it must, by what it expects itself.
    pub(crate) fn must_start_in(&self) -> Option<Nanos> {
        let run = self.options.expected.get().unwrap_or_default();
        let latest = self.options.finish_by.get().map(|by| by - run);
        match (self.options.deadline.get(), latest) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Whose it is.
    pub(crate) const fn owner(&self) -> TenantKey {
        self.options.tenant
    }

    pub(crate) fn into_cell(self, id: RequestId, now: Nanos, lanes: usize, shared: Arc<Shared<L>>) -> Cells<L, T> {
        let due = |after: Span| after.get().map(|after| now + after);
        let job = Job {
            id,
            class: self.class,
            arrival: now,
            deadline: due(self.options.deadline),
            finish_by: due(self.options.finish_by),
            target: due(self.options.target),
            expected: self.options.expected.get(),
            model: self.options.model,
            tenant: self.options.tenant,
            // Requests declare no steps yet: none is asked to stop.
            step: None,
        };
        self.body.into_cell(job, self.options.limit.get(), lanes, shared)
    }
}

impl<L, T> fmt::Debug for Request<L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("class", &self.class).field("options", &self.options).finish_non_exhaustive()
    }
}

/// Why a request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RejectReason {
    /// As many requests of its class as the node will hold are waiting.
    #[error("the queue of its class is full")]
    QueueFull,
    /// As many requests of its tenant as the small queue may hold of one are waiting; see [`Sharing`](crate::scheduler::Sharing).
    #[error("the small queue holds as many requests of its tenant as it may")]
    TenantFull,
    /// The node is being shut down, or was.
    #[error("the node is shut down")]
    Closed,
    /// It is expected to start after its deadline, and the node takes only what is in time: [`Admission::InTime`](super::Admission::InTime).
    #[error("it is expected to start in {starts_in:?}, after its deadline")]
    TooLate {
        /// In how long it would be expected to start.
        starts_in: Duration,
    },
    /// It is large, and lanes have been out of service for longer than [`Recovery::large_wait`](super::Recovery::large_wait), or are lost.
    /// Larges are taken again when every lane is back.
    #[error("lanes {lanes} are out of service, and a large request needs every lane")]
    LanesMissing {
        /// The lanes that are missing.
        lanes: LaneMask,
    },
}

/// A request that was not taken, handed back.
#[derive(Debug, thiserror::Error)]
#[error("the request was not taken: {reason}")]
pub struct Rejected<R> {
    /// The request, as it was.
    pub request: R,
    /// Why.
    pub reason: RejectReason,
    /// In how long a request of its class that comes now would be expected to start, by [`Phalanx::estimate_start`](super::Phalanx::estimate_start):
    /// what to tell whoever asks when to come again. `None` where it cannot be told, and for the first that asks.
    pub starts_in: Option<Duration>,
}
