//! In the steady state no thread of a node that spins makes a system call: not the worker, and not whoever drives the dispatcher.
//!
//! The threads forbid themselves all system calls by seccomp, from code of the user's that runs on them; one that is made all the same is
//! counted by a signal's handler. A filter cannot be taken off again, so that all of it happens in a child process: this test, started once more.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use phalanx::{Device, DeviceError, Drive, Gang, LaneId, Phalanx, Request, RequestId, Turn, Wait};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// In the child's environment: what its bodies do.
const CHILD: &str = "PHALANX_SYSCALLS";
/// Exit status of a child that counted none; with some it is this and their number, at most 50 of them.
const NONE: i32 = 100;

static ARMED: AtomicBool = AtomicBool::new(false);
static FORBIDDEN_ON: AtomicU32 = AtomicU32::new(0);
static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// From now on this thread's system calls are not made, but counted; except for the end of a signal's handler, and that of the process.
fn forbid() {
    let allowed = BTreeMap::from([(libc::SYS_rt_sigreturn, vec![]), (libc::SYS_exit_group, vec![])]);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(allowed, SeccompAction::Trap, SeccompAction::Allow, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter(&program).expect("the system has seccomp");
    FORBIDDEN_ON.fetch_add(1, Ordering::Relaxed);
}

/// A device that forbids its lane's thread system calls, once it is told to.
struct Strict;

impl Device for Strict {
    type Lane = bool;
    fn describe(&self) -> String {
        "a device whose lanes make no system calls".to_owned()
    }
    fn open(&self, _: LaneId) -> Result<bool, DeviceError> {
        Ok(false)
    }
    fn begin(&self, strict: &mut bool, _: RequestId) -> Result<(), DeviceError> {
        if ARMED.load(Ordering::Relaxed) && !*strict {
            *strict = true;
            forbid();
        }
        Ok(())
    }
    fn finish(&self, _: &mut bool, _: RequestId) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn round(node: &Phalanx<Strict>, calls: bool) {
    let small = Request::small(move |_: &mut bool| {
        if calls {
            std::thread::yield_now();
        }
    });
    let small = small.model("m").expected(Duration::from_micros(1)).deadline(Duration::from_secs(60));
    let mut small = node.submit(small).unwrap();
    let large = Request::large(|_: &mut bool, gang: &Gang<'_>| gang.barrier());
    let mut large = node.submit(large.target(Duration::from_secs(1))).unwrap();
    let (mut first, mut second) = (None, None);
    while first.is_none() || second.is_none() {
        assert_ne!(node.turn(), Turn::Done);
        first = first.or_else(|| small.try_take());
        second = second.or_else(|| large.try_take());
        std::hint::spin_loop();
    }
    assert!(first == Some(Ok(())) && second == Some(Ok(vec![()])));
}

/// What the child does.
fn child(calls: bool) -> ! {
    // SAFETY: the handler does nothing but add to an atomic.
    unsafe { libc::signal(libc::SIGSYS, count as *const () as libc::sighandler_t) };
    let node = Phalanx::builder().lanes(1).device(Strict).drive(Drive::Turn).wait(Wait::Spin).build().unwrap();
    for _ in 0..1_000 {
        round(&node, false);
    }
    ARMED.store(true, Ordering::Relaxed);
    round(&node, false);
    forbid();
    assert_eq!(FORBIDDEN_ON.load(Ordering::Relaxed), 2, "worker and dispatcher");
    CALLS.store(0, Ordering::Relaxed);
    for number in 0..4_000 {
        round(&node, calls && number == 2_000);
    }
    // SAFETY: it ends the process at once, which is what is wanted.
    unsafe { libc::_exit(NONE + CALLS.load(Ordering::Relaxed).min(50) as i32) }
}

#[track_caller]
fn calls_of_child(test: &str, what: &str) -> i32 {
    let child =
        Command::new(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]).env(CHILD, what).output().unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    match child.status.code() {
        Some(status) if status >= NONE => status - NONE,
        _ => panic!("the child ended by {}: {said}", child.status),
    }
}

#[test]
fn a_node_that_spins_makes_no_system_calls() {
    const NAME: &str = "a_node_that_spins_makes_no_system_calls";
    if let Some(what) = std::env::var_os(CHILD) {
        child(what == "calls");
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        eprintln!("SKIPPED: one CPU, on which a worker that spins yields to the dispatcher by a system call");
        return;
    }
    assert_eq!(calls_of_child(NAME, "none"), 0);
    // The test can see one.
    assert_eq!(calls_of_child(NAME, "calls"), 1);
}
