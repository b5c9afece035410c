//! What users' code may do to a node without breaking it: panicking drops, policies and devices, shutting down from anywhere, dying lanes.
//!
//! Each of these once hung, leaked or lied.

use phalanx::observe::What;
use phalanx::scheduler::{
    Action, Decision, Decisions, End, Event, Job, Limits, Policy, PolicySpec, PredictionSource, Scheduler, View,
};
use phalanx::{
    BuildError, Cancel, Class, Device, DeviceError, DeviceFault, Drive, Emulated, EmulatedLane, LaneId, Nanos, Phalanx, Phase,
    Rejected, Request, RequestError, RequestId, Shutdown, Ticket, Turn, Wait,
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
