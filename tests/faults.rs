//! Faults of lanes: what the ticket gets, what becomes of the lane, and when it comes back. The device does as it is told.

use phalanx::{
    Builder, Class, Device, DeviceError, DeviceFault, Drive, Fault, Gang, LaneId, LaneMask, LaneState, Phalanx, Recovery,
    RejectReason, Request, RequestError, RequestId, Shutdown, Ticket, Watchdog,
};
use std::collections::VecDeque;
use std::future::Future as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// What a device does when it is called.
#[derive(Clone, Debug)]
enum Act {
    Works,
    Fails(DeviceFault),
    Panics,
    Hangs(Gate),
}

/// What hangs until it is opened.
#[derive(Clone, Default, Debug)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
    }
}

/// What one card does next, call by call; once a list is empty the card works.
#[derive(Default)]
struct Script {
    begin: Mutex<VecDeque<Act>>,
    finish: Mutex<VecDeque<Act>>,
    probe: Mutex<VecDeque<Act>>,
    begun: AtomicU64,
    probes: AtomicU64,
}

/// Cards that do as they are told.
#[derive(Clone, Default)]
struct Told(Arc<[Script; 8]>);

struct Card {
    id: LaneId,
}

impl Told {
    fn act(&self, id: LaneId, list: &Mutex<VecDeque<Act>>, what: &str) -> Result<(), DeviceError> {
        let act = list.lock().unwrap().pop_front().unwrap_or(Act::Works);
        match act {
            Act::Works => Ok(()),
            Act::Fails(fault) => Err(DeviceError::new(id, fault, format!("told to fail: {what}"))),
            Act::Panics => panic!("told to panic: {what}"),
            Act::Hangs(gate) => {
                gate.pass();
                Ok(())
            }
        }
    }

    fn card(&self, lane: usize) -> &Script {
        &self.0[lane]
    }

    fn begin(&self, lane: usize, acts: impl IntoIterator<Item = Act>) {
        self.card(lane).begin.lock().unwrap().extend(acts);
    }

    fn finish(&self, lane: usize, acts: impl IntoIterator<Item = Act>) {
        self.card(lane).finish.lock().unwrap().extend(acts);
    }

    fn probe(&self, lane: usize, acts: impl IntoIterator<Item = Act>) {
        self.card(lane).probe.lock().unwrap().extend(acts);
    }

    fn begun(&self, lane: usize) -> u64 {
        self.card(lane).begun.load(Ordering::SeqCst)
    }

    fn probes(&self, lane: usize) -> u64 {
        self.card(lane).probes.load(Ordering::SeqCst)
    }
}

impl Device for Told {
    type Lane = Card;
    fn describe(&self) -> String {
        "does as it is told".into()
    }
    fn open(&self, id: LaneId) -> Result<Card, DeviceError> {
        Ok(Card { id })
    }
    fn begin(&self, card: &mut Card, _: RequestId) -> Result<(), DeviceError> {
        let script = self.card(card.id.index());
        script.begun.fetch_add(1, Ordering::SeqCst);
        self.act(card.id, &script.begin, "begin")
    }
    fn finish(&self, card: &mut Card, _: RequestId) -> Result<(), DeviceError> {
        self.act(card.id, &self.card(card.id.index()).finish, "finish")
    }
    fn probe(&self, id: LaneId, card: &mut Card) -> Result<(), DeviceError> {
        let script = self.card(id.index());
        script.probes.fetch_add(1, Ordering::SeqCst);
        self.act(id, &script.probe, "probe")?;
        *card = self.open(id)?;
        Ok(())
    }
}

const LANE: Act = Act::Fails(DeviceFault::Lane);
const REQUEST: Act = Act::Fails(DeviceFault::Request);

fn quick() -> Recovery {
    Recovery { first_wait: 5 * MS, longest_wait: 40 * MS, good_runs: 4, ..Recovery::default() }
}

fn builder(lanes: usize) -> Builder<Told> {
    Phalanx::builder().lanes(lanes).device(Told::default()).recovery(quick()).watchdog(watchdog())
}

const LIMIT: Duration = Duration::from_millis(30);
const GRACE: Duration = Duration::from_millis(30);

/// So late may a ticket be on a machine that does something else meanwhile.
const SLACK: Duration = Duration::from_secs(2);

fn watchdog() -> Watchdog {
    Watchdog { grace: GRACE, ..Watchdog::default() }
}

fn node(lanes: usize) -> Phalanx<Told> {
    builder(lanes).build().unwrap()
}

/// A small request that says which lane it ran on.
fn small() -> Request<Card, usize> {
    Request::small(|card: &mut Card| card.id.index())
}

fn large() -> Request<Card, Vec<usize>> {
    Request::large(|_: &mut Card, gang: &Gang<'_>| {
        gang.barrier()?;
        Ok(gang.rank())
    })
}

fn lane(lane: usize) -> LaneMask {
    LaneId::new(lane).mask()
}

#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !so() {
        assert!(Instant::now() < end, "{what}: not within ten seconds");
        std::thread::sleep(MS / 4);
    }
}

/// The ticket's answer, which must come within some seconds.
#[track_caller]
fn answer<T>(mut ticket: Ticket<T>) -> Result<T, RequestError> {
    ticket.wait_timeout(Duration::from_secs(10)).expect("the ticket does not resolve")
}

/// The node comes to rest: nothing in flight, no lane held, these lanes out of service.
#[track_caller]
fn rests(node: &Phalanx<Told>, offline: LaneMask) {
    until("the node rests", || {
        let now = node.snapshot();
        now.busy.is_empty() && now.offline == offline && Class::ALL.iter().all(|&class| now.in_flight(class) == 0)
    });
    assert!(node.shutdown(Shutdown::Finish).complete);
}

/// Sends smalls until one has run on this lane, or failed there.
#[track_caller]
fn use_lane(node: &Phalanx<Told>, lane: usize) -> Result<usize, RequestError> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let before = node.device().begun(lane);
        let tickets: Vec<_> = (0..node.snapshot().lanes).map(|_| node.submit(small()).unwrap()).collect();
        let results: Vec<_> = tickets.into_iter().map(answer).collect();
        if node.device().begun(lane) > before {
            let of_lane = |result: &Result<usize, RequestError>| match result {
                Ok(ran) => *ran == lane,
                Err(RequestError::Device(error)) => error.lane().index() == lane,
                Err(_) => false,
            };
            return results.into_iter().find(of_lane).unwrap();
        }
        assert!(Instant::now() < end, "lane {lane} gets no request");
    }
}

fn is_device_error(result: &Result<usize, RequestError>, fault: DeviceFault) -> bool {
    matches!(result, Err(RequestError::Device(error)) if error.fault() == fault)
}

#[test]
fn a_lane_comes_back_after_its_probe_and_a_large_that_waited_starts() {
    let node = node(2);
    node.device().finish(0, [LANE]);
    assert!(is_device_error(&use_lane(&node, 0), DeviceFault::Lane));
    let waits = node.submit(large()).unwrap();
    assert_eq!(answer(waits), Ok(vec![0, 1]));
    assert_eq!(node.device().probes(0), 1);
    assert_eq!(use_lane(&node, 0), Ok(0));
    rests(&node, LaneMask::NONE);
}

#[test]
fn a_failed_probe_waits_twice_as_long_and_meanwhile_the_smalls_go_on() {
    let node = node(2);
    node.device().finish(0, [LANE]);
    node.device().probe(0, [LANE, REQUEST, Act::Panics]);
    assert!(use_lane(&node, 0).is_err());
    let began = Instant::now();
    while answer(node.submit(small()).unwrap()) == Ok(1) {
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    // 5 + 10 + 20 + 40 ms: the fourth probe passes.
    assert_eq!(node.device().probes(0), 4);
    assert!(began.elapsed() >= 70 * MS, "{:?}", began.elapsed());
    assert_eq!(use_lane(&node, 0), Ok(0));
    rests(&node, LaneMask::NONE);
}

#[test]
fn a_lane_that_passes_its_probes_and_fails_at_once_attracts_no_traffic() {
    let recovery = Recovery { first_wait: 5 * MS, longest_wait: Duration::from_secs(60), ..quick() };
    let node = builder(2).recovery(recovery).build().unwrap();
    node.device().begin(0, std::iter::repeat_n(LANE, 1_000));
    let (began, mut failed, mut sent) = (Instant::now(), 0, 0_u64);
    while began.elapsed() < 300 * MS {
        let pair = [node.submit(small()).unwrap(), node.submit(small()).unwrap()];
        failed += pair.into_iter().map(answer).filter(Result::is_err).count();
        sent += 2;
    }
    // Waits of 5, 10, 20 … ms: in 300 ms there is room for six or seven. An unlucky one more came in with the first.
    assert!((2..=8).contains(&failed), "{failed} of {sent} requests failed");
    assert!(node.device().begun(0) <= 8);
    assert!(node.device().begun(1) > 50);
}

#[test]
fn a_lane_whose_requests_all_fail_is_taken_out_and_comes_back() {
    let node = node(2);
    node.device().begin(0, std::iter::repeat_n(REQUEST, 8));
    until("the breaker trips", || {
        let pair = [node.submit(small()).unwrap(), node.submit(small()).unwrap()];
        pair.into_iter().for_each(|ticket| drop(answer(ticket)));
        node.device().begun(0) >= 8
    });
    until("it is probed", || node.device().probes(0) == 1);
    assert_eq!(use_lane(&node, 0), Ok(0));
    rests(&node, LaneMask::NONE);
}

#[test]
fn the_last_lane_in_service_stays_though_its_requests_fail() {
    let node = node(1);
    node.device().finish(0, std::iter::repeat_n(REQUEST, 20));
    for _ in 0..20 {
        assert!(is_device_error(&answer(node.submit(small()).unwrap()), DeviceFault::Request));
    }
    assert_eq!(answer(node.submit(small()).unwrap()), Ok(0));
    assert_eq!(node.device().probes(0), 0);
    rests(&node, LaneMask::NONE);
}

#[test]
fn what_is_lost_is_never_tried_again() {
    for by_probe in [false, true] {
        let node = node(2);
        node.device().finish(0, [if by_probe { LANE } else { Act::Fails(DeviceFault::Lost) }]);
        node.device().probe(0, [Act::Fails(DeviceFault::Lost)]);
        assert!(use_lane(&node, 0).is_err());
        std::thread::sleep(60 * MS);
        assert_eq!(node.device().probes(0), u64::from(by_probe));
        assert_eq!(answer(node.submit(small()).unwrap()), Ok(1));
        rests(&node, lane(0));
    }
}

#[test]
fn a_shutdown_does_not_wait_for_lanes_that_are_out_of_service() {
    for how in [Shutdown::Finish, Shutdown::Abort] {
        let node = node(2);
        node.device().finish(0, [LANE]);
        node.device().probe(0, std::iter::repeat_n(LANE, 1_000));
        assert!(use_lane(&node, 0).is_err());
        let waits = node.submit(large()).unwrap();
        let began = Instant::now();
        let report = node.shutdown(how);
        assert!(report.complete && report.busy.is_empty() && report.offline == lane(0), "{report:?}");
        assert!(began.elapsed() < Duration::from_secs(2));
        assert_eq!(answer(waits), Err(RequestError::ShutDown));
    }
}

/// A small request that hangs on the lane that it gets, which it tells.
fn hanging_small(gate: &Gate) -> (Request<Card, usize>, mpsc::Receiver<usize>) {
    let (gate, (tell, told)) = (gate.clone(), mpsc::channel());
    let request = Request::small(move |card: &mut Card| {
        tell.send(card.id.index()).unwrap();
        gate.pass();
        card.id.index()
    });
    (request, told)
}

/// The worker that hangs uses it, whoever else has forgotten it: what it captured lives until the worker has let go, and no longer.
#[test]
fn what_was_given_up_lives_until_its_worker_lets_it_go() {
    for (shut_down, is_large) in [(false, true), (true, true), (false, false), (true, false)] {
        let watchdog = Watchdog { abort: Some(LIMIT), ..watchdog() };
        let node = builder(2).watchdog(watchdog).build().unwrap();
        let (gate, captured) = (Gate::default(), Arc::new(()));
        let alive = Arc::downgrade(&captured);
        let passes = gate.clone();
        if is_large {
            let request = Request::large(move |card: &mut Card, _: &Gang<'_>| {
                if card.id.index() == 0 {
                    passes.pass();
                }
                Ok(Arc::strong_count(&captured))
            });
            assert!(answer(node.submit(request.limit(LIMIT)).unwrap()).is_err());
        } else {
            let request = Request::small(move |_: &mut Card| {
                passes.pass();
                Arc::strong_count(&captured)
            });
            assert!(answer(node.submit(request.limit(LIMIT)).unwrap()).is_err());
        }
        if shut_down {
            let report = node.shutdown(Shutdown::Abort);
            assert_eq!((report.complete, report.detached.len()), (true, 1));
            drop(node);
            assert!(alive.upgrade().is_some(), "it is in use");
            gate.open();
        } else {
            assert!(alive.upgrade().is_some(), "it is in use");
            gate.open();
            rests(&node, LaneMask::NONE);
        }
        until("it is dropped", || alive.upgrade().is_none());
    }
}

/// What a ticket says of a request that was given up after this limit, with these lanes.
fn given_up<T>(limit: Duration, hung: LaneMask) -> Result<T, RequestError> {
    Err(RequestError::TimeLimit { limit, hung })
}

#[test]
fn a_hung_small_fails_on_time_and_its_lane_returns_once_it_has_ended() {
    let node = node(2);
    let gate = Gate::default();
    let (request, told) = hanging_small(&gate);
    let began = Instant::now();
    let ticket = node.submit(request.limit(LIMIT)).unwrap();
    let hung = told.recv().unwrap();
    assert_eq!(answer(ticket), given_up(LIMIT, lane(hung)));
    assert!((LIMIT + GRACE..LIMIT + 2 * GRACE + SLACK).contains(&began.elapsed()), "{:?}", began.elapsed());
    for _ in 0..20 {
        assert_eq!(answer(node.submit(small()).unwrap()), Ok(1 - hung), "the rest goes on");
    }
    until("only the hung lane is held", || {
        let now = node.snapshot();
        (now.busy, now.offline, now.in_flight(Class::Small)) == (lane(hung), lane(hung), 0)
    });
    assert_eq!(node.device().probes(hung), 0, "what is held is not probed");
    let waits = node.submit(large()).unwrap();
    gate.open();
    assert_eq!(answer(waits), Ok(vec![0, 1]));
    assert_eq!(node.device().probes(hung), 1);
    rests(&node, LaneMask::NONE);
}

#[test]
fn a_late_output_is_dropped_once_on_the_worker() {
    struct Drops(mpsc::Sender<String>);
    impl Drop for Drops {
        fn drop(&mut self) {
            self.0.send(std::thread::current().name().unwrap().to_owned()).unwrap();
            panic!("and panics");
        }
    }
    let node = node(1);
    let gate = Gate::default();
    let (drops, dropped) = mpsc::channel();
    let passes = gate.clone();
    let ticket = node
        .submit(
            Request::small(move |_: &mut Card| {
                passes.pass();
                Drops(drops)
            })
            .limit(MS),
        )
        .unwrap();
    assert!(matches!(answer(ticket), Err(RequestError::TimeLimit { .. })));
    gate.open();
    assert_eq!(dropped.recv_timeout(Duration::from_secs(10)).unwrap(), "phalanx-lane-0");
    assert!(dropped.recv().is_err(), "once");
    rests(&node, LaneMask::NONE);
}

#[test]
fn a_hung_member_is_given_up_and_the_innocent_leave_at_the_limit() {
    let node = node(4);
    let gate = Gate::default();
    let (left, leaves) = mpsc::channel();
    let passes = gate.clone();
    let began = Instant::now();
    let request = Request::large(move |_: &mut Card, gang: &Gang<'_>| {
        if gang.rank() == 2 {
            passes.pass();
        }
        let through = gang.barrier();
        left.send((gang.rank(), began.elapsed(), through.is_ok())).unwrap();
        through
    });
    let ticket = node.submit(request.limit(LIMIT)).unwrap();
    assert_eq!(answer(ticket), given_up(LIMIT, lane(2)));
    assert!((LIMIT + GRACE..LIMIT + 2 * GRACE + SLACK).contains(&began.elapsed()), "{:?}", began.elapsed());
    let mut innocent: Vec<_> = leaves.try_iter().collect();
    innocent.sort_unstable();
    assert_eq!(innocent.iter().map(|leave| (leave.0, leave.2)).collect::<Vec<_>>(), [(0, false), (1, false), (3, false)]);
    assert!(innocent.iter().all(|leave| leave.1 >= LIMIT), "{innocent:?}");
    for _ in 0..20 {
        assert_ne!(answer(node.submit(small()).unwrap()), Ok(2), "the smalls go on, elsewhere");
    }
    let waits = node.submit(large()).unwrap();
    gate.open();
    assert_eq!(answer(waits), Ok(vec![0, 1, 2, 3]));
    assert!(!leaves.recv().unwrap().2, "the late member finds the barrier broken");
    rests(&node, LaneMask::NONE);
}

#[test]
fn a_gang_that_leaves_when_asked_costs_no_lane() {
    let node = node(3);
    let request = Request::large(|_: &mut Card, gang: &Gang<'_>| {
        while !gang.is_cancelled() {
            std::thread::sleep(MS);
        }
        gang.barrier()
    });
    assert_eq!(answer(node.submit(request.limit(LIMIT)).unwrap()).map(|_| ()), given_up(LIMIT, LaneMask::NONE));
    assert!(node.snapshot().offline.is_empty());
    assert_eq!(answer(node.submit(large()).unwrap()), Ok(vec![0, 1, 2]));
    rests(&node, LaneMask::NONE);
}

#[test]
fn a_device_that_hangs_is_a_hang() {
    for begins in [true, false] {
        let node = node(2);
        let gate = Gate::default();
        if begins {
            node.device().begin(1, [Act::Hangs(gate.clone())]);
        } else {
            node.device().finish(1, [Act::Hangs(gate.clone())]);
        }
        let ticket = node.submit(large().limit(LIMIT)).unwrap();
        assert_eq!(answer(ticket), given_up(LIMIT, lane(1)));
        assert_eq!(answer(node.submit(small()).unwrap()), Ok(0));
        gate.open();
        until("the lane is back", || node.snapshot().offline.is_empty());
        rests(&node, LaneMask::NONE);
    }
}

#[test]
fn a_probe_that_hangs_is_given_up_and_its_late_success_counts_for_nothing() {
    let node = builder(2).recovery(Recovery { probe_limit: LIMIT, ..quick() }).build().unwrap();
    let gate = Gate::default();
    node.device().finish(0, [LANE]);
    node.device().probe(0, [Act::Hangs(gate.clone()), LANE]);
    assert!(use_lane(&node, 0).is_err());
    until("the probe began", || node.device().probes(0) == 1);
    std::thread::sleep(LIMIT + 20 * MS);
    gate.open();
    until("the lane is back", || node.snapshot().offline.is_empty());
    assert_eq!(node.device().probes(0), 3, "one that hung, one that failed, one that passed");
    rests(&node, LaneMask::NONE);
}

#[test]
fn a_worker_that_hangs_after_its_release_fails_the_next_request_of_its_lane() {
    /// The worker wakes it after it has released its lane.
    struct Hangs(Gate);
    impl Wake for Hangs {
        fn wake(self: Arc<Self>) {
            self.0.pass();
        }
    }
    let node = node(1);
    let (gate, running) = (Gate::default(), Gate::default());
    let waker = Waker::from(Arc::new(Hangs(gate.clone())));
    let passes = running.clone();
    let mut first = Box::pin(node.submit(Request::small(move |_: &mut Card| passes.pass())).unwrap());
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    running.open();
    until("it is over", || node.snapshot().in_flight(Class::Small) == 0);
    // Nobody comes to take it.
    assert_eq!(answer(node.submit(small().limit(LIMIT)).unwrap()), given_up(LIMIT, lane(0)));
    gate.open();
    assert_eq!(answer(node.submit(small()).unwrap()), Ok(0));
    rests(&node, LaneMask::NONE);
}

#[test]
fn a_request_that_ends_as_it_is_given_up_has_one_end() {
    let node = builder(3).watchdog(Watchdog { grace: MS, ..watchdog() }).build().unwrap();
    let end = Instant::now() + Duration::from_millis(700);
    let (mut completed, mut failed) = (0, 0);
    let mut round = 0_u32;
    while Instant::now() < end {
        round += 1;
        // Around the moment at which it is given up, 2 ms after its start.
        let time = Duration::from_micros(1_800 + u64::from(round * 37 % 900));
        let tickets: Vec<_> = (0..3)
            .map(|_| {
                let spin = move |card: &mut Card| {
                    std::thread::sleep(time);
                    vec![card.id.index()]
                };
                node.submit(Request::small(spin).limit(MS)).unwrap()
            })
            .collect();
        let gang = node.submit(
            Request::large(move |_: &mut Card, gang: &Gang<'_>| {
                std::thread::sleep(time);
                Ok(vec![gang.rank()])
            })
            .limit(MS)
            .deadline(5 * MS),
        );
        for ticket in tickets {
            match answer(ticket) {
                Ok(_) => completed += 1,
                Err(RequestError::TimeLimit { .. }) => failed += 1,
                Err(other) => panic!("{other}"),
            }
        }
        if let Ok(gang) = gang {
            let result = answer(gang);
            assert!(matches!(result, Ok(_) | Err(RequestError::TimeLimit { .. } | RequestError::Expired)), "{result:?}");
        }
    }
    assert!(completed + failed > 0);
    until("all lanes are back", || node.snapshot().offline.is_empty());
    rests(&node, LaneMask::NONE);
}

#[test]
fn a_shutdown_detaches_and_names_a_hung_worker_which_ends_when_it_can() {
    for (how, limit) in [(Shutdown::Finish, LIMIT), (Shutdown::Abort, Duration::MAX)] {
        let node = builder(3).watchdog(Watchdog { abort: Some(LIMIT), ..watchdog() }).build().unwrap();
        let device = Arc::downgrade(&node.device().0);
        let gate = Gate::default();
        let (request, told) = hanging_small(&gate);
        let ticket = node.submit(request.limit(limit)).unwrap();
        let hung = told.recv().unwrap();
        let began = Instant::now();
        let report = node.shutdown(how);
        assert!(began.elapsed() < LIMIT + 2 * GRACE + SLACK, "{:?}", began.elapsed());
        assert!(report.complete);
        assert_eq!((report.busy, report.offline), (lane(hung), lane(hung)));
        assert_eq!(report.detached, [format!("phalanx-lane-{hung}")]);
        assert!(matches!(answer(ticket), Err(RequestError::TimeLimit { hung: lanes, .. }) if lanes == lane(hung)));
        assert!(node.shutdown(Shutdown::Abort).complete, "once more");
        drop(node);
        assert!(device.upgrade().is_some(), "the worker still has it");
        gate.open();
        until("the worker has ended", || device.upgrade().is_none());
    }
}

#[test]
fn a_shutdown_does_not_wait_long_for_a_probe() {
    let node = node(2);
    let gate = Gate::default();
    node.device().finish(0, [LANE]);
    node.device().probe(0, [Act::Hangs(gate.clone())]);
    assert!(use_lane(&node, 0).is_err());
    until("the probe began", || node.device().probes(0) == 1);
    let report = node.shutdown(Shutdown::Finish);
    assert!(report.complete);
    assert_eq!(report.detached, ["phalanx-lane-0"]);
    gate.open();
}

#[test]
fn larges_wait_for_a_missing_lane_up_to_the_bound_and_are_taken_again_when_it_is_back() {
    let wait = 60 * MS;
    let node = builder(2).recovery(Recovery { large_wait: wait, ..quick() }).build().unwrap();
    let gate = Gate::default();
    let (request, told) = hanging_small(&gate);
    let ticket = node.submit(request.limit(MS)).unwrap();
    let hung = told.recv().unwrap();
    assert!(answer(ticket).is_err());
    let began = Instant::now();
    let waits: Vec<_> = (0..3).map(|_| node.submit(large()).unwrap()).collect();
    let cancelled = node.submit(large()).unwrap();
    cancelled.cancel();
    let expires = node.submit(large().deadline(5 * MS)).unwrap();
    assert_eq!(answer(expires), Err(RequestError::Expired));
    assert_eq!(answer(node.submit(small()).unwrap()), Ok(1 - hung), "the smalls go on");
    let missing = lane(hung);
    for ticket in waits {
        assert_eq!(answer(ticket), Err(RequestError::LanesMissing { lanes: missing }));
    }
    assert!((wait - 20 * MS..wait + SLACK).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(answer(cancelled), Err(RequestError::Cancelled));
    let rejected = node.submit(large()).unwrap_err();
    assert_eq!(rejected.reason, RejectReason::LanesMissing { lanes: missing });
    assert_eq!(rejected.request.class(), Class::Large, "it is handed back");
    assert_eq!(answer(node.submit(small()).unwrap()), Ok(1 - hung));
    gate.open();
    let mut again = None;
    until("larges are taken again", || {
        again = node.submit(large()).ok();
        again.is_some()
    });
    assert_eq!(answer(again.unwrap()), Ok(vec![0, 1]));
    rests(&node, LaneMask::NONE);
}

#[test]
fn nobody_waits_for_a_lane_that_is_lost() {
    let node = node(2);
    let gate = Gate::default();
    let passes = gate.clone();
    node.device().finish(0, [Act::Fails(DeviceFault::Lost)]);
    node.device().finish(1, [Act::Fails(DeviceFault::Lost)]);
    let first = node.submit(Request::small(move |card: &mut Card| {
        passes.pass();
        card.id.index()
    }));
    let waits = node.submit(large()).unwrap();
    gate.open();
    let Err(RequestError::Device(error)) = answer(first.unwrap()) else { panic!("it was lost") };
    assert_eq!(answer(waits), Err(RequestError::LanesMissing { lanes: error.lane().mask() }));
    let reason = node.submit(large()).unwrap_err().reason;
    assert_eq!(reason, RejectReason::LanesMissing { lanes: error.lane().mask() });
    rests(&node, error.lane().mask());
}

/// A lane's state, as a monitor reads it.
fn state(node: &Phalanx<Told>, lane: usize) -> LaneState {
    node.health().lanes[lane].state
}

#[test]
fn health_tells_of_a_lane_from_its_fault_to_its_return() {
    let node = builder(2).recovery(Recovery { first_wait: 50 * MS, ..quick() }).build().unwrap();
    let health = node.health();
    assert!(health.is_live() && health.is_ready() && health.is_ready_for(Class::Large));
    assert!(health.lanes.iter().all(|lane| lane.state == LaneState::InService && lane.last_error.is_none()));
    node.device().finish(1, [LANE]);
    let before = node.now();
    assert!(use_lane(&node, 1).is_err());
    until("it waits for its probe", || matches!(state(&node, 1), LaneState::Quarantined { next_try: Some(_), .. }));
    let health = node.health();
    let LaneState::Quarantined { fault: Fault::Device, since, next_try: Some(next_try) } = health.lanes[1].state else {
        panic!("{health:?}")
    };
    assert!(before <= since && since <= health.now && since < next_try);
    assert!(health.lanes[1].last_error.as_ref().unwrap().to_string().contains("told to fail"));
    assert_eq!(health.out_of_service(), lane(1));
    assert!(health.is_live() && health.is_ready() && !health.is_ready_for(Class::Large));
    until("it is back", || state(&node, 1) == LaneState::InService);
    assert!(node.health().is_ready_for(Class::Large));
    node.shutdown(Shutdown::Finish);
    let health = node.health();
    assert!(!health.is_live() && !health.is_ready() && health.ended && !health.accepting);
}

#[test]
fn health_answers_while_every_queue_is_full_and_the_dispatcher_is_stuck() {
    /// Blocks the dispatcher, which wakes it.
    struct Blocks(Gate);
    impl Wake for Blocks {
        fn wake(self: Arc<Self>) {
            self.0.pass();
        }
    }
    let node = builder(1).queue(Class::Small, 4).build().unwrap();
    let (gate, running) = (Gate::default(), Gate::default());
    let passes = running.clone();
    let blocker = node.submit(Request::small(move |_: &mut Card| passes.pass())).unwrap();
    let waker = Waker::from(Arc::new(Blocks(gate.clone())));
    let mut expires = Box::pin(node.submit(small().deadline(5 * MS)).unwrap());
    assert!(expires.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    until("the queue is full", || node.submit(small()).is_err());
    assert!(node.health().is_live(), "it has just got stuck");
    until("it is known to be stuck", || !node.health().is_live());
    assert!(!node.health().is_ready() && node.health().accepting);
    gate.open();
    running.open();
    assert!(answer(blocker).is_ok());
    until("it lives", || node.health().is_live() && node.health().is_ready());
}

#[test]
fn a_node_that_nobody_turns_is_not_live() {
    let node = builder(1).drive(Drive::Turn).build().unwrap();
    node.turn();
    assert!(node.health().is_live());
    until("nobody has turned for a second", || !node.health().is_live());
    node.turn();
    assert!(node.health().is_live());
}

/// The table of `docs::faults`: a module a row, a test a cell.
mod table {
    use super::*;
    use std::ops::ControlFlow;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Row {
        Panic,
        Launch,
        Sticky,
        Hang,
        Lost,
        Before,
        At,
        After,
        Allocation,
    }

    /// What becomes of the lane.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Fate {
        Stays,
        Returns,
        ReturnsWhenItEnds,
        Never,
    }

    impl Row {
        fn fate(self) -> Fate {
            match self {
                Self::Sticky => Fate::Returns,
                Self::Hang => Fate::ReturnsWhenItEnds,
                Self::Lost => Fate::Never,
                _ => Fate::Stays,
            }
        }

        /// Whether only a gang meets it.
        fn is_of_gangs(self) -> bool {
            matches!(self, Self::Before | Self::At | Self::After)
        }

        /// What the body does about it, on the lane that is hit.
        fn in_body(self, gate: &Gate) -> ControlFlow<()> {
            match self {
                Self::Panic | Self::Before => panic!("told to panic"),
                Self::Allocation => drop(std::hint::black_box(Vec::<u64>::with_capacity(std::hint::black_box(usize::MAX)))),
                Self::Hang => gate.pass(),
                Self::At => return ControlFlow::Break(()),
                _ => {}
            }
            ControlFlow::Continue(())
        }

        /// What the device does about it.
        fn in_device(self, device: &Told, lane: usize) {
            match self {
                Self::Launch => device.finish(lane, [REQUEST]),
                Self::Sticky => device.finish(lane, [LANE]),
                Self::Lost => device.finish(lane, [Act::Fails(DeviceFault::Lost)]),
                _ => {}
            }
        }

        #[track_caller]
        fn check<T: std::fmt::Debug>(self, result: &Result<T, RequestError>, hit: usize, rank: Option<usize>) {
            let right = match (self, result) {
                (Self::Panic | Self::Before | Self::After, Err(RequestError::Panicked { rank: r, message })) => {
                    *r == rank && message == "told to panic"
                }
                (Self::Allocation, Err(RequestError::Panicked { rank: r, message })) => {
                    *r == rank && message.contains("capacity")
                }
                (Self::Launch, Err(RequestError::Device(e))) => e.fault() == DeviceFault::Request && e.lane().index() == hit,
                (Self::Sticky, Err(RequestError::Device(e))) => e.fault() == DeviceFault::Lane && e.lane().index() == hit,
                (Self::Lost, Err(RequestError::Device(e))) => e.fault() == DeviceFault::Lost && e.lane().index() == hit,
                (Self::Hang, Err(RequestError::TimeLimit { limit, hung })) => *limit == LIMIT && *hung == lane(hit),
                (Self::At, Err(RequestError::GangBroken)) => true,
                _ => false,
            };
            assert!(right, "{self:?}: {result:?}");
        }
    }

    /// The one that meets the fault, once `go` is open. What hangs then, hangs until `gate` is.
    struct Struck {
        row: Row,
        small: Option<Ticket<usize>>,
        large: Option<Ticket<Vec<usize>>>,
        hit: usize,
        go: Gate,
        gate: Gate,
    }

    impl Struck {
        /// On an idle node: a small one gets its first lane, of a gang the second member is hit.
        fn new(node: &Phalanx<Told>, row: Row, large: bool) -> Self {
            let (go, gate) = (Gate::default(), Gate::default());
            let (goes, hangs) = (go.clone(), gate.clone());
            let mut struck = Self { row, small: None, large: None, hit: usize::from(large), go, gate };
            row.in_device(node.device(), struck.hit);
            // Only what is meant to hang has a limit: `go` may take its time.
            let limit = if row == Row::Hang { LIMIT } else { Duration::MAX };
            if large {
                let request = Request::large(move |_: &mut Card, gang: &Gang<'_>| {
                    goes.pass();
                    let hit = gang.rank() == 1;
                    if hit && row.in_body(&hangs).is_break() {
                        return Ok(gang.rank());
                    }
                    gang.barrier()?;
                    assert!(!(hit && row == Row::After), "told to panic");
                    Ok(gang.rank())
                });
                struck.large = Some(node.submit(request.limit(limit)).unwrap());
            } else {
                let request = Request::small(move |card: &mut Card| {
                    goes.pass();
                    let _ = row.in_body(&hangs);
                    card.id.index()
                });
                struck.small = Some(node.submit(request.limit(limit)).unwrap());
            }
            until("it runs", || node.snapshot().busy.contains(LaneId::new(struck.hit)));
            struck
        }

        #[track_caller]
        fn check_ticket(&mut self) {
            if let Some(ticket) = self.small.take() {
                self.row.check(&answer(ticket), self.hit, None);
            }
            if let Some(ticket) = self.large.take() {
                self.row.check(&answer(ticket), self.hit, Some(self.hit));
            }
        }

        /// What becomes of the lane.
        #[track_caller]
        fn check_lane(&self, node: &Phalanx<Told>) {
            let out = lane(self.hit);
            match self.row.fate() {
                Fate::Stays => {
                    assert!(node.snapshot().offline.is_empty());
                    assert_eq!(node.device().probes(self.hit), 0);
                }
                Fate::Returns => {
                    until("the lane is back", || node.snapshot().offline.is_empty());
                    assert_eq!(node.device().probes(self.hit), 1);
                }
                Fate::ReturnsWhenItEnds => {
                    std::thread::sleep(20 * MS);
                    assert_eq!((node.snapshot().offline, node.device().probes(self.hit)), (out, 0));
                    self.gate.open();
                    until("the lane is back", || node.snapshot().offline.is_empty());
                    assert_eq!(node.device().probes(self.hit), 1);
                }
                Fate::Never => {
                    std::thread::sleep(30 * MS);
                    assert_eq!((node.snapshot().offline, node.device().probes(self.hit)), (out, 0));
                    rests(node, out);
                    return;
                }
            }
            assert_eq!(use_lane(node, self.hit), Ok(self.hit), "it works again");
            rests(node, LaneMask::NONE);
        }
    }

    fn small_cell(row: Row) {
        let node = node(3);
        let mut struck = Struck::new(&node, row, row.is_of_gangs());
        let behind: Vec<_> = if row.is_of_gangs() { (0..4).map(|_| node.submit(small()).unwrap()).collect() } else { Vec::new() };
        struck.go.open();
        struck.check_ticket();
        for ticket in behind {
            assert!(answer(ticket).is_ok());
        }
        struck.check_lane(&node);
    }

    fn large_cell(row: Row) {
        let node = node(3);
        let mut struck = Struck::new(&node, row, true);
        struck.go.open();
        struck.check_ticket();
        assert_ne!(answer(node.submit(small()).unwrap()).unwrap(), usize::MAX, "the smalls go on");
        struck.check_lane(&node);
    }

    fn waiting_large(row: Row) {
        let wait = 100 * MS;
        let node = builder(3).recovery(Recovery { large_wait: wait, ..quick() }).build().unwrap();
        let mut struck = Struck::new(&node, row, row.is_of_gangs());
        let began = Instant::now();
        let waits = node.submit(large()).unwrap();
        struck.go.open();
        struck.check_ticket();
        let missing = Err(RequestError::LanesMissing { lanes: lane(struck.hit) });
        match row.fate() {
            Fate::Stays | Fate::Returns => assert_eq!(answer(waits), Ok(vec![0, 1, 2])),
            Fate::ReturnsWhenItEnds => {
                assert_eq!(answer(waits), missing);
                assert!(began.elapsed() >= wait);
            }
            Fate::Never => {
                assert_eq!(answer(waits), missing);
                let refused = node.submit(large()).unwrap_err().reason;
                assert_eq!(refused, RejectReason::LanesMissing { lanes: lane(struck.hit) });
            }
        }
        struck.check_lane(&node);
    }

    fn shutdown(row: Row) {
        for how in [Shutdown::Finish, Shutdown::Abort] {
            let node = Arc::new(node(3));
            let mut struck = Struck::new(&node, row, row.is_of_gangs());
            // Enough to show what a shutdown makes of it; behind a gang it waits, on a lane of its own it may run.
            let queued = node.submit(large()).unwrap();
            let ends = std::thread::spawn({
                let node = Arc::clone(&node);
                move || node.shutdown(how)
            });
            until("it shuts down", || !node.health().accepting);
            let began = Instant::now();
            struck.go.open();
            struck.check_ticket();
            let report = ends.join().unwrap();
            assert!(report.complete && began.elapsed() < LIMIT + 2 * GRACE + SLACK);
            let (out, hangs) = (row.fate() != Fate::Stays, row.fate() == Fate::ReturnsWhenItEnds);
            assert_eq!(report.offline, if out { lane(struck.hit) } else { LaneMask::NONE });
            assert_eq!(report.busy, if hangs { lane(struck.hit) } else { LaneMask::NONE });
            let name = format!("phalanx-lane-{}", struck.hit);
            assert_eq!(report.detached, if hangs { vec![name] } else { Vec::new() });
            let runs = how == Shutdown::Finish && !out;
            assert_eq!(answer(queued), if runs { Ok(vec![0, 1, 2]) } else { Err(RequestError::ShutDown) });
            struck.gate.open();
        }
    }

    fn health(row: Row) {
        let node = builder(3).recovery(Recovery { first_wait: 50 * MS, ..quick() }).build().unwrap();
        let mut struck = Struck::new(&node, row, row.is_of_gangs());
        let before = node.now();
        struck.go.open();
        struck.check_ticket();
        let shows = |what: &str, right: fn(LaneState) -> bool| until(what, || right(state(&node, struck.hit)));
        match row.fate() {
            Fate::Stays => shows("in service", |state| state == LaneState::InService),
            Fate::Returns => {
                shows("quarantined, with its next try", |state| {
                    matches!(state, LaneState::Quarantined { fault: Fault::Device, next_try: Some(_), .. })
                });
            }
            Fate::ReturnsWhenItEnds => {
                shows("quarantined while it is held", |state| {
                    matches!(state, LaneState::Quarantined { fault: Fault::Hung, next_try: None, .. })
                });
                struck.gate.open();
            }
            Fate::Never => shows("lost", |state| matches!(state, LaneState::Lost { fault: Fault::Lost, .. })),
        }
        let health = node.health();
        if let LaneState::Quarantined { since, .. } | LaneState::Lost { since, .. } = health.lanes[struck.hit].state {
            assert!(before <= since && since <= health.now);
        }
        assert!(health.is_live() && health.is_ready());
        if row.fate() == Fate::Never {
            assert!(!health.is_ready_for(Class::Large));
        } else {
            until("ready for larges again", || node.health().is_ready_for(Class::Large));
        }
    }

    macro_rules! rows {
        ($($name:ident: $row:ident),* $(,)?) => {
            $(mod $name {
                use super::Row::$row as ROW;
                #[test]
                fn small() { super::small_cell(ROW); }
                #[test]
                fn large() { super::large_cell(ROW); }
                #[test]
                fn waiting_large() { super::waiting_large(ROW); }
                #[test]
                fn shutdown() { super::shutdown(ROW); }
                #[test]
                fn health() { super::health(ROW); }
            })*

            #[test]
            fn the_page_has_these_rows_and_no_others() {
                let page = include_str!("../src/docs/faults.md");
                let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name);
                assert_eq!(rows.collect::<Vec<_>>(), [$(stringify!($name)),*]);
                assert!(page.contains("| fault | `small` | `large` | `waiting_large` | `shutdown` | `health` |"));
            }
        };
    }

    rows! {
        panic: Panic,
        launch_error: Launch,
        sticky_error: Sticky,
        hang: Hang,
        device_lost: Lost,
        before_barrier: Before,
        at_barrier: At,
        after_barrier: After,
        allocation_failure: Allocation,
    }

    #[test]
    fn an_allocation_that_returns_its_failure_is_the_output() {
        let node = node(1);
        let request = Request::small(|_: &mut Card| Vec::<u8>::new().try_reserve_exact(isize::MAX as usize).is_err());
        assert_eq!(answer(node.submit(request).unwrap()), Ok(true));
        rests(&node, LaneMask::NONE);
    }
}

#[test]
fn a_lane_of_a_gang_is_left_alone_until_the_gang_has_ended() {
    let node = node(2);
    let gate = Gate::default();
    let passes = gate.clone();
    node.device().finish(0, [LANE]);
    let ticket = node
        .submit(Request::large(move |_: &mut Card, gang: &Gang<'_>| {
            if gang.rank() == 1 {
                passes.pass();
            }
            Ok(())
        }))
        .unwrap();
    until("the first member has lost its lane", || node.snapshot().offline == lane(0) && node.snapshot().busy == lane(1));
    std::thread::sleep(30 * MS);
    assert_eq!(node.device().probes(0), 0);
    gate.open();
    assert!(matches!(answer(ticket), Err(RequestError::Device(_))));
    until("the lane is back", || node.snapshot().offline.is_empty());
    assert_eq!(node.device().probes(0), 1);
    rests(&node, LaneMask::NONE);
}
