//! The scheduler under any sequence of events: sensible ones, stale and invented references, lanes up and down, closing, time that jumps or
//! runs backwards. Whatever comes, it does not panic, its books hold, it starts only what is queued on lanes that are free, and every job
//! that it admitted comes out once.
//!
//! A sequence that failed is kept in `tests/scheduler_fuzz.regressions` and tried first from then on. `PROPTEST_CASES` says how many are tried.

use phalanx::scheduler::policy::POLICIES;
use phalanx::scheduler::{Decision, Decisions, End, Event, Job, JobRef, Limits, Scheduler, Sharing};
use phalanx::{Class, LaneId, LaneMask, ModelKey, Nanos, RequestId, TenantKey};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use std::collections::{BTreeMap, BTreeSet};

/// One step: what happens, and how much later. Choices are numbers, taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Arrive {
        large: bool,
        deadline: Option<u64>,
        finish_by: Option<u64>,
        target: Option<u64>,
        expected: Option<u64>,
        model: u8,
        tenant: u8,
        step: Option<u64>,
    },
    Cancel(usize),
    Finish {
        choice: usize,
        end: u8,
        ran: u64,
    },
    /// One that is asked to stop does, or one that is not any more had already.
    Park {
        choice: usize,
        ran: u64,
    },
    Lane {
        lane: u8,
        up: bool,
    },
    /// A reference that nobody gave out.
    Nonsense {
        slot: u32,
        id: u64,
        finish: bool,
    },
    Tick,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let time = || prop_oneof![4 => 0_u64..2_000_000, 1 => Just(u64::MAX), 1 => any::<u64>()];
    let maybe = move || proptest::option::weighted(0.3, time());
    let maybe_step = move || proptest::option::weighted(0.6, time());
    prop_oneof![
        12 => (prop::bool::weighted(0.3), maybe(), maybe(), maybe(), maybe(), 0_u8..4, 0_u8..6, maybe_step()).prop_map(
            |(large, deadline, finish_by, target, expected, model, tenant, step)| {
                Step::Arrive { large, deadline, finish_by, target, expected, model, tenant, step }
            }
        ),
        2 => any::<usize>().prop_map(Step::Cancel),
        10 => (any::<usize>(), 0_u8..3, time()).prop_map(|(choice, end, ran)| Step::Finish { choice, end, ran }),
        6 => (any::<usize>(), time()).prop_map(|(choice, ran)| Step::Park { choice, ran }),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(lane, up)| Step::Lane { lane, up }),
        2 => (0_u32..64, 0_u64..64, any::<bool>()).prop_map(|(slot, id, finish)| Step::Nonsense { slot, id, finish }),
        3 => Just(Step::Tick),
        1 => Just(Step::Close),
    ]
}

/// How much later a step is. Some jumps are by as much as a clock can hold.
fn later() -> impl Strategy<Value = u64> {
    prop_oneof![30 => 0_u64..1_000_000, 1 => any::<u64>(), 1 => 0..u64::MAX / 64]
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Queued(Class),
    Running(Option<LaneId>),
    Parked(Option<LaneId>),
}

/// What an onlooker knows who believes nothing but events and decisions.
struct Onlooker {
    jobs: BTreeMap<u64, (JobRef, State)>,
    busy: LaneMask,
    down: LaneMask,
    lanes: usize,
    draining: bool,
    closed: bool,
    /// Those that have steps, are asked to stop, were since they last took their lanes, and were taken back while parked.
    stepped: BTreeSet<u64>,
    asked: BTreeSet<u64>,
    ever_asked: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
}

impl Onlooker {
    fn see(&mut self, arrived: Option<Class>, decisions: &Decisions) {
        let mut answered = 0;
        for &decision in decisions.as_slice() {
            match decision {
                Decision::Admit(job) => {
                    answered += 1;
                    let taken = self.jobs.values().any(|(other, _)| other.slot == job.slot);
                    assert!(!taken, "two jobs in one slot");
                    self.jobs.insert(job.id.0, (job, State::Queued(arrived.expect("an arrival"))));
                }
                Decision::Refuse { .. } => answered += 1,
                Decision::Expire(job) | Decision::Shed { job, .. } => {
                    let was = self.jobs.remove(&job.id.0);
                    assert!(matches!(was, Some((_, State::Queued(_)))), "expired, but was {was:?}");
                }
                Decision::StartSmall { job, lane, .. } => {
                    assert!(!self.closed, "started after the close");
                    assert!(!(self.busy | self.down).contains(lane), "started on a lane that is not free");
                    assert_eq!(self.jobs[&job.id.0], (job, State::Queued(Class::Small)));
                    self.busy = self.busy | lane.mask();
                    self.jobs.insert(job.id.0, (job, State::Running(Some(lane))));
                }
                Decision::StartLarge(job) => {
                    assert!(!self.closed, "started after the close");
                    assert!((self.busy | self.down).is_empty(), "a gang without all lanes");
                    assert_eq!(self.jobs[&job.id.0], (job, State::Queued(Class::Large)));
                    self.busy = LaneMask::first(self.lanes);
                    self.jobs.insert(job.id.0, (job, State::Running(None)));
                }
                Decision::Ask { job, lanes } => {
                    let lane = self.on(job, lanes);
                    assert_eq!(self.jobs[&job.id.0].1, State::Running(lane), "asked to stop, but does not run there");
                    assert!(self.stepped.contains(&job.id.0), "asked to stop, but has no steps");
                    assert!(self.asked.insert(job.id.0), "asked twice");
                    self.ever_asked.insert(job.id.0);
                }
                Decision::Unask { job, lanes } => {
                    let lane = self.on(job, lanes);
                    assert_eq!(self.jobs[&job.id.0].1, State::Running(lane));
                    assert!(self.asked.remove(&job.id.0), "not asked");
                }
                Decision::Resume { job, lanes } => {
                    assert!(!self.closed || self.cancelled.contains(&job.id.0), "resumed after the close");
                    assert!((self.busy | self.down) & lanes == LaneMask::NONE, "resumed on a lane that is not free");
                    let lane = self.on(job, lanes);
                    assert_eq!(self.jobs[&job.id.0], (job, State::Parked(lane)), "resumed elsewhere than where it stopped");
                    self.busy = self.busy | lanes;
                    self.jobs.insert(job.id.0, (job, State::Running(lane)));
                    self.ever_asked.remove(&job.id.0);
                }
                Decision::DrainOn { .. } => {
                    assert!(!self.draining, "a drain begins twice");
                    self.draining = true;
                }
                Decision::DrainOff => {
                    assert!(self.draining, "a drain ends that never began");
                    self.draining = false;
                }
            }
        }
        assert_eq!(answered, usize::from(arrived.is_some()), "each arrival is answered once, and nothing else is");
    }

    /// The lane of a decision about a running or parked job: one, or `None` for all.
    fn on(&self, job: JobRef, lanes: LaneMask) -> Option<LaneId> {
        let small = matches!(self.jobs[&job.id.0].1, State::Running(Some(_)) | State::Parked(Some(_)));
        if !small {
            assert_eq!(lanes, LaneMask::first(self.lanes));
            return None;
        }
        assert_eq!(lanes.count(), 1);
        lanes.lowest()
    }

    fn running(&self) -> Vec<(JobRef, Option<LaneId>)> {
        let running = self.jobs.values().filter_map(|&(job, state)| match state {
            State::Running(lane) => Some((job, lane)),
            State::Queued(_) | State::Parked(_) => None,
        });
        running.collect()
    }
}

fn run(policy: &str, lanes: usize, queue: [usize; 2], sharing: Option<Sharing>, steps: &[(u64, Step)]) {
    let mut limits = Limits::new(lanes).unwrap();
    for class in Class::ALL {
        limits = limits.queue(class, queue[class.index()]).unwrap();
    }
    if let Some(sharing) = sharing {
        limits = limits.sharing(sharing).unwrap();
    }
    let spec: phalanx::scheduler::PolicySpec = policy.parse().unwrap();
    let mut scheduler = Scheduler::new(limits, spec.build(lanes));
    let mut decisions = Decisions::new();
    let mut seen = Onlooker {
        jobs: BTreeMap::new(),
        busy: LaneMask::NONE,
        down: LaneMask::NONE,
        lanes,
        draining: false,
        closed: false,
        stepped: BTreeSet::new(),
        asked: BTreeSet::new(),
        ever_asked: BTreeSet::new(),
        cancelled: BTreeSet::new(),
    };
    let mut now = Nanos::ZERO;
    let mut tell = |now: Nanos, event: Event, seen: &mut Onlooker| {
        scheduler.on(now, event, &mut decisions);
        let arrived = if let Event::Arrive(job) = event { Some(job.class) } else { None };
        seen.see(arrived, &decisions);
        scheduler.check_invariants();
        assert_eq!(scheduler.busy(), seen.busy);
        assert_eq!(scheduler.draining(), seen.draining);
        assert_eq!(scheduler.policy_faults(), 0);
    };
    let end = |seen: &mut Onlooker, job: JobRef, lane: Option<LaneId>| {
        seen.jobs.remove(&job.id.0);
        seen.asked.remove(&job.id.0);
        seen.busy = lane.map_or(LaneMask::NONE, |lane| seen.busy.without(lane));
    };
    for (number, (later, step)) in steps.iter().enumerate() {
        // A clock that steps back counts as one that stands still.
        let at = if later % 7 == 6 { now - Nanos(*later) } else { now + Nanos(*later) };
        now = now.max(at);
        match *step {
            Step::Arrive { large, deadline, finish_by, target, expected, model, tenant, step } => {
                let class = if large { Class::Large } else { Class::Small };
                let mut job = Job::new(RequestId(number as u64), class, at);
                job.deadline = deadline.map(|after| now + Nanos(after));
                job.finish_by = finish_by.map(|after| now + Nanos(after));
                job.tenant = TenantKey(u64::from(tenant));
                job.step = step.map(Nanos);
                if step.is_some() {
                    seen.stepped.insert(job.id.0);
                }
                job.target = target.map(|after| now + Nanos(after));
                job.expected = expected.map(Nanos);
                job.model = ModelKey(u64::from(model));
                tell(at, Event::Arrive(job), &mut seen);
            }
            Step::Cancel(choice) => {
                let all: Vec<_> = seen.jobs.values().copied().collect();
                if let Some(&(job, state)) = all.get(choice % all.len().max(1)) {
                    match state {
                        State::Queued(_) => drop(seen.jobs.remove(&job.id.0)),
                        State::Parked(_) => drop(seen.cancelled.insert(job.id.0)),
                        State::Running(_) => {}
                    }
                    tell(at, Event::Cancel(job), &mut seen);
                }
            }
            Step::Park { choice, ran } => {
                let asked = |(job, _): &(JobRef, _)| seen.ever_asked.contains(&job.id.0);
                let stopping: Vec<_> = seen.running().into_iter().filter(asked).collect();
                if let Some(&(job, lane)) = stopping.get(choice % stopping.len().max(1)) {
                    end(&mut seen, job, lane);
                    seen.ever_asked.remove(&job.id.0);
                    seen.jobs.insert(job.id.0, (job, State::Parked(lane)));
                    tell(at, Event::Parked { job, ran: Nanos(ran) }, &mut seen);
                }
            }
            Step::Finish { choice, end: how, ran } => {
                let running = seen.running();
                if let Some(&(job, lane)) = running.get(choice % running.len().max(1)) {
                    end(&mut seen, job, lane);
                    let how = [End::Completed, End::Failed, End::Withdrawn][how as usize];
                    tell(at, Event::Finish { job, end: how, ran: Nanos(ran) }, &mut seen);
                }
            }
            Step::Lane { lane, up } => {
                let lane = LaneId::new(lane as usize % lanes);
                seen.down = if up { seen.down.without(lane) } else { seen.down.with(lane) };
                tell(at, if up { Event::LaneUp { lane } } else { Event::LaneDown { lane } }, &mut seen);
                // What is parked where a lane fails is lost with it.
                let lost = |state: State| !up && (state == State::Parked(None) || state == State::Parked(Some(lane)));
                let lost: Vec<_> = seen.jobs.values().filter(|(_, state)| lost(*state)).map(|&(job, _)| job).collect();
                for job in lost {
                    seen.jobs.remove(&job.id.0);
                    tell(at, Event::Finish { job, end: End::Failed, ran: Nanos::ZERO }, &mut seen);
                }
            }
            Step::Nonsense { slot, id, finish } => {
                let job = JobRef { slot, id: RequestId(id) };
                // A job that is really there is no nonsense.
                if seen.jobs.get(&id).is_none_or(|(there, _)| *there != job) {
                    let event = if finish { Event::Finish { job, end: End::Completed, ran: now } } else { Event::Cancel(job) };
                    tell(at, event, &mut seen);
                }
            }
            Step::Tick => tell(at, Event::Tick, &mut seen),
            Step::Close => {
                seen.closed = true;
                tell(at, Event::Close, &mut seen);
            }
        }
    }
    // Let all that runs end, and what is left be taken back: nothing stays behind.
    seen.closed = true;
    tell(now, Event::Close, &mut seen);
    for (job, lane) in seen.running() {
        end(&mut seen, job, lane);
        tell(now, Event::Finish { job, end: End::Completed, ran: Nanos(1) }, &mut seen);
    }
    // What runs first: a parked one is in its way.
    let next = |seen: &Onlooker| {
        seen.jobs.values().find(|job| matches!(job.1, State::Running(_))).or(seen.jobs.values().next()).copied()
    };
    while let Some((job, state)) = next(&seen) {
        if let State::Running(lane) = state {
            // One that was taken back while parked, and went on when another left its lane.
            end(&mut seen, job, lane);
            tell(now, Event::Finish { job, end: End::Withdrawn, ran: Nanos::ZERO }, &mut seen);
        } else if matches!(state, State::Parked(_)) {
            // It goes on to be dropped where it lives, or its lane is down and it goes with that.
            seen.cancelled.insert(job.id.0);
            tell(now, Event::Cancel(job), &mut seen);
            if let Some(&(job, State::Running(lane))) = seen.jobs.get(&job.id.0) {
                end(&mut seen, job, lane);
            } else {
                assert!(!seen.down.is_empty(), "a parked job that was taken back stays though its lanes are free");
                seen.jobs.remove(&job.id.0);
            }
            tell(now, Event::Finish { job, end: End::Withdrawn, ran: Nanos::ZERO }, &mut seen);
        } else {
            seen.jobs.remove(&job.id.0);
            tell(now, Event::Cancel(job), &mut seen);
        }
    }
    assert!(scheduler.busy().is_empty());
    assert!(Class::ALL.iter().all(|&class| scheduler.queued(class) == 0 && scheduler.parked(class) == 0));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/scheduler_fuzz.regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_events_under_every_policy(
        lanes in 1_usize..=8,
        queue in [1_usize..40, 1_usize..6],
        sharing in proptest::option::of((1_usize..=4, 1_usize..30).prop_map(|(lines, most)| Sharing { lines, most })),
        steps in proptest::collection::vec((later(), step()), 0..160),
    ) {
        for policy in POLICIES {
            run(policy.name, lanes, queue, sharing, &steps);
        }
    }
}
