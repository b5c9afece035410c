//! What a user submits.

use super::cell::{LargeCell, Resolve, Runnable, Running, SmallCell};
use super::gang::{Gang, GangBroken};
use super::node::Shared;
use super::steps::{LargeSteps, SmallSteps, Step};
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

/// How long a step is taken to be whose length nobody tells: a decode step of a language model takes 5 to 30 ms.
const DEFAULT_STEP: Duration = Duration::from_millis(10);

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
    step: Span,
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

    /// A small request that can stop between two of its steps, and go on later, on the lane that it had: so a large one waits for a step of
    /// it, and not for all of it.
    ///
    /// `make` runs once, on the lane, before the first step; what it returns is kept there until the request is over, and dropped there: it
    /// need not be [`Send`]. Then `step` is called until it says [`Step::Done`]. Between two steps the request may be parked, by the node's
    /// policy, and its lane used by others: once what the device was given has ended, so that a step which only launches, and does not wait
    /// for that, makes the others wait instead. What `make` made stays in place, its memory on the GPU, too. There the request also ends if it was cancelled, if its [`finish_by`](Self::finish_by) or its
    /// [`limit`](Self::limit) has passed (the limit counts while it holds its lane), or if the node is shut down by
    /// [`Shutdown::Abort`](super::Shutdown::Abort); and where it stands parked, if its lane is taken out of service
    /// ([`RequestError::LanesMissing`](super::RequestError::LanesMissing)). What is kept of a request that ended so is dropped when the lane
    /// has its next request, or ends.
    ///
    /// Say how long a step takes by [`step_length`](Self::step_length).
    ///
    /// ```
    /// use phalanx::{EmulatedLane, Phalanx, Request, Step};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = Phalanx::builder().lanes(1).policy("swap".parse()?).build()?;
    /// let decode = Request::small_steps(
    ///     |_: &mut EmulatedLane| Vec::new(),
    ///     |lane: &mut EmulatedLane, tokens: &mut Vec<u32>| {
    ///         lane.launch(Duration::from_micros(100)).unwrap();
    ///         lane.synchronize();
    ///         tokens.push(tokens.len() as u32);
    ///         if tokens.len() < 10 { Step::Continue } else { Step::Done(std::mem::take(tokens)) }
    ///     },
    /// );
    /// assert_eq!(node.submit(decode.step_length(Duration::from_micros(100)))?.wait()?.len(), 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn small_steps<S, I, F>(make: I, step: F) -> Self
    where
        S: 'static,
        I: FnOnce(&mut L) -> S + Send + 'static,
        F: FnMut(&mut L, &mut S) -> Step<T> + Send + 'static,
    {
        let options = Options { step: Span::new(DEFAULT_STEP), ..Options::default() };
        Self { class: Class::Small, options, body: Box::new(SmallStepsBody(make, step)) }
    }
}

struct SmallStepsBody<I, F>(I, F);

impl<L, T, S, I, F> Body<L, T> for SmallStepsBody<I, F>
where
    L: 'static,
    T: Send + 'static,
    S: 'static,
    I: FnOnce(&mut L) -> S + Send + 'static,
    F: FnMut(&mut L, &mut S) -> Step<T> + Send + 'static,
{
    fn into_cell(self: Box<Self>, job: Job, limit: Option<Nanos>, _: usize, shared: Arc<Shared<L>>) -> Cells<L, T> {
        let cell = Arc::new(SmallSteps::new(job, limit, self.0, self.1, shared));
        (Arc::clone(&cell) as Arc<dyn Runnable<L>>, cell)
    }
}

struct LargeStepsBody<I, F>(I, F);

impl<L, M, S, I, F> Body<L, Vec<M>> for LargeStepsBody<I, F>
where
    L: 'static,
    M: Send + 'static,
    S: 'static,
    I: Fn(&mut L, &Gang<'_>) -> S + Send + Sync + 'static,
    F: Fn(&mut L, &Gang<'_>, &mut S) -> Result<Step<M>, GangBroken> + Send + Sync + 'static,
{
    fn into_cell(self: Box<Self>, job: Job, limit: Option<Nanos>, lanes: usize, shared: Arc<Shared<L>>) -> Cells<L, Vec<M>> {
        let cell = Arc::new(LargeSteps::new(job, limit, self.0, self.1, lanes, shared));
        (Arc::clone(&cell) as Arc<dyn Runnable<L>>, cell)
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

    /// A large request that can stop between two of its steps, as [`small_steps`](Self::small_steps): to let small ones pass, and go on.
    ///
    /// Every member makes its own state, and takes the same number of steps. After each the members meet at the barrier, without being told
    /// to: there all of them stop, or none does. A member may come to [`Gang::barrier`] within its steps, too.
    /// If some members are done after a step and others are not, the request fails with
    /// [`RequestError::StepsDisagree`](super::RequestError::StepsDisagree).
    ///
    /// ```
    /// use phalanx::{EmulatedLane, Gang, Phalanx, Request, Step};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = Phalanx::builder().lanes(2).policy("swap".parse()?).build()?;
    /// let layers = Request::large_steps(
    ///     |_: &mut EmulatedLane, gang: &Gang| gang.rank(),
    ///     |lane: &mut EmulatedLane, gang: &Gang, sum: &mut usize| {
    ///         lane.launch(Duration::from_micros(100)).unwrap();
    ///         lane.synchronize();
    ///         *sum += gang.size();
    ///         Ok(if *sum < 10 * gang.size() { Step::Continue } else { Step::Done(*sum) })
    ///     },
    /// );
    /// assert_eq!(node.submit(layers)?.wait()?, [20, 21]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn large_steps<S, I, F>(make: I, step: F) -> Self
    where
        S: 'static,
        I: Fn(&mut L, &Gang<'_>) -> S + Send + Sync + 'static,
        F: Fn(&mut L, &Gang<'_>, &mut S) -> Result<Step<M>, GangBroken> + Send + Sync + 'static,
    {
        let options = Options { step: Span::new(DEFAULT_STEP), ..Options::default() };
        Self { class: Class::Large, options, body: Box::new(LargeStepsBody(make, step)) }
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

    /// About how long one of its steps takes, for a request that has some; by default 10 ms. Policies weigh by it whether to ask it to stop.
    /// A request without steps stays without.
    pub fn step_length(mut self, step: Duration) -> Self {
        if self.options.step.get().is_some() {
            self.options.step = Span::new(step.max(Duration::from_nanos(1)));
        }
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
            step: self.options.step.get(),
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
