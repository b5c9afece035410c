//! What models share.

use phalanx::sync::UnsafeCell;
use phalanx::{Device, DeviceError, LaneId, RequestId};
use std::cell::RefCell;
use std::sync::Once;

/// How a panic's message begins that a model wants. Any other fails the model, even one that the runtime catches.
pub const PLANNED: &str = "planned:";

thread_local! {
    static UNPLANNED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Watches for panics on this thread, which runs all threads of a model. The runtime catches the panics of a request's body, and with
/// them those of the model checker itself.
pub fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
            if !text.starts_with(PLANNED) {
                UNPLANNED.with(|first| first.borrow_mut().get_or_insert_with(|| format!("{info}")).clone());
                print(info);
            }
        }));
    });
    UNPLANNED.with(|first| first.borrow_mut().take());
}

/// Panics if a panic came that nobody had planned.
pub fn assert_no_panic() {
    if let Some(text) = UNPLANNED.with(|first| first.borrow_mut().take()) {
        panic!("a panic was caught in the model: {text}");
    }
}

/// Checks one model in every schedule within `preemptions` (`None`: in every schedule), and says how many there were.
#[cfg(loom)]
pub fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    // `PHALANX_LOOM_MORE=1` lets every bounded model preempt once more.
    let more: usize = std::env::var("PHALANX_LOOM_MORE").ok().and_then(|more| more.parse().ok()).unwrap_or(0);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions.map(|bound| bound + more);
    builder.max_branches = 20_000;
    let iterations = Arc::new(AtomicU64::new(0));
    let began = std::time::Instant::now();
    watch();
    builder.check({
        let iterations = Arc::clone(&iterations);
        move || {
            iterations.fetch_add(1, Ordering::Relaxed);
            model();
            assert_no_panic();
        }
    });
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let bound = builder.preemption_bound.map_or("none".to_owned(), |bound| bound.to_string());
    println!("MODEL {name}: iterations {} bound {bound} ms {}", iterations.load(Ordering::Relaxed), began.elapsed().as_millis());
}

/// Something that is passed on: who touches it without an order fails the model.
#[derive(Debug)]
pub struct Payload(UnsafeCell<u32>);

// SAFETY: loom checks that the accesses are ordered; that is what it is for.
unsafe impl Sync for Payload {}
// SAFETY: as above.
unsafe impl Send for Payload {}

impl Default for Payload {
    fn default() -> Self {
        Self(UnsafeCell::new(0))
    }
}

impl Payload {
    /// Writes.
    pub fn write(&self, value: u32) {
        // SAFETY: as above.
        self.0.with_mut(|place| unsafe { *place = value });
    }

    /// Reads.
    pub fn read(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|place| unsafe { *place })
    }
}

/// A lane that does nothing, but must be alone.
#[derive(Debug)]
pub struct NoLane {
    /// Which.
    pub id: LaneId,
}

/// A device of such lanes.
#[derive(Debug)]
pub struct NoDevice;

impl Device for NoDevice {
    type Lane = NoLane;
    fn describe(&self) -> String {
        "nothing".to_owned()
    }
    fn open(&self, id: LaneId) -> Result<NoLane, DeviceError> {
        Ok(NoLane { id })
    }
    fn begin(&self, _: &mut NoLane, _: RequestId) -> Result<(), DeviceError> {
        Ok(())
    }
    fn finish(&self, _: &mut NoLane, _: RequestId) -> Result<(), DeviceError> {
        Ok(())
    }
}
