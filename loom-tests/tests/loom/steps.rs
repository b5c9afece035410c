//! Requests that stop at their steps: who stops where, what is kept in between, and who ends it meanwhile.

use super::node::{builder, end, finish};
use ::loom::thread;
use phalanx::runtime::Phase;
use phalanx::scheduler::{Action, Policy, View};
use phalanx::{Cancel, Class, Drive, Gang, Phalanx, Request, RequestError, Step};
use phalanx_loom_tests::{NoDevice, NoLane, Payload, check};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whoever runs stops for whoever of the other class waits; what is parked goes on when nobody waits, or never.
#[derive(Debug)]
struct Asks {
    resumes: bool,
}

impl Policy for Asks {
    fn name(&self) -> &str {
        "asks"
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        let (smalls, larges) = (view.queued(Class::Small), view.queued(Class::Large));
        let other = if view.gang_running() { smalls } else { larges };
        let asks = view.all_running().find(|running| running.can_stop && other > 0);
        if let Some(running) = asks {
            return Action::Ask(running.job);
        }
        if view.all_free() {
            if let Some(large) = view.oldest(Class::Large) {
                return Action::StartLarge(large.job);
            }
            let parked = view.parked_larges().next();
            if let Some(large) = parked.filter(|_| self.resumes && smalls == 0) {
                return Action::Resume(large.job);
            }
        }
        for lane in view.free() {
            let parked = view.parked_smalls(lane).next();
            if let Some(small) = parked.filter(|_| self.resumes && larges == 0) {
                return Action::Resume(small.job);
            }
        }
        match view.oldest(Class::Small) {
            Some(small) if !view.free().is_empty() && larges == 0 => Action::small(small.job),
            _ => Action::IDLE,
        }
    }
}

fn turned(lanes: usize, resumes: bool) -> Phalanx<NoDevice> {
    builder(lanes, Drive::Turn).custom_policy(Box::new(Asks { resumes })).build().unwrap()
}

/// What the states of a model's requests count.
#[derive(Default)]
struct Seen {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

impl Seen {
    /// Every state was dropped.
    fn assert_clean(&self, made: usize) {
        assert_eq!(self.made.load(Ordering::SeqCst), made);
        assert_eq!(self.dropped.load(Ordering::SeqCst), made, "a state was lost, or dropped twice");
    }
}

/// What a request keeps on its lane: every access is checked to come after the last one.
struct Kept {
    seen: Arc<Seen>,
    payload: Payload,
}

impl Kept {
    fn new(seen: &Arc<Seen>) -> Self {
        seen.made.fetch_add(1, Ordering::SeqCst);
        Self { seen: Arc::clone(seen), payload: Payload::default() }
    }

    /// Takes a step; which it was.
    fn step(&self) -> usize {
        let step = self.payload.read() + 1;
        self.payload.write(step);
        step as usize
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.payload.write(0);
        self.seen.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn small(seen: &Arc<Seen>, steps: usize) -> Request<NoLane, usize> {
    let seen = Arc::clone(seen);
    Request::small_steps(
        move |_: &mut NoLane| Kept::new(&seen),
        move |_: &mut NoLane, kept: &mut Kept| {
            let step = kept.step();
            if step < steps { Step::Continue } else { Step::Done(step) }
        },
    )
}

fn large(seen: &Arc<Seen>, steps: usize) -> Request<NoLane, Vec<usize>> {
    let seen = Arc::clone(seen);
    Request::large_steps(
        move |_: &mut NoLane, _: &Gang<'_>| Kept::new(&seen),
        move |_: &mut NoLane, _: &Gang<'_>, kept: &mut Kept| {
            let step = kept.step();
            Ok(if step < steps { Step::Continue } else { Step::Done(step) })
        },
    )
}

fn quick() -> Request<NoLane, Vec<usize>> {
    Request::large(|_: &mut NoLane, gang: &Gang<'_>| Ok(gang.rank()))
}

/// A small request is asked to stop for a large one, at any moment of its two steps, and goes on. One lane, two threads. At most three
/// preemptions.
#[test]
fn a_small_one_steps_aside_and_goes_on() {
    check(Some(3), || {
        let (seen, node) = (Arc::new(Seen::default()), turned(1, true));
        let mut ticket = node.submit(small(&seen, 2)).unwrap();
        node.turn();
        let mut large = node.submit(quick()).unwrap();
        assert_eq!(finish(&node, &mut large), Ok(vec![0]));
        assert_eq!(finish(&node, &mut ticket), Ok(2));
        end(&node);
        drop(node);
        seen.assert_clean(1);
    });
}

/// A large request is asked to stop for a small one, at any moment of its two steps, and goes on. One lane, two threads. At most one
/// preemption. That the members of a larger gang stop at the same step is shown by `barrier::members_stop_at_the_same_step`.
#[test]
fn a_large_one_steps_aside_and_goes_on() {
    check(Some(1), || {
        let (seen, node) = (Arc::new(Seen::default()), turned(1, true));
        let mut ticket = node.submit(large(&seen, 2)).unwrap();
        node.turn();
        let mut quick = node.submit(Request::small(|_: &mut NoLane| ())).unwrap();
        assert_eq!(finish(&node, &mut quick), Ok(()));
        assert_eq!(finish(&node, &mut ticket), Ok(vec![2]));
        end(&node);
        drop(node);
        seen.assert_clean(1);
    });
}

/// The owner cancels while its request runs, stops, stands parked or goes on: it has one end, and what it kept is dropped once, in order.
/// One lane, three threads. At most one preemption.
#[test]
fn cancel_against_park() {
    check(Some(1), || {
        let (seen, node) = (Arc::new(Seen::default()), Arc::new(turned(1, true)));
        let ticket = node.submit(small(&seen, 2)).unwrap();
        let mut large = node.submit(quick()).unwrap();
        let owner = thread::spawn(move || {
            let mut ticket = ticket;
            let cancel = ticket.cancel();
            if cancel == Cancel::Cancelled {
                assert_eq!(ticket.try_take(), Some(Err(RequestError::Cancelled)));
            }
            (cancel, ticket)
        });
        assert_eq!(finish(&node, &mut large), Ok(vec![0]));
        let (cancel, mut ticket) = owner.join().unwrap();
        if cancel != Cancel::Cancelled {
            let result = finish(&node, &mut ticket);
            let may = result == Ok(2) || cancel == Cancel::Running && result == Err(RequestError::Cancelled);
            assert!(may, "{cancel:?}, and then {result:?}");
        }
        end(&node);
        drop(node);
        seen.assert_clean(seen.made.load(Ordering::SeqCst));
    });
}

/// What is cancelled while it is parked, under a policy that never lets it go on, is dropped on its lane all the same. One lane, two threads.
/// At most two preemptions. (If it were not, the shutdown would never end.)
#[test]
fn what_is_cancelled_while_parked_is_dropped() {
    check(Some(2), || {
        let (seen, node) = (Arc::new(Seen::default()), turned(1, false));
        let ticket = node.submit(small(&seen, 2)).unwrap();
        node.turn();
        let mut large = node.submit(quick()).unwrap();
        assert_eq!(finish(&node, &mut large), Ok(vec![0]));
        if ticket.phase() == Phase::Parked {
            assert_eq!(ticket.cancel(), Cancel::Cancelled);
        }
        end(&node);
        drop(node);
        seen.assert_clean(1);
    });
}

/// One of two members is done after the first step, and the other is not. Two lanes, three threads. Without preemption.
#[test]
fn members_that_disagree_are_told_so() {
    check(Some(0), || {
        let node = turned(2, true);
        let uneven = Request::large_steps(
            |_: &mut NoLane, _: &Gang<'_>| (),
            |_: &mut NoLane, gang: &Gang<'_>, (): &mut ()| Ok(if gang.rank() == 0 { Step::Done(()) } else { Step::Continue }),
        );
        let mut ticket = node.submit(uneven).unwrap();
        assert_eq!(finish(&node, &mut ticket), Err(RequestError::StepsDisagree { done: 1, members: 2 }));
        end(&node);
    });
}
