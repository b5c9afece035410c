//! What users' code may do to a node without breaking it: panicking drops, policies and devices, shutting down from anywhere, dying lanes.
//!
//! Each of these once hung, leaked or lied.

use phalanx::observe::{Terminal, What};
use phalanx::scheduler::{
    Action, Decision, Decisions, End, Event, Job, Limits, Policy, PolicySpec, PredictionSource, Scheduler, View,
};
use phalanx::{
    Admission, BuildError, Cancel, Class, Device, DeviceError, DeviceFault, Drive, Emulated, EmulatedLane, Gang, LaneId, Nanos,
    Phalanx, Phase, RejectReason, Rejected, Request, RequestError, RequestId, Running, Shutdown, Ticket, Turn, Wait, Watchdog,
};
use std::future::Future as _;
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Runs on a thread of its own, and must end within some seconds.
#[track_caller]
fn ends<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || done.send(act()));
    is_done.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| panic!("{what} does not end"))
}

/// A device whose next `finish` fails as told.
#[derive(Default)]
struct Faulty(Mutex<Option<DeviceFault>>);

impl Device for Faulty {
    type Lane = LaneId;
    fn describe(&self) -> String {
        "faulty".into()
    }
    fn open(&self, lane: LaneId) -> Result<LaneId, DeviceError> {
        Ok(lane)
    }
    fn begin(&self, _: &mut LaneId, _: RequestId) -> Result<(), DeviceError> {
        Ok(())
    }
    fn finish(&self, lane: &mut LaneId, _: RequestId) -> Result<(), DeviceError> {
        self.0.lock().unwrap().take().map_or(Ok(()), |fault| Err(DeviceError::new(*lane, fault, "told to fail")))
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a bomb was dropped");
        }
    }
}

/// Starts the oldest small; panics instead once it has started so many.
#[derive(Debug)]
struct Panics {
    after: usize,
}

impl Policy for Panics {
    fn name(&self) -> &str {
        "panics"
    }
    fn next(&mut self, view: &mut View<'_>) -> Action {
        match view.oldest(Class::Small) {
            Some(small) if !view.free().is_empty() => {
                assert!(self.after > 0, "the policy gives up");
                self.after -= 1;
                Action::small(small.job)
            }
            _ => Action::IDLE,
        }
    }
}

fn work(time: Duration) -> Request<EmulatedLane, ()> {
    Request::small(move |lane: &mut EmulatedLane| lane.launch(time).unwrap())
}

#[test]
fn an_output_that_panics_when_the_device_fails_its_request() {
    let node = Phalanx::builder().lanes(1).device(Faulty::default()).build().unwrap();
    *node.device().0.lock().unwrap() = Some(DeviceFault::Request);
    let ticket = node.submit(Request::small(|_: &mut LaneId| Bomb)).unwrap();
    let result = ends("the ticket", move || ticket.wait().map(std::mem::forget));
    assert!(matches!(result, Err(RequestError::Device(_))));
    node.submit(Request::small(|_: &mut LaneId| ())).unwrap().wait().unwrap();
}

#[test]
fn a_shutdown_without_any_lane_in_service() {
    let node = Phalanx::builder().lanes(1).device(Faulty::default()).recovery(None).build().unwrap();
    *node.device().0.lock().unwrap() = Some(DeviceFault::Lane);
    assert!(node.submit(Request::small(|_: &mut LaneId| ())).unwrap().wait().is_err());
    let stranded = node.submit(Request::small(|_: &mut LaneId| ())).unwrap();
    ends("the shutdown", move || node.shutdown(Shutdown::Finish));
    assert_eq!(stranded.wait(), Err(RequestError::ShutDown));
}

#[test]
fn a_policy_that_panics_while_a_lane_is_held() {
    for drive in [Drive::Thread, Drive::Turn] {
        let node = Phalanx::builder()
            .lanes(2)
            .drive(drive)
            .wait(Wait::Park)
            .custom_policy(Box::new(Panics { after: 1 }))
            .build()
            .unwrap();
        let running = node.submit(work(50 * MS)).unwrap();
        while running.phase() != Phase::Running {
            node.turn();
            std::thread::yield_now();
        }
        let stranded = node.submit(work(MS)).unwrap();
        let (node, snapshot) = ends("the shutdown", move || {
            if drive == Drive::Turn {
                assert!(matches!(node.turn(), Turn::Progress));
            }
            node.shutdown(Shutdown::Finish);
            let snapshot = node.snapshot();
            (node, snapshot)
        });
        assert_eq!((running.wait(), stranded.wait()), (Ok(()), Err(RequestError::ShutDown)));
        assert_eq!(
            (snapshot.in_flight(Class::Small), snapshot.queued),
            (0, [0, 0]),
            "{drive:?}: the books balance: {snapshot:?}"
        );
        drop(node);
    }
}

#[test]
fn a_policy_whose_panic_panics() {
    #[derive(Debug)]
    struct Worse;
    impl Policy for Worse {
        fn name(&self) -> &str {
            "worse"
        }
        fn next(&mut self, _: &mut View<'_>) -> Action {
            std::panic::panic_any(Bomb)
        }
    }
    let node = Phalanx::builder().lanes(1).custom_policy(Box::new(Worse)).build().unwrap();
    let ticket = node.submit(work(MS)).unwrap();
    ends("the shutdown", move || node.shutdown(Shutdown::Abort));
    assert_eq!(ticket.wait(), Err(RequestError::ShutDown));
}

#[test]
fn the_last_owner_of_a_node_that_nobody_turns_any_more_is_a_request() {
    let node = Arc::new(Phalanx::builder().lanes(1).drive(Drive::Turn).build().unwrap());
    let inner = Arc::clone(&node);
    let (go, gone) = mpsc::channel::<()>();
    let last = node
        .submit(Request::small(move |_: &mut EmulatedLane| {
            let _ = gone.recv();
            drop(inner);
        }))
        .unwrap();
    let queued = node.submit(work(MS)).unwrap();
    while last.phase() != Phase::Running {
        node.turn();
    }
    drop(node);
    go.send(()).unwrap();
    last.wait().unwrap();
    assert_eq!(ends("the queued ticket", move || queued.wait()), Err(RequestError::ShutDown));
}

#[test]
fn a_waker_that_shuts_the_node_down_inside_a_turn() {
    struct ShutsDown(Weak<Phalanx<Emulated>>);
    impl Wake for ShutsDown {
        fn wake(self: Arc<Self>) {
            if let Some(node) = self.0.upgrade() {
                assert!(!node.shutdown(Shutdown::Abort).complete, "it does not wait for the turn that it is in");
            }
        }
    }
    let node = Arc::new(Phalanx::builder().lanes(1).drive(Drive::Turn).build().unwrap());
    let waker = Waker::from(Arc::new(ShutsDown(Arc::downgrade(&node))));
    let blocker = node.submit(work(30 * MS)).unwrap();
    let mut expires = Box::pin(node.submit(work(MS).deadline(MS)).unwrap());
    assert!(expires.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    ends("turning", move || {
        while node.turn() != Turn::Done {
            std::thread::sleep(MS);
        }
    });
    assert!(matches!(blocker.wait(), Ok(()) | Err(RequestError::ShutDown)));
}

#[test]
fn a_cancel_in_the_last_turn_leaks_nothing() {
    struct Cancels(Mutex<Option<Ticket<()>>>);
    impl Wake for Cancels {
        fn wake(self: Arc<Self>) {
            let ticket = self.0.lock().unwrap().take().expect("woken once");
            assert_eq!(ticket.cancel(), Cancel::Cancelled, "the abort has not come to it yet");
        }
    }
    let token = Arc::new(());
    let watched = Arc::downgrade(&token);
    let node = Phalanx::builder().lanes(1).policy("fcfs".parse().unwrap()).drive(Drive::Turn).build().unwrap();
    // Neither of the two starts: the blocker holds the lane.
    let blocker = node.submit(work(20 * MS)).unwrap();
    let mut first = Box::pin(node.submit(work(MS)).unwrap());
    let second = node.submit(Request::small(move |_: &mut EmulatedLane| drop(token))).unwrap();
    node.turn();
    let waker = Waker::from(Arc::new(Cancels(Mutex::new(Some(second)))));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    ends("the shutdown", move || node.shutdown(Shutdown::Abort));
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    blocker.wait().unwrap();
    drop((first, waker));
    assert!(watched.upgrade().is_none(), "the cancelled request was never dropped");
}

#[test]
fn a_log_that_overflowed_at_the_end_says_so() {
    let node = Phalanx::builder().lanes(1).events(4).build().unwrap();
    let tickets: Vec<_> = (0..20).map(|_| node.submit(work(Duration::ZERO)).unwrap()).collect();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    let mut events = node.take_events().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut read, mut lost) = (0, 0);
        loop {
            let closed = events.is_closed();
            while let Some(record) = events.pop() {
                match record.what {
                    What::Lost { lost: n } => lost += n,
                    _ => read += 1,
                }
            }
            if closed {
                return (read, lost);
            }
            std::thread::sleep(MS);
        }
    });
    node.shutdown(Shutdown::Finish);
    drop(node);
    let (read, lost) = reader.join().unwrap();
    assert!(read >= 4 && lost > 0, "{read} records were read, {lost} said to be lost");
}

#[test]
fn an_event_ring_that_cannot_be_is_an_error() {
    for records in [0, usize::MAX] {
        assert!(matches!(Phalanx::builder().lanes(1).events(records).build(), Err(BuildError::Events(n)) if n == records));
    }
}

#[test]
fn one_absurd_expectation_does_not_spoil_the_predictions_of_others() {
    let mut scheduler = Scheduler::new(Limits::new(1).unwrap(), "easy".parse::<PolicySpec>().unwrap().build(1));
    let (mut decisions, mut now) = (Decisions::new(), Nanos::ZERO);
    let mut run = |id, expected, scheduler: &mut Scheduler| {
        let job = Job { expected: Some(expected), ..Job::new(RequestId(id), Class::Small, now) };
        scheduler.on(now, Event::Arrive(job), &mut decisions);
        let started =
            decisions.as_slice().iter().find_map(|d| if let Decision::StartSmall { job, .. } = d { Some(*job) } else { None });
        now += Nanos::from_millis(1);
        let finish = Event::Finish { job: started.unwrap(), end: End::Completed, ran: Nanos::from_millis(1) };
        scheduler.on(now, finish, &mut decisions);
    };
    for id in 0..1_000 {
        run(id, Nanos::from_millis(1), &mut scheduler);
    }
    run(1_000, Nanos::MAX, &mut scheduler);
    let bias = scheduler.prediction_error(PredictionSource::Request, Class::Small).unwrap().bias;
    assert!(bias > 0.5, "{bias}");
}

#[test]
fn a_rejection_is_an_error_that_can_be_sent_and_shared() {
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_error::<Rejected<Request<EmulatedLane, ()>>>();
}

#[test]
fn a_disarmed_guard_lets_its_request_run() {
    let node = Phalanx::builder().lanes(1).build().unwrap();
    let blocker = node.submit(work(10 * MS)).unwrap();
    let guard = node.submit(work(MS)).unwrap().guard();
    assert!(guard.id() > blocker.id());
    assert_eq!(guard.disarm().wait(), Ok(()));
}

/// A body waits for another request of its node, of either class, by every way of waiting that may not end.
#[test]
fn a_request_that_waits_for_another_while_it_runs() {
    fn block_on<T>(mut ticket: Ticket<T>) -> Result<T, RequestError> {
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            if let std::task::Poll::Ready(result) = std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)) {
                return result;
            }
            std::thread::park();
        }
    }
    type Way = fn(Ticket<()>) -> Result<(), RequestError>;
    let ways: [(&str, Way); 4] = [
        ("wait", Ticket::wait),
        ("block_on", block_on),
        ("wait_timeout for ever", |mut ticket| ticket.wait_timeout(Duration::MAX).unwrap()),
        ("a guard's wait", |ticket| ticket.guard().wait()),
    ];
    for (name, way) in ways {
        let node = Arc::new(Phalanx::builder().lanes(1).build().unwrap());
        let inner = Arc::clone(&node);
        let outer = node
            .submit(Request::small(move |_: &mut EmulatedLane| {
                let ticket = inner.submit(work(Duration::ZERO)).unwrap();
                way(ticket)
            }))
            .unwrap();
        assert_eq!(ends(name, move || outer.wait()), Ok(Err(RequestError::WouldDeadlock)), "{name}");
        let inner = Arc::clone(&node);
        let outer = node
            .submit(Request::large(move |_: &mut EmulatedLane, _: &Gang<'_>| {
                let ticket = inner.submit(work(Duration::ZERO)).unwrap();
                Ok(way(ticket))
            }))
            .unwrap();
        assert_eq!(ends(name, move || outer.wait()), Ok(vec![Err(RequestError::WouldDeadlock)]), "{name}");
    }
    // What ends is served: another lane is free, and another node is another node.
    let node = Arc::new(Phalanx::builder().lanes(2).build().unwrap());
    let other = Arc::new(Phalanx::builder().lanes(1).build().unwrap());
    let inner = Arc::clone(&node);
    let outer = node
        .submit(Request::small(move |_: &mut EmulatedLane| {
            other.submit(work(MS)).unwrap().wait().unwrap();
            block_on(other.submit(work(MS)).unwrap()).unwrap();
            inner.submit(work(MS)).unwrap().wait_timeout(Duration::from_secs(10))
        }))
        .unwrap();
    assert_eq!(ends("the nested one", move || outer.wait()), Ok(Some(Ok(()))));
    // What is over is told, wherever.
    let over = node.submit(work(MS)).unwrap();
    while !over.phase().is_terminal() {
        std::thread::yield_now();
    }
    let outer = node.submit(Request::small(move |_: &mut EmulatedLane| over.wait())).unwrap();
    assert_eq!(outer.wait(), Ok(Ok(())));
}

#[test]
fn a_waker_that_waits_for_the_node_that_runs_it() {
    struct Waits(Mutex<Option<Ticket<()>>>, mpsc::Sender<Result<(), RequestError>>);
    impl Wake for Waits {
        fn wake(self: Arc<Self>) {
            let ticket = self.0.lock().unwrap().take().unwrap();
            self.1.send(ticket.wait()).unwrap();
        }
    }
    let node = Phalanx::builder().lanes(1).build().unwrap();
    let blocker = node.submit(work(30 * MS)).unwrap();
    let mut expires = Box::pin(node.submit(work(MS).deadline(MS)).unwrap());
    let (told, tells) = mpsc::channel();
    let waker = Waker::from(Arc::new(Waits(Mutex::new(Some(node.submit(work(MS)).unwrap())), told)));
    assert!(expires.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(tells.recv_timeout(Duration::from_secs(10)).unwrap(), Err(RequestError::WouldDeadlock));
    blocker.wait().unwrap();
    node.shutdown(Shutdown::Finish);
}

#[test]
fn a_small_body_sees_that_it_is_to_stop() {
    type Stops = fn(&Phalanx<Emulated>, &Ticket<bool>);
    let by_owner: Stops = |_, ticket| assert_eq!(ticket.cancel(), Cancel::Running);
    let by_abort: Stops = |node, _| assert!(node.shutdown(Shutdown::Abort).complete);
    let by_limit: Stops = |_, _| {};
    for (stops, limit) in [(by_owner, Duration::MAX), (by_abort, Duration::MAX), (by_limit, 10 * MS)] {
        let node = Phalanx::builder().lanes(1).build().unwrap();
        let ticket = node
            .submit(
                Request::interruptible(|_: &mut EmulatedLane, running: &Running<'_>| {
                    let begin = std::time::Instant::now();
                    while !running.is_cancelled() && begin.elapsed() < Duration::from_secs(10) {
                        std::thread::sleep(MS);
                    }
                    running.is_cancelled() && running.request() == RequestId(0)
                })
                .limit(limit),
            )
            .unwrap();
        while ticket.phase() != Phase::Running {
            std::thread::yield_now();
        }
        stops(&node, &ticket);
        assert_eq!(ticket.wait(), Ok(true), "what it returns is its output");
        assert!(node.snapshot().offline.is_empty());
    }
}

#[test]
fn a_guard_cancels_what_waits_and_stops_what_runs() {
    let node = Phalanx::builder().lanes(1).build().unwrap();
    let (stopped, is_stopped) = mpsc::channel();
    let runs = node
        .submit(Request::interruptible(move |_: &mut EmulatedLane, running: &Running<'_>| {
            while !running.is_cancelled() {
                std::thread::sleep(MS);
            }
            stopped.send(()).unwrap();
        }))
        .unwrap();
    while runs.phase() != Phase::Running {
        std::thread::yield_now();
    }
    let mut runs = runs.guard();
    assert_eq!(runs.wait_timeout(MS), None);
    let waits = node.submit(work(MS)).unwrap().guard();
    drop(waits);
    drop(runs);
    is_stopped.recv_timeout(Duration::from_secs(10)).unwrap();
    node.shutdown(Shutdown::Finish);
    let now = node.snapshot();
    assert_eq!((now.count(Class::Small, Terminal::Cancelled), now.count(Class::Small, Terminal::Completed)), (1, 1));
    let node = Phalanx::builder().lanes(1).build().unwrap();
    assert_eq!(node.submit(work(MS)).unwrap().guard().wait(), Ok(()));
}

/// Every time that a request can be given, with every odd value. None panics or wraps, and each means what its page says.
#[test]
fn odd_times_are_defined() {
    let odd =
        [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(u64::MAX), Duration::from_secs(u64::MAX), Duration::MAX];
    let node = Phalanx::builder().lanes(2).build().unwrap();
    let resolve = |ticket: Ticket<()>| ends("the ticket", move || ticket.wait());
    for time in odd {
        let short = time < MS;
        let result = resolve(node.submit(work(MS).deadline(time)).unwrap());
        // A nanosecond may be enough on no machine; zero is on none.
        assert_eq!(result, if short { Err(RequestError::Expired) } else { Ok(()) }, "deadline {time:?}");
        for request in
            [work(MS).target(time), work(MS).expected(time), work(MS).target(time).expected(time).deadline(Duration::MAX)]
        {
            assert_eq!(resolve(node.submit(request).unwrap()), Ok(()), "target and expected {time:?}");
        }
        // Past any limit there is still the grace, in which this ends.
        assert_eq!(resolve(node.submit(work(MS).limit(time)).unwrap()), Ok(()), "limit {time:?}");
        let mut ticket = node.submit(work(20 * MS)).unwrap();
        assert_eq!(ticket.wait_timeout(time).is_some(), !short, "a wait of {time:?}");
    }
    node.submit(Request::large(|_: &mut EmulatedLane, gang: &Gang<'_>| gang.barrier()).limit(Duration::MAX))
        .unwrap()
        .wait()
        .unwrap();
    assert!(node.shutdown(Shutdown::Finish).complete);
}

/// The process is stopped for two seconds and continued: nothing hangs, what expired meanwhile is expired, and the rest completes, even what
/// was past its limit only because nothing ran.
#[test]
#[cfg(target_os = "linux")]
fn a_process_that_is_stopped_and_continued() {
    use std::io::{BufRead as _, BufReader};
    const CHILD: &str = "PHALANX_STOPPED_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let node = Phalanx::builder()
            .lanes(2)
            .policy("fcfs".parse().unwrap())
            .watchdog(Watchdog { grace: 200 * MS, ..Watchdog::default() })
            .build()
            .unwrap();
        let sleeps = |time| Request::small(move |_: &mut EmulatedLane| std::thread::sleep(time));
        let running: Vec<_> = (0..2).map(|_| node.submit(sleeps(400 * MS).limit(1_000 * MS)).unwrap()).collect();
        let gang = node.submit(Request::large(|_: &mut EmulatedLane, gang: &Gang<'_>| gang.barrier())).unwrap();
        let expires = node.submit(work(MS).deadline(1_500 * MS)).unwrap();
        let late_gang =
            node.submit(Request::large(|_: &mut EmulatedLane, gang: &Gang<'_>| gang.barrier()).deadline(1_500 * MS)).unwrap();
        let rest: Vec<_> = (0..100).map(|_| node.submit(work(MS)).unwrap()).collect();
        while running.iter().any(|ticket| ticket.phase() != Phase::Running) {
            std::thread::yield_now();
        }
        println!("ready");
        for ticket in running.into_iter().chain(rest) {
            assert_eq!(ticket.wait(), Ok(()));
        }
        assert_eq!(gang.wait().map(|_| ()), Ok(()));
        assert_eq!(expires.wait(), Err(RequestError::Expired));
        assert_eq!(late_gang.wait(), Err(RequestError::Expired));
        assert!(node.health().is_live() && node.snapshot().offline.is_empty());
        assert!(node.shutdown(Shutdown::Finish).complete);
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_is_stopped_and_continued", "--nocapture"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("ready")), "the child did not begin");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    std::thread::sleep(2_000 * MS);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let output = ends("the child", move || {
        lines.for_each(drop);
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_cannot_start_in_time_is_handed_back_with_the_estimate() {
    let node = Phalanx::builder().lanes(1).admission(Admission::InTime { probe: 4 }).build().unwrap();
    let sleeps = || work(40 * MS).model("m").expected(40 * MS);
    // One teaches, one runs, three wait: the next one starts in about 160 ms.
    node.submit(sleeps()).unwrap().wait().unwrap();
    let tickets: Vec<_> = (0..4).map(|_| node.submit(sleeps()).unwrap()).collect();
    while node.estimate_start(Class::Small).is_none_or(|wait| wait < 120 * MS) {
        std::thread::yield_now();
    }
    let wait = node.estimate_start(Class::Small).unwrap();
    assert!((100 * MS..250 * MS).contains(&wait), "{wait:?}");
    assert!(node.estimate_start(Class::Large).unwrap() >= 100 * MS);
    let refused = (0..8).filter(|_| match node.submit(work(MS).deadline(20 * MS)) {
        Ok(probe) => {
            probe.cancel();
            false
        }
        Err(rejected) => {
            let RejectReason::TooLate { starts_in } = rejected.reason else { panic!("{:?}", rejected.reason) };
            assert!(starts_in > 20 * MS && rejected.request.class() == Class::Small);
            true
        }
    });
    assert_eq!(refused.count(), 6, "one in four is a probe");
    let in_time = node.submit(work(MS).deadline(Duration::from_secs(20))).unwrap();
    let without = node.submit(work(MS)).unwrap();
    for ticket in tickets.into_iter().chain([in_time, without]) {
        assert_eq!(ticket.wait(), Ok(()));
    }
    // The node is idle again, and takes what it refused.
    while node.estimate_start(Class::Small) != Some(Duration::ZERO) {
        std::thread::yield_now();
    }
    assert_eq!(node.submit(work(MS).deadline(20 * MS)).unwrap().wait(), Ok(()));
    assert!(node.shutdown(Shutdown::Finish).complete);
}
