//! The thread that owns a lane: takes mail, runs it, releases the lane.

use super::cell::{Here, Runnable, Settled, Stretch, drop_quietly, wake_quietly};
use super::faults::Fault;
use super::gang::Gang;
use super::life::{Ending, Phase};
use super::mailbox::Taken;
use super::node::Shared;
use super::ticket::RequestError;
use crate::device::{Device, DeviceError, DeviceFault};
use crate::scheduler::MAX_PARKED;
use crate::sync::{body, mutant, prefetch_to_write};
use crate::types::{Epoch, LaneId, LaneMask, Nanos, RequestId};
use crate::word::{Flags, View};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

/// A request that the dispatcher owns, lent to the worker of a lane: until the worker releases the lane, or, if it was given up meanwhile,
/// until the dispatcher has seen that the worker let it go after all.
///
/// So the worker counts nothing: a count of owners would be one more cache line that both of them write.
pub(crate) struct Lent<L>(NonNull<dyn Runnable<L>>);

impl<L> Lent<L> {
    #[inline]
    pub(crate) fn new(request: &Arc<dyn Runnable<L>>) -> Self {
        // SAFETY: an Arc's pointer is never null. It is the Arc's own, and not one to what is in it, so that a share can be made of it.
        Self(unsafe { NonNull::new_unchecked(Arc::as_ptr(request).cast_mut()) })
    }

    /// # Safety
    /// As for [`get`](Self::get).
    unsafe fn share(&self) -> Arc<dyn Runnable<L>> {
        // SAFETY: the pointer is an Arc's, which the dispatcher still owns by the contract.
        unsafe { Arc::increment_strong_count(self.0.as_ptr()) };
        // SAFETY: and this is the share that was just counted.
        unsafe { Arc::from_raw(self.0.as_ptr()) }
    }

    fn is(&self, other: &Arc<dyn Runnable<L>>) -> bool {
        std::ptr::addr_eq(self.0.as_ptr(), Arc::as_ptr(other))
    }

    /// # Safety
    /// The worker of a lane that was reserved for it, before it releases the lane.
    #[inline]
    unsafe fn get(&self) -> &dyn Runnable<L> {
        // SAFETY: by the contract the dispatcher still owns it.
        unsafe { self.0.as_ref() }
    }
}

impl<L> Clone for Lent<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Lent<L> {}

// SAFETY: it is a shared reference to a `Runnable`, which is Sync.
unsafe impl<L> Send for Lent<L> {}

/// What the dispatcher puts into a mailbox: all that a worker needs before it touches the request itself.
pub(crate) enum Mail<L> {
    /// Run this request, of this number, unless this moment has passed. The lane is reserved for it; as a member of its gang, from this
    /// epoch on, every lane.
    Run(Lent<L>, RequestId, Nanos, Option<Epoch>),
    /// Find out whether the lane, which is out of service, is usable again; it is reserved for that.
    Probe,
    /// Close the lane and end the thread.
    Quit,
}

impl<L> Mail<L> {
    /// The request, lent to the worker.
    #[inline]
    pub(crate) fn run(request: &Arc<dyn Runnable<L>>, epoch: Option<Epoch>) -> Self {
        let job = &request.header().job;
        Self::Run(Lent::new(request), job.id, job.deadline.unwrap_or(Nanos::MAX), epoch)
    }

    /// The same for one that has begun before.
    pub(crate) fn resume(request: &Arc<dyn Runnable<L>>, epoch: Option<Epoch>) -> Self {
        Self::Run(Lent::new(request), request.header().job.id, Nanos::MAX, epoch)
    }
}

impl<L> Clone for Mail<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Mail<L> {}

impl<L> std::fmt::Debug for Mail<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Run(..) => "Run",
            Self::Probe => "Probe",
            Self::Quit => "Quit",
        })
    }
}

/// What a worker leaves for the dispatcher when it releases its lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// When the request began: for a small one when its lane was told to begin, for a gang when all had arrived. `None`: it never did.
    pub(crate) started: Option<Nanos>,
    /// When the body, and what it launched, had ended.
    pub(crate) ended: Nanos,
    /// Whether the device failed the request on this lane, or the probe.
    pub(crate) failed: bool,
    /// Why the lane is of no use any more, or, after a probe, not yet.
    pub(crate) fault: Option<Fault>,
}

impl Report {
    /// Whether the device was asked anything.
    pub(crate) const fn ran(&self) -> bool {
        self.started.is_some() || self.failed
    }
}

/// The requests that keep something on a lane while they are parked. Its worker owns a share of each, so that what they keep is dropped
/// here, whoever else lets go of them.
struct Parked<L> {
    lane: LaneId,
    /// The small ones of this lane and the large ones of the node.
    places: [Option<Arc<dyn Runnable<L>>>; 2 * MAX_PARKED],
    taken: usize,
}

impl<L> Parked<L> {
    fn new(lane: LaneId) -> Self {
        Self { lane, places: Default::default(), taken: 0 }
    }

    /// After a stretch of a request with steps: keeps it, if it has parked, or drops what it left.
    ///
    /// # Safety
    /// As for [`Lent::get`], by the lane's worker.
    unsafe fn ended(&mut self, request: Lent<L>, parked: bool) {
        let place = self.places.iter().position(|place| place.as_ref().is_some_and(|kept| request.is(kept)));
        match place {
            Some(at) if !parked => self.drop_one(at),
            Some(_) => {}
            None if parked => {
                self.drop_ended();
                if let Some(place) = self.places.iter_mut().find(|place| place.is_none()) {
                    // SAFETY: the caller's contract.
                    *place = Some(unsafe { request.share() });
                    self.taken += 1;
                } else {
                    // It asks for a place only where the scheduler has one. To leak is the one thing left that is sound.
                    debug_assert!(false, "more is parked on {:?} than there are places", self.lane);
                    // SAFETY: the caller's contract.
                    std::mem::forget(unsafe { request.share() });
                }
            }
            None => {
                // SAFETY: the caller's contract.
                let request = unsafe { request.get() };
                // SAFETY: this is the lane's worker, and the request does not run on it any more.
                unsafe { request.abandon(self.lane) };
            }
        }
    }

    fn drop_one(&mut self, at: usize) {
        if let Some(kept) = self.places[at].take() {
            self.taken -= 1;
            if !mutant("worker.parked:drops-nothing") {
                // SAFETY: this is the lane's worker, and what is in a place does not run.
                unsafe { kept.abandon(self.lane) };
            }
            drop_quietly(kept);
        }
    }

    /// Drops what is over: cancelled while it was parked, or given up with another lane.
    fn drop_ended(&mut self) {
        for at in 0..self.places.len() {
            if self.places[at].as_ref().is_some_and(|kept| kept.header().life.phase().is_terminal()) {
                self.drop_one(at);
            }
        }
    }

    /// Drops everything: the lane was taken out of service, and what was parked on it is over; or the node is.
    fn drop_all(&mut self) {
        for at in 0..self.places.len() {
            self.drop_one(at);
        }
    }
}

pub(crate) struct Worker<'a, D: Device> {
    pub(crate) lane: LaneId,
    pub(crate) device: &'a D,
    pub(crate) shared: &'a Shared<D::Lane>,
}

impl<D: Device> Worker<'_, D> {
    /// Serves the lane until it is told to quit.
    pub(crate) fn serve(&self, mut opened: D::Lane) {
        let mailbox = &self.shared.lane(self.lane).mailbox;
        let mut taken = Taken::default();
        let mut parked = Parked::new(self.lane);
        loop {
            let released = match mailbox.take(&mut taken, &self.shared.waiting) {
                Mail::Run(request, id, deadline, epoch) => self.run(&mut opened, &mut parked, request, id, deadline, epoch),
                Mail::Probe => {
                    parked.drop_all();
                    self.probe(&mut opened)
                }
                Mail::Quit => break,
            };
            // A closed node does not probe, so that the only mail that may still come is Quit; and it does not come if the dispatcher
            // ended before this lane was released.
            let out = released.flags.contains(Flags::CLOSED) && released.offline.contains(self.lane);
            if out && !mutant("worker.serve:waits-for-quit") {
                break;
            }
        }
        // It may belong to the lane.
        parked.drop_all();
        // If it was given up and nobody is left to notice: the lane was released, and it is not used any more.
        drop_quietly(self.shared.lane(self.lane).swap_late(None));
        drop_quietly(opened);
    }

    /// Gives the word as the release found it.
    fn run(
        &self,
        opened: &mut D::Lane,
        parked: &mut Parked<D::Lane>,
        lent: Lent<D::Lane>,
        id: RequestId,
        deadline: Nanos,
        epoch: Option<Epoch>,
    ) -> View {
        if parked.taken > 0 {
            parked.drop_ended();
        }
        // Whatever is written below comes over at once, not one line after the other.
        prefetch_to_write(lent.0.as_ptr().cast::<u8>());
        prefetch_to_write(self.shared.lane(self.lane).report_line());
        // SAFETY: it is not used after the lane is released, below.
        let (request, mut woken) = (unsafe { lent.get() }, None);
        let header = request.header();
        let mut report = Report::default();
        let (mut settled, mut stays) = (Settled::Over, false);
        // One look at the clock for both: it costs as much as all that the device does for a small request here.
        let now = self.shared.clock.now();
        let in_time = now < deadline || deadline == Nanos::MAX;
        if !in_time {
            // A gang that another member has started already is in time, and this is refused.
            if let ended @ Ending::Ended { .. } = header.life.end(Phase::Granted, Phase::Expired) {
                settled = ended.into();
            }
        }
        if header.life.start().is_ok() || mutant("worker.run:starts-anyway") {
            let wake = |members: LaneMask| self.shared.unpark(members);
            let gang = epoch.map(|epoch| {
                Gang::new(&*self.shared.word, &wake, self.shared.waiting, self.lane, self.shared.lanes, header, epoch)
            });
            let stops;
            (report, stops) = self.run_started(opened, request, id, now, gang.as_ref());
            // SAFETY: once a lane and mail: this is its worker, and it is done with the request.
            settled = unsafe { request.settle(stops) };
            // Another member may not be done, or may have failed what this one would park: then it is found to be over, later.
            stays = stops && matches!(settled, Settled::NotYet | Settled::Parked);
        }
        if header.job.step.is_some() {
            // SAFETY: this is the lane's worker, and the lane is not released.
            unsafe { parked.ended(lent, stays) };
        }
        if settled == Settled::Awaited && !mutant("worker.run:wakes-no-ticket") {
            woken = header.waker.take();
        }
        report.ended = report.ended.max(report.started.unwrap_or_default());
        self.shared.lane(self.lane).leave(report);
        if report.fault.is_some()
            && let Ok(quarantined) = self.shared.word.quarantine(self.lane)
        {
            self.shared.unpark(quarantined.wake);
        }
        let released = self.let_go();
        // The lane is free by now, and the request not ours any more: to wake a thread takes microseconds.
        if let Some(waker) = woken {
            wake_quietly(waker);
        }
        released
    }

    /// Releases the lane, and wakes whom that concerns. Gives the word as the release found it.
    fn let_go(&self) -> View {
        let released = self.shared.word.release(self.lane);
        if !mutant("worker.run:wakes-no-peer") {
            self.shared.unpark(released.wake);
        }
        if !mutant("worker.run:no-bell") {
            self.shared.bell.ring();
        }
        released.before
    }

    /// Tries whether the lane is usable again. Gives the word as the release found it.
    fn probe(&self, opened: &mut D::Lane) -> View {
        let probed = self.guarded(|| self.device.probe(self.lane, opened));
        let mut report = Report { ended: self.shared.clock.now(), ..Report::default() };
        if let Err(error) = probed {
            // Whatever it says: a probe that fails has found the lane of no use.
            report.failed = true;
            report.fault = Some(fault_of(&error).unwrap_or(Fault::Device));
            self.shared.lane(self.lane).keep_error(&error);
        }
        self.shared.lane(self.lane).leave(report);
        self.let_go()
    }

    /// The part between start and settlement. Whether it stops between two of its steps, to go on later.
    fn run_started(
        &self,
        opened: &mut D::Lane,
        request: &dyn Runnable<D::Lane>,
        id: RequestId,
        now: Nanos,
        gang: Option<&Gang<'_>>,
    ) -> (Report, bool) {
        let (mut report, mut stretch) = (Report::default(), Stretch::Over);
        if let Err(error) = self.guarded(|| self.device.begin(opened, id)) {
            self.failed(&mut report, request, gang, error);
            return (report, false);
        }
        // All members begin together, or none does.
        report.started = match gang {
            None => Some(now),
            Some(gang) => gang.barrier().is_ok().then(|| self.shared.clock.now()),
        };
        if report.started.is_some() {
            let here = Here { lane: self.lane, gang, word: &*self.shared.word, clock: &self.shared.clock };
            stretch = {
                let _inside = body::enter(self.shared.token());
                // SAFETY: this lane's worker, once, and the request is Running.
                unsafe { request.run(opened, &here) }
            };
            if let (Stretch::Broken, Some(gang)) = (stretch, gang) {
                gang.abort();
            }
        }
        let finished = self.guarded(|| self.device.finish(opened, id));
        report.ended = self.shared.clock.now();
        let stops = finished.is_ok() && stretch == Stretch::Parked;
        if let Err(error) = finished {
            self.failed(&mut report, request, gang, error);
        }
        (report, stops)
    }

    /// The device failed the request on this lane.
    fn failed(&self, report: &mut Report, request: &dyn Runnable<D::Lane>, gang: Option<&Gang<'_>>, error: DeviceError) {
        report.failed = true;
        report.fault = fault_of(&error);
        if report.fault.is_some() {
            self.shared.lane(self.lane).keep_error(&error);
        }
        // SAFETY: this lane's worker, before it settles.
        unsafe { request.fail(self.lane, RequestError::Device(error)) };
        if let Some(gang) = gang {
            gang.abort();
        }
    }

    /// A device that panics instead of reporting has lost the lane: nothing is known of its state.
    fn guarded(&self, call: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
            drop_quietly(payload);
            Err(DeviceError::new(self.lane, DeviceFault::Lane, "the device panicked; the lane is out of service"))
        })
    }
}

/// What a device's error means for its lane, if anything.
fn fault_of(error: &DeviceError) -> Option<Fault> {
    match error.fault() {
        DeviceFault::Request | DeviceFault::Isolation => None,
        DeviceFault::Lane => Some(Fault::Device),
        DeviceFault::Lost => Some(Fault::Lost),
    }
}
