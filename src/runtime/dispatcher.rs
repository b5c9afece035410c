//! The one thread that reserves lanes: turns what happened into events, and decisions into reservations and mail.
//!
//! Each [`turn`](Dispatcher::turn) looks at four places, each in bounded time: the word (which lanes were released), the cancelled
//! requests, the ring of new ones, and the clock. What it finds it tells the scheduler, one event after the other, and does what that
//! answers. It neither allocates nor locks, and makes no system call but to wake a parked worker, or whoever waits for a request that
//! ends here without having run. What such a request captured is dropped here, too.
//!
//! One bound is not ours: crossbeam's ring makes the taker of a slot wait for a submitter that has claimed it and not yet filled it. If the
//! operating system takes that thread's turn away at that instant, the dispatcher yields until it is back.

use super::cell::{GONE, Header, NO_SLOT, Runnable, STARTED, WITHDRAWN, drop_quietly, forget_payload};
use super::faults::{Books, Fault, Probed, Recovery, Watchdog};
use super::life::{Ending, Phase};
use super::node::{Shared, Shutdown};
use super::worker::{Mail, Report};
use crate::observe::{Care, LaneCare, LaneSpan, Outcome, Record, Terminal, What};
use crate::scheduler::{Decision, Decisions, End, Event, JobRef, MAX_PARKED, Scheduler};
use crate::sync::{mutant, prefetch_to_write, thread};
use crate::types::{Class, LaneId, LaneMask, MAX_LANES, Nanos};
use crate::word::View;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How many new requests, and how many cancelled ones, one turn takes before it looks at the lanes again.
const ARRIVALS: usize = 64;

/// A request on its lane or lanes.
struct Held<L> {
    job: JobRef,
    request: Arc<dyn Runnable<L>>,
    reserved: Nanos,
    /// Lanes that have not been released.
    left: LaneMask,
    started: Option<Nanos>,
    ended: Nanos,
    /// When it is overdue, or, once it has been asked to stop, when it is given up.
    due: Nanos,
    asked: bool,
    excused: bool,
    before: Before,
}

/// What a request with steps has behind it when it goes on.
#[derive(Clone, Copy, Default)]
struct Before {
    /// When it began.
    started: Option<Nanos>,
    /// For how long it held its lanes.
    ran: Nanos,
}

/// A request that has stopped between two of its steps. What it keeps for the next one is with the workers of its lanes.
struct Stopped<L> {
    job: JobRef,
    request: Arc<dyn Runnable<L>>,
    lanes: LaneMask,
    before: Before,
}

/// The shortest grace: none at all would have the dispatcher spin until a worker that has just ended has released its lane.
const NO_GRACE: Nanos = Nanos::from_micros(1);

/// What is due for a request on its lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Nothing,
    Ask,
    GiveUp,
}

/// How a request ended that is given up with its lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GivenUp {
    /// By that; somebody waits for it if `awaited`.
    Failed { awaited: bool },
    /// Before it began: its owner took it back, or its deadline passed, while its worker did not come to take it.
    Never(Terminal),
}

impl GivenUp {
    /// Ends it. `None`: it has just ended by itself, and its worker is about to release the lane.
    fn of<L>(held: &Held<L>) -> Option<Self> {
        match held.request.header().life.give_up() {
            Ending::Ended { awaited } => Some(Self::Failed { awaited }),
            Ending::Refused(Phase::Cancelled) => Some(Self::Never(Terminal::Cancelled)),
            Ending::Refused(Phase::Expired) => Some(Self::Never(Terminal::Expired)),
            Ending::Refused(_) => None,
        }
    }
}

impl<L> Held<L> {
    /// When it began, maybe in an earlier stretch.
    fn begun(&self) -> Option<Nanos> {
        self.before.started.or(self.started)
    }

    /// What is due now; what is due next has its time in `due`.
    fn is_due(&mut self, now: Nanos, grace: Nanos) -> Due {
        if now < self.due {
            return Due::Nothing;
        }
        // So late a look means that this thread did not run, and then the request's own may not have run either: the process was stopped,
        // or the machine is overloaded. It is given the grace once more.
        let late = now > self.due + grace && !self.excused;
        self.due = now + grace.max(NO_GRACE);
        if late {
            self.excused = true;
            return Due::Nothing;
        }
        if std::mem::replace(&mut self.asked, true) { Due::GiveUp } else { Due::Ask }
    }
}

/// How a life ended.
const fn terminal_of(phase: Phase) -> Terminal {
    match phase {
        Phase::Completed => Terminal::Completed,
        Phase::Expired => Terminal::Expired,
        Phase::Cancelled => Terminal::Cancelled,
        Phase::ShutDown => Terminal::ShutDown,
        Phase::Queued | Phase::Granted | Phase::Running | Phase::Parked | Phase::Failed => Terminal::Failed,
    }
}

pub(crate) struct Dispatcher<L> {
    shared: Arc<Shared<L>>,
    scheduler: Scheduler,
    decisions: Decisions,
    /// The queued requests, by their slot in the scheduler's table.
    queued: Vec<Option<Arc<dyn Runnable<L>>>>,
    /// The one that the scheduler is being told of.
    arriving: Option<Arc<dyn Runnable<L>>>,
    /// Jobs that the scheduler started and their owners cancelled at that moment.
    withdrawn: Vec<JobRef>,
    smalls: [Option<Held<L>>; MAX_LANES],
    gang: Option<Held<L>>,
    stopped: Vec<Stopped<L>>,
    /// Lanes that are reserved for requests.
    held: LaneMask,
    offline: LaneMask,
    /// Lanes that are reserved for a probe.
    probing: LaneMask,
    /// By lane: when a probe counts as hung.
    probe_due: [Nanos; MAX_LANES],
    /// Lanes out of service whose holder was given up, and has not let go.
    hung: LaneMask,
    books: Books,
    watchdog: Watchdog,
    /// Since when a lane has been out of service without a break.
    missing_since: Option<Nanos>,
    /// The lanes that the door was told larges wait for in vain.
    missing: LaneMask,
    /// The next moment at which a lane is to be looked after, or earlier.
    timer: Nanos,
    /// The word as the latest turn saw it before it did anything.
    seen: Option<View>,
    /// What the latest turn knew of a shutdown.
    closing: Option<Shutdown>,
    aborted: bool,
    /// A panic has come through this thread; see `bury`.
    buried: bool,
    done: bool,
    /// Requests turned away at the door that the scheduler has been told of, by class.
    turned_away: [u64; 2],
    /// The latest turn found nothing to do.
    idle: bool,
    /// Whether estimates have been asked for, as far as was seen.
    estimates: bool,
    log: Option<Log>,
}

impl<L: 'static> Dispatcher<L> {
    pub(crate) fn new(
        shared: Arc<Shared<L>>,
        scheduler: Scheduler,
        recovery: Option<Recovery>,
        watchdog: Watchdog,
        log: Option<rtrb::Producer<Record>>,
    ) -> Self {
        let slots = scheduler.limits().slots();
        Self {
            shared,
            scheduler,
            decisions: Decisions::new(),
            queued: (0..slots).map(|_| None).collect(),
            arriving: None,
            withdrawn: Vec::with_capacity(MAX_LANES + 1),
            smalls: Default::default(),
            gang: None,
            stopped: Vec::with_capacity((MAX_LANES + 1) * MAX_PARKED),
            held: LaneMask::NONE,
            offline: LaneMask::NONE,
            probing: LaneMask::NONE,
            probe_due: [Nanos::MAX; MAX_LANES],
            hung: LaneMask::NONE,
            watchdog,
            missing_since: None,
            missing: LaneMask::NONE,
            books: Books::new(recovery),
            timer: Nanos::MAX,
            seen: None,
            closing: None,
            aborted: false,
            buried: false,
            done: false,
            turned_away: [0; 2],
            idle: false,
            estimates: false,
            log: log.map(|ring| Log { ring, lost: 0 }),
        }
    }

    /// Whether the node has shut down and every lane is free: nothing will ever happen again.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// When the next turn is due, if nothing happens before.
    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        let timer = Some(self.timer).filter(|&at| at < Nanos::MAX);
        match (self.scheduler.wake_at().filter(|_| !self.buried), timer) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes in what has happened and acts on it. Whether there was anything. A panic that comes through here, of a policy of the user's,
    /// buries the dispatcher.
    pub(crate) fn turn(&mut self) -> bool {
        if self.has_nothing_to_do() {
            self.shared.pulse.rest();
            return false;
        }
        match catch_unwind(AssertUnwindSafe(|| self.turn_once())) {
            Ok(progress) => {
                self.idle = !progress;
                progress
            }
            Err(payload) => {
                forget_payload(payload);
                self.bury();
                true
            }
        }
    }

    /// Whether a turn would find nothing, as far as a few looks can tell: an embedder who turns in a loop mostly finds nothing.
    ///
    /// Only after a turn that found nothing either: a lane that was reserved and is free again leaves the word as it was before.
    ///
    /// Loom's models do without: it looks where [`wait`](Self::wait) looks, which they check, and each look makes six times as many schedules.
    #[inline]
    fn has_nothing_to_do(&self) -> bool {
        if cfg!(loom) {
            return false;
        }
        let quiet = self.idle
            && Some(self.shared.word.load()) == self.seen
            && self.shared.ingress.is_empty()
            && self.shared.cancelled.is_empty()
            && self.shared.closing() == self.closing
            && Class::ALL.iter().all(|&class| self.shared.counters.turned_away(class) == self.turned_away[class.index()])
            && self.offline.is_empty()
            && self.missing_since.is_none()
            && self.missing.is_empty()
            && self.shared.counters.wants_estimates() == self.estimates;
        // A clock last: it costs as much as all the rest.
        self.done || quiet && !self.buried && self.wake_at().is_none_or(|at| at > self.shared.clock.now())
    }

    fn turn_once(&mut self) -> bool {
        if self.buried {
            return self.sweep();
        }
        // The word before the clock: a lane that is seen released was released before `now`, so that what is recorded of its next
        // request cannot begin before its last one ended.
        let view = self.shared.word.load();
        let now = self.shared.clock.now();
        self.shared.pulse.beat(now);
        self.seen = Some(view);
        // An abort first: it must not start what it is about to give up.
        let mut progress = self.abort_if_told(now);
        progress |= self.take_releases(now, &view);
        progress |= self.take_cancelled(now);
        progress |= self.take_refusals(now);
        let (arrived, now) = self.take_arrivals(now);
        progress |= arrived;
        if self.scheduler.wake_at().is_some_and(|at| at <= now) {
            self.tell(now, Event::Tick);
            progress = true;
        }
        if !self.offline.is_empty() {
            self.plan_probes(now);
        }
        if self.timer <= now {
            self.look_after_lanes(now);
            progress = true;
        }
        if self.missing_since.is_some() || !self.offline.is_empty() {
            progress |= self.look_for_missing(now);
        }
        progress |= self.shut_down(now);
        self.tell_monitors();
        if progress {
            let queued = Class::ALL.map(|class| self.scheduler.queued(class));
            self.shared.counters.publish(queued, self.scheduler.draining());
        }
        if (progress || !self.estimates) && self.shared.counters.wants_estimates() {
            self.estimates = true;
            self.shared.counters.publish_waits(Class::ALL.map(|class| self.scheduler.estimate_wait(class)));
        }
        progress
    }

    /// Waits for something to happen, by this node's way of waiting.
    pub(crate) fn wait(&self) {
        self.shared.pulse.rest();
        let idle = || {
            (self.shared.ingress.is_empty() || mutant("dispatcher.wait:ignores-ingress"))
                && (self.shared.cancelled.is_empty() || mutant("dispatcher.wait:ignores-cancelled"))
                && (Some(self.shared.word.load()) == self.seen || mutant("dispatcher.wait:ignores-word"))
                && (self.shared.closing() == self.closing || mutant("dispatcher.wait:ignores-closing"))
        };
        // A look at the clock costs more than the other looks together: a bare spin affords one in sixteen.
        let (looks, seldom) = (std::cell::Cell::new(0_u32), self.shared.waiting.is_bare());
        let due = || {
            looks.set(looks.get().wrapping_add(1));
            (!seldom || looks.get().is_multiple_of(16)) && self.wake_at().is_some_and(|at| at <= self.shared.clock.now())
        };
        if self.shared.waiting.spin(|| (!idle() || due()).then_some(())).is_none() {
            let timeout = self.wake_at().map(|at| Duration::from(at - self.shared.clock.now()));
            self.shared.bell.sleep(timeout, idle);
        }
    }

    fn take_releases(&mut self, now: Nanos, view: &View) -> bool {
        let down = view.offline & !self.offline;
        self.offline = view.offline;
        // Before anything is told: what that starts was not yet held when the word was read.
        let released = self.held & !view.busy;
        self.held = self.held & view.busy;
        for lane in down {
            self.books.fault(lane.index(), now, Fault::Device);
            self.note_care(now, lane, Care::Fault);
            self.tell(now, Event::LaneDown { lane });
            self.fail_stopped(now);
        }
        let probed = self.probing & !view.busy;
        self.probing = self.probing & view.busy;
        for lane in probed {
            self.take_probe(now, lane);
        }
        let late = self.hung & !view.busy;
        self.hung = self.hung & view.busy;
        for lane in late {
            self.take_late(now, lane);
        }
        for lane in released {
            // SAFETY: the lane's release was seen with acquire, so its worker is done with the report, and it gets no new mail before
            // this turn of the one dispatcher has read it.
            let report = unsafe { self.shared.lane(lane).report() };
            let finished = self.close_out(now, lane, report);
            if self.offline.contains(lane) {
                if let Some(fault) = report.fault {
                    self.explain(now, lane, fault);
                }
            } else if report.ran() && self.books.ended(lane.index(), report.failed) {
                self.trip(now, lane);
            }
            // After the lane's own fate: the scheduler must not start something on a lane that is of no use.
            if let Some(finished) = finished {
                self.tell(now, finished);
                if let Event::Parked { job, .. } = finished {
                    self.look_at_stopped(now, job);
                }
            }
        }
        !(down | released | probed | late).is_empty()
    }

    /// The lanes that are out of service and can be probed. A node that shuts down needs none of them any more; and while a gang has not
    /// ended nothing could start on one of its lanes, so that it is left alone until then.
    fn can_be_probed(&self) -> LaneMask {
        if self.closing.is_some() || self.gang.is_some() {
            return LaneMask::NONE;
        }
        self.offline & !(self.held | self.probing | self.hung)
    }

    /// Says when they are.
    fn plan_probes(&mut self, now: Nanos) {
        for lane in self.can_be_probed() {
            if self.books.next_try(lane.index()).is_none() {
                self.books.idle(lane.index(), now);
            }
            self.timer = self.timer.min(self.books.next_try(lane.index()).unwrap_or(Nanos::MAX));
        }
    }

    /// A lane whose holder was given up came free after all.
    fn take_late(&mut self, now: Nanos, lane: LaneId) {
        // SAFETY: as in `take_releases`.
        let report = unsafe { self.shared.lane(lane).report() };
        self.drop_late(lane);
        // What it brought is of no account, but a lane that is gone is gone.
        if report.fault == Some(Fault::Lost) {
            self.explain(now, lane, Fault::Lost);
        }
        self.note_care(now, lane, Care::LetGo);
    }

    /// A lane's worker told why it took it out of service.
    fn explain(&mut self, now: Nanos, lane: LaneId, fault: Fault) {
        if self.books.why(lane.index()) != Some(fault) {
            self.books.explain(lane.index(), fault);
            self.note_care(now, lane, Care::Fault);
        }
    }

    fn note_care(&mut self, now: Nanos, lane: LaneId, care: Care) {
        let fault = self.books.why(lane.index()).filter(|_| matches!(care, Care::Fault | Care::Failed));
        self.log.note(now, What::Lane(LaneCare { care, lane, fault }));
    }

    /// Takes a lane out of service, whoever holds it.
    fn quarantine(&mut self, now: Nanos, lane: LaneId, fault: Fault) {
        // Its worker may have been faster.
        if let Ok(quarantined) = self.shared.word.quarantine(lane) {
            self.shared.unpark(quarantined.wake);
        }
        let news = !self.offline.contains(lane);
        self.offline = self.offline.with(lane);
        self.books.fault(lane.index(), now, fault);
        self.note_care(now, lane, Care::Fault);
        if news {
            self.tell(now, Event::LaneDown { lane });
            self.fail_stopped(now);
        }
    }

    /// Too many requests in a row failed on this lane, which is idle.
    fn trip(&mut self, now: Nanos, lane: LaneId) {
        let others = LaneMask::first(self.shared.lanes) & !self.offline;
        // The last lane stays: one that fails some requests is better than none.
        if others == lane.mask() {
            return;
        }
        self.quarantine(now, lane, Fault::Breaker);
    }

    /// A probe has ended.
    fn take_probe(&mut self, now: Nanos, lane: LaneId) {
        // SAFETY: as in `take_releases`.
        let report = unsafe { self.shared.lane(lane).report() };
        match self.books.probed(lane.index(), now, report.fault) {
            Probed::Restore => {
                let restored = self.shared.word.restore(lane);
                debug_assert!(restored.is_ok(), "a lane that was probed is idle and out of service: {restored:?}");
                if restored.is_ok() {
                    self.note_care(now, lane, Care::Passed);
                    self.offline = self.offline.without(lane);
                    self.tell(now, Event::LaneUp { lane });
                }
            }
            // When it is tried again `plan_probes` finds out.
            Probed::Stay => self.note_care(now, lane, Care::Failed),
        }
    }

    /// Writes the plates of the lanes whose state has changed.
    #[inline]
    fn tell_monitors(&mut self) {
        for lane in self.books.take_changed() {
            self.shared.lane(lane).plate.write(self.books.state(lane.index()));
        }
    }

    /// Fails the larges that wait for lanes which have been missing for too long. Whether something changed.
    fn look_for_missing(&mut self, now: Nanos) -> bool {
        if self.offline.is_empty() {
            self.missing_since = None;
            let told = !self.missing.is_empty();
            self.tell_missing(LaneMask::NONE);
            return told;
        }
        let until = self.books.wait_until(*self.missing_since.get_or_insert(now));
        let lost = self.offline.into_iter().any(|lane| self.books.is_lost(lane.index()));
        // A shutdown has its own end for them.
        if self.closing.is_some() {
            return false;
        }
        if now < until && !lost {
            self.timer = self.timer.min(until);
            return false;
        }
        let news = self.missing != self.offline;
        self.tell_missing(self.offline);
        let some = self.scheduler.queued(Class::Large) > 0;
        if some {
            self.give_up_queued(now, &[Class::Large], Some(self.offline));
        }
        news || some
    }

    fn tell_missing(&mut self, lanes: LaneMask) {
        if self.missing != lanes {
            self.missing = lanes;
            self.shared.set_missing(lanes);
        }
    }

    /// Gives up the small request on this lane, which is past its limit and the grace.
    fn give_up_small(&mut self, now: Nanos, lane: LaneId) {
        let Some(held) = &self.smalls[lane.index()] else { return };
        held.request.header().blame_hung(lane.mask());
        let Some(end) = GivenUp::of(held) else { return };
        let Some(held) = self.smalls[lane.index()].take() else { return };
        self.held = self.held.without(lane);
        self.hung = self.hung.with(lane);
        self.keep_late(lane, &held.request);
        if !mutant("dispatcher.give_up:keeps-the-lane") {
            self.quarantine(now, lane, Fault::Hung);
        }
        self.gave_up(now, held, end);
    }

    /// Gives up the gang, which is past its limit and the grace: who still holds a lane is hung.
    fn give_up_gang(&mut self, now: Nanos) {
        let Some(held) = &self.gang else { return };
        let header = held.request.header();
        header.blame_hung(self.shared.word.load().busy & held.left);
        let Some(end) = GivenUp::of(held) else { return };
        let Some(mut held) = self.gang.take() else { return };
        self.held = self.held & !held.left;
        let view = self.shared.word.load();
        for lane in held.left {
            if view.busy.contains(lane) {
                self.hung = self.hung.with(lane);
                self.keep_late(lane, &held.request);
                self.quarantine(now, lane, Fault::Hung);
            } else {
                // SAFETY: as in `take_releases`.
                let report = unsafe { self.shared.lane(lane).report() };
                self.take_report(now, &mut held, lane, report);
                if let Some(fault) = report.fault {
                    self.quarantine(now, lane, fault);
                }
            }
        }
        let ended = self.shared.word.end_gang();
        debug_assert!(ended.is_ok(), "a gang whose members have released or are out of service ends: {ended:?}");
        self.gave_up(now, held, end);
    }

    /// The worker of this lane still has what is being given up.
    fn keep_late(&self, lane: LaneId, request: &Arc<dyn Runnable<L>>) {
        let before = self.shared.lane(lane).swap_late(Some(Arc::clone(request)));
        debug_assert!(before.is_none(), "a lane that hangs is not reserved again");
    }

    /// It let it go.
    fn drop_late(&self, lane: LaneId) {
        drop_quietly(self.shared.lane(lane).swap_late(None));
    }

    /// The rest of giving up.
    fn gave_up(&mut self, now: Nanos, held: Held<L>, how: GivenUp) {
        let terminal = match how {
            GivenUp::Failed { .. } => Terminal::Failed,
            GivenUp::Never(terminal) => terminal,
        };
        self.over(now, &*held.request, terminal, held.begun(), held.ended.max(now));
        if how == (GivenUp::Failed { awaited: true }) && !mutant("dispatcher.gave_up:wakes-no-ticket") {
            held.request.header().wake();
        }
        drop_quietly(held.request);
        let (end, ran) =
            if terminal == Terminal::Failed { (End::Failed, now - held.reserved) } else { (End::Withdrawn, Nanos::ZERO) };
        self.tell(now, Event::Finish { job: held.job, end, ran });
    }

    /// Does what is due for those who hold lanes.
    fn watch(&mut self, now: Nanos) {
        let grace = Nanos::from(self.watchdog.grace);
        for lane in LaneMask::first(self.shared.lanes) {
            if let Some(held) = &mut self.smalls[lane.index()] {
                match held.is_due(now, grace) {
                    Due::Nothing => {}
                    Due::Ask => held.request.header().life.overdue(),
                    Due::GiveUp => self.give_up_small(now, lane),
                }
            }
        }
        if let Some(held) = &mut self.gang {
            match held.is_due(now, grace) {
                Due::Nothing => {}
                Due::Ask => {
                    held.request.header().life.overdue();
                    if let Ok(aborted) = self.shared.word.abort_gang(None)
                        && !mutant("dispatcher.watch:wakes-nobody")
                    {
                        self.shared.unpark(aborted.wake);
                    }
                }
                Due::GiveUp => self.give_up_gang(now),
            }
        }
        for lane in self.probing {
            if self.probe_due[lane.index()] <= now {
                self.probing = self.probing.without(lane);
                self.hung = self.hung.with(lane);
                self.books.fault(lane.index(), now, Fault::Hung);
                self.note_care(now, lane, Care::Fault);
            }
        }
        let smalls = self.smalls.iter().flatten().map(|held| held.due);
        let probes = self.probing.into_iter().map(|lane| self.probe_due[lane.index()]);
        let next = smalls.chain(self.gang.iter().map(|held| held.due)).chain(probes).fold(Nanos::MAX, Nanos::min);
        self.timer = self.timer.min(next);
    }

    /// A shutdown bounds what runs: requests if it is an abort, and probes, of which nobody needs the outcome any more.
    fn hurry(&mut self, now: Nanos, how: Shutdown) {
        let until = self.watchdog.abort.map_or(Nanos::MAX, |most| now + Nanos::from(most));
        for held in self.smalls.iter_mut().chain([&mut self.gang]).flatten().filter(|_| how == Shutdown::Abort) {
            held.request.header().life.abort();
            if !held.asked && until < held.due {
                held.due = until;
                held.request.header().set_limit(until - held.reserved);
            }
        }
        for lane in self.probing {
            let due = &mut self.probe_due[lane.index()];
            *due = (*due).min(now + Nanos::from(self.watchdog.grace));
        }
        self.timer = now;
    }

    /// Does what is due for the lanes, and finds out when to look again.
    fn look_after_lanes(&mut self, now: Nanos) {
        self.timer = Nanos::MAX;
        self.watch(now);
        for lane in self.can_be_probed() {
            match self.books.next_try(lane.index()) {
                Some(at) if at <= now => {
                    let reserved = self.shared.word.reserve_probe(lane);
                    debug_assert!(reserved.is_ok(), "a lane to be probed is idle and out of service: {reserved:?}");
                    if reserved.is_ok() {
                        let due = now + self.books.probe(lane.index());
                        self.note_care(now, lane, Care::Probe);
                        self.probe_due[lane.index()] = due;
                        self.timer = self.timer.min(due);
                        self.probing = self.probing.with(lane);
                        // SAFETY: the lane was just reserved, by the one dispatcher.
                        unsafe { self.put(lane, Mail::Probe) };
                    }
                }
                Some(at) => self.timer = self.timer.min(at),
                None => {}
            }
        }
    }

    /// Takes down that a lane was released. If it was its request's last one, what the scheduler is to be told.
    fn close_out(&mut self, now: Nanos, lane: LaneId, report: Report) -> Option<Event> {
        let place = if self.gang.is_some() { &mut self.gang } else { &mut self.smalls[lane.index()] };
        let Some(mut held) = place.take() else { unreachable!("a held lane has a request") };
        self.take_report(now, &mut held, lane, report);
        if !held.left.is_empty() {
            self.gang = Some(held);
            return None;
        }
        let header = held.request.header();
        if header.job.class == Class::Large {
            let ended = self.shared.word.end_gang();
            debug_assert!(ended.is_ok(), "a gang whose members have all released ends: {ended:?}");
        }
        let ran = held.started.map_or(Nanos::ZERO, |started| held.ended - started);
        let phase = header.life.phase();
        if phase == Phase::Parked {
            // It was to end, and stopped before it could see that; after an abort nothing goes on.
            let over = header.end_parked() || self.aborted && header.give_up(Phase::Parked, Phase::ShutDown);
            if !(over && self.aborted) {
                let before = Before { started: held.begun(), ran: held.before.ran + ran };
                let lanes = if header.job.class == Class::Large { LaneMask::first(self.shared.lanes) } else { lane.mask() };
                self.stopped.push(Stopped { job: held.job, request: held.request, lanes, before });
                return Some(Event::Parked { job: held.job, ran });
            }
        }
        let (terminal, end) = match header.life.phase() {
            Phase::Completed => (Terminal::Completed, End::Completed),
            Phase::Cancelled | Phase::Expired | Phase::ShutDown if held.started.is_none() => {
                (terminal_of(header.life.phase()), End::Withdrawn)
            }
            // With steps it may also have been ended at one.
            phase => (terminal_of(phase), End::Failed),
        };
        let ended = if held.started.is_some() { held.ended } else { now };
        self.over(now, &*held.request, terminal, held.begun(), ended);
        drop_quietly(held.request);
        Some(Event::Finish { job: held.job, end, ran })
    }

    /// The scheduler has been told that this one is parked. If it is over all the same, it is not to wait for its turn.
    fn look_at_stopped(&mut self, now: Nanos, job: JobRef) {
        let over = |s: &Stopped<L>| s.job == job && s.request.header().life.phase().is_terminal();
        if self.stopped.iter().any(over) {
            self.tell(now, Event::Cancel(job));
        }
        self.fail_stopped(now);
    }

    /// Fails what is parked on lanes that are out of service. What it keeps there is dropped by the lanes' workers when they come to it.
    fn fail_stopped(&mut self, now: Nanos) {
        if self.offline.is_empty() {
            return;
        }
        while let Some(at) = self.stopped.iter().position(|s| !(s.lanes & self.offline).is_empty()) {
            let stopped = self.stopped.swap_remove(at);
            stopped.request.header().fail_missing(stopped.lanes & self.offline);
            self.end_stopped(now, stopped);
        }
    }

    /// The rest of ending what is parked, whose life is over.
    fn end_stopped(&mut self, now: Nanos, stopped: Stopped<L>) {
        let terminal = terminal_of(stopped.request.header().life.phase());
        self.over(now, &*stopped.request, terminal, stopped.before.started, now);
        drop_quietly(stopped.request);
        self.tell(now, Event::Finish { job: stopped.job, end: End::Failed, ran: Nanos::ZERO });
    }

    /// Ends everything that is parked, since nothing goes on any more.
    fn give_up_stopped(&mut self, now: Nanos) {
        while let Some(stopped) = self.stopped.pop() {
            stopped.request.header().give_up(Phase::Parked, Phase::ShutDown);
            self.end_stopped(now, stopped);
        }
    }

    /// Takes down what a lane's worker measured.
    fn take_report(&mut self, now: Nanos, held: &mut Held<L>, lane: LaneId, report: Report) {
        held.left = held.left.without(lane);
        held.ended = held.ended.max(report.ended);
        if let Some(started) = report.started {
            held.started = Some(held.started.map_or(started, |first| first.min(started)));
            let class = held.request.header().job.class;
            let span = LaneSpan { id: held.job.id, class, lane, reserved: held.reserved, started, ended: report.ended };
            self.log.note(now, What::Span(span));
        }
    }

    fn take_cancelled(&mut self, now: Nanos) -> bool {
        let mut progress = false;
        for _ in 0..ARRIVALS {
            // To find the ring empty costs less than to find that there is nothing to pop.
            if !cfg!(loom) && self.shared.cancelled.is_empty() {
                break;
            }
            let Some(request) = self.shared.cancelled.pop() else { break };
            progress = true;
            let header = request.header();
            match header.slot() {
                NO_SLOT => header.set_slot(WITHDRAWN),
                GONE => self.shared.leave(&header.job),
                // If it is not parked any more, it finds out itself.
                STARTED => {
                    let job = self.stopped.iter().map(|s| s.job).find(|job| job.id == header.job.id);
                    if let Some(job) = job {
                        self.tell(now, Event::Cancel(job));
                    }
                }
                slot => {
                    let job = JobRef { slot, id: header.job.id };
                    self.unqueue(job);
                    self.shared.leave(&header.job);
                    self.over(now, &*request, Terminal::Cancelled, None, now);
                    self.tell(now, Event::Cancel(job));
                }
            }
            drop_quietly(request);
        }
        progress
    }

    /// A request is out of the ring, or of the table. Its place at the door is free, unless its owner cancelled it and that has still to be
    /// told: the ring of the cancelled has room for as many as the doors let in, so each counts there until it is out of both.
    fn left(&self, header: &Header, cancelled: bool) {
        if cancelled && header.slot() != WITHDRAWN {
            header.set_slot(GONE);
        } else {
            self.shared.leave(&header.job);
        }
    }

    /// The door turns requests away without us, but they are load that was offered.
    fn take_refusals(&mut self, now: Nanos) -> bool {
        let mut progress = false;
        for class in Class::ALL {
            let total = self.shared.counters.turned_away(class);
            let count = total - std::mem::replace(&mut self.turned_away[class.index()], total);
            if count > 0 {
                self.tell(now, Event::Refused { class, count });
                progress = true;
            }
        }
        progress
    }

    /// Whether there were any, and what the time is by then.
    fn take_arrivals(&mut self, mut now: Nanos) -> (bool, Nanos) {
        for taken in 0..ARRIVALS {
            if !cfg!(loom) && self.shared.ingress.is_empty() {
                return (taken > 0, now);
            }
            let Some(request) = self.shared.ingress.pop() else { return (taken > 0, now) };
            let header = request.header();
            self.shared.counters.submitted(header.job.class);
            // It may have come after this turn began; nothing is said of it before it came.
            now = now.max(header.job.arrival);
            let refused = self.aborted && header.give_up(Phase::Queued, Phase::ShutDown);
            if refused || header.life.phase() != Phase::Queued {
                let terminal = if refused { Terminal::ShutDown } else { Terminal::Cancelled };
                self.left(header, !refused);
                self.over(now, &*request, terminal, None, now);
                drop_quietly(request);
                continue;
            }
            let job = header.job;
            // Most arrivals on a node with a free lane start at once: the word comes over while that is decided.
            prefetch_to_write(std::ptr::from_ref(&*self.shared.word).cast());
            self.arriving = Some(request);
            self.tell(now, Event::Arrive(job));
        }
        (true, now)
    }

    /// Tells the scheduler, and does what it decides.
    fn tell(&mut self, now: Nanos, event: Event) {
        if self.buried {
            return;
        }
        let mut event = event;
        loop {
            self.log.note(now, What::Event(event));
            self.scheduler.on(now, event, &mut self.decisions);
            for i in 0..self.decisions.as_slice().len() {
                let decision = self.decisions.as_slice()[i];
                self.log.note(now, What::Decision(decision));
                self.carry_out(now, decision);
            }
            // Its owner cancelled it just when it was to start: to the scheduler that is a run that ended at once.
            let Some(job) = self.withdrawn.pop() else { return };
            event = Event::Finish { job, end: End::Withdrawn, ran: Nanos::ZERO };
        }
    }

    fn carry_out(&mut self, now: Nanos, decision: Decision) {
        match decision {
            Decision::Admit(job) => {
                let request = self.arriving.take();
                debug_assert!(request.is_some(), "an admission answers an arrival");
                if let Some(request) = &request {
                    request.header().set_slot(job.slot);
                }
                self.queued[job.slot as usize] = request;
            }
            Decision::Refuse { .. } => {
                // The door counts at least what the scheduler has queued, against the same capacity.
                debug_assert!(false, "the door admitted more than the scheduler takes");
                if let Some(request) = self.arriving.take() {
                    let ours = request.header().give_up(Phase::Queued, Phase::ShutDown);
                    self.left(request.header(), !ours);
                    self.over(now, &*request, Terminal::ShutDown, None, now);
                    drop_quietly(request);
                }
            }
            Decision::Expire(job) | Decision::Shed { job, .. } => {
                if let Some(request) = self.unqueue(job) {
                    let expired = match decision {
                        Decision::Shed { run, .. } => request.header().shed(run),
                        _ => request.header().give_up(Phase::Queued, Phase::Expired),
                    };
                    let terminal = if expired { Terminal::Expired } else { Terminal::Cancelled };
                    self.left(request.header(), !expired);
                    self.over(now, &*request, terminal, None, now);
                    drop_quietly(request);
                }
            }
            Decision::StartSmall { job, lane, .. } => {
                prefetch_to_write(std::ptr::from_ref(&*self.shared.lane(lane).mailbox).cast());
                if let Some(request) = self.grant(now, job) {
                    // Granted first, then reserved: the book said that the lane is free, and only we reserve.
                    let reserved = self.shared.word.reserve(lane);
                    assert!(reserved.is_ok(), "the lane book and the state word disagree on {lane:?}: {reserved:?}");
                    let mail = Mail::run(&request, None);
                    self.smalls[lane.index()] = Some(self.hold(now, job, request, lane, lane.mask(), Before::default()));
                    // SAFETY: the lane was just reserved, by the one dispatcher.
                    unsafe { self.put(lane, mail) };
                }
            }
            Decision::StartLarge(job) => {
                if let Some(request) = self.grant(now, job) {
                    self.start_gang(now, job, request, Before::default());
                }
            }
            Decision::Ask { lanes, .. } => {
                self.shared.word.ask(lanes & self.held);
            }
            Decision::Unask { lanes, .. } => {
                self.shared.word.unask(lanes);
            }
            Decision::Resume { job, lanes } => self.resume(now, job, lanes),
            Decision::DrainOn { .. } => {
                self.shared.word.drain(true);
            }
            Decision::DrainOff => {
                self.shared.word.drain(false);
            }
        }
    }

    fn start_gang(&mut self, now: Nanos, job: JobRef, request: Arc<dyn Runnable<L>>, before: Before) {
        let epoch = match self.shared.word.reserve_gang() {
            Ok(epoch) => epoch,
            Err(refused) => panic!("the lane book and the state word disagree on the gang: {refused:?}"),
        };
        let all = LaneMask::first(self.shared.lanes);
        let mail = if before.started.is_some() { Mail::resume(&request, Some(epoch)) } else { Mail::run(&request, Some(epoch)) };
        self.gang = Some(self.hold(now, job, request, LaneId::new(0), all, before));
        for lane in all {
            // SAFETY: every lane was just reserved, by the one dispatcher.
            unsafe { self.put(lane, mail) };
        }
    }

    /// Lets what is parked go on; or, if it is over, lets its lanes drop what they keep of it.
    fn resume(&mut self, now: Nanos, job: JobRef, lanes: LaneMask) {
        // After an abort it is ended where it stands: see `give_up_stopped`.
        if self.aborted {
            return;
        }
        let Some(at) = self.stopped.iter().position(|s| s.job == job) else {
            debug_assert!(false, "the scheduler resumes what is not parked: {job:?}");
            return;
        };
        let Stopped { request, before, .. } = self.stopped.swap_remove(at);
        if request.header().job.class == Class::Large {
            self.start_gang(now, job, request, before);
            return;
        }
        for lane in lanes {
            let reserved = self.shared.word.reserve(lane);
            assert!(reserved.is_ok(), "the lane book and the state word disagree on {lane:?}: {reserved:?}");
            let mail = Mail::resume(&request, None);
            self.smalls[lane.index()] = Some(self.hold(now, job, Arc::clone(&request), lane, lane.mask(), before));
            // SAFETY: the lane was just reserved, by the one dispatcher.
            unsafe { self.put(lane, mail) };
        }
    }

    /// Puts mail for a lane's worker.
    ///
    /// # Safety
    /// The lane was just reserved, by this dispatcher.
    #[inline]
    unsafe fn put(&self, lane: LaneId, mail: Mail<L>) {
        // SAFETY: whoever held the lane before took its mail before it released the lane, and this is the one dispatcher.
        unsafe { self.shared.lane(lane).mailbox.put(mail, self.shared.waiting.parks()) };
    }

    /// Before the request is handed over: its limit goes with it.
    fn hold(
        &mut self,
        now: Nanos,
        job: JobRef,
        request: Arc<dyn Runnable<L>>,
        lane: LaneId,
        lanes: LaneMask,
        before: Before,
    ) -> Held<L> {
        self.held = self.held | lanes;
        let limit = request.header().limit().unwrap_or_else(|| {
            let limit = self.watchdog.limit(self.scheduler.predicted_run(lane));
            if limit < Nanos::MAX {
                request.header().set_limit(limit);
            }
            limit
        });
        // What it had of it before counts; it is given the time to see that it has none left.
        let due = now + (limit - before.ran);
        self.timer = self.timer.min(due);
        let (started, ended) = (None, Nanos::ZERO);
        Held { job, request, reserved: now, left: lanes, started, ended, due, asked: false, excused: false, before }
    }

    /// Takes a request out of the queue to start it, unless its owner was faster.
    fn grant(&mut self, now: Nanos, job: JobRef) -> Option<Arc<dyn Runnable<L>>> {
        let request = self.unqueue(job)?;
        let granted = request.header().life.grant().is_ok();
        self.left(request.header(), !granted);
        if granted {
            if request.header().job.step.is_some() {
                request.header().set_slot(STARTED);
            }
            return Some(request);
        }
        self.over(now, &*request, Terminal::Cancelled, None, now);
        drop_quietly(request);
        self.withdrawn.push(job);
        None
    }

    fn unqueue(&mut self, job: JobRef) -> Option<Arc<dyn Runnable<L>>> {
        let request = self.queued[job.slot as usize].take();
        debug_assert!(request.as_ref().is_some_and(|r| r.header().job.id == job.id), "the scheduler's queue and ours agree");
        if let Some(request) = &request {
            request.header().set_slot(NO_SLOT);
        }
        request
    }

    /// Counts and logs the end of a request.
    fn over(&mut self, now: Nanos, request: &dyn Runnable<L>, outcome: Terminal, started: Option<Nanos>, ended: Nanos) {
        let job = &request.header().job;
        self.shared.counters.over(job.class, outcome);
        let slo_met = job.target.map(|target| outcome == Terminal::Completed && ended <= target);
        let outcome = Outcome { outcome, id: job.id, class: job.class, submitted: job.arrival, started, ended, slo_met };
        self.log.note(now, What::Outcome(outcome));
    }

    fn abort_if_told(&mut self, now: Nanos) -> bool {
        let before = std::mem::replace(&mut self.closing, self.shared.closing());
        if let Some(how) = self.closing
            && before != self.closing
        {
            self.hurry(now, how);
        }
        if self.closing != Some(Shutdown::Abort) || self.aborted {
            return false;
        }
        self.aborted = true;
        self.shared.word.close();
        self.tell(now, Event::Close);
        self.give_up_queued(now, &Class::ALL, None);
        self.give_up_stopped(now);
        true
    }

    fn shut_down(&mut self, now: Nanos) -> bool {
        if self.closing.is_none() {
            return false;
        }
        let mut progress = false;
        if !self.offline.is_empty() {
            // No gang will ever be complete again, without any lane no small one will run, and a shutdown is bounded.
            let none_left = self.offline == LaneMask::first(self.shared.lanes);
            let hopeless = if none_left { &Class::ALL[..] } else { &[Class::Large] };
            if hopeless.iter().any(|&class| self.scheduler.queued(class) > 0) {
                progress = true;
                self.give_up_queued(now, hopeless, None);
            }
        }
        if self.nothing_left() {
            self.shared.word.close();
            self.done = true;
            progress = true;
        }
        progress
    }

    /// Whether the door is shut for good, nothing is queued and nothing runs.
    fn nothing_left(&self) -> bool {
        ((self.held | self.probing).is_empty() || mutant("dispatcher.nothing_left:ignores-lanes"))
            && self.stopped.is_empty()
            && (mutant("dispatcher.nothing_left:ignores-doors")
                || Class::ALL.iter().all(|&class| self.shared.door(class).is_finished()))
    }

    /// Ends what is queued, because the node shuts down or because these lanes are missing.
    fn give_up_queued(&mut self, now: Nanos, classes: &[Class], missing: Option<LaneMask>) {
        for slot in 0..self.queued.len() {
            let Some(request) = &self.queued[slot] else { continue };
            if !classes.contains(&request.header().job.class) {
                continue;
            }
            let job = JobRef { slot: slot as u32, id: request.header().job.id };
            let Some(request) = self.unqueue(job) else { continue };
            let (ours, terminal) = match missing {
                None => (request.header().give_up(Phase::Queued, Phase::ShutDown), Terminal::ShutDown),
                Some(lanes) => (request.header().fail_missing(lanes), Terminal::Failed),
            };
            self.left(request.header(), !ours);
            self.over(now, &*request, if ours { terminal } else { Terminal::Cancelled }, None, now);
            drop_quietly(request);
            self.tell(now, Event::Cancel(job));
        }
    }

    /// The last resort after a panic in this thread, which a policy of the user's can cause: from now on nothing is started, and turns only
    /// resolve what is there and wait for the lanes. The scheduler, whose state is not to be trusted any more, is not asked again.
    fn bury(&mut self) {
        self.buried = true;
        self.aborted = true;
        self.shared.close(Shutdown::Abort);
        self.shared.word.close();
        self.withdrawn.clear();
    }

    /// A turn of a buried dispatcher.
    fn sweep(&mut self) -> bool {
        let view = self.shared.word.load();
        let now = self.shared.clock.now();
        self.shared.pulse.beat(now);
        self.seen = Some(view);
        let before = std::mem::replace(&mut self.closing, self.shared.closing());
        if before != self.closing {
            self.hurry(now, Shutdown::Abort);
        }
        let released = self.held & !view.busy;
        self.held = self.held & view.busy;
        self.probing = self.probing & view.busy;
        for lane in self.hung & !view.busy {
            self.drop_late(lane);
        }
        self.hung = self.hung & view.busy;
        let mut progress = !released.is_empty();
        for lane in released {
            // SAFETY: as in `take_releases`.
            let report = unsafe { self.shared.lane(lane).report() };
            let _ = self.close_out(now, lane, report);
        }
        if self.timer <= now {
            self.timer = Nanos::MAX;
            self.watch(now);
            progress = true;
        }
        for slot in 0..self.queued.len() {
            if let Some(request) = self.queued[slot].take() {
                self.resolve_unstarted(now, request);
            }
        }
        if let Some(request) = self.arriving.take() {
            self.resolve_unstarted(now, request);
        }
        self.give_up_stopped(now);
        for _ in 0..ARRIVALS {
            let Some(request) = self.shared.ingress.pop() else { break };
            progress = true;
            self.shared.counters.submitted(request.header().job.class);
            self.resolve_unstarted(now, request);
        }
        for _ in 0..ARRIVALS {
            let Some(request) = self.shared.cancelled.pop() else { break };
            progress = true;
            match request.header().slot() {
                GONE => self.shared.leave(&request.header().job),
                STARTED => {}
                _ => request.header().set_slot(WITHDRAWN),
            }
            drop_quietly(request);
        }
        self.tell_monitors();
        self.shared.counters.publish([0; 2], false);
        if self.nothing_left() {
            self.done = true;
            progress = true;
        }
        progress
    }

    fn resolve_unstarted(&mut self, now: Nanos, request: Arc<dyn Runnable<L>>) {
        let ours = request.header().give_up(Phase::Queued, Phase::ShutDown);
        self.left(request.header(), !ours);
        let now = now.max(request.header().job.arrival);
        self.over(now, &*request, if ours { Terminal::ShutDown } else { Terminal::Cancelled }, None, now);
        drop_quietly(request);
    }

    /// Tells the log's reader of records that did not fit, once nothing else will be logged. Waits for the reader, but not for ever.
    pub(crate) fn finish_log(&mut self) {
        let Some(log) = &mut self.log else { return };
        let now = self.shared.clock.now();
        for _ in 0..LAST_RECORD_TRIES {
            if log.flush(now) || log.ring.is_abandoned() {
                return;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// How many milliseconds a node that has shut down waits for room in its log to say what was lost.
const LAST_RECORD_TRIES: u32 = 1_000;

/// The writing end of the event log. It never waits: what does not fit is counted, and the count is logged when there is room.
struct Log {
    ring: rtrb::Producer<Record>,
    lost: u64,
}

impl Log {
    /// Says what was lost, if anything was and there is room. Whether the log is complete by that.
    #[inline]
    fn flush(&mut self, now: Nanos) -> bool {
        if self.lost > 0 && self.ring.push(Record { now, what: What::Lost { lost: self.lost } }).is_ok() {
            self.lost = 0;
        }
        self.lost == 0
    }
}

/// Notes something, if there is a log.
trait Note {
    fn note(&mut self, now: Nanos, what: What);
}

impl Note for Option<Log> {
    #[inline]
    fn note(&mut self, now: Nanos, what: What) {
        let Some(log) = self else { return };
        if !log.flush(now) || log.ring.push(Record { now, what }).is_err() {
            log.lost += 1;
        }
    }
}
