//! A stand-in for GPUs: work takes its time, runs in the background and in order, and two requests must never meet.

use super::{Device, DeviceError, DeviceFault};
use crate::types::{LaneId, MAX_LANES, RequestId};
use atomic::{Atomic, Ordering};
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Whom a GPU works for, as one word: no request, or the number of one, plus 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, bytemuck::NoUninit)]
#[repr(transparent)]
struct Holder(u64);

impl Holder {
    const NOBODY: Self = Self(0);

    const fn request(request: RequestId) -> Self {
        Self(request.0 + 1)
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.checked_sub(1) {
            Some(request) => write!(f, "request {request}"),
            None => f.write_str("no request"),
        }
    }
}

/// Emulated GPUs, one a lane.
///
/// A launch returns at once and its work ends later, after the work launched before it: a stream. Waiting sleeps until the very
/// moment and burns no CPU; on Linux the worker's timer slack is set to a nanosecond, since the default of 50 µs would be late by that.
///
/// Each emulated GPU knows which request it works for, and refuses work of any other: that no two requests share a GPU is
/// checked here, by the device, and not assumed of the scheduler. [`Emulated::violations`] counts what was refused.
#[derive(Clone, Debug, Default)]
pub struct Emulated {
    node: Arc<Node>,
}

#[derive(Debug, Default)]
struct Node {
    gpus: [CachePadded<Gpu>; MAX_LANES],
    violations: AtomicU64,
}

#[derive(Debug, Default)]
struct Gpu {
    holder: Atomic<Holder>,
}

impl Emulated {
    /// How often work of two requests met on one GPU. Anything but 0 is a bug in the scheduler.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.node.violations.load(Ordering::Relaxed)
    }
}

/// One emulated GPU, as a request's body sees it.
#[derive(Debug)]
pub struct EmulatedLane {
    id: LaneId,
    node: Arc<Node>,
    request: Option<RequestId>,
    stream_end: Instant,
}

impl EmulatedLane {
    /// Launches work that takes so long, behind what was launched before, and returns at once.
    ///
    /// # Errors
    /// [`DeviceFault::Isolation`] if the GPU works for another request. [`Device::finish`] then fails this one, too.
    pub fn launch(&mut self, work: Duration) -> Result<(), DeviceError> {
        let gpu = &self.node.gpus[self.id.index()];
        let holder = gpu.holder.load(Ordering::Acquire);
        if self.request.is_none_or(|request| holder != Holder::request(request)) {
            return Err(self.refuse(holder));
        }
        // A duration that the clock cannot hold is as good as for ever: a year.
        let begins = self.stream_end.max(Instant::now());
        let year = Duration::from_secs(365 * 86_400);
        self.stream_end = begins.checked_add(work).or_else(|| begins.checked_add(year)).unwrap_or(begins);
        Ok(())
    }

    /// Waits until everything launched has ended.
    pub fn synchronize(&mut self) {
        // A sleep may end early by a clock's grain: what matters is the moment, so look again.
        loop {
            let left = self.stream_end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left);
        }
    }

    /// Which lane this is.
    #[must_use]
    pub const fn id(&self) -> LaneId {
        self.id
    }

    fn refuse(&self, holder: Holder) -> DeviceError {
        self.node.violations.fetch_add(1, Ordering::Relaxed);
        let message = match self.request {
            Some(request) => format!("work of request {request} was refused: the GPU works for {holder}"),
            None => format!("work outside any request was refused: the GPU works for {holder}"),
        };
        DeviceError::new(self.id, DeviceFault::Isolation, message)
    }
}

impl Device for Emulated {
    type Lane = EmulatedLane;

    fn describe(&self) -> String {
        "emulated GPUs".to_owned()
    }

    fn open(&self, lane: LaneId) -> Result<EmulatedLane, DeviceError> {
        if lane.index() >= MAX_LANES {
            return Err(DeviceError::new(lane, DeviceFault::Lane, format!("there are {MAX_LANES} emulated GPUs")));
        }
        crate::os::precise_sleep();
        Ok(EmulatedLane { id: lane, node: Arc::clone(&self.node), request: None, stream_end: Instant::now() })
    }

    fn begin(&self, lane: &mut EmulatedLane, request: RequestId) -> Result<(), DeviceError> {
        let holder = &self.node.gpus[lane.id.index()].holder;
        lane.request = Some(request);
        match holder.compare_exchange(Holder::NOBODY, Holder::request(request), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(other) => {
                let refused = lane.refuse(other);
                lane.request = None;
                Err(refused)
            }
        }
    }

    fn finish(&self, lane: &mut EmulatedLane, request: RequestId) -> Result<(), DeviceError> {
        lane.synchronize();
        lane.request = None;
        let holder = &self.node.gpus[lane.id.index()].holder;
        match holder.compare_exchange(Holder::request(request), Holder::NOBODY, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(other) => Err(lane.refuse(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_in_the_background_in_order_and_ends_on_time() {
        let device = Emulated::default();
        let mut lane = device.open(LaneId::new(0)).unwrap();
        device.begin(&mut lane, RequestId(1)).unwrap();
        let began = Instant::now();
        lane.launch(Duration::from_millis(3)).unwrap();
        lane.launch(Duration::from_millis(4)).unwrap();
        assert!(began.elapsed() < Duration::from_millis(3), "a launch does not wait");
        device.finish(&mut lane, RequestId(1)).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(7));
    }

    /// CPU time of this thread, where the system tells it.
    fn cpu_ns() -> Option<u64> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
    }

    /// A GPU ends when it ends: the emulated one must not be late by a scheduler's slack, and must not burn a core to be on time.
    #[test]
    fn work_ends_on_time_without_burning_a_core() {
        let device = Emulated::default();
        let mut lane = device.open(LaneId::new(0)).unwrap();
        let (began, cpu_before) = (Instant::now(), cpu_ns());
        // Other tests run meanwhile: the best of five medians is what the machine can do.
        let late = (0..5).map(|round| {
            let mut late: Vec<_> = (0..41)
                .map(|i| {
                    let request = RequestId(round * 41 + i);
                    device.begin(&mut lane, request).unwrap();
                    let due = Instant::now() + Duration::from_millis(2);
                    lane.launch(Duration::from_millis(2)).unwrap();
                    device.finish(&mut lane, request).unwrap();
                    due.elapsed()
                })
                .collect();
            late.sort_unstable();
            late[20]
        });
        let best = late.min().unwrap();
        assert!(best < Duration::from_micros(100), "the median end is late by {best:?}");
        if let (Some(before), Some(after)) = (cpu_before, cpu_ns()) {
            let share = (after - before) as f64 / began.elapsed().as_nanos() as f64;
            assert!(share < 0.2, "waiting took {:.0} % of a core", share * 100.0);
        }
    }

    #[test]
    fn work_of_two_requests_on_one_gpu_is_refused_and_counted() {
        let device = Emulated::default();
        let mut lane = device.open(LaneId::new(3)).unwrap();
        let mut second = device.open(LaneId::new(3)).unwrap();
        device.begin(&mut lane, RequestId(1)).unwrap();
        let refused = device.begin(&mut second, RequestId(2)).unwrap_err();
        assert_eq!(refused.fault(), DeviceFault::Isolation);
        assert!(refused.to_string().contains("request 1"), "{refused}");
        assert_eq!(second.launch(Duration::ZERO).unwrap_err().fault(), DeviceFault::Isolation);
        assert_eq!(device.violations(), 2);
        device.finish(&mut lane, RequestId(1)).unwrap();
        device.begin(&mut second, RequestId(2)).unwrap();
    }

    #[test]
    fn work_that_takes_for_ever_does_not_overflow() {
        let device = Emulated::default();
        let mut lane = device.open(LaneId::new(0)).unwrap();
        device.begin(&mut lane, RequestId(0)).unwrap();
        lane.launch(Duration::MAX).unwrap();
        lane.launch(Duration::MAX).unwrap();
    }
}
