//! What is asked of the operating system beyond the standard library.

/// Makes sleeps and timed parks of the current thread end when they should, not up to 50 µs later, which is Linux's default slack. Where
/// that cannot be had they are as late as they are.
pub(crate) fn precise_sleep() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// How many CPUs the process may keep busy: those it may run on, cut to its group's quota. 1 if that cannot be found out.
pub(crate) fn cpu_quota() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
