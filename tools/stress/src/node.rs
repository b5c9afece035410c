//! The whole node under every policy in turn.

use crate::random::Random;
use phalanx::observe::Terminal;
use phalanx::scheduler::policy::POLICIES;
use phalanx::{
    Builder, Class, Device, DeviceError, DeviceFault, Gang, LaneId, Phalanx, Recovery, Request, RequestError, RequestId,
    Shutdown, Step, Ticket, Wait, Watchdog,
};
use phalanx_sim::record::{Header, LogReader, LogWriter, Mode, replay};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LANES: usize = 8;
pub(crate) const USERS: u64 = 3;
const QUEUE: [usize; 2] = [64, 16];
/// So long under one policy at the most: the log of a round is kept in memory.
const ROUND: Duration = Duration::from_secs(5);

/// How a panic's message begins that is meant.
const PLANNED: &str = "planned:";

/// Who is on which lane, plus one; 0: nobody.
#[derive(Default)]
struct Board([AtomicU64; LANES]);

/// A device that fails.
pub(crate) struct Faulty {
    board: Arc<Board>,
    /// One for each lane: a device draws on its lane's thread.
    random: [Mutex<Random>; LANES],
    /// Whether lanes go out of service, probes fail, and the device hangs.
    breaks: bool,
    /// Nothing fails while this is set.
    calm: AtomicBool,
}

impl Faulty {
    pub(crate) fn set_calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::Relaxed);
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }
}

/// How long a request that is meant to hang may run. Those that are meant to have none have the node's.
const LIMIT: Duration = Duration::from_millis(1);
const GRACE: Duration = Duration::from_millis(1);

/// How long what hangs hangs: longer than limit and grace, or just about as long.
fn hang(random: &mut Random) -> Duration {
    Duration::from_micros(if random.one_in(2) { 1_800 + random.below(600) } else { 4_000 + random.below(8_000) })
}

pub(crate) struct Lane {
    id: LaneId,
    board: Arc<Board>,
}

impl Device for Faulty {
    type Lane = Lane;
    fn describe(&self) -> String {
        "a faulty device".to_owned()
    }
    fn open(&self, id: LaneId) -> Result<Lane, DeviceError> {
        Ok(Lane { id, board: Arc::clone(&self.board) })
    }
    fn begin(&self, lane: &mut Lane, request: RequestId) -> Result<(), DeviceError> {
        if !self.is_calm() && self.random[lane.id.index()].lock().unwrap().one_in(500) {
            return Err(DeviceError::new(lane.id, DeviceFault::Request, "planned: not begun"));
        }
        let before = lane.board.0[lane.id.index()].swap(request.0 + 1, Ordering::SeqCst);
        assert_eq!(before, 0, "ISOLATION: request {request} met another on {}", lane.id);
        Ok(())
    }
    fn finish(&self, lane: &mut Lane, request: RequestId) -> Result<(), DeviceError> {
        let before = lane.board.0[lane.id.index()].swap(0, Ordering::SeqCst);
        assert_eq!(before, request.0 + 1, "ISOLATION: another came while {request} was on {}", lane.id);
        if self.is_calm() {
            return Ok(());
        }
        let (out, panics, fails) = {
            let mut random = self.random[lane.id.index()].lock().unwrap();
            (random.one_in(1_000), random.one_in(4_000), random.one_in(500))
        };
        if self.breaks && out {
            return Err(DeviceError::new(lane.id, DeviceFault::Lane, "planned: out of service"));
        }
        assert!(!(self.breaks && panics), "{PLANNED} the device");
        if fails { Err(DeviceError::new(lane.id, DeviceFault::Request, "planned: not finished")) } else { Ok(()) }
    }
    fn probe(&self, id: LaneId, lane: &mut Lane) -> Result<(), DeviceError> {
        let on = lane.board.0[id.index()].load(Ordering::SeqCst);
        assert_eq!(on, 0, "ISOLATION: a probe met a request on {id}");
        let (kind, time) = {
            let mut random = self.random[id.index()].lock().unwrap();
            (random.below(20), hang(&mut random))
        };
        match kind {
            _ if self.is_calm() => {}
            0..5 => return Err(DeviceError::new(id, DeviceFault::Lane, "planned: a probe")),
            5 => panic!("{PLANNED} a probe"),
            6 => std::thread::sleep(time),
            _ => {}
        }
        *lane = self.open(id)?;
        Ok(())
    }
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// What a request with steps keeps on its lane. It is to be dropped there, before the node is gone.
struct Kept(std::thread::ThreadId);

/// How many there are.
static KEPT: AtomicU64 = AtomicU64::new(0);
/// How many were used or dropped by another thread than the one that made them.
static STRAYED: AtomicU64 = AtomicU64::new(0);

impl Kept {
    fn new() -> Self {
        KEPT.fetch_add(1, Ordering::Relaxed);
        Self(std::thread::current().id())
    }

    fn touch(&self) {
        if self.0 != std::thread::current().id() {
            STRAYED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.touch();
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A small request with steps, some of which panic, or hang.
fn small_steps(random: &mut Random) -> Request<Lane, ()> {
    let (time, steps) = (Duration::from_nanos(random.below(20_000)), 1 + random.below(20));
    let panics = random.one_in(40).then(|| random.below(steps));
    let hangs = random.one_in(100).then(|| (random.below(steps), hang(random)));
    let mut step = 0;
    let request = Request::small_steps(
        |_: &mut Lane| Kept::new(),
        move |_: &mut Lane, kept: &mut Kept| {
            kept.touch();
            spin(time);
            assert!(panics != Some(step), "{PLANNED} a step");
            if let Some((at, time)) = hangs
                && at == step
            {
                std::thread::sleep(time);
            }
            step += 1;
            if step < steps { Step::Continue } else { Step::Done(()) }
        },
    );
    let request = request.step_length(time).expected(time * steps as u32);
    if hangs.is_some() { request.limit(LIMIT) } else { request }
}

/// A large one: members may panic, hang, leave, or disagree on when they are done.
fn large_steps(random: &mut Random) -> Request<Lane, Vec<()>> {
    let (time, steps) = (Duration::from_nanos(random.below(10_000)), 1 + random.below(10));
    let trouble =
        random.one_in(5).then(|| (random.below(LANES as u64) as usize, random.below(steps), random.below(4), hang(random)));
    let request = Request::large_steps(
        |_: &mut Lane, _: &Gang<'_>| (Kept::new(), 0),
        move |lane: &mut Lane, gang: &Gang<'_>, (kept, step): &mut (Kept, u64)| {
            kept.touch();
            spin(time);
            let alone = lane.board.0.iter().all(|on| on.load(Ordering::SeqCst) == gang.request().0 + 1);
            // Before the first step all have begun, and after a step none goes on before all have come; a peer that failed may be gone.
            assert!(alone || trouble.is_some(), "ISOLATION: the gang of {} is not alone", gang.request());
            *step += 1;
            match trouble {
                Some((rank, at, kind, time)) if rank == gang.rank() && at + 1 == *step => match kind {
                    0 => panic!("{PLANNED} a member's step"),
                    1 => return Ok(Step::Done(())),
                    2 => std::thread::sleep(time),
                    _ => gang.barrier()?,
                },
                // Somebody else's, who comes to one barrier more.
                Some((_, at, 3, _)) if at + 1 == *step => gang.barrier()?,
                _ => {}
            }
            Ok(if *step < steps { Step::Continue } else { Step::Done(()) })
        },
    );
    let request = request.step_length(time).expected(time * steps as u32);
    if matches!(trouble, Some((_, _, 2, _))) { request.limit(LIMIT) } else { request }
}

fn small(random: &mut Random) -> Request<Lane, ()> {
    if random.one_in(3) {
        return small_steps(random);
    }
    if random.one_in(400) {
        let time = hang(random);
        return Request::small(move |_: &mut Lane| std::thread::sleep(time)).limit(LIMIT);
    }
    let (time, panics) = (Duration::from_nanos(random.below(20_000)), random.one_in(100));
    Request::small(move |_: &mut Lane| {
        spin(time);
        assert!(!panics, "{PLANNED} a body");
    })
}

fn large(random: &mut Random) -> Request<Lane, Vec<()>> {
    if random.one_in(3) {
        return large_steps(random);
    }
    if random.one_in(200) {
        let (hung, time) = (random.below(LANES as u64) as usize, hang(random));
        return Request::large(move |_: &mut Lane, gang: &Gang<'_>| {
            if gang.rank() == hung {
                std::thread::sleep(time);
            }
            gang.barrier()
        })
        .limit(LIMIT);
    }
    let time = Duration::from_nanos(random.below(10_000));
    // At least one, so that all members are there at one moment: of a body that does nothing one may end before another begins.
    let barriers = 1 + random.below(3);
    let trouble = random.one_in(5).then(|| (random.below(LANES as u64) as usize, random.below(3), random.one_in(2)));
    Request::large(move |lane: &mut Lane, gang: &Gang<'_>| {
        for round in 0..barriers {
            match trouble {
                Some((rank, at, true)) if (rank, at) == (gang.rank(), round) => panic!("{PLANNED} a member"),
                Some((rank, at, false)) if (rank, at) == (gang.rank(), round) => return Ok(()),
                _ => spin(time),
            }
            gang.barrier()?;
            let alone = lane.board.0.iter().all(|on| on.load(Ordering::SeqCst) == gang.request().0 + 1);
            assert!(alone, "ISOLATION: the gang of {} is not alone", gang.request());
            gang.barrier()?;
        }
        Ok(())
    })
}

/// Sends so many requests without trouble through a calm node: 40 at a time, one in 20 large. How long that took.
pub(crate) fn pace(node: &Phalanx<Faulty>, requests: u64, ends: &mut Ends) -> Duration {
    let began = Instant::now();
    let mut smalls: VecDeque<Ticket<()>> = VecDeque::new();
    for i in 0..requests {
        if i % 20 == 19 {
            let large = node.submit(Request::large(|_: &mut Lane, gang: &Gang<'_>| gang.barrier()));
            match large {
                Ok(large) => count(ends, &large.wait()),
                Err(_) => turned_away(ends),
            }
        }
        match node.submit(Request::small(|_: &mut Lane| spin(Duration::from_micros(2)))) {
            Ok(ticket) => smalls.push_back(ticket),
            Err(_) => turned_away(ends),
        }
        if smalls.len() > 40 {
            smalls.pop_front().into_iter().for_each(|ticket| count(ends, &ticket.wait()));
        }
    }
    smalls.into_iter().for_each(|ticket| count(ends, &ticket.wait()));
    began.elapsed()
}

/// What became of requests, by `Terminal`.
pub(crate) type Ends = [u64; 6];

fn count<T>(ends: &mut Ends, result: &Result<T, RequestError>) {
    let end = match result {
        Ok(_) => Terminal::Completed,
        Err(RequestError::Expired) => Terminal::Expired,
        Err(RequestError::Cancelled) => Terminal::Cancelled,
        Err(RequestError::ShutDown) => Terminal::ShutDown,
        Err(_) => Terminal::Failed,
    };
    ends[end as usize] += 1;
}

fn turned_away(ends: &mut Ends) {
    ends[Terminal::Rejected as usize] += 1;
    std::thread::yield_now();
}

/// Submits while it is to, which it asks with the number of requests that were taken; keeps some tickets for a while, cancels some.
pub(crate) fn user(node: &Phalanx<Faulty>, mut random: Random, goes_on: impl Fn(u64) -> bool) -> Ends {
    let mut ends = Ends::default();
    let mut taken = 0;
    let mut smalls: Vec<Ticket<()>> = Vec::new();
    let mut larges: Vec<Ticket<Vec<()>>> = Vec::new();
    while goes_on(taken) {
        taken += 1;
        let deadline = random.one_in(4).then(|| Duration::from_nanos(random.below(3_000_000)));
        if random.one_in(6) {
            let request = large(&mut random);
            // On a node that has lost a lane a large request waits until its deadline.
            match node.submit(request.deadline(deadline.unwrap_or(Duration::from_millis(100)))) {
                Ok(ticket) => larges.push(ticket),
                Err(_) => {
                    taken -= 1;
                    turned_away(&mut ends);
                }
            }
        } else {
            let request = small(&mut random);
            match node.submit(if let Some(deadline) = deadline { request.deadline(deadline) } else { request }) {
                Ok(ticket) => smalls.push(ticket),
                Err(_) => {
                    taken -= 1;
                    turned_away(&mut ends);
                }
            }
        }
        if random.one_in(8) {
            smalls.last().map(Ticket::cancel);
            larges.first().map(Ticket::cancel);
        }
        if smalls.len() > 40 {
            smalls.drain(..20).for_each(|ticket| count(&mut ends, &ticket.wait()));
        }
        if larges.len() > 4 {
            larges.drain(..2).for_each(|ticket| count(&mut ends, &ticket.wait()));
        }
    }
    smalls.into_iter().for_each(|ticket| count(&mut ends, &ticket.wait()));
    larges.into_iter().for_each(|ticket| count(&mut ends, &ticket.wait()));
    ends
}

/// Panics that are meant are not printed, and the others are counted.
pub(crate) fn count_unplanned_panics() {
    std::panic::set_hook(Box::new({
        let print = std::panic::take_hook();
        move |info| {
            let planned = |text: &str| text.starts_with(PLANNED);
            let payload = info.payload();
            if !payload.downcast_ref::<String>().is_some_and(|text| planned(text))
                && !payload.downcast_ref::<&str>().is_some_and(|text| planned(text))
            {
                print(info);
                UNPLANNED.fetch_add(1, Ordering::Relaxed);
            }
        }
    }));
}

/// How many panics nobody had planned.
pub(crate) fn unplanned_panics() -> u64 {
    UNPLANNED.load(Ordering::Relaxed)
}

/// Stresses a node for so long. Whether all was well.
pub(crate) fn stress(time: Duration, seed: u64, events: Option<&str>) -> bool {
    count_unplanned_panics();
    let end = Instant::now() + time;
    let length = ROUND.min(time / POLICIES.len() as u32).max(Duration::from_millis(100));
    let mut ok = true;
    let mut number = 0;
    while ok && (Instant::now() < end || number < POLICIES.len() as u64) {
        ok = round(number, length, seed, events);
        number += 1;
    }
    ok
}

/// Panics that nobody had planned.
static UNPLANNED: AtomicU64 = AtomicU64::new(0);

/// A node with everything that can go wrong set to go wrong soon.
pub(crate) fn builder(policy: &str, wait: Wait, breaks: bool, seed: u64) -> Builder<Faulty> {
    let device = Faulty {
        board: Arc::default(),
        random: std::array::from_fn(|lane| Mutex::new(Random::new(seed ^ (lane as u64 + 1) << 20))),
        breaks,
        calm: AtomicBool::new(false),
    };
    Phalanx::builder()
        .lanes(LANES)
        .device(device)
        .policy(policy.parse().expect("a policy's own name"))
        .queue(Class::Small, QUEUE[0])
        .queue(Class::Large, QUEUE[1])
        .wait(wait)
        .watchdog(Watchdog { grace: GRACE, ..Watchdog::default() })
        .recovery(Recovery {
            first_wait: Duration::from_millis(1),
            longest_wait: Duration::from_millis(16),
            large_wait: Duration::from_millis(20),
            probe_limit: 2 * LIMIT,
            ..Recovery::default()
        })
}

fn round(number: u64, length: Duration, seed: u64, events: Option<&str>) -> bool {
    let policy = POLICIES[(number % POLICIES.len() as u64) as usize].name;
    let seed = seed.wrapping_add(number << 32);
    let wait = [Wait::Park, Wait::SpinThenPark, Wait::Spin][(number % 3) as usize];
    let node = builder(policy, wait, number % 2 == 1, seed).events(1 << 20).build().expect("a node of eight lanes");
    let header = Header {
        mode: Mode::Real,
        lanes: LANES,
        policy: node.policy().to_owned(),
        queue: QUEUE,
        workload: format!("stress seed {seed}"),
        load: None,
        speed: 1.0,
        seed,
        device: None,
    };
    let mut reader = node.take_events().expect("the node keeps a log");
    let collector = std::thread::spawn(move || {
        let mut log = LogWriter::new(Vec::new(), &header).expect("memory takes what is written");
        loop {
            let closed = reader.is_closed();
            while let Some(record) = reader.pop() {
                log.write(&record).expect("memory takes what is written");
            }
            if closed {
                return log.finish().expect("memory takes what is written");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let until = Instant::now() + length;
    let ends: Vec<Ends> = std::thread::scope(|scope| {
        let users: Vec<_> = (0..USERS)
            .map(|i| {
                scope.spawn({
                    let node = &node;
                    move || user(node, Random::new(seed ^ i << 10), |_| Instant::now() < until)
                })
            })
            .collect();
        users.into_iter().map(|user| user.join().expect("a user's assertion")).collect()
    });
    let report = node.shutdown(Shutdown::Finish);
    let now = node.snapshot();
    let until = Instant::now() + Duration::from_secs(10);
    while !node.snapshot().busy.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    // What hung has ended by now, all of it.
    let hangs = !node.snapshot().busy.is_empty();
    drop(node);
    let until = Instant::now() + Duration::from_secs(10);
    while KEPT.load(Ordering::Relaxed) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (kept, strayed) = (KEPT.load(Ordering::Relaxed), STRAYED.load(Ordering::Relaxed));
    if kept + strayed > 0 {
        eprintln!("round {number}: {kept} states of requests with steps are left, {strayed} strayed from their lanes");
    }
    let log = collector.join().expect("the collector only writes to memory");
    if let Some(path) = events
        && let Err(error) = std::fs::write(path, &log)
    {
        eprintln!("phalanx-stress: {path}: {error}");
    }
    let mut ok =
        report.complete && report.offline.covers(report.busy) && !hangs && unplanned_panics() == 0 && kept + strayed == 0;
    for end in Terminal::ALL {
        let theirs: u64 = ends.iter().map(|ends| ends[end as usize]).sum();
        let ours: u64 = Class::ALL.iter().map(|&class| now.count(class, end)).sum();
        if theirs != ours {
            eprintln!("round {number}: users count {theirs} {end:?}, the node {ours}: {now:?}");
            ok = false;
        }
    }
    let total: u64 = ends.iter().flatten().sum();
    match phalanx_audit::audit(log.as_slice()) {
        Ok(audit) if audit.passed() => {}
        Ok(audit) => {
            eprintln!("round {number}: the audit found\n{audit}");
            ok = false;
        }
        Err(error) => {
            eprintln!("round {number}: the log is unreadable: {error}");
            ok = false;
        }
    }
    // The pure scheduler, told the same events, decides the same, with lanes that go and come.
    let replayed = LogReader::new("the log", log.as_slice()).map_err(|error| error.to_string());
    if let Err(error) = replayed.and_then(|mut log| replay("the log", &mut log).map_err(|error| error.to_string())) {
        eprintln!("round {number}: {error}");
        ok = false;
    }
    let stops = log.windows(16).filter(|at| at == b"\"event\":\"parked\"").count();
    let ups = log.windows(13).filter(|at| at == b"\"lane_up\",\"la").count();
    println!(
        "ROUND {number} policy {policy} wait {wait:?} requests {total} completed {} stops {stops} lanes restored {ups}, out at the end {} seed {seed} {}",
        ends.iter().map(|ends| ends[0]).sum::<u64>(),
        now.offline.count(),
        if ok { "ok" } else { "FAILED" },
    );
    ok
}
