//! The whole runtime: threads, dispatcher, tickets, by its public face. One or two lanes, a device that does nothing.
//!
//! Each model counts its threads: with the one that runs the model there are five at the most. A dispatcher of its own thread is there
//! where the model is about its sleep; else the model's thread turns.

use ::loom::thread;
use phalanx::runtime::{Phase, Pinning, Recovery, Watchdog, model};
use phalanx::{
    Builder, Cancel, Class, Device, DeviceError, DeviceFault, Drive, Gang, LaneId, Nanos, Phalanx, Request, RequestError,
    RequestId, Shutdown, Turn, Wait,
};
use phalanx_loom_tests::{NoDevice, NoLane, PLANNED, Payload, check};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn builder(lanes: usize, drive: Drive) -> Builder<NoDevice> {
    Phalanx::builder()
        .lanes(lanes)
        .device(NoDevice)
        .policy("fcfs".parse().unwrap())
        .queue(Class::Small, 2)
        .queue(Class::Large, 1)
        .wait(Wait::Park)
        .pinning(Pinning::Off)
        // A timer would end sleeps that nobody ends, and hide lost wake-ups.
        .watchdog(Watchdog::OFF)
        .drive(drive)
}

fn turned(lanes: usize) -> Phalanx<NoDevice> {
    builder(lanes, Drive::Turn).build().unwrap()
}

fn small(value: u32) -> Request<NoLane, u32> {
    Request::small(move |_: &mut NoLane| value)
}

/// Turns until the ticket is over, and gives what it gave.
pub(super) fn finish<T>(node: &Phalanx<NoDevice>, ticket: &mut phalanx::Ticket<T>) -> Result<T, RequestError> {
    loop {
        if let Some(result) = ticket.try_take() {
            return result;
        }
        if node.turn() != Turn::Progress {
            thread::yield_now();
        }
    }
}

/// Shuts down, and checks that every request is over once and every lane free.
pub(super) fn end(node: &Phalanx<NoDevice>) {
    let report = node.shutdown(Shutdown::Finish);
    assert!(report.complete && report.busy.is_empty() && report.offline.is_empty(), "{report:?}");
    let now = node.snapshot();
    for class in Class::ALL {
        assert_eq!(now.in_flight(class), 0, "{now:?}");
    }
}

/// A small request runs and its output is taken: one lane, two threads. At most three preemptions.
#[test]
fn a_small_request_runs() {
    check(Some(3), || {
        let node = turned(1);
        let mut ticket = node.submit(small(7)).unwrap();
        assert_eq!(finish(&node, &mut ticket), Ok(7));
        end(&node);
    });
}

/// A large request runs on two lanes, and the last member gathers what both gave: three threads. At most one preemption.
#[test]
fn a_large_request_runs() {
    check(Some(1), || {
        let node = turned(2);
        let mut ticket = node.submit(Request::large(|_: &mut NoLane, gang: &Gang<'_>| Ok(gang.rank()))).unwrap();
        assert_eq!(finish(&node, &mut ticket), Ok(vec![0, 1]));
        end(&node);
    });
}

/// Both members of a gang panic: the ticket tells of one of them. Three threads. At most one preemption.
#[test]
fn both_members_panic() {
    check(Some(1), || {
        let node = turned(2);
        let large = Request::<NoLane, Vec<()>>::large(|_: &mut NoLane, gang: &Gang<'_>| panic!("{PLANNED} {}", gang.rank()));
        let mut ticket = node.submit(large).unwrap();
        assert!(matches!(finish(&node, &mut ticket), Err(RequestError::Panicked { rank: Some(_), .. })));
        end(&node);
    });
}

/// A device that fails the request on lane 0: before the body, so that this member never comes to the barrier.
struct Failing(DeviceFault);

impl Device for Failing {
    type Lane = NoLane;
    fn describe(&self) -> String {
        "fails on lane 0".to_owned()
    }
    fn open(&self, id: LaneId) -> Result<NoLane, DeviceError> {
        Ok(NoLane { id })
    }
    fn begin(&self, lane: &mut NoLane, _: RequestId) -> Result<(), DeviceError> {
        if lane.id.index() == 0 { Err(DeviceError::new(lane.id, self.0, "planned")) } else { Ok(()) }
    }
    fn finish(&self, _: &mut NoLane, _: RequestId) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A gang whose member 0 cannot begin: its peer comes free, the ticket tells why, and both lanes are given back.
fn failing_member(fault: DeviceFault) {
    let node = builder(2, Drive::Turn).device(Failing(fault)).build().unwrap();
    let mut ticket = node.submit(Request::large(|_: &mut NoLane, gang: &Gang<'_>| Ok(gang.rank()))).unwrap();
    while node.turn() == Turn::Progress {}
    let result = loop {
        if let Some(result) = ticket.try_take() {
            break result;
        }
        thread::yield_now();
    };
    assert!(matches!(result, Err(RequestError::Device(_))), "{result:?}");
    let report = node.shutdown(Shutdown::Finish);
    assert!(report.complete && report.busy.is_empty());
    assert_eq!(report.offline.is_empty(), fault != DeviceFault::Lane);
}

/// The device fails a member's request but not its lane. Two lanes, three threads. At most one preemption.
#[test]
fn a_failing_device_frees_the_peer() {
    check(Some(1), || failing_member(DeviceFault::Request));
}

/// The device loses a member's lane. Two lanes, three threads. At most one preemption.
#[test]
fn a_lost_lane_frees_the_peer() {
    check(Some(1), || failing_member(DeviceFault::Lane));
}

/// A member returns without coming to the barrier at which its peer waits: its release alone frees the peer. Two lanes, three threads. At
/// most one preemption.
#[test]
fn an_early_return_frees_the_peer() {
    check(Some(1), || {
        let node = turned(2);
        let large = Request::large(|_: &mut NoLane, gang: &Gang<'_>| if gang.rank() == 0 { Ok(()) } else { gang.barrier() });
        let mut ticket = node.submit(large).unwrap();
        assert_eq!(finish(&node, &mut ticket), Err(RequestError::GangBroken));
        end(&node);
    });
}

/// A thread waits for its ticket while it resolves: it is woken, or sees the end. One lane, three threads. At most three preemptions.
#[test]
fn wait_against_completion() {
    check(Some(3), || {
        let node = Arc::new(turned(1));
        let ticket = node.submit(small(7)).unwrap();
        let waiter = thread::spawn(move || assert_eq!(ticket.wait(), Ok(7)));
        while node.turn() == Turn::Progress {}
        waiter.join().unwrap();
        end(&node);
    });
}

/// A task polls its ticket twice, with another waker each time, while it resolves. One lane, three threads. At most three preemptions.
#[test]
fn poll_against_completion() {
    check(Some(3), || {
        let node = Arc::new(turned(1));
        let ticket = node.submit(small(7)).unwrap();
        let task = thread::spawn(move || assert_eq!(::loom::future::block_on(ticket), Ok(7)));
        while node.turn() == Turn::Progress {}
        task.join().unwrap();
        end(&node);
    });
}

/// A ticket is dropped while its request runs; the output goes with the last of both. One lane, three threads. At most three
/// preemptions.
#[test]
fn drop_against_completion() {
    check(Some(3), || {
        let node = Arc::new(turned(1));
        let ticket = node.submit(small(7)).unwrap();
        let owner = thread::spawn(move || drop(ticket));
        while node.turn() == Turn::Progress {}
        owner.join().unwrap();
        end(&node);
    });
}

/// The owner cancels while the request is granted, started and completed: told Cancelled it never runs, told anything else it ran to its
/// end. One lane, three threads. At most three preemptions.
#[test]
fn cancel_against_start() {
    check(Some(3), || {
        let node = Arc::new(turned(1));
        let ran = Arc::new(Payload::default());
        let mut ticket = {
            let ran = Arc::clone(&ran);
            node.submit(Request::small(move |_: &mut NoLane| ran.write(1))).unwrap()
        };
        let owner = thread::spawn(move || {
            let cancelled = ticket.cancel();
            if cancelled == Cancel::Over {
                assert_eq!(ticket.try_take(), Some(Ok(())), "what is over has its output");
            }
            (cancelled, ticket)
        });
        while node.turn() == Turn::Progress {}
        let (cancelled, mut ticket) = owner.join().unwrap();
        let result = finish(&node, &mut ticket);
        end(&node);
        match cancelled {
            Cancel::Cancelled => {
                assert_eq!(result, Err(RequestError::Cancelled));
                assert_eq!(ran.read(), 0, "what was cancelled never runs");
            }
            Cancel::Running => assert_eq!((result, ran.read()), (Ok(()), 1)),
            Cancel::Over => assert_eq!(ran.read(), 1),
        }
    });
}

/// A request whose deadline passes at any moment, while its owner cancels it: it has one end, told by all alike, and only what ran
/// completed. One lane, three threads. At most two preemptions.
#[test]
fn expiry_against_cancel() {
    check(Some(2), || {
        let node = Arc::new(turned(1));
        let request = small(7).deadline(Duration::from_nanos(10));
        let ticket = node.submit(request).unwrap();
        let owner = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                model::advance(&node, Nanos(20));
                (ticket.cancel(), ticket)
            })
        };
        while node.turn() == Turn::Progress {}
        let (cancelled, mut ticket) = owner.join().unwrap();
        let result = finish(&node, &mut ticket);
        let expected = match result {
            Ok(7) => cancelled != Cancel::Cancelled,
            Err(RequestError::Cancelled) => cancelled == Cancel::Cancelled,
            Err(RequestError::Expired) => cancelled == Cancel::Over,
            _ => false,
        };
        assert!(expected, "{result:?} after {cancelled:?}");
        end(&node);
    });
}

/// A cancelled request leaves its place in the queue at once. One lane, two threads. At most two preemptions.
#[test]
fn cancel_frees_the_place() {
    check(Some(2), || {
        let node = turned(1);
        let first = node.submit(small(1).deadline(Duration::MAX)).unwrap();
        let second = node.submit(small(2)).unwrap();
        assert!(node.submit(small(3)).is_err(), "the queue holds two");
        assert_eq!(second.cancel(), Cancel::Cancelled);
        // The ring comes after the cancelled in a turn: the first turn may only take the request in.
        while node.turn() == Turn::Progress {}
        assert_eq!(node.snapshot().queued[0], 0);
        drop(first);
        end(&node);
    });
}

/// A request that waits in the queue is cancelled: the next turn takes it out, though no lane has become free. One lane that a request
/// holds, two threads. At most two preemptions.
#[test]
fn cancel_takes_out_of_the_queue() {
    check(Some(2), || {
        let node = Arc::new(turned(1));
        let gate = Arc::new(model::Mailbox::<()>::new());
        let blocker = {
            let gate = Arc::clone(&gate);
            node.submit(Request::small(move |_: &mut NoLane| {
                gate.attach();
                gate.take();
            }))
            .unwrap()
        };
        while node.turn() == Turn::Progress {}
        let second = node.submit(small(2)).unwrap();
        while node.turn() == Turn::Progress {}
        assert_eq!(second.cancel(), Cancel::Cancelled);
        while node.turn() == Turn::Progress {}
        assert_eq!(node.snapshot().queued[0], 0, "the cancelled request still waits");
        // SAFETY: the only put.
        unsafe { gate.put(()) };
        drop(blocker);
        end(&node);
    });
}

/// Two threads turn at the same time: one is in at a time, with all that the other did; one of them stops the workers. One lane, three
/// threads. At most three preemptions.
#[test]
fn turn_against_turn() {
    check(Some(3), || {
        let node = Arc::new(turned(1));
        let mut ticket = node.submit(small(7)).unwrap();
        let other = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                node.turn();
                node.turn();
            })
        };
        node.turn();
        assert_eq!(finish(&node, &mut ticket), Ok(7));
        other.join().unwrap();
        end(&node);
    });
}

/// Two threads shut the node down at the same time. One lane, three threads. At most three preemptions.
#[test]
fn shutdown_against_shutdown() {
    check(Some(2), || {
        let node = Arc::new(turned(1));
        let other = {
            let node = Arc::clone(&node);
            thread::spawn(move || assert!(node.shutdown(Shutdown::Finish).complete))
        };
        assert!(node.shutdown(Shutdown::Abort).complete);
        other.join().unwrap();
    });
}

/// A thread submits while the node shuts down: it is turned away, or its ticket resolves. One lane, three threads. At most three
/// preemptions.
#[test]
fn shutdown_against_submit() {
    check(Some(3), || {
        let node = Arc::new(turned(1));
        let submitter = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.submit(small(7)).ok())
        };
        node.shutdown(Shutdown::Finish);
        if let Some(mut ticket) = submitter.join().unwrap() {
            assert_eq!(ticket.try_take(), Some(Ok(7)), "who got a ticket before the end gets its output");
        }
        assert_eq!(node.submit(small(8)).unwrap_err().reason, phalanx::RejectReason::Closed);
    });
}

/// The dispatcher's own thread sleeps on its bell: it wakes for a request, for the release of its lane and for the shutdown. One lane, three threads. At most two preemptions.
#[test]
fn the_dispatcher_wakes() {
    check(Some(2), || {
        let node = builder(1, Drive::Thread).build().unwrap();
        let ticket = node.submit(small(7)).unwrap();
        assert_eq!(ticket.wait(), Ok(7));
        end(&node);
    });
}

/// The dispatcher's thread wakes for the release of a lane: a second request waits for it. One lane, three threads. At most one
/// preemption.
#[test]
fn the_dispatcher_wakes_for_a_release() {
    check(Some(1), || {
        let node = builder(1, Drive::Thread).build().unwrap();
        let first = node.submit(small(1)).unwrap();
        let second = node.submit(small(2)).unwrap();
        assert_eq!((first.wait(), second.wait()), (Ok(1), Ok(2)));
        end(&node);
    });
}

/// The dispatcher's thread wakes for a request that comes as it goes to sleep after another. One lane, three threads. At most one
/// preemption.
#[test]
fn the_dispatcher_wakes_for_a_request() {
    check(Some(1), || {
        let node = builder(1, Drive::Thread).build().unwrap();
        for value in 1..=2 {
            assert_eq!(node.submit(small(value)).unwrap().wait(), Ok(value));
        }
        end(&node);
    });
}

/// The dispatcher's thread wakes for a cancellation alone: the lane is held, and nothing else happens. One lane, three threads. At most
/// one preemption.
#[test]
fn the_dispatcher_wakes_for_a_cancellation() {
    check(Some(1), || {
        let node = builder(1, Drive::Thread).build().unwrap();
        let gate = Arc::new(model::Mailbox::<()>::new());
        let blocker = {
            let gate = Arc::clone(&gate);
            node.submit(Request::small(move |_: &mut NoLane| {
                gate.attach();
                gate.take();
            }))
            .unwrap()
        };
        while blocker.phase() != Phase::Running {
            thread::yield_now();
        }
        let second = node.submit(small(2)).unwrap();
        while node.snapshot().queued[0] != 1 {
            thread::yield_now();
        }
        assert_eq!(second.cancel(), Cancel::Cancelled);
        while node.snapshot().queued[0] != 0 {
            thread::yield_now();
        }
        // SAFETY: the only put.
        unsafe { gate.put(()) };
        assert_eq!(blocker.wait(), Ok(()));
        end(&node);
    });
}

/// How long a request of these models may run. There is no grace, which is a microsecond.
const LIMIT: Duration = Duration::from_nanos(10);

fn watched(lanes: usize, drive: Drive) -> Builder<NoDevice> {
    let recovery = Recovery { first_wait: Duration::from_micros(1), probe_limit: Duration::MAX, ..Recovery::default() };
    builder(lanes, drive).watchdog(Watchdog { grace: Duration::ZERO, ..Watchdog::OFF }).recovery(recovery)
}

/// Looks twice after the limit: who has not ended by then is given up.
fn pass_the_limit<D: Device>(node: &Phalanx<D>) {
    model::advance(node, Nanos(10));
    node.turn();
    model::advance(node, Nanos(1_000));
    node.turn();
}

/// A request is given up while it completes, and a thread waits for it: it has one end, the ticket finds its reason, and never touches an
/// output that its worker still writes. One lane, three threads. At most one preemption.
#[test]
fn give_up_against_completion() {
    check(Some(1), || {
        let node = watched(1, Drive::Turn).build().unwrap();
        let ticket = node.submit(small(7).limit(LIMIT)).unwrap();
        let waiter = thread::spawn(move || ticket.wait());
        node.turn();
        pass_the_limit(&node);
        while node.turn() == Turn::Progress {}
        let report = node.shutdown(Shutdown::Finish);
        match waiter.join().unwrap() {
            Ok(value) => assert_eq!((value, report.offline.is_empty()), (7, true)),
            Err(RequestError::TimeLimit { limit, hung }) => {
                assert_eq!((limit, hung), (LIMIT, LaneId::new(0).mask()), "the reason goes with the end");
                assert_eq!(report.offline, hung);
            }
            Err(other) => panic!("{other}"),
        }
    });
}

/// A member does not come to the barrier within the limit: its peer leaves, the gang is given up, the late member finds no barrier, and
/// nobody hangs. Two lanes, three threads. At most one preemption.
#[test]
fn a_hung_member_is_given_up() {
    check(Some(1), || {
        let node = watched(2, Drive::Turn).build().unwrap();
        let gate = Arc::new(model::Mailbox::<()>::new());
        let passes = Arc::clone(&gate);
        let large = Request::large(move |_: &mut NoLane, gang: &Gang<'_>| {
            if gang.rank() == 1 {
                passes.attach();
                passes.take();
            }
            gang.barrier()
        });
        let mut ticket = node.submit(large.limit(LIMIT)).unwrap();
        node.turn();
        pass_the_limit(&node);
        let result = finish(&node, &mut ticket);
        // Member 1 may have found the gang broken before it came to its body, and member 0 may not have let go: there is no grace.
        assert!(matches!(result, Err(RequestError::TimeLimit { limit: LIMIT, .. })), "{result:?}");
        // SAFETY: the only put.
        unsafe { gate.put(()) };
        assert!(node.shutdown(Shutdown::Finish).complete);
    });
}

/// A lane whose request was given up comes free after all: it is probed, and the next request runs on it, alone. One lane, two threads. At
/// most two preemptions.
#[test]
fn a_late_lane_comes_back() {
    check(Some(2), || {
        let node = watched(1, Drive::Turn).build().unwrap();
        let ran = Arc::new(Payload::default());
        let writes = || {
            let ran = Arc::clone(&ran);
            Request::small(move |_: &mut NoLane| ran.write(ran.read() + 1))
        };
        let mut first = node.submit(writes().limit(LIMIT)).unwrap();
        node.turn();
        pass_the_limit(&node);
        let first = finish(&node, &mut first);
        let mut second = node.submit(writes()).unwrap();
        let second = loop {
            if let Some(result) = second.try_take() {
                break result;
            }
            model::advance(&node, Nanos(1_000));
            node.turn();
            // Whatever was done, another look may have to wait for the worker.
            thread::yield_now();
        };
        assert_eq!(second, Ok(()));
        end(&node);
        let began = u32::from(first.is_ok());
        assert!((1 + began..=2).contains(&ran.read()));
    });
}

/// A node shuts down over a hung worker, which ends by itself once it can. One lane, two threads. At most two preemptions.
#[test]
fn a_shutdown_leaves_a_hung_worker() {
    check(Some(2), || {
        let node = watched(1, Drive::Turn).build().unwrap();
        let gate = Arc::new(model::Mailbox::<()>::new());
        let passes = Arc::clone(&gate);
        let hangs = Request::small(move |_: &mut NoLane| {
            passes.attach();
            passes.take();
        });
        let mut ticket = node.submit(hangs.limit(LIMIT)).unwrap();
        node.turn();
        pass_the_limit(&node);
        assert!(matches!(finish(&node, &mut ticket), Err(RequestError::TimeLimit { .. })));
        let opener = thread::spawn({
            let gate = Arc::clone(&gate);
            // SAFETY: the only put.
            move || unsafe { gate.put(()) }
        });
        let report = node.shutdown(Shutdown::Finish);
        assert!(report.complete && report.offline == LaneId::new(0).mask());
        opener.join().unwrap();
    });
}
