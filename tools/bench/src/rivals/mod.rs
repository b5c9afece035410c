//! What one would otherwise use.

mod blocking;
mod spinning;
mod tasks;

use crate::Measure;

/// A closure on its way to the thread that runs it.
type Body = Box<dyn FnOnce() -> u32 + Send>;

fn body() -> Body {
    Box::new(|| std::hint::black_box(1))
}

fn one_cpu(cpus: usize) -> Option<String> {
    (cpus < 2).then(|| "one CPU: the threads share it".to_owned())
}

pub(crate) const TOKIO_SEMAPHORE: Measure = Measure {
    figures: &[("rivals.tokio_semaphore", "tokio: a task that acquires one of eight permits, runs, and is awaited")],
    slow: 20,
    note: one_cpu,
    run: tasks::semaphore,
};

pub(crate) const TOKIO_ACQUIRE_MANY: Measure = Measure {
    figures: &[("rivals.tokio_acquire_many", "tokio: a task that acquires all eight permits at once, as a gang would")],
    slow: 20,
    note: one_cpu,
    run: tasks::acquire_many,
};

pub(crate) const MUTEX_CONDVAR: Measure = Measure {
    figures: &[("rivals.mutex_condvar", "a queue under a mutex, two condition variables")],
    slow: 50,
    note: one_cpu,
    run: blocking::mutex_condvar,
};

pub(crate) const GREEDY_CAS: Measure = Measure {
    figures: &[(
        "rivals.greedy_cas",
        "a compare-exchange on a count of free GPUs, and a spinning one-slot hand-over: no queue, no policy",
    )],
    slow: 1,
    note: one_cpu,
    run: spinning::greedy_cas,
};

pub(crate) const CROSSBEAM_SPIN: Measure = Measure {
    figures: &[(
        "rivals.crossbeam_spin",
        "crossbeam-channel there and back, both sides spinning: no policy, no deadline, no gang",
    )],
    slow: 1,
    note: one_cpu,
    run: spinning::crossbeam_spin,
};

pub(crate) const CROSSBEAM_BLOCK: Measure = Measure {
    figures: &[("rivals.crossbeam_block", "the same, both sides blocking (it spins a while before it sleeps)")],
    slow: 4,
    note: one_cpu,
    run: blocking::crossbeam_block,
};

pub(crate) const RAYON_BROADCAST: Measure = Measure {
    figures: &[("rivals.rayon_broadcast", "rayon: a closure on every thread of a pool of two, as a gang of two would")],
    slow: 50,
    note: |cpus| (cpus < 3).then(|| format!("{cpus} CPUs for 3 threads: the caller shares one with a pool's thread")),
    run: tasks::rayon_broadcast,
};
