//! What `tools/ci/counts.sh` counts the instructions of, under callgrind: each step is a function that is never inlined, so that its cost,
//! with all that it calls, stands under its name.
//!
//! ```text
//! cargo run --release -p phalanx-bench --example counts -- smalls 1000
//! ```
//! | part | does so many times |
//! |---|---|
//! | `smalls` | a small request through a node of eight lanes, one at a time, driven by `turn()`; the workers park between requests, since the looks of a spinning one are not to be counted |
//! | `larges` | the same with a large one |
//! | `pure` | the scheduler alone, with few and with many queued; the state word alone |
//! | `simulator` | a simulated request, its arrival's generation included |

use std::hint::black_box;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use phalanx::scheduler::{Decision, Decisions, End, Event, Job, JobRef, Limits, PolicySpec, Scheduler};
use phalanx::word::{Word, new_word};
use phalanx::{Class, Drive, Gang, LaneId, Nanos, Phalanx, Request, RequestId, Shutdown, Ticket, Turn, Wait};
use phalanx_bench::Nothing;
use phalanx_sim::WorkloadSpec;
use phalanx_sim::engine::{SimOptions, simulate};

// The program's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const LANES: usize = 8;
const USAGE: &str = "usage: counts smalls|larges|pure|simulator N";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [part, n] = args.as_slice() else { return wrong(USAGE) };
    let Ok(n @ 1..=10_000_000) = n.parse::<u64>() else { return wrong("N: give 1 to 10000000") };
    match part.as_str() {
        "smalls" => smalls(n),
        "larges" => larges(n),
        "pure" => pure(n),
        "simulator" => return simulator(n),
        _ => return wrong(USAGE),
    }
    ExitCode::SUCCESS
}

fn wrong(text: &str) -> ExitCode {
    eprintln!("counts: {text}");
    ExitCode::from(2)
}

fn node() -> Phalanx<Nothing> {
    let builder = Phalanx::builder().lanes(LANES).device(Nothing).drive(Drive::Turn).wait(Wait::Park);
    builder.build().unwrap_or_else(|error| panic!("a node of {LANES} lanes: {error}"))
}

/// Makes each step differ, or the compiler would make one of those that are the same.
#[inline(always)]
fn mark(n: u8) {
    black_box(n);
}

#[inline(never)]
fn step_submit(node: &Phalanx<Nothing>) -> Ticket<u32> {
    mark(1);
    let request = Request::small(|(): &mut ()| black_box(1)).expected(Duration::from_micros(1)).deadline(Duration::from_secs(60));
    node.submit(request).unwrap_or_else(|_| panic!("an empty node takes a request"))
}

#[inline(never)]
fn step_submit_large(node: &Phalanx<Nothing>) -> Ticket<Vec<()>> {
    mark(2);
    let request =
        Request::large(|(): &mut (), _: &Gang| Ok(())).expected(Duration::from_micros(1)).deadline(Duration::from_secs(60));
    node.submit(request).unwrap_or_else(|_| panic!("an empty node takes a request"))
}

/// Out of the ring, decided, reserved, handed over.
#[inline(never)]
fn step_turn_start(node: &Phalanx<Nothing>) -> Turn {
    mark(3);
    node.turn()
}

#[inline(never)]
fn step_turn_start_large(node: &Phalanx<Nothing>) -> Turn {
    mark(4);
    node.turn()
}

/// The release is noticed, and the end told to the scheduler.
#[inline(never)]
fn step_turn_end(node: &Phalanx<Nothing>) -> Turn {
    mark(5);
    node.turn()
}

#[inline(never)]
fn step_turn_end_large(node: &Phalanx<Nothing>) -> Turn {
    mark(6);
    node.turn()
}

#[inline(never)]
fn step_turn_idle(node: &Phalanx<Nothing>) -> Turn {
    mark(7);
    node.turn()
}

#[inline(never)]
fn step_take(ticket: &mut Ticket<u32>) -> Option<u32> {
    mark(8);
    ticket.try_take().and_then(Result::ok)
}

/// Until the workers have done their part and sleep again: a step must find neither of them half-way.
fn settle(node: &Phalanx<Nothing>) {
    while !node.snapshot().busy.is_empty() {
        thread::sleep(Duration::from_micros(200));
    }
    thread::sleep(Duration::from_micros(500));
}

fn smalls(n: u64) {
    let node = node();
    settle(&node);
    for _ in 0..n {
        let mut ticket = step_submit(&node);
        assert!(matches!(step_turn_start(&node), Turn::Progress), "there is a request to start");
        settle(&node);
        assert!(matches!(step_turn_end(&node), Turn::Progress), "there is a release to notice");
        assert!(matches!(step_turn_idle(&node), Turn::Idle { .. }), "there is nothing to do");
        assert_eq!(step_take(&mut ticket), Some(1));
    }
    node.shutdown(Shutdown::Finish);
}

fn larges(n: u64) {
    let node = node();
    settle(&node);
    for _ in 0..n {
        let mut ticket = step_submit_large(&node);
        assert!(matches!(step_turn_start_large(&node), Turn::Progress), "there is a request to start");
        settle(&node);
        assert!(matches!(step_turn_end_large(&node), Turn::Progress), "there are releases to notice");
        assert!(ticket.try_take().is_some_and(|result| result.is_ok()), "a gang that does nothing completes");
    }
    node.shutdown(Shutdown::Finish);
}

#[inline(never)]
fn step_decide_arrive(scheduler: &mut Scheduler, now: Nanos, job: Job, decisions: &mut Decisions) {
    mark(9);
    scheduler.on(now, Event::Arrive(job), decisions);
}

#[inline(never)]
fn step_decide_end(scheduler: &mut Scheduler, now: Nanos, job: JobRef, decisions: &mut Decisions) {
    mark(10);
    scheduler.on(now, Event::Finish { job, end: End::Completed, ran: Nanos::from_millis(1) }, decisions);
}

#[inline(never)]
fn step_decide_arrive_queued(scheduler: &mut Scheduler, now: Nanos, job: Job, decisions: &mut Decisions) {
    mark(11);
    scheduler.on(now, Event::Arrive(job), decisions);
}

#[inline(never)]
fn step_decide_end_queued(scheduler: &mut Scheduler, now: Nanos, job: JobRef, decisions: &mut Decisions) {
    mark(12);
    scheduler.on(now, Event::Finish { job, end: End::Completed, ran: Nanos::from_millis(1) }, decisions);
}

#[inline(never)]
fn step_reserve(word: &dyn Word, lane: LaneId) -> bool {
    mark(13);
    word.reserve(lane).is_ok()
}

#[inline(never)]
fn step_release(word: &dyn Word, lane: LaneId) {
    mark(14);
    let _ = black_box(word.release(lane));
}

#[inline(never)]
fn step_reserve_gang(word: &dyn Word) -> bool {
    mark(15);
    word.reserve_gang().is_ok()
}

/// So many smalls wait in the part of many.
const QUEUED: u64 = 1_000;

fn pure(n: u64) {
    for queued in [0, QUEUED] {
        decide(n, queued);
    }
    let Some(word) = new_word(LANES) else { panic!("a word has room for {LANES} lanes") };
    for i in 0..n {
        let lane = LaneId::new((i % LANES as u64) as usize);
        assert!(step_reserve(&*word, lane), "a free lane can be reserved");
        step_release(&*word, lane);
        assert!(step_reserve_gang(&*word), "free lanes can be reserved");
        for lane in (0..LANES).map(LaneId::new) {
            let _ = word.release(lane);
        }
        assert!(word.end_gang().is_ok(), "its members have let go");
    }
}

/// One request in a hundred is large. While nothing is queued a large one would wait in vain, so that there are none then.
fn decide(n: u64, queued: u64) {
    let limits = Limits::new(LANES).unwrap_or_else(|error| panic!("{error}"));
    let mut scheduler = Scheduler::new(limits, PolicySpec::default().build(LANES));
    let mut decisions = Decisions::new();
    let mut running = std::collections::VecDeque::with_capacity(2 * LANES);
    let mut now = Nanos::ZERO;
    for i in 1..=n + queued {
        now += Nanos::from_micros(100);
        let class = if queued > 0 && i % 100 == 0 { Class::Large } else { Class::Small };
        let job = Job {
            deadline: Some(now + Nanos::from_secs(3_600)),
            target: Some(now + Nanos::from_secs(1_800)),
            expected: Some(Nanos::from_millis(1)),
            ..Job::new(RequestId(i), class, now)
        };
        let warm = queued > 0 && i > queued;
        match (queued, warm) {
            (0, _) => step_decide_arrive(&mut scheduler, now, job, &mut decisions),
            (_, true) => step_decide_arrive_queued(&mut scheduler, now, job, &mut decisions),
            (_, false) => scheduler.on(now, Event::Arrive(job), &mut decisions),
        }
        started(&decisions, &mut running);
        if queued > 0 && !warm {
            continue;
        }
        now += Nanos::from_micros(25);
        let Some(job) = running.pop_front() else { panic!("something runs, since something waits") };
        if queued == 0 {
            step_decide_end(&mut scheduler, now, job, &mut decisions);
        } else {
            step_decide_end_queued(&mut scheduler, now, job, &mut decisions);
        }
        started(&decisions, &mut running);
    }
}

fn started(decisions: &Decisions, running: &mut std::collections::VecDeque<JobRef>) {
    for decision in decisions {
        if let Decision::StartSmall { job, .. } | Decision::StartLarge(job) = *decision {
            running.push_back(job);
        }
    }
}

#[inline(never)]
fn step_simulate(workload: &WorkloadSpec, options: &SimOptions) -> Option<u64> {
    mark(16);
    Some(simulate(&mut workload.source(1), options).ok()?.events)
}

fn simulator(n: u64) -> ExitCode {
    let Ok(workload) = "mix:load=0.8,share=0.3".parse::<WorkloadSpec>() else { return wrong("the workload") };
    let options = SimOptions { requests: Some(n), ..SimOptions::new(workload.lanes(), PolicySpec::default()) };
    if step_simulate(&workload, &options).is_some() { ExitCode::SUCCESS } else { wrong("the simulation failed") }
}
