//! Requests that stop at steps, on real threads: what is promised of them, whatever ends them, and wherever they are then.

use phalanx::observe::What;
use phalanx::scheduler::Decision;
use phalanx::{
    Cancel, Device, DeviceError, DeviceFault, Emulated, EmulatedLane, Gang, LaneId, LaneMask, Phalanx, Phase, Recovery, Request,
    RequestError, RequestId, Shutdown, Step, Ticket,
};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const STEP: Duration = MS;

fn node(policy: &str) -> Phalanx<Emulated> {
    Phalanx::builder().lanes(8).policy(policy.parse().unwrap()).build().unwrap()
}

/// What all the requests of a test did.
#[derive(Default)]
struct Seen {
    steps: AtomicUsize,
    made: AtomicUsize,
    dropped: AtomicUsize,
    /// Dropped by another thread than the one that made it.
    strayed: AtomicUsize,
    /// Everything is to end now.
    end: AtomicBool,
}

/// What a request keeps on its lane: neither Send nor Sync, and to be dropped where it was made.
struct State {
    seen: Arc<Seen>,
    home: ThreadId,
    step: usize,
    _not_send: Rc<()>,
}

impl State {
    fn new(seen: &Arc<Seen>) -> Self {
        seen.made.fetch_add(1, Ordering::Relaxed);
        Self { seen: Arc::clone(seen), home: std::thread::current().id(), step: 0, _not_send: Rc::new(()) }
    }

    /// Counts a step; whether it was the last of so many.
    fn count(&mut self, of: usize) -> bool {
        assert_eq!(std::thread::current().id(), self.home, "a step on another lane");
        self.step += 1;
        self.seen.steps.fetch_add(1, Ordering::Relaxed);
        self.step >= of || self.seen.end.load(Ordering::Relaxed)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.seen.dropped.fetch_add(1, Ordering::Relaxed);
        if std::thread::current().id() != self.home {
            self.seen.strayed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Seen {
    /// Once the node is gone: nothing is left, and nothing was dropped elsewhere.
    fn assert_clean(&self) {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        assert_eq!(count(&self.made), count(&self.dropped), "a state was lost, or dropped twice");
        assert_eq!(count(&self.strayed), 0, "a state was dropped away from its lane");
    }

    fn await_steps(&self, steps: usize) {
        wait_for("steps", || self.steps.load(Ordering::Relaxed) >= steps);
    }
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "{what}: not within 20 s");
        std::thread::sleep(MS / 10);
    }
}

/// A small request of so many steps of 1 ms.
fn small(seen: &Arc<Seen>, steps: usize) -> Request<EmulatedLane, usize> {
    let made = Arc::clone(seen);
    Request::small_steps(
        move |_: &mut EmulatedLane| State::new(&made),
        move |lane: &mut EmulatedLane, state: &mut State| {
            lane.launch(STEP).unwrap();
            lane.synchronize();
            if state.count(steps) { Step::Done(state.step) } else { Step::Continue }
        },
    )
    .expected(STEP * steps as u32)
    .step_length(STEP)
}

/// A large one.
fn large(seen: &Arc<Seen>, steps: usize) -> Request<EmulatedLane, Vec<usize>> {
    let made = Arc::clone(seen);
    Request::large_steps(
        move |_: &mut EmulatedLane, _: &Gang<'_>| State::new(&made),
        move |lane: &mut EmulatedLane, _: &Gang<'_>, state: &mut State| {
            lane.launch(STEP).unwrap();
            lane.synchronize();
            Ok(if state.count(steps) { Step::Done(state.step) } else { Step::Continue })
        },
    )
    .expected(STEP * steps as u32)
    .step_length(STEP)
}

fn quick_large() -> Request<EmulatedLane, Vec<()>> {
    Request::large(|_: &mut EmulatedLane, gang: &Gang<'_>| gang.barrier()).expected(MS)
}

/// A large request that blocks the node for as long as it is told to.
fn blocker(until: &Arc<AtomicBool>) -> Request<EmulatedLane, Vec<()>> {
    let until = Arc::clone(until);
    Request::large(move |_: &mut EmulatedLane, _: &Gang<'_>| {
        while !until.load(Ordering::Relaxed) {
            std::thread::sleep(MS);
        }
        Ok(())
    })
    .expected(MS)
}

/// A small request that is parked while a large one blocks the node; and that one, and what ends it.
fn parked(node: &Phalanx<Emulated>, seen: &Arc<Seen>) -> (Ticket<usize>, Ticket<Vec<()>>, Arc<AtomicBool>) {
    let ticket = node.submit(small(seen, 1_000)).unwrap();
    seen.await_steps(2);
    let release = Arc::new(AtomicBool::new(false));
    let large = node.submit(blocker(&release)).unwrap();
    wait_for("parked", || ticket.phase() == Phase::Parked);
    wait_for("the large runs", || large.phase() == Phase::Running);
    (ticket, large, release)
}

#[test]
fn steps_run_to_their_end_in_order_on_one_lane() {
    for policy in ["balance", "swap", "fcfs"] {
        let seen = Arc::new(Seen::default());
        let node = node(policy);
        let smalls: Vec<_> = (1..=20).map(|steps| node.submit(small(&seen, steps)).unwrap()).collect();
        for (ticket, steps) in smalls.into_iter().zip(1..) {
            assert_eq!(ticket.wait(), Ok(steps));
        }
        assert_eq!(node.submit(large(&seen, 5)).unwrap().wait(), Ok(vec![5; 8]));
        assert_eq!(seen.steps.load(Ordering::Relaxed), (1..=20).sum::<usize>() + 8 * 5);
        drop(node);
        seen.assert_clean();
    }
}

#[test]
fn a_large_one_waits_for_a_step_of_the_smalls_and_not_for_their_end() {
    for policy in ["balance", "swap"] {
        let seen = Arc::new(Seen::default());
        let node = node(policy);
        let smalls: Vec<_> = (0..4).map(|_| node.submit(small(&seen, 2_000)).unwrap()).collect();
        seen.await_steps(8);
        let began = Instant::now();
        node.submit(quick_large()).unwrap().wait().unwrap();
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(1), "{policy}: a drain took {waited:?}, and a small one takes 2 s");
        assert!(smalls.iter().all(|small| !small.phase().is_terminal()));
        seen.end.store(true, Ordering::Relaxed);
        for small in smalls {
            assert!(small.wait().unwrap() < 2_000);
        }
        assert_eq!(node.device().violations(), 0);
        drop(node);
        seen.assert_clean();
    }
}

#[test]
fn a_large_one_steps_aside_for_smalls_and_all_of_its_members_stop_at_the_same_step() {
    let (seen, stops) = (Arc::new(Seen::default()), Arc::new(Mutex::new(Vec::new())));
    let node = node("swap:cost=0");
    let (made, at) = (Arc::clone(&seen), Arc::clone(&stops));
    let large = node
        .submit(
            Request::large_steps(
                move |_: &mut EmulatedLane, _: &Gang<'_>| State::new(&made),
                move |lane: &mut EmulatedLane, gang: &Gang<'_>, state: &mut State| {
                    lane.launch(STEP).unwrap();
                    lane.synchronize();
                    let last = state.count(400);
                    at.lock().unwrap().push((gang.rank(), state.step));
                    Ok(if last { Step::Done(state.step) } else { Step::Continue })
                },
            )
            .expected(400 * MS)
            .step_length(STEP),
        )
        .unwrap();
    seen.await_steps(16);
    // So many that they fill the node: theta is a few at this load.
    let smalls: Vec<_> = (0..200).map(|_| node.submit(small(&seen, 3)).unwrap()).collect();
    wait_for("it steps aside", || large.phase() == Phase::Parked);
    let mut steps = [0; 8];
    for (rank, step) in stops.lock().unwrap().iter() {
        steps[*rank] = *step;
    }
    assert!(steps.iter().all(|&step| step == steps[0]), "they stopped at {steps:?}");
    for small in smalls {
        assert_eq!(small.wait(), Ok(3));
    }
    assert_eq!(large.wait(), Ok(vec![400; 8]));
    assert_eq!(seen.steps.load(Ordering::Relaxed), 8 * 400 + 200 * 3, "no step is lost or done twice");
    assert_eq!(node.device().violations(), 0);
    drop(node);
    seen.assert_clean();
}

#[test]
fn members_that_disagree_are_told_so() {
    let seen = Arc::new(Seen::default());
    let node = node("balance");
    let made = Arc::clone(&seen);
    let uneven = Request::large_steps(
        move |_: &mut EmulatedLane, _: &Gang<'_>| State::new(&made),
        |_: &mut EmulatedLane, gang: &Gang<'_>, state: &mut State| {
            let done = state.count(3);
            Ok(if done && gang.rank() != 5 { Step::Done(()) } else { Step::Continue })
        },
    );
    let result = node.submit(uneven).unwrap().wait();
    assert_eq!(result, Err(RequestError::StepsDisagree { done: 7, members: 8 }));
    node.submit(quick_large()).unwrap().wait().unwrap();
    drop(node);
    seen.assert_clean();
}

#[test]
fn cancellation_bites_at_the_next_step() {
    let seen = Arc::new(Seen::default());
    let node = node("balance");
    let ticket = node.submit(small(&seen, 100_000)).unwrap();
    seen.await_steps(2);
    assert_eq!(ticket.cancel(), Cancel::Running);
    assert_eq!(ticket.wait(), Err(RequestError::Cancelled));
    let ticket = node.submit(large(&seen, 100_000)).unwrap();
    seen.await_steps(40);
    assert_eq!(ticket.cancel(), Cancel::Running);
    assert_eq!(ticket.wait(), Err(RequestError::Cancelled));
    drop(node.submit(small(&seen, 100_000)).unwrap().guard());
    node.submit(quick_large()).unwrap().wait().unwrap();
    drop(node);
    seen.assert_clean();
}

#[test]
fn what_is_parked_is_cancelled_at_once_and_dropped_on_its_lane() {
    let seen = Arc::new(Seen::default());
    let node = node("swap");
    let (ticket, large, release) = parked(&node, &seen);
    let steps = seen.steps.load(Ordering::Relaxed);
    assert_eq!(ticket.cancel(), Cancel::Cancelled);
    assert_eq!(ticket.cancel(), Cancel::Over);
    assert_eq!(ticket.wait(), Err(RequestError::Cancelled), "while the large one still runs");
    release.store(true, Ordering::Relaxed);
    large.wait().unwrap();
    wait_for("dropped", || seen.dropped.load(Ordering::Relaxed) == 1);
    assert_eq!(seen.steps.load(Ordering::Relaxed), steps, "it took no step more");
    wait_for("quiet", || node.snapshot().busy.is_empty());
    drop(node);
    seen.assert_clean();
}

#[test]
fn a_limit_and_an_end_bite_at_a_step() {
    let seen = Arc::new(Seen::default());
    let node = node("balance");
    let over = node.submit(small(&seen, 100_000).limit(20 * MS)).unwrap().wait();
    assert!(matches!(over, Err(RequestError::TimeLimit { limit, hung: LaneMask::NONE }) if limit == 20 * MS), "{over:?}");
    // One in 16 is not looked at; the others would be shed at the door by what they expect.
    let late = node.submit(small(&seen, 100_000).expected(MS).finish_by(50 * MS)).unwrap().wait();
    assert_eq!(late, Err(RequestError::Expired));
    let over = node.submit(large(&seen, 100_000).limit(20 * MS)).unwrap().wait();
    assert!(matches!(over, Err(RequestError::TimeLimit { .. })), "{over:?}");
    let late = node.submit(large(&seen, 100_000).expected(MS).finish_by(50 * MS)).unwrap().wait();
    assert_eq!(late, Err(RequestError::Expired));
    drop(node);
    seen.assert_clean();
}

#[test]
fn a_limit_counts_what_is_run_and_not_what_is_parked() {
    let seen = Arc::new(Seen::default());
    let node = node("swap");
    let ticket = node.submit(small(&seen, 400).limit(Duration::from_secs(3))).unwrap();
    seen.await_steps(2);
    let release = Arc::new(AtomicBool::new(false));
    let large = node.submit(blocker(&release)).unwrap();
    wait_for("parked", || ticket.phase() == Phase::Parked);
    std::thread::sleep(Duration::from_secs(3));
    release.store(true, Ordering::Relaxed);
    large.wait().unwrap();
    assert_eq!(ticket.wait(), Ok(400));
    drop(node);
    seen.assert_clean();
}

#[test]
fn shutdowns_finish_or_end_what_is_parked() {
    for how in [Shutdown::Finish, Shutdown::Abort] {
        let seen = Arc::new(Seen::default());
        let node = node("swap");
        let (ticket, large, release) = parked(&node, &seen);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(10 * MS);
                seen.end.store(true, Ordering::Relaxed);
                release.store(true, Ordering::Relaxed);
            });
            assert!(node.shutdown(how).complete);
        });
        large.wait().unwrap();
        match how {
            Shutdown::Finish => assert!(ticket.wait().unwrap() >= 2),
            Shutdown::Abort => assert_eq!(ticket.wait(), Err(RequestError::ShutDown)),
        }
        drop(node);
        seen.assert_clean();
    }
    // What runs ends at its next step.
    let seen = Arc::new(Seen::default());
    let node = node("swap");
    let (small, large) = (node.submit(small(&seen, 100_000)).unwrap(), node.submit(large(&seen, 100_000)).unwrap());
    seen.await_steps(2);
    node.shutdown(Shutdown::Abort);
    assert_eq!(small.wait(), Err(RequestError::ShutDown));
    assert_eq!(large.wait(), Err(RequestError::ShutDown));
    drop(node);
    seen.assert_clean();
}

#[test]
fn a_panic_in_a_step_ends_it_and_nothing_else() {
    let seen = Arc::new(Seen::default());
    let node = node("balance");
    for stage in 0..3 {
        let made = Arc::clone(&seen);
        let request = Request::small_steps(
            move |_: &mut EmulatedLane| {
                assert!(stage > 0, "in the making");
                State::new(&made)
            },
            move |_: &mut EmulatedLane, state: &mut State| -> Step<()> {
                assert!(!state.count(stage), "in a step");
                Step::Continue
            },
        );
        let result = node.submit(request).unwrap().wait();
        assert!(matches!(result, Err(RequestError::Panicked { rank: None, .. })), "{result:?}");
        let made = Arc::clone(&seen);
        let request = Request::large_steps(
            move |_: &mut EmulatedLane, _: &Gang<'_>| State::new(&made),
            move |_: &mut EmulatedLane, gang: &Gang<'_>, state: &mut State| {
                assert!(!(state.count(stage + 1) && gang.rank() == 3), "in a step");
                Ok(Step::<()>::Continue)
            },
        );
        let result = node.submit(request).unwrap().wait();
        assert!(matches!(result, Err(RequestError::Panicked { rank: Some(3), .. })), "{result:?}");
    }
    assert_eq!(node.submit(small(&seen, 2)).unwrap().wait(), Ok(2));
    drop(node);
    seen.assert_clean();
}

/// Lanes that fail when they are told to, one by one, from then on.
struct Failing {
    device: Emulated,
    down: [AtomicBool; 8],
}

impl Device for Failing {
    type Lane = EmulatedLane;

    fn describe(&self) -> String {
        self.device.describe()
    }

    fn open(&self, lane: LaneId) -> Result<EmulatedLane, DeviceError> {
        self.device.open(lane)
    }

    fn begin(&self, lane: &mut EmulatedLane, id: RequestId) -> Result<(), DeviceError> {
        if self.down[lane.id().index()].load(Ordering::Relaxed) {
            return Err(DeviceError::new(lane.id(), DeviceFault::Lane, "told to fail"));
        }
        self.device.begin(lane, id)
    }

    fn finish(&self, lane: &mut EmulatedLane, id: RequestId) -> Result<(), DeviceError> {
        self.device.finish(lane, id)
    }
}

#[test]
fn a_quarantine_fails_what_is_parked_there() {
    let seen = Arc::new(Seen::default());
    let down: [AtomicBool; 8] = Default::default();
    let node = Phalanx::builder()
        .device(Failing { device: Emulated::default(), down })
        .lanes(8)
        .policy("swap".parse().unwrap())
        .recovery(None::<Recovery>)
        .build()
        .unwrap();
    let smalls: Vec<_> = (0..2).map(|_| node.submit(small(&seen, 1_000)).unwrap()).collect();
    seen.await_steps(4);
    // The gang that parks them cannot begin on the lane of one of them.
    let failing = LaneId::new((0..8).find(|&lane| node.snapshot().busy.contains(LaneId::new(lane))).unwrap());
    node.device().down[failing.index()].store(true, Ordering::Relaxed);
    let large = node.submit(quick_large()).unwrap();
    assert!(matches!(large.wait(), Err(RequestError::Device(_))));
    let results: Vec<_> = {
        wait_for("one of them fails", || smalls.iter().any(|small| small.phase().is_terminal()));
        seen.end.store(true, Ordering::Relaxed);
        smalls.into_iter().map(Ticket::wait).collect()
    };
    let missing = Err(RequestError::LanesMissing { lanes: failing.mask() });
    assert_eq!(results.iter().filter(|&result| *result == missing).count(), 1, "{results:?}");
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    drop(node);
    seen.assert_clean();
}

/// Saturated by smalls with steps of 20 ms, the node frees its lanes for a large one within a step. On a quiet machine, and a release build,
/// within 1 ms more: `cargo test --release --test steps saturated -- --nocapture` prints it.
#[test]
fn a_saturated_node_drains_within_a_step() {
    const LONG_STEP: Duration = Duration::from_millis(20);
    const DRAINS: usize = 12;
    let seen = Arc::new(Seen::default());
    let node = Phalanx::builder()
        .lanes(8)
        .policy("balance:max_wait=30ms:max_wait_small=1h".parse().unwrap())
        .events(1 << 16)
        .build()
        .unwrap();
    let mut events = node.take_events().unwrap();
    let small = || {
        let made = Arc::clone(&seen);
        let request = Request::small_steps(
            move |_: &mut EmulatedLane| State::new(&made),
            |lane: &mut EmulatedLane, state: &mut State| {
                lane.launch(LONG_STEP).unwrap();
                lane.synchronize();
                if state.count(1_000) { Step::Done(()) } else { Step::Continue }
            },
        );
        node.submit(request.expected(LONG_STEP * 1_000).step_length(LONG_STEP)).unwrap()
    };
    let smalls: Vec<_> = (0..16).map(|_| small()).collect();
    seen.await_steps(8);
    for _ in 0..DRAINS {
        node.submit(quick_large()).unwrap().wait().unwrap();
    }
    seen.end.store(true, Ordering::Relaxed);
    for small in smalls {
        small.wait().unwrap();
    }
    node.shutdown(Shutdown::Finish);
    let (mut asked, mut drains) = (None, Vec::new());
    while let Some(record) = events.pop() {
        match record.what {
            What::Decision(Decision::Ask { .. }) => drop(asked.get_or_insert(record.now)),
            What::Decision(Decision::StartLarge(_)) => {
                drains.extend(asked.take().map(|asked| Duration::from(record.now - asked)));
            }
            _ => {}
        }
    }
    drains.sort();
    assert!(drains.len() >= DRAINS / 2, "{drains:?}");
    let (median, longest) = (drains[drains.len() / 2], drains[drains.len() - 1]);
    println!("{} drains of 8 lanes at steps of {LONG_STEP:?}: median {median:?}, longest {longest:?}", drains.len());
    assert!(median < 2 * LONG_STEP, "{drains:?}");
    drop(events);
    drop(node);
    seen.assert_clean();
}

/// What a step costs that does nothing: `cargo test --release --test steps nothing -- --nocapture` prints it.
#[test]
fn steps_that_do_nothing_cost_next_to_nothing() {
    const STEPS: u32 = 1_000_000;
    let node = node("balance");
    let request = Request::small_steps(
        |_: &mut EmulatedLane| (0, Instant::now()),
        |_: &mut EmulatedLane, (step, began): &mut (u32, Instant)| {
            *step = std::hint::black_box(*step + 1);
            if *step < STEPS { Step::Continue } else { Step::Done(began.elapsed()) }
        },
    );
    let took = node.submit(request).unwrap().wait().unwrap();
    println!("a step that does nothing: {:.2} ns", took.as_nanos() as f64 / f64::from(STEPS));
    // A debug build on a busy machine: nothing is in there that waits.
    assert!(took < STEPS * Duration::from_micros(1), "{took:?}");
}
