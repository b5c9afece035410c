//! Once running, dispatcher and workers allocate nothing, and a submit allocates twice: counted by the allocator itself.
//!
//! One test, since the counters are the process's.

use phalanx::scheduler::{Action, Policy, PolicySpec, View};
use phalanx::{Class, Device, DeviceError, Gang, LaneId, Phalanx, Request, RequestId, Shutdown, Wait};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Who a thread is, for the count.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Other,
    Submitter,
    Node,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Other) };
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static BY_NODE: AtomicU64 = AtomicU64::new(0);
static BY_SUBMITTER: AtomicU64 = AtomicU64::new(0);

/// Makes the policy allocate, to see that the count would show it.
static SPOIL: AtomicBool = AtomicBool::new(false);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            match ROLE.try_with(Cell::get) {
                Ok(Role::Node) => BY_NODE.fetch_add(1, Ordering::Relaxed),
                Ok(Role::Submitter) => BY_SUBMITTER.fetch_add(1, Ordering::Relaxed),
                _ => 0,
            };
        }
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A device that does nothing, and marks its worker's thread.
struct Marks;

impl Device for Marks {
    type Lane = ();
    fn describe(&self) -> String {
        "nothing".into()
    }
    fn open(&self, _: LaneId) -> Result<(), DeviceError> {
        ROLE.set(Role::Node);
        Ok(())
    }
    fn begin(&self, _: &mut (), _: RequestId) -> Result<(), DeviceError> {
        Ok(())
    }
    fn finish(&self, _: &mut (), _: RequestId) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A policy that marks the dispatcher's thread.
#[derive(Debug)]
struct MarksToo(Box<dyn Policy>);

impl Policy for MarksToo {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn ranks(&self) -> bool {
        self.0.ranks()
    }
    fn next(&mut self, view: &mut View<'_>) -> Action {
        ROLE.set(Role::Node);
        if SPOIL.load(Ordering::Relaxed) {
            std::hint::black_box(Box::new(0_u64));
        }
        self.0.next(view)
    }
}

#[test]
fn nothing_is_allocated_on_the_hot_path() {
    for policy in phalanx::scheduler::policy::POLICIES {
        let spec: PolicySpec = policy.name.parse().unwrap();
        let node = Phalanx::builder()
            .lanes(4)
            .device(Marks)
            .custom_policy(Box::new(MarksToo(spec.build(4))))
            .wait(Wait::Park)
            .events(1 << 16)
            .build()
            .unwrap();
        let mut events = node.take_events().unwrap();
        let round = |counted: bool| {
            COUNTING.store(counted, Ordering::SeqCst);
            let mut submits = 0;
            let mut tickets = Vec::with_capacity(64);
            for i in 0..40_u64 {
                // What a request captures goes into its own allocation.
                ROLE.set(Role::Submitter);
                let small = Request::small(move |(): &mut ()| i).model("m").deadline(std::time::Duration::from_secs(60));
                tickets.push(node.submit(small).unwrap());
                submits += 1;
                ROLE.set(Role::Other);
                if i % 8 == 0 {
                    let large = Request::large(|(): &mut (), gang: &Gang<'_>| gang.barrier());
                    node.submit(large).unwrap().wait().unwrap();
                }
                if i % 5 == 0 {
                    tickets.last().unwrap().cancel();
                }
            }
            for ticket in tickets {
                let _ = ticket.wait();
            }
            COUNTING.store(false, Ordering::SeqCst);
            while events.pop().is_some() {}
            submits
        };
        let mut round = round;
        round(false);
        BY_NODE.store(0, Ordering::SeqCst);
        BY_SUBMITTER.store(0, Ordering::SeqCst);
        let submits: u64 = (0..25).map(|_| round(true)).sum();
        assert_eq!(BY_NODE.load(Ordering::SeqCst), 0, "{}: dispatcher and workers allocated", policy.name);
        let by_submitter = BY_SUBMITTER.load(Ordering::SeqCst);
        assert!(by_submitter > 0, "the allocator counts");
        assert!(by_submitter <= 2 * submits, "{}: {by_submitter} allocations for {submits} submits", policy.name);
        // What would be found if there were something to find: on a worker, and on the dispatcher.
        for on_dispatcher in [false, true] {
            BY_NODE.store(0, Ordering::SeqCst);
            SPOIL.store(on_dispatcher, Ordering::SeqCst);
            COUNTING.store(true, Ordering::SeqCst);
            let spoils = Request::small(|(): &mut ()| std::hint::black_box(Box::new(1_u64)));
            drop(node.submit(spoils).unwrap().wait());
            COUNTING.store(false, Ordering::SeqCst);
            SPOIL.store(false, Ordering::SeqCst);
            assert!(BY_NODE.load(Ordering::SeqCst) > u64::from(on_dispatcher), "an allocation on the hot path went unseen");
        }
        node.shutdown(Shutdown::Finish);
        assert_eq!(node.snapshot().in_flight(Class::Small), 0);
    }
}
