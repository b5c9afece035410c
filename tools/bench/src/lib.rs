//! How long it takes to get a request onto a GPU and back, measured beside the machine's own limit and beside what one would
//! otherwise use.
//!
//! # How it is measured
//! - Two pinned threads, on the first two CPUs that the process may use: one submits, the other runs. Where a third thread is needed
//!   (a dispatcher of its own, a second lane) and there are no more CPUs, threads share one and yield it to each other: the figure
//!   then says more about the operating system than about the scheduler, and [`Entry::note`] says so.
//! - One request at a time (closed loop), each timed by itself by the same clock; the clock's own cost is an entry of its own. Nothing
//!   is subtracted.
//! - Everything is measured in [`Settings::rounds`] rounds, in turn, so that a machine that becomes slower or faster does so for all; of
//!   each figure the rounds' samples are pooled. In each round the first tenth is not counted.
//! - The open loop ([`open_loop()`]) submits at intended times and counts from those, so that a stall is not forgiven.
//!
//! # What the rivals do
//! The same job, with less: a closure that does nothing is handed to another thread, which owns the "GPU", runs it alone and says that
//! it is done. None of them has a policy, deadlines, predictions, statistics, or gangs that small requests cannot starve.
//!
//! # The document
//! What `phalanx bench --json` writes, schema `phalanx.bench/2`; version 1 had no `scaling`.
//!
//! | field | holds |
//! |---|---|
//! | `schema`, `command` | the version, and what measures the same again |
//! | `machine` | a [`Machine`] |
//! | `bench` | a [`Figures`] for each figure by its name, in nanoseconds; `bench.rivals` those of the rivals |
//! | `targets` | for each promise `what`, the `value` that was measured (null: it was not), `at_most`, and whether it is `met` |
//! | `notes` | by a figure's name, why it is not what it could be here |
//! | `scaling` | with `--scaling`: a [`Scaling`] |

mod figures;
mod gang;
mod limit;
mod node;
mod open_loop;
mod pin;
mod rivals;
mod scaling;
mod single;
mod turns;

pub use figures::{Figures, Samples};
pub use node::Nothing;
pub use open_loop::open_loop;
pub use pin::{Machine, machine};
pub use scaling::{Point, Saturation, Scaling, scaling};
pub use single::Events;

use std::collections::BTreeMap;
use std::time::Duration;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often everything is measured in turn.
    pub rounds: u32,
    /// Round trips of the fast ones in each round; the slow ones do a hundredth.
    pub samples: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { rounds: 20, samples: 20_000 }
    }
}

/// One measured figure.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name in the document: `turn_rtt`, `rivals.tokio_semaphore`.
    pub name: &'static str,
    /// What is measured, in a line.
    pub about: &'static str,
    /// Why it is not what it could be here.
    pub note: Option<String>,
    /// In nanoseconds.
    pub samples: Samples,
}

/// What measures one figure, or some: it sets up, warms up, measures and takes down.
struct Measure {
    /// Name and meaning of each figure that it gives, in this order.
    figures: &'static [(&'static str, &'static str)],
    /// How many times as slow as the fast ones.
    slow: u32,
    /// What is to be said of it on a machine with so many CPUs.
    note: fn(usize) -> Option<String>,
    run: fn(&Bench, u32, &mut [Samples]),
}

/// Where the threads are.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    /// CPUs that may be used, at least one.
    cpus: Vec<usize>,
}

impl Bench {
    /// The CPU of the `n`-th thread: they are shared in turn where there are too few.
    pub(crate) fn cpu(&self, n: usize) -> usize {
        self.cpus[n % self.cpus.len()]
    }

    /// Whether so many threads can each spin on a CPU of their own.
    pub(crate) fn spins(&self, threads: usize) -> bool {
        self.cpus.len() >= threads
    }
}

const MEASURES: &[&Measure] = &[
    &limit::CLOCK,
    &limit::PINGPONG,
    &single::DECISION,
    &single::SCHEDULER,
    &node::TURN,
    &node::DISPATCHER,
    &node::STAGES,
    &gang::GANG,
    &rivals::TOKIO_SEMAPHORE,
    &rivals::TOKIO_ACQUIRE_MANY,
    &rivals::MUTEX_CONDVAR,
    &rivals::GREEDY_CAS,
    &rivals::CROSSBEAM_SPIN,
    &rivals::CROSSBEAM_BLOCK,
    &rivals::RAYON_BROADCAST,
];

/// Measures everything. `progress` is told how many of how many measurements are done; if it says `false` the rest is left out.
pub fn measure(settings: Settings, mut progress: impl FnMut(u32, u32) -> bool) -> Vec<Entry> {
    let bench = Bench { cpus: pin::cpus() };
    let mut samples: Vec<Vec<Samples>> =
        MEASURES.iter().map(|measure| measure.figures.iter().map(|_| Samples::new()).collect()).collect();
    let all = settings.rounds * MEASURES.len() as u32;
    let mut done = 0;
    'rounds: for _ in 0..settings.rounds {
        for (measure, samples) in MEASURES.iter().zip(&mut samples) {
            pin::pin(bench.cpu(0));
            (measure.run)(&bench, (settings.samples / measure.slow).max(20), samples);
            done += 1;
            if !progress(done, all) {
                break 'rounds;
            }
        }
    }
    pin::float(&bench.cpus);
    let mut entries = Vec::new();
    for (measure, samples) in MEASURES.iter().zip(samples) {
        for (&(name, about), samples) in measure.figures.iter().zip(samples) {
            entries.push(Entry { name, about, note: (measure.note)(bench.cpus.len()), samples });
        }
    }
    entries
}

/// Does what the figure of this name measures `n` times, and says how long that took; `None` if there is no such figure. For criterion's
/// `iter_custom`.
#[must_use]
pub fn time(name: &str, n: u64) -> Option<Duration> {
    let (measure, at) =
        MEASURES.iter().find_map(|measure| Some((measure, measure.figures.iter().position(|figure| figure.0 == name)?)))?;
    let bench = Bench { cpus: pin::cpus() };
    pin::pin(bench.cpu(0));
    let mut samples: Vec<Samples> = measure.figures.iter().map(|_| Samples::new()).collect();
    // Few would measure nothing but their warming up.
    let count = u32::try_from(n).unwrap_or(u32::MAX).clamp(200, 1_000_000);
    (measure.run)(&bench, count, &mut samples);
    pin::float(&bench.cpus);
    Some(Duration::from_nanos((samples[at].mean() * n as f64) as u64))
}

/// The figures as the document `bench` has them: by name, those of rivals in a table of their own.
#[must_use]
pub fn document(entries: &[Entry]) -> BTreeMap<String, Figures> {
    entries.iter().filter_map(|entry| Some((entry.name.to_owned(), entry.samples.figures()?))).collect()
}
