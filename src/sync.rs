//! The only import point for atomics, cells, threads, `Arc` and spin hints.
//!
//! Whatever a model has to see goes through here: under `cfg(loom)` these are loom's types, under `cfg(shuttle)` shuttle's, and
//! otherwise the standard library's. The switch is the bare cfg, never `all(test, loom)`, since the models live in a crate of
//! their own and see this one as a plain dependency.
//!
//! Two types come from elsewhere in a normal build and would be invisible to a model, which then passes whatever they do: the
//! bounded queue and the waker cell. They are replaced here too.
//!
//! Not everything needs a model: [`crossbeam_utils::CachePadded`] holds no atomic and is used as it is.

#[cfg(all(loom, shuttle))]
compile_error!("choose one model checker: `--cfg loom` or `--cfg shuttle`");

// The debug assertions are half of what a model checks; without them a green run says little.
#[cfg(all(loom, not(debug_assertions)))]
compile_error!("loom models need debug assertions: set CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true");

/// The ordering given. A model run with the mutant `SITE:no-acquire`, `SITE:no-release` or `SITE:no-seqcst` gets one that lacks
/// that part, and must fail; see `docs/testing`.
#[cfg(not(mutants))]
#[inline(always)]
pub(crate) const fn order(_site: &'static str, ordering: atomic::Ordering) -> atomic::Ordering {
    ordering
}

/// Whether a guard is to be left out: never, but in a model run with this mutant, which must fail; see `docs/testing`.
#[cfg(not(mutants))]
#[inline(always)]
pub(crate) const fn mutant(_name: &'static str) -> bool {
    false
}

#[cfg(mutants)]
pub(crate) use mutants::{mutant, order};

/// Deliberate mistakes, one of which an environment variable chooses: one build serves them all.
#[cfg(mutants)]
mod mutants {
    use super::atomic::Ordering;
    use std::sync::LazyLock;

    static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("PHALANX_MUTANT").ok());

    pub(crate) fn mutant(name: &str) -> bool {
        CHOSEN.as_deref() == Some(name)
    }

    pub(crate) fn order(site: &str, ordering: Ordering) -> Ordering {
        let dropped = CHOSEN.as_deref().and_then(|chosen| chosen.strip_prefix(site)).and_then(|rest| rest.strip_prefix(':'));
        match (dropped, ordering) {
            (Some("no-acquire"), Ordering::Acquire) | (Some("no-release"), Ordering::Release) => Ordering::Relaxed,
            (Some("no-acquire"), Ordering::AcqRel) => Ordering::Release,
            (Some("no-release"), Ordering::AcqRel) => Ordering::Acquire,
            (Some("no-seqcst"), Ordering::SeqCst) => Ordering::AcqRel,
            _ => ordering,
        }
    }
}

/// Atomic types, fences and orderings.
pub mod atomic {
    #[cfg(loom)]
    pub use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    #[cfg(shuttle)]
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    #[cfg(not(any(loom, shuttle)))]
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

/// Threads: spawning, parking, yielding.
pub mod thread {
    #[cfg(loom)]
    pub use loom::thread::{Builder, JoinHandle, Thread, ThreadId, current, park, spawn, yield_now};
    #[cfg(shuttle)]
    pub use shuttle::thread::{Builder, JoinHandle, Thread, ThreadId, current, park, spawn, yield_now};
    #[cfg(not(any(loom, shuttle)))]
    pub use std::thread::{Builder, JoinHandle, Thread, ThreadId, current, park, park_timeout, spawn, yield_now};

    /// Parks until a token comes or the time is over.
    ///
    /// The model checkers have no clock: here the time is over at once, which is the case that a model has to see besides the plain
    /// `park`. (shuttle's own never ends by itself.)
    #[cfg(any(loom, shuttle))]
    pub fn park_timeout(_timeout: std::time::Duration) {
        yield_now();
    }
}

/// Asks for the cache line of this place, to be written soon, without waiting for it: a hint, and none where there is no such instruction.
#[inline]
pub fn prefetch_to_write(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
    // SAFETY: a prefetch reads and writes nothing, wherever the place is.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle)))))]
    let _ = place;
}

/// A number that no other living thread has.
pub fn thread_token() -> usize {
    #[cfg(not(any(loom, shuttle)))]
    {
        std::thread_local! {
            static TOKEN: u8 = const { 0 };
        }
        TOKEN.with(|token| std::ptr::from_ref(token) as usize)
    }
    // The model checkers' threads may share one thread of the system, with its thread-locals.
    #[cfg(any(loom, shuttle))]
    {
        use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
        BuildHasherDefault::<DefaultHasher>::default().hash_one(thread::current().id()) as usize | 1
    }
}

/// Which node's request this thread runs the body of: what a body must not wait for is its own node.
pub mod body {
    #[cfg(not(any(loom, shuttle)))]
    std::thread_local! {
        static NODE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    /// This thread is in a body of this node (a number other than 0) until the guard is dropped.
    #[inline]
    pub fn enter(node: usize) -> Inside {
        #[cfg(not(any(loom, shuttle)))]
        return Inside(NODE.replace(node));
        // The model checkers' threads may share one thread of the system, with its thread-locals.
        #[cfg(any(loom, shuttle))]
        Inside(node)
    }

    /// Whether this thread is in a body of this node.
    #[inline]
    pub fn is_inside(node: usize) -> bool {
        #[cfg(not(any(loom, shuttle)))]
        return NODE.get() == node;
        #[cfg(any(loom, shuttle))]
        {
            let _ = node;
            false
        }
    }

    /// See [`enter`].
    #[derive(Debug)]
    pub struct Inside(#[cfg_attr(any(loom, shuttle), expect(dead_code))] usize);

    #[cfg(not(any(loom, shuttle)))]
    impl Drop for Inside {
        fn drop(&mut self) {
            NODE.set(self.0);
        }
    }
}

/// What a spinning thread tells its processor, or its model.
pub mod hint {
    #[cfg(loom)]
    pub use loom::hint::spin_loop;
    #[cfg(shuttle)]
    pub use shuttle::hint::spin_loop;
    #[cfg(not(any(loom, shuttle)))]
    pub use std::hint::spin_loop;
}

#[cfg(loom)]
pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(shuttle)]
pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(not(any(loom, shuttle)))]
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// An `UnsafeCell` that is entered through closures, so that loom can watch who is inside.
///
/// loom reports two threads inside at once, and a reader that no happens-before edge connects with the last writer. Payloads
/// kept in this cell are therefore how a missing acquire or release is found.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Takes the value out.
    #[inline]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// Calls `read` with a pointer that is good for reading, as long as nobody writes meanwhile.
    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with a pointer that is good for writing, as long as nobody else is inside meanwhile.
    #[inline]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// A place for one task's waker: the task registers, whoever completes its wait wakes.
///
/// The crate `atomic-waker` in a normal build. loom and shuttle could not see into it: they get a cell behind a mutex, with the same
/// face and no better promises. In particular a wake that no happens-before edge connects with the registration may miss it, which
/// `registered` makes visible to loom: a relaxed load of it may be as stale as such a wake.
#[derive(Debug, Default)]
pub struct AtomicWaker {
    #[cfg(any(loom, shuttle))]
    registered: RegisteredWaker,
    #[cfg(not(any(loom, shuttle)))]
    inner: atomic_waker::AtomicWaker,
}

/// loom's types are not `Default`.
#[cfg(any(loom, shuttle))]
#[derive(Debug)]
struct RegisteredWaker {
    waker: Mutex<Option<std::task::Waker>>,
    count: atomic::AtomicU32,
}

#[cfg(any(loom, shuttle))]
impl Default for RegisteredWaker {
    fn default() -> Self {
        Self { waker: Mutex::new(None), count: atomic::AtomicU32::new(0) }
    }
}

#[cfg(any(loom, shuttle))]
impl RegisteredWaker {
    fn register(&self, waker: &std::task::Waker) {
        *self.lock() = Some(waker.clone());
        // ORDERING: Relaxed: it must not order what the real cell would not.
        self.count.fetch_add(1, atomic::Ordering::Relaxed);
    }

    fn take(&self) -> Option<std::task::Waker> {
        // ORDERING: Relaxed, as above. Before the lock, which would order it.
        if self.count.load(atomic::Ordering::Relaxed) == 0 { None } else { self.lock().take() }
    }

    fn wake(&self) {
        if let Some(waker) = self.take() {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<std::task::Waker>> {
        self.waker.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl AtomicWaker {
    /// An empty cell.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps `waker` as the one to wake. The caller looks at its condition again afterwards: a wake before this call is lost.
    pub fn register(&self, waker: &std::task::Waker) {
        self.cell().register(waker);
    }

    /// Wakes the kept waker, if there is one, and forgets it.
    pub fn wake(&self) {
        self.cell().wake();
    }

    /// Takes the kept waker out without waking it.
    pub fn take(&self) -> Option<std::task::Waker> {
        self.cell().take()
    }

    #[cfg(any(loom, shuttle))]
    const fn cell(&self) -> &RegisteredWaker {
        &self.registered
    }

    #[cfg(not(any(loom, shuttle)))]
    const fn cell(&self) -> &atomic_waker::AtomicWaker {
        &self.inner
    }
}

#[cfg(not(any(loom, shuttle)))]
pub use crossbeam_queue::ArrayQueue;

/// A bounded queue of many producers and many consumers, for models.
///
/// A normal build has `crossbeam_queue::ArrayQueue` here. It is made of the standard atomics, so loom and shuttle cannot see into
/// it: its accesses would add no schedules and no happens-before edges, and a race on what it carries would pass. This ring
/// behind a mutex has the same face and gives the same promises: an element popped happens after its push.
#[cfg(any(loom, shuttle))]
#[derive(Debug)]
pub struct ArrayQueue<T> {
    ring: Mutex<std::collections::VecDeque<T>>,
    capacity: usize,
}

#[cfg(any(loom, shuttle))]
impl<T> ArrayQueue<T> {
    /// An empty queue for `capacity` elements.
    ///
    /// # Panics
    /// If `capacity` is 0, as crossbeam's does.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "capacity must be non-zero");
        Self { ring: Mutex::new(std::collections::VecDeque::with_capacity(capacity)), capacity }
    }

    fn ring(&self) -> MutexGuard<'_, std::collections::VecDeque<T>> {
        // A poisoned lock means that a modelled thread has panicked already: the model fails with that panic, not with this one.
        self.ring.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Puts `value` at the end, or hands it back when the queue is full.
    ///
    /// # Errors
    /// The value itself, if there is no room for it.
    pub fn push(&self, value: T) -> Result<(), T> {
        let mut ring = self.ring();
        if ring.len() == self.capacity {
            return Err(value);
        }
        ring.push_back(value);
        Ok(())
    }

    /// Takes the element at the front.
    pub fn pop(&self) -> Option<T> {
        self.ring().pop_front()
    }

    /// How many elements there are now.
    pub fn len(&self) -> usize {
        self.ring().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    /// For how many elements there is room.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_entered_through_closures() {
        let cell = UnsafeCell::new(1);
        // SAFETY: this thread is alone with the cell.
        cell.with_mut(|value| unsafe { *value += 1 });
        // SAFETY: as above.
        assert_eq!(cell.with(|value| unsafe { *value }), 2);
        assert_eq!(cell.into_inner(), 2);
    }

    #[test]
    fn a_full_queue_hands_the_value_back() {
        let queue = ArrayQueue::new(1);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Err(2));
        assert_eq!((queue.pop(), queue.pop()), (Some(1), None));
        assert!(queue.is_empty());
        assert_eq!((queue.len(), queue.capacity()), (0, 1));
    }

    #[test]
    fn a_waker_cell_forgets_what_it_woke() {
        let cell = AtomicWaker::new();
        assert!(cell.take().is_none());
        cell.register(std::task::Waker::noop());
        cell.wake();
        assert!(cell.take().is_none());
    }
}
