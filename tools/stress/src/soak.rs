//! Many requests through nodes that live on: nothing piles up.

use crate::node::{self, Ends, Faulty, USERS};
use crate::random::Random;
use phalanx::observe::Terminal;
use phalanx::scheduler::policy::POLICIES;
use phalanx::{Class, Phalanx, Shutdown, Wait};
use std::time::{Duration, Instant};

/// The run's parts, which are compared: each sends the same requests to every node.
const PARTS: u64 = 10;
/// The throughput of nodes that have been through all that, of what new ones have.
const AS_FAST: f64 = 0.95;
/// How often both are measured in turns, and how many requests each turn sends.
const TURNS: usize = 15;
const TURN: u64 = 1_000;
/// How much more memory the last part may leave behind than the first: what the allocator keeps here and there.
const MORE_KB: u64 = 4_096;

/// A node that lives through the whole soak.
struct Soaked {
    policy: &'static str,
    node: Phalanx<Faulty>,
    ends: Ends,
}

/// Sends so many requests through one node for each policy, in ten parts that go round all of them. Whether all was well.
pub(crate) fn soak(requests: u64, seed: u64) -> bool {
    node::count_unplanned_panics();
    let each = (requests / (PARTS * POLICIES.len() as u64 * USERS)).max(1);
    let mut nodes: Vec<Soaked> = POLICIES
        .iter()
        .enumerate()
        .map(|(number, policy)| {
            let node =
                node::builder(policy.name, wait(number), true, seed ^ number as u64).build().expect("a node of eight lanes");
            Soaked { policy: policy.name, node, ends: Ends::default() }
        })
        .collect();
    let mut ok = true;
    // The first part fills pools and stacks, and is not compared.
    let mut parts: Vec<(f64, u64)> = Vec::new();
    for part in 0..=PARTS {
        let (began, mut total) = (Instant::now(), 0);
        for (number, soaked) in nodes.iter_mut().enumerate() {
            let seed = seed ^ (number as u64) << 32;
            total += send(soaked, each, seed);
            ok &= is_quiet(soaked, part);
        }
        let rate = total as f64 / began.elapsed().as_secs_f64();
        let kb = resident_kb();
        println!(
            "SOAK part {part} requests {total} rate {rate:.0}/s resident {kb} kB{}",
            if part == 0 { " (warm-up)" } else { "" }
        );
        if part > 0 {
            parts.push((rate, kb));
        }
    }
    let (Some(&(first, memory)), Some(&(last, memory_last))) = (parts.first(), parts.last()) else { return false };
    let as_fast = as_fast_as_new(&mut nodes);
    if as_fast < AS_FAST {
        eprintln!("soak: the nodes run at {as_fast:.3} of the pace of new ones");
        ok = false;
    }
    if memory_last > memory + MORE_KB {
        eprintln!("soak: {memory_last} kB resident after the last tenth, {memory} kB after the first");
        ok = false;
    }
    for Soaked { policy, node, ends } in nodes {
        let report = node.shutdown(Shutdown::Finish);
        let until = Instant::now() + Duration::from_secs(10);
        while !node.snapshot().busy.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let now = node.snapshot();
        let counted = Terminal::ALL.iter().all(|&end| {
            let ours: u64 = Class::ALL.iter().map(|&class| now.count(class, end)).sum();
            ours == ends[end as usize]
        });
        // What hung has ended by now; what was busy at the shutdown was out of service and reported.
        if !(report.complete && report.offline.covers(report.busy) && now.busy.is_empty() && counted) {
            eprintln!("soak: {policy}: {report:?} {now:?}, users count {ends:?}");
            ok = false;
        }
    }
    let unplanned = node::unplanned_panics();
    if unplanned > 0 {
        eprintln!("soak: {unplanned} panics that nobody had planned");
        ok = false;
    }
    let total: u64 = each * USERS * PARTS * POLICIES.len() as u64;
    println!(
        "SOAKED requests {total} pace {as_fast:.3} of new nodes (last/first tenth {:.2}, faults and all) resident {:+} kB {}",
        last / first,
        memory_last as i64 - memory as i64,
        if ok { "ok" } else { "FAILED" }
    );
    ok
}

/// The pace of the nodes, of that of new ones: both do the same, without faults, in turns, and the medians of their times are compared.
/// (Tenths of the soak itself differ by more than the twentieth that is looked for: by when lanes break and come back, and by what else the
/// machine does.)
fn as_fast_as_new(nodes: &mut [Soaked]) -> f64 {
    let (mut old, mut new) = (Duration::ZERO, Duration::ZERO);
    for (number, soaked) in nodes.iter_mut().enumerate() {
        let fresh = node::builder(soaked.policy, wait(number), true, 0).build().expect("a node of eight lanes");
        soaked.node.device().set_calm(true);
        fresh.device().set_calm(true);
        let until = Instant::now() + Duration::from_secs(10);
        while !soaked.node.snapshot().offline.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut times = [Vec::new(), Vec::new()];
        for turn in 0..2 * TURNS {
            // Who is first changes from turn to turn.
            if (turn % 2 == 0) == (turn / 2 % 2 == 0) {
                times[0].push(node::pace(&soaked.node, TURN, &mut soaked.ends));
            } else {
                times[1].push(node::pace(&fresh, TURN, &mut Ends::default()));
            }
        }
        let [a, b] = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2]
        });
        old += a;
        new += b;
    }
    new.as_secs_f64() / old.as_secs_f64()
}

/// Threads that spin would take the CPUs from the nodes whose turn it is.
fn wait(number: usize) -> Wait {
    [Wait::Park, Wait::SpinThenPark][number % 2]
}

/// Sends a part, and waits for its end. How many requests were taken.
fn send(soaked: &mut Soaked, each: u64, seed: u64) -> u64 {
    let node = &soaked.node;
    let ends: Vec<Ends> = std::thread::scope(|scope| {
        let users: Vec<_> = (0..USERS)
            .map(|i| scope.spawn(move || node::user(node, Random::new(seed ^ i << 10), move |taken| taken < each)))
            .collect();
        users.into_iter().map(|user| user.join().expect("a user's assertion")).collect()
    });
    for user in ends {
        for (sum, more) in soaked.ends.iter_mut().zip(user) {
            *sum += more;
        }
    }
    each * USERS
}

/// Every ticket has resolved: once the dispatcher has seen it, what was taken in is what ended, and nothing is queued.
fn is_quiet(soaked: &Soaked, part: u64) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let now = soaked.node.snapshot();
        let balanced = Class::ALL.iter().all(|&class| {
            let ended: u64 = Terminal::ALL.map(|end| now.count(class, end)).iter().sum();
            now.in_flight(class) == 0 && now.submitted[class.index()] + now.count(class, Terminal::Rejected) == ended
        });
        let running = now.busy & !now.offline;
        if balanced && now.queued == [0; 2] && running.is_empty() {
            return true;
        }
        if Instant::now() > until {
            eprintln!("soak: part {part}, {}: not quiet: {now:?}", soaked.policy);
            return false;
        }
        std::thread::yield_now();
    }
}

/// The process's resident memory; 0 where the system does not tell.
fn resident_kb() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}
