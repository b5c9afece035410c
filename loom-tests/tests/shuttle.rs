//! The whole runtime under shuttle: eight lanes, a dispatcher's thread, submitters who cancel, a shutdown at any moment, in random
//! schedules. Nothing here depends on real time or real chance, so that a schedule that fails can be played again.
//!
//! `PHALANX_SHUTTLE_SCHEDULES` says how many schedules each model has, `PHALANX_SHUTTLE_SEED` with which they begin. A failure prints its
//! schedule; `PHALANX_SHUTTLE_REPLAY=SCHEDULE cargo test … NAME` runs that one alone.
#![cfg(shuttle)]

use phalanx::observe::Terminal;
use phalanx::runtime::{Phase, Pinning, Recovery, Watchdog};
use phalanx::{
    Builder, Cancel, Class, Device, DeviceError, DeviceFault, Drive, Gang, LaneId, Phalanx, Request, RequestError, RequestId,
    Shutdown, Step, Ticket, Turn, Wait,
};
use phalanx_loom_tests::{PLANNED, assert_no_panic, watch};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner, thread};
use std::sync::Arc;
use std::time::Duration;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

/// Runs one model in `PHALANX_SHUTTLE_SCHEDULES` random schedules and as many that preempt rarely but where it hurts (PCT, depth 3).
fn check(model: impl Fn() + Send + Sync + Copy + 'static) {
    let schedules = number("PHALANX_SHUTTLE_SCHEDULES", 200) as usize;
    let seed = number("PHALANX_SHUTTLE_SEED", 0x5EED);
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let mut config = Config::new();
    config.stack_size = 0x20000;
    config.failure_persistence = FailurePersistence::Print;
    config.max_steps = MaxSteps::FailAfter(2_000_000);
    config.silence_warnings = true;
    let model = move || {
        watch();
        model();
        assert_no_panic();
    };
    let began = std::time::Instant::now();
    if let Ok(schedule) = std::env::var("PHALANX_SHUTTLE_REPLAY") {
        let ran =
            Runner::new(ReplayScheduler::new_from_encoded(&schedule.split_whitespace().collect::<String>()), config).run(model);
        println!("SHUTTLE {name}: replayed {ran}");
        return;
    }
    let random = Runner::new(RandomScheduler::new_from_seed(seed, schedules), config.clone()).run(model);
    let pct = Runner::new(PctScheduler::new_from_seed(seed, 3, schedules), config).run(model);
    println!("SHUTTLE {name}: schedules {} seed {seed} ms {}", random + pct, began.elapsed().as_millis());
}

/// Who is on which lane. Every body and every bracket of the device looks, so that two requests on one lane are seen at once.
#[derive(Default)]
struct Board {
    /// The request on each lane, plus one; 0: none.
    lanes: [AtomicU64; 8],
}

/// A device that fails now and then: a request, a lane, or a probe.
struct Lanes {
    board: Arc<Board>,
    faults: bool,
}

struct Lane {
    id: LaneId,
    board: Arc<Board>,
}

impl Lane {
    fn enter(&self, request: RequestId) {
        let before = self.board.lanes[self.id.index()].swap(request.0 + 1, Ordering::SeqCst);
        assert_eq!(before, 0, "request {request} met another on {}", self.id);
    }

    fn leave(&self, request: RequestId) {
        let before = self.board.lanes[self.id.index()].swap(0, Ordering::SeqCst);
        assert_eq!(before, request.0 + 1, "another request came while {request} was on {}", self.id);
    }
}

impl Device for Lanes {
    type Lane = Lane;
    fn describe(&self) -> String {
        "a board".to_owned()
    }
    fn open(&self, id: LaneId) -> Result<Lane, DeviceError> {
        Ok(Lane { id, board: Arc::clone(&self.board) })
    }
    fn begin(&self, lane: &mut Lane, request: RequestId) -> Result<(), DeviceError> {
        if self.faults && thread_rng().gen_range(0..20) == 0 {
            return Err(DeviceError::new(lane.id, DeviceFault::Request, "planned: it did not begin"));
        }
        lane.enter(request);
        Ok(())
    }
    fn finish(&self, lane: &mut Lane, request: RequestId) -> Result<(), DeviceError> {
        lane.leave(request);
        let chance = if self.faults { thread_rng().gen_range(0..40) } else { 40 };
        if chance == 0 {
            return Err(DeviceError::new(lane.id, DeviceFault::Lane, "planned: the lane is lost"));
        }
        if chance == 1 {
            return Err(DeviceError::new(lane.id, DeviceFault::Request, "planned: it did not finish"));
        }
        Ok(())
    }
    fn probe(&self, id: LaneId, lane: &mut Lane) -> Result<(), DeviceError> {
        assert_eq!(lane.board.lanes[id.index()].load(Ordering::SeqCst), 0, "a probe met a request on {id}");
        thread::yield_now();
        if thread_rng().gen_range(0..3) == 0 {
            return Err(DeviceError::new(id, DeviceFault::Lane, "planned: a probe"));
        }
        *lane = self.open(id)?;
        Ok(())
    }
}

fn builder(lanes: usize, policy: &str, faults: bool) -> Builder<Lanes> {
    Phalanx::builder()
        .lanes(lanes)
        .device(Lanes { board: Arc::default(), faults })
        .policy(policy.parse().unwrap())
        .queue(Class::Small, 6)
        .queue(Class::Large, 3)
        .wait(Wait::Park)
        .pinning(Pinning::Off)
        // A timer would end sleeps that nobody ends, and hide lost wake-ups: there is none but where something is faulty. The clock goes on
        // by a microsecond whenever somebody looks at it.
        .watchdog(Watchdog { grace: Duration::from_micros(20), ..Watchdog::OFF })
        .recovery(Recovery {
            first_wait: Duration::from_micros(10),
            longest_wait: Duration::from_micros(80),
            large_wait: Duration::from_micros(500),
            probe_limit: Duration::from_micros(40),
            ..Recovery::default()
        })
}

/// A request that may be past its limit before it has ended. It looks at nothing: whoever was given up is alone no more.
fn slow(value: u64) -> Request<Lane, u64> {
    Request::small(move |_: &mut Lane| {
        for _ in 0..thread_rng().gen_range(0..20) {
            thread::yield_now();
        }
        value
    })
    .limit(Duration::from_micros(30))
}

fn slow_gang() -> Request<Lane, Vec<usize>> {
    Request::large(move |_: &mut Lane, gang: &Gang<'_>| {
        for _ in 0..thread_rng().gen_range(0..10) {
            thread::yield_now();
        }
        gang.barrier()?;
        Ok(gang.rank())
    })
    .limit(Duration::from_micros(60))
}

fn small(value: u64) -> Request<Lane, u64> {
    Request::small(move |lane: &mut Lane| {
        thread::yield_now();
        assert_ne!(lane.board.lanes[lane.id.index()].load(Ordering::SeqCst), 0);
        assert!(value % 8 != 5, "{PLANNED} a body that panics");
        value
    })
}

/// A small request of so many steps, one of which may panic.
fn small_steps(steps: u64, panics: Option<u64>) -> Request<Lane, u64> {
    Request::small_steps(
        |_: &mut Lane| 0,
        move |lane: &mut Lane, step: &mut u64| {
            thread::yield_now();
            assert_ne!(lane.board.lanes[lane.id.index()].load(Ordering::SeqCst), 0);
            assert!(panics != Some(*step), "{PLANNED} a step that panics");
            *step += 1;
            if *step < steps { Step::Continue } else { Step::Done(*step) }
        },
    )
    .step_length(Duration::from_micros(5))
}

/// A large one, of which a member may be done before the others.
fn large_steps(steps: u32, early: Option<(usize, u32)>) -> Request<Lane, Vec<usize>> {
    Request::large_steps(
        |_: &mut Lane, _: &Gang<'_>| 0,
        move |lane: &mut Lane, gang: &Gang<'_>, step: &mut u32| {
            let all = &lane.board.lanes[..gang.size()];
            assert!(all.iter().all(|on| on.load(Ordering::SeqCst) == gang.request().0 + 1), "a gang that is not alone");
            *step += 1;
            let done = *step >= steps || early == Some((gang.rank(), *step));
            Ok(if done { Step::Done(gang.rank()) } else { Step::Continue })
        },
    )
    .step_length(Duration::from_micros(5))
}

/// A large request of so many barriers, whose member may panic or leave early at one of them.
fn large(barriers: u32, trouble: Option<(usize, u32, bool)>) -> Request<Lane, Vec<usize>> {
    Request::large(move |lane: &mut Lane, gang: &Gang<'_>| {
        for round in 0..barriers {
            if let Some((rank, at, panics)) = trouble
                && rank == gang.rank()
                && at == round
            {
                assert!(!panics, "{PLANNED} a member that panics");
                return Ok(rank);
            }
            gang.barrier()?;
            // After a barrier every lane is this gang's.
            let all = &lane.board.lanes[..gang.size()];
            assert!(all.iter().all(|on| on.load(Ordering::SeqCst) == gang.request().0 + 1), "a gang that is not alone");
            gang.barrier()?;
        }
        Ok(gang.rank())
    })
}

/// What became of one user's requests, by `Terminal`.
type Ends = [u64; 6];

fn count<T>(ends: &mut Ends, result: &Result<T, RequestError>) {
    let end = match result {
        Ok(_) => Terminal::Completed,
        Err(RequestError::Expired) => Terminal::Expired,
        Err(RequestError::Cancelled) => Terminal::Cancelled,
        Err(RequestError::ShutDown) => Terminal::ShutDown,
        Err(RequestError::Taken) => panic!("the output was taken twice"),
        Err(_) => Terminal::Failed,
    };
    ends[end as usize] += 1;
}

fn settle<T>(ends: &mut Ends, mut ticket: Ticket<T>) {
    let cancelled = if thread_rng().gen_range(0..3) == 0 { Some(ticket.cancel()) } else { None };
    let polled = thread_rng().gen_range(0..2) == 0;
    let result = if polled { shuttle::future::block_on(&mut ticket) } else { take(ticket) };
    if cancelled == Some(Cancel::Cancelled) {
        assert!(matches!(result, Err(RequestError::Cancelled)), "what was cancelled has no other end");
    }
    count(ends, &result);
}

fn take<T>(ticket: Ticket<T>) -> Result<T, RequestError> {
    ticket.wait()
}

fn due<T>(request: Request<Lane, T>, deadline: Option<Duration>) -> Request<Lane, T> {
    match deadline {
        Some(deadline) => request.deadline(deadline),
        None => request,
    }
}

/// One user: submits small and large requests of every kind, cancels some, waits for some at once and for the rest at the end.
fn user(node: &Phalanx<Lanes>, requests: u64, lanes: usize) -> Ends {
    let mut ends = Ends::default();
    let mut open = Vec::new();
    for i in 0..requests {
        let mut rng = thread_rng();
        // The clock goes on by a microsecond whenever somebody looks at it.
        let deadline = (rng.gen_range(0..4) == 0).then(|| Duration::from_micros(rng.gen_range(0..200)));
        if rng.gen_range(0..3) == 0 {
            let trouble =
                (rng.gen_range(0..3) == 0).then(|| (rng.gen_range(0..lanes), rng.gen_range(0..2), rng.gen_range(0..2) == 0));
            let hangs = node.device().faults && rng.gen_range(0..4) == 0;
            let request = match rng.gen_range(0..3) {
                _ if hangs => slow_gang(),
                0 => large_steps(rng.gen_range(1..6), trouble.map(|(rank, at, _)| (rank, at))),
                _ => large(rng.gen_range(0..3), trouble),
            };
            match node.submit(due(request, deadline)) {
                Ok(ticket) => settle(&mut ends, ticket),
                Err(_) => ends[Terminal::Rejected as usize] += 1,
            }
        } else {
            let hangs = node.device().faults && rng.gen_range(0..4) == 0;
            let request = match rng.gen_range(0..3) {
                _ if hangs => slow(i),
                0 => small_steps(rng.gen_range(1..8), (rng.gen_range(0..8) == 0).then_some(2)),
                _ => small(i),
            };
            match node.submit(due(request, deadline)) {
                Ok(ticket) if rng.gen_range(0..2) == 0 => settle(&mut ends, ticket),
                Ok(ticket) => open.push(ticket),
                Err(_) => ends[Terminal::Rejected as usize] += 1,
            }
        }
    }
    for ticket in open {
        settle(&mut ends, ticket);
    }
    ends
}

/// After a shutdown: every request ended once, as its user and as the node have counted, and every lane is free, once what hung has ended.
fn assert_books(node: &Phalanx<Lanes>, users: &[Ends]) {
    let now = node.snapshot();
    assert!(now.offline.covers(now.busy), "{now:?}");
    while !node.snapshot().busy.is_empty() {
        thread::yield_now();
    }
    let now = node.snapshot();
    assert!(now.busy.is_empty() && !now.gang_running, "{now:?}");
    for class in Class::ALL {
        assert_eq!(now.in_flight(class), 0, "{now:?}");
        assert_eq!(now.queued[class.index()], 0, "{now:?}");
    }
    for end in Terminal::ALL {
        let theirs: u64 = users.iter().map(|ends| ends[end as usize]).sum();
        let ours: u64 = Class::ALL.iter().map(|&class| now.count(class, end)).sum();
        assert_eq!(theirs, ours, "{end:?}: users {users:?}, node {now:?}");
    }
    assert!(node.device().board.lanes.iter().all(|lane| lane.load(Ordering::SeqCst) == 0));
}

/// Users on threads of their own, and a shutdown when they are done, or before.
fn scenario(lanes: usize, policy: &'static str, faults: bool, users: usize, requests: u64, early: Option<Shutdown>) {
    let node = Arc::new(builder(lanes, policy, faults).build().unwrap());
    let threads: Vec<_> = (0..users)
        .map(|_| {
            let node = Arc::clone(&node);
            thread::spawn(move || user(&node, requests, lanes))
        })
        .collect();
    if let Some(how) = early {
        for _ in 0..thread_rng().gen_range(0..40) {
            thread::yield_now();
        }
        assert!(node.shutdown(how).complete);
    }
    let ends: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(node.shutdown(Shutdown::Finish).complete);
    assert_books(&node, &ends);
}

#[test]
fn eight_lanes() {
    check(|| scenario(8, "fcfs", false, 3, 5, None));
}

#[test]
fn eight_lanes_with_faults() {
    check(|| scenario(8, "drain", true, 3, 5, None));
}

#[test]
fn eight_lanes_shut_down_at_any_moment() {
    check(|| {
        let how = if thread_rng().gen_range(0..2) == 0 { Shutdown::Abort } else { Shutdown::Finish };
        scenario(8, "drain", false, 3, 4, Some(how));
    });
}

#[test]
fn every_policy() {
    check(|| {
        let policies = phalanx::scheduler::policy::POLICIES;
        let policy = policies[thread_rng().gen_range(0..policies.len())].name;
        scenario(4, policy, true, 3, 5, None);
    });
}

#[test]
fn two_threads_turn() {
    check(|| {
        let node = Arc::new(builder(2, "fcfs", false).drive(Drive::Turn).build().unwrap());
        let user = {
            let node = Arc::clone(&node);
            thread::spawn(move || user(&node, 4, 2))
        };
        let drivers: Vec<_> = (0..2)
            .map(|_| {
                let node = Arc::clone(&node);
                thread::spawn(move || {
                    while node.turn() != Turn::Done {
                        thread::yield_now();
                    }
                })
            })
            .collect();
        let ends = user.join().unwrap();
        assert!(node.shutdown(Shutdown::Finish).complete);
        for driver in drivers {
            driver.join().unwrap();
        }
        assert_books(&node, &[ends]);
    });
}

/// Many threads wait for and cancel the same moment: a ticket's phase, once terminal, stays.
#[test]
fn a_phase_is_final() {
    check(|| {
        let node = Arc::new(builder(2, "fcfs", false).build().unwrap());
        let tickets: Vec<_> = (0..3).map(|i| Arc::new(node.submit(small(i)).unwrap())).collect();
        let threads: Vec<_> = tickets
            .iter()
            .map(|ticket| {
                let ticket = Arc::clone(ticket);
                thread::spawn(move || {
                    ticket.cancel();
                    let mut last = Phase::Queued;
                    for _ in 0..10 {
                        let now = ticket.phase();
                        assert!(now == last || !last.is_terminal(), "{last:?} became {now:?}");
                        last = now;
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(node.shutdown(Shutdown::Finish).complete);
        assert!(tickets.iter().all(|ticket| ticket.phase().is_terminal()));
    });
}
