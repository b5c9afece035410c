//! The state of a node as its log tells it.

use std::collections::HashMap;

use phalanx::observe::{Record, What};
use phalanx::scheduler::{Decision, Event, Job, JobRef};
use phalanx::types::MAX_SIM_LANES;
use phalanx::{Class, LaneId, LaneMask, RequestId};

/// Who is queued and who runs where, after the records that it was given: the scheduler's state, rebuilt from its events and
/// decisions alone.
///
/// It holds one entry for each request that is queued or runs. It trusts nobody: of a log that contradicts itself it makes what it
/// can (finding contradictions is the auditor's work).
#[derive(Clone, Debug)]
pub struct Book {
    lanes: LaneMask,
    offline: LaneMask,
    busy: LaneMask,
    gang: Option<JobRef>,
    jobs: HashMap<u32, Entry>,
    queued: [usize; 2],
    draining: bool,
    arriving: Option<Job>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: RequestId,
    class: Class,
    /// The lanes it holds; none while it is queued or parked.
    held: LaneMask,
    /// It has stopped at a step, and holds none.
    parked: bool,
}

impl Book {
    /// Nothing queued and every lane free.
    ///
    /// # Panics
    /// With more than [`MAX_SIM_LANES`] lanes.
    #[must_use]
    pub fn new(lanes: usize) -> Self {
        Self {
            lanes: LaneMask::first(lanes),
            offline: LaneMask::NONE,
            busy: LaneMask::NONE,
            gang: None,
            jobs: HashMap::new(),
            queued: [0; 2],
            draining: false,
            arriving: None,
        }
    }

    /// Takes the next record of the log.
    pub fn on(&mut self, record: &Record) {
        match record.what {
            What::Event(event) => self.event(event),
            What::Decision(decision) => self.decision(decision),
            What::Span(_) | What::Outcome(_) | What::Lane(_) | What::Lost { .. } => {}
        }
    }

    fn event(&mut self, event: Event) {
        self.arriving = None;
        match event {
            Event::Arrive(job) => self.arriving = Some(job),
            Event::Cancel(job) => self.leave_queue(job, None),
            Event::Finish { job, .. } => {
                let Some(entry) = self.jobs.get(&job.slot).copied().filter(|entry| entry.id == job.id) else { return };
                self.busy = self.busy & !entry.held;
                if self.gang == Some(job) {
                    self.gang = None;
                }
                if entry.parked || !entry.held.is_empty() {
                    self.jobs.remove(&job.slot);
                }
            }
            Event::Parked { job, .. } => {
                let Some(entry) = self.jobs.get_mut(&job.slot).filter(|entry| entry.id == job.id && !entry.held.is_empty())
                else {
                    return;
                };
                self.busy = self.busy & !std::mem::replace(&mut entry.held, LaneMask::NONE);
                entry.parked = true;
                if self.gang == Some(job) {
                    self.gang = None;
                }
            }
            Event::LaneDown { lane } => self.offline = self.offline.with(lane),
            Event::LaneUp { lane } => self.offline = self.offline.without(lane),
            Event::Refused { .. } | Event::Close | Event::Tick => {}
        }
    }

    fn decision(&mut self, decision: Decision) {
        match decision {
            Decision::Admit(job) => {
                if let Some(arriving) = self.arriving.filter(|arriving| arriving.id == job.id) {
                    let entry = Entry { id: job.id, class: arriving.class, held: LaneMask::NONE, parked: false };
                    self.jobs.insert(job.slot, entry);
                    self.queued[arriving.class.index()] += 1;
                }
            }
            Decision::Refuse { .. } => {}
            Decision::Expire(job) | Decision::Shed { job, .. } => self.leave_queue(job, None),
            Decision::StartSmall { job, lane, .. } => self.leave_queue(job, Some(lane.mask())),
            Decision::StartLarge(job) => {
                self.leave_queue(job, Some(self.lanes));
                self.gang = Some(job);
            }
            Decision::Resume { job, lanes } => {
                let Some(entry) = self.jobs.get_mut(&job.slot).filter(|entry| entry.id == job.id && entry.parked) else { return };
                (entry.held, entry.parked) = (lanes, false);
                self.busy = self.busy | lanes;
                if entry.class == Class::Large {
                    self.gang = Some(job);
                }
            }
            Decision::Ask { .. } | Decision::Unask { .. } => {}
            Decision::DrainOn { .. } => self.draining = true,
            Decision::DrainOff => self.draining = false,
        }
    }

    /// A queued job is not queued any more: it holds these lanes, or it is gone.
    fn leave_queue(&mut self, job: JobRef, held: Option<LaneMask>) {
        let Some(entry) =
            self.jobs.get_mut(&job.slot).filter(|entry| entry.id == job.id && entry.held.is_empty() && !entry.parked)
        else {
            return;
        };
        let queued = &mut self.queued[entry.class.index()];
        *queued = queued.saturating_sub(1);
        match held {
            Some(lanes) => {
                entry.held = lanes;
                self.busy = self.busy | lanes;
            }
            None => {
                self.jobs.remove(&job.slot);
            }
        }
    }

    /// How many requests of a class are queued.
    #[must_use]
    pub const fn queued(&self, class: Class) -> usize {
        self.queued[class.index()]
    }

    /// The lanes that something holds.
    #[must_use]
    pub const fn busy(&self) -> LaneMask {
        self.busy
    }

    /// The lanes that are in service and that nothing holds.
    #[must_use]
    pub fn idle(&self) -> LaneMask {
        self.lanes & !self.busy & !self.offline
    }

    /// The lanes that are out of service.
    #[must_use]
    pub const fn offline(&self) -> LaneMask {
        self.offline
    }

    /// Whether a large request holds every lane.
    #[must_use]
    pub const fn gang_running(&self) -> bool {
        self.gang.is_some()
    }

    /// Whether lanes are kept free for a large request that waits.
    #[must_use]
    pub const fn draining(&self) -> bool {
        self.draining
    }

    /// The request that the latest event brought, if it was an arrival: what is decided now is decided at its arrival.
    #[must_use]
    pub const fn arriving(&self) -> Option<Job> {
        self.arriving
    }

    /// The lanes, lowest first.
    pub fn lanes(&self) -> impl Iterator<Item = LaneId> + use<> {
        self.lanes.into_iter()
    }
}

const _: () = assert!(MAX_SIM_LANES <= 64, "a mask holds every lane");

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx::Nanos;
    use phalanx::scheduler::{Decisions, End, Limits, PolicySpec, Scheduler};

    #[test]
    fn it_agrees_with_the_scheduler() {
        for policy in phalanx::scheduler::policy::POLICIES {
            let spec: PolicySpec = policy.name.parse().unwrap();
            let limits = Limits::new(4).unwrap().queue(Class::Small, 8).unwrap();
            let mut scheduler = Scheduler::new(limits, spec.build(4));
            let (mut book, mut decisions, mut running) = (Book::new(4), Decisions::new(), Vec::new());
            let mut queued = Vec::new();
            // A small linear congruential sequence: the test needs variety, not quality.
            let mut draw = 1_u64;
            for step in 0..20_000_u64 {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (now, dice) = (Nanos(step * 10), (draw >> 33) as usize);
                let event = match dice % 10 {
                    0..4 => {
                        let class = if dice % 50 < 5 { Class::Large } else { Class::Small };
                        let mut job = Job::new(RequestId(step), class, now);
                        job.deadline = (dice % 3 == 0).then_some(now + Nanos(500));
                        Event::Arrive(job)
                    }
                    4 if !queued.is_empty() => Event::Cancel(queued[dice % queued.len()]),
                    5..10 if !running.is_empty() => {
                        let job = running.swap_remove(dice % running.len());
                        Event::Finish { job, end: End::Completed, ran: Nanos(1) }
                    }
                    _ => Event::Tick,
                };
                scheduler.on(now, event, &mut decisions);
                book.on(&Record { now, what: What::Event(event) });
                for &decision in &decisions {
                    match decision {
                        Decision::StartSmall { job, .. } | Decision::StartLarge(job) => running.push(job),
                        Decision::Admit(job) => queued.push(job),
                        _ => {}
                    }
                    book.on(&Record { now, what: What::Decision(decision) });
                }
                for class in Class::ALL {
                    assert_eq!(book.queued(class), scheduler.queued(class), "{} at step {step}", policy.name);
                }
                assert_eq!(book.busy(), scheduler.busy(), "{} at step {step}", policy.name);
                assert_eq!(book.draining(), scheduler.draining());
                assert_eq!(book.gang_running(), scheduler.gang_running());
                assert!(book.jobs.len() <= limits.slots());
            }
        }
    }
}
