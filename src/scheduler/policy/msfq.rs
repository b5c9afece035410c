//! Most servers first with quickswap (Chen, Anton, Berg, Harchol-Balter and others 2025, arXiv 2509.01893), threshold L:
//!
//! 1. Serve large jobs, one after the other, until none is left.
//! 2. Admit small jobs: fill the lanes, and go on while more than L of them are in the system (queued and running).
//! 3. Once at most L are, and a large one waits, admit none until those have ended: the swap. Then 1.
//!
//! The lanes are filled first and the threshold is tested then, so that each small phase starts at least one. With no large job
//! waiting there is nobody to swap to, and it must not close: the rule read literally would loop between two empty phases.

use super::{Action, Policy, PolicyInfo};
use crate::scheduler::view::View;
use crate::types::Class;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "msfq",
    about: "most servers first with quickswap: small requests are let run dry once at most L of them are in the system",
    settings: &[("l", "lanes-1", "the threshold L, 0 to lanes - 1; 0 is msf")],
    make: |settings, lanes| {
        let limit = settings.count("l", lanes - 1, 0..=lanes - 1)?;
        Ok(Box::new(Msfq { limit, closed: false }))
    },
};

#[derive(Debug)]
struct Msfq {
    limit: usize,
    /// Phases 3 and 1: small jobs are not admitted.
    closed: bool,
}

impl Policy for Msfq {
    fn name(&self) -> &str {
        INFO.name
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        if view.gang_running() {
            return Action::IDLE;
        }
        let Some(large) = view.oldest(Class::Large) else {
            self.closed = false;
            return match view.oldest(Class::Small) {
                Some(small) if !view.free().is_empty() => Action::small(small.job),
                _ => Action::IDLE,
            };
        };
        let running = view.smalls_running();
        if !self.closed {
            if !view.free().is_empty()
                && let Some(small) = view.oldest(Class::Small)
            {
                return Action::small(small.job);
            }
            if view.queued(Class::Small) + running > self.limit {
                return Action::IDLE;
            }
            self.closed = true;
        }
        if running == 0 { Action::StartLarge(large.job) } else { Action::DRAIN }
    }
}
