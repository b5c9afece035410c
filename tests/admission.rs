//! Who is let in and who is shed: tenants, and requests that must end in time.

use phalanx::observe::Terminal;
use phalanx::scheduler::{Decision, Decisions, End, Event, Job, Limits, LimitsError, PolicySpec, Refusal, Scheduler, Sharing};
use phalanx::{
    BuildError, Class, Drive, EmulatedLane, ModelKey, Nanos, Phalanx, RejectReason, Request, RequestError, RequestId, Shutdown,
    TenantKey, Ticket,
};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn work(time: Duration) -> Request<EmulatedLane, ()> {
    Request::small(move |lane: &mut EmulatedLane| lane.launch(time).unwrap())
}

fn scheduler(sharing: Option<Sharing>) -> Scheduler {
    let mut limits = Limits::new(1).unwrap();
    if let Some(sharing) = sharing {
        limits = limits.sharing(sharing).unwrap();
    }
    Scheduler::new(limits, PolicySpec::default().build(1))
}

#[test]
fn a_tenant_has_exactly_so_many_places_and_leaves_the_others_theirs() {
    let sharing = Sharing { lines: 64, most: 20 };
    let node = Arc::new(Phalanx::builder().lanes(1).sharing(sharing).build().unwrap());
    let (opens, gate) = mpsc::channel::<()>();
    let holder = node.submit(Request::small(move |_: &mut EmulatedLane| gate.recv().unwrap_or(()))).unwrap();
    while node.snapshot().busy.is_empty() {
        std::thread::yield_now();
    }
    // From four threads at a time: 20 + 12 for one tenant.
    let start = Arc::new(Barrier::new(4));
    let flood = |_| {
        let (node, start) = (Arc::clone(&node), Arc::clone(&start));
        std::thread::spawn(move || {
            start.wait();
            (0..8).filter_map(|_| node.submit(work(Duration::ZERO).tenant("flood")).err()).map(|r| r.reason).collect::<Vec<_>>()
        })
    };
    let threads: Vec<_> = (0..4).map(flood).collect();
    let refused: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(refused, [RejectReason::TenantFull; 12]);
    let other = node.submit(work(Duration::ZERO).tenant("other").deadline(Duration::from_secs(60))).unwrap();
    // A cancelled one gives its place back.
    let full = node.submit(work(Duration::ZERO).tenant("flood")).unwrap_err();
    assert_eq!((full.reason, full.request.class()), (RejectReason::TenantFull, Class::Small));
    let large = node.submit(Request::large(|_: &mut EmulatedLane, _: &phalanx::Gang<'_>| Ok(())).tenant("flood")).unwrap();
    opens.send(()).unwrap();
    holder.wait().unwrap();
    other.wait().unwrap();
    large.wait().unwrap();
    while (0..20).any(|_| node.snapshot().in_flight(Class::Small) > 0) {
        std::thread::yield_now();
    }
    // All places are free again.
    let (opens, gate) = mpsc::channel::<()>();
    let holder = node.submit(Request::small(move |_: &mut EmulatedLane| gate.recv().unwrap_or(())).tenant("holder")).unwrap();
    while node.snapshot().busy.is_empty() {
        std::thread::yield_now();
    }
    let tickets: Vec<Ticket<()>> = (0..20).map(|_| node.submit(work(Duration::ZERO).tenant("flood")).unwrap()).collect();
    tickets[7].cancel();
    let begun = Instant::now();
    loop {
        // The place is free once the dispatcher has dealt with the cancellation.
        match node.submit(work(Duration::ZERO).tenant("flood")) {
            Ok(_) => break,
            Err(refused) => assert_eq!(refused.reason, RejectReason::TenantFull),
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "a cancelled request keeps its tenant's place");
    }
    opens.send(()).unwrap();
    holder.wait().unwrap();
    node.shutdown(Shutdown::Finish);
    let snapshot = node.snapshot();
    let ends: u64 = Terminal::ALL.map(|end| snapshot.count(Class::Small, end)).iter().sum();
    assert_eq!(snapshot.submitted[0] + snapshot.count(Class::Small, Terminal::Rejected), ends);
    assert_eq!(snapshot.in_flight(Class::Small), 0);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    for (sharing, error) in [
        (Sharing { lines: 0, most: 1 }, LimitsError::Lines(0)),
        (Sharing { lines: 65, most: 1 }, LimitsError::Lines(65)),
        (Sharing { lines: 1, most: 0 }, LimitsError::Line),
    ] {
        match Phalanx::builder().lanes(1).sharing(sharing).build() {
            Err(BuildError::Limits(refused)) => assert_eq!(refused, error),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_scheduler_refuses_what_a_tenant_may_not_have() {
    let mut scheduler = scheduler(Some(Sharing { lines: 1, most: 3 }));
    let mut decisions = Decisions::new();
    let mut refused = 0;
    for id in 0..10 {
        let job = Job { tenant: TenantKey(id), ..Job::new(RequestId(id), Class::Small, Nanos::ZERO) };
        scheduler.on(Nanos::ZERO, Event::Arrive(job), &mut decisions);
        let reason = Refusal::TenantFull;
        refused += usize::from(decisions.as_slice().contains(&Decision::Refuse { id: RequestId(id), reason }));
    }
    assert_eq!(refused, 6, "one runs and three wait");
    scheduler.check_invariants();
}

#[test]
fn what_cannot_end_in_time_is_shed_at_once_and_says_so() {
    let node = Phalanx::builder().lanes(1).build().unwrap();
    let blocker = node.submit(work(100 * MS)).unwrap();
    let begun = Instant::now();
    let hopeless = |_| node.submit(work(MS).expected(Duration::from_secs(5)).finish_by(Duration::from_secs(1))).unwrap();
    let tickets: Vec<_> = (0..32).map(hopeless).collect();
    let (mut shed, mut probes) = (0, 0);
    for ticket in tickets {
        // A probe waits for the lane, and runs.
        let early = begun.elapsed() < 100 * MS;
        match ticket.wait() {
            Err(RequestError::TooLate { run }) => {
                assert!(run >= Duration::from_secs(2), "{run:?}");
                assert!(!early || begun.elapsed() < 100 * MS || probes > 0, "it was not shed at once");
                shed += 1;
            }
            Ok(()) => probes += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(shed >= 24 && probes <= 8, "{shed} {probes}");
    assert_eq!(node.snapshot().count(Class::Small, Terminal::Expired), shed);
    blocker.wait().unwrap();
    // One whose moment has passed is expired, not shed.
    let late = node.submit(work(MS).finish_by(Duration::ZERO)).unwrap();
    assert_eq!(late.wait(), Err(RequestError::Expired));
    for (expected, finish_by) in [(Duration::MAX, Duration::ZERO), (Duration::ZERO, Duration::MAX)] {
        let ended = node.submit(work(MS).expected(expected).finish_by(finish_by)).unwrap().wait();
        assert_eq!(ended.is_ok(), finish_by == Duration::MAX, "{ended:?}");
    }
}

/// A key whose history is far too long sheds all of its requests, but for the probes, which teach it better.
#[test]
fn a_key_whose_every_request_is_shed_recovers() {
    let mut scheduler = scheduler(None);
    let mut decisions = Decisions::new();
    let mut now = Nanos::ZERO;
    let mut started = |id: u64, run_ms: u64, finish_by: Option<Nanos>| {
        now += Nanos::from_secs(1);
        let (id, ran) = (RequestId(id), Nanos::from_millis(run_ms));
        let finish_by = finish_by.map(|after| now + after);
        let job = Job { model: ModelKey(7), finish_by, ..Job::new(id, Class::Small, now) };
        scheduler.on(now, Event::Arrive(job), &mut decisions);
        match *decisions.as_slice() {
            [Decision::Admit(job), Decision::StartSmall { .. }] => {
                scheduler.on(now + ran, Event::Finish { job, end: End::Completed, ran }, &mut decisions);
                true
            }
            [Decision::Admit(job), Decision::Shed { job: shed, run }] => {
                assert!(job == shed && run > Nanos::from_millis(50));
                false
            }
            ref other => panic!("{other:?}"),
        }
    };
    for id in 0..20 {
        assert!(started(id, 900, None));
    }
    // From now on it takes 10 ms, and must end within 50.
    let ran: Vec<bool> = (20..1_500).map(|id| started(id, 10, Some(Nanos::from_millis(50)))).collect();
    assert!(ran[..100].iter().filter(|&&ran| !ran).count() > 80, "it was shed");
    assert!(ran[1_000..].iter().all(|&ran| ran), "it has learned: {:?}", ran.iter().rposition(|&ran| !ran));
}

#[test]
fn whoever_turns_cannot_wait_for_the_node_from_within_a_turn() {
    struct Waits(Mutex<Option<Ticket<()>>>, mpsc::Sender<Result<(), RequestError>>);
    impl Drop for Waits {
        fn drop(&mut self) {
            if let Some(ticket) = self.0.lock().unwrap().take() {
                self.1.send(ticket.wait()).unwrap();
            }
        }
    }
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let node = Phalanx::builder().lanes(1).drive(Drive::Turn).build().unwrap();
        let other = node.submit(work(MS)).unwrap();
        let (told, tells) = mpsc::channel();
        // What an expired request captured is dropped within the turn.
        let waits = Waits(Mutex::new(Some(other)), told);
        let expires = Request::small(move |_: &mut EmulatedLane| drop(waits)).deadline(Duration::ZERO);
        drop(node.submit(expires).unwrap());
        let waited = loop {
            node.turn();
            if let Ok(waited) = tells.try_recv() {
                break waited;
            }
        };
        done.send(waited).unwrap();
        node.shutdown(Shutdown::Finish);
    });
    let waited = is_done.recv_timeout(Duration::from_secs(10)).expect("it hangs");
    assert_eq!(waited, Err(RequestError::WouldDeadlock));
}
