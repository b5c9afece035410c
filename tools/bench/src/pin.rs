//! Which CPUs there are, and what machine this is.

use core_affinity::CoreId;
use serde::Serialize;

/// CPUs that the process may use, at least one number.
pub(crate) fn cpus() -> Vec<usize> {
    let cpus: Vec<usize> = allowed().iter().map(|core| core.id).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

fn allowed() -> Vec<CoreId> {
    core_affinity::get_core_ids().unwrap_or_default()
}

/// Pins the current thread. Where that is not allowed it floats, and the figures are as they are.
pub(crate) fn pin(cpu: usize) {
    core_affinity::set_for_current(CoreId { id: cpu });
}

/// Lets the current thread float over these. A node counts the CPUs of the thread that builds it, so that one which is pinned would have it
/// believe that there is one.
pub(crate) fn float(cpus: &[usize]) {
    #[cfg(target_os = "linux")]
    {
        let mut set = rustix::thread::CpuSet::new();
        cpus.iter().for_each(|&cpu| set.set(cpu));
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    #[cfg(not(target_os = "linux"))]
    pin(cpus[0]);
}

/// What was measured on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// CPUs that the process may use.
    pub allowed_cpus: Vec<usize>,
    /// The CPUs that the submitting and the running thread were pinned to.
    pub pinned: Vec<usize>,
    /// How the first of them chooses its clock, where the system says.
    pub governor: Option<String>,
    /// The operating system and its version.
    pub system: String,
}

/// This machine.
#[must_use]
pub fn machine() -> Machine {
    let read = |file: &str| std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let name =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned()));
    let cpus = cpus();
    let governor = read(&format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", cpus[0]));
    let system = match (read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")) {
        (Some(kind), Some(version)) => format!("{kind} {version}"),
        _ => std::env::consts::OS.to_owned(),
    };
    Machine {
        cpu: name.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        pinned: cpus.iter().copied().take(2).collect(),
        allowed_cpus: cpus,
        governor,
        system,
    }
}
