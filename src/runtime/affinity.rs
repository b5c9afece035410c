//! Which CPU each thread of the node is pinned to.

use core_affinity::CoreId;
use std::fmt;

/// Where the node's threads may run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Pinning {
    /// Each worker is pinned to a CPU of its own out of those that the process may use; with too few, they share them in turn. The
    /// dispatcher gets one of its own if one is left, and otherwise floats over all of them.
    #[default]
    Auto,
    /// No thread is pinned.
    Off,
    /// The worker of lane `i` is pinned to the `i`-th of these CPUs, by the operating system's numbers; the dispatcher to the one after
    /// the last lane's, if there is one.
    Cpus(Vec<usize>),
}

/// The CPUs that were chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// CPUs that the building thread was allowed to use when the node was built.
    pub allowed: Vec<usize>,
    /// By lane: the CPU that its worker is to be pinned to.
    pub workers: Vec<Option<usize>>,
    /// The dispatcher's.
    pub dispatcher: Option<usize>,
}

impl Placement {
    /// Reads what is allowed and chooses. Nothing is pinned yet.
    pub(crate) fn choose(pinning: &Pinning, lanes: usize) -> Self {
        let allowed: Vec<usize> = core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect();
        let (workers, dispatcher) = match pinning {
            Pinning::Off => (vec![None; lanes], None),
            Pinning::Cpus(cpus) => ((0..lanes).map(|lane| cpus.get(lane).copied()).collect(), cpus.get(lanes).copied()),
            Pinning::Auto if allowed.is_empty() => (vec![None; lanes], None),
            Pinning::Auto => {
                let workers = (0..lanes).map(|lane| Some(allowed[lane % allowed.len()])).collect();
                (workers, allowed.get(lanes).copied())
            }
        };
        Self { allowed, workers, dispatcher }
    }

    /// How many CPUs there are to use: those allowed, cut to the quota of the process's group; 1 if that cannot be found out.
    pub(crate) fn cpus(&self) -> usize {
        let quota = crate::os::cpu_quota();
        if self.allowed.is_empty() { quota } else { self.allowed.len().min(quota) }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |cpu: &Option<usize>| cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string());
        let workers: Vec<_> = self.workers.iter().map(name).collect();
        write!(f, "CPUs to use: {}; workers on {}; dispatcher on {}", self.cpus(), workers.join(","), name(&self.dispatcher))
    }
}

/// Pins the current thread. Whether that worked: a CPU may have been taken away, or never have been there.
pub(crate) fn pin(cpu: usize) -> bool {
    core_affinity::set_for_current(CoreId { id: cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_the_allowed_cpus_in_turn() {
        let placement = Placement::choose(&Pinning::Auto, 8);
        assert_eq!(placement.workers.len(), 8);
        assert!(placement.workers.iter().flatten().all(|cpu| placement.allowed.contains(cpu)));
        assert_eq!(placement.dispatcher, placement.allowed.get(8).copied());
        assert_eq!(Placement::choose(&Pinning::Cpus(vec![0]), 2).workers, [Some(0), None]);
    }
}
