//! Most servers first: large jobs until none remains, then small ones until none is queued or running (Maguluri, Srikant and Ying 2012
//! call the preemptive form MaxWeight-like; this is the nonpreemptive one of Chen et al. 2025, arXiv 2509.01893, where it is MSFQ
//! with threshold 0).
//!
//! Neither class is passed in the middle of its phase, so it idles little; but a phase of small jobs ends only when the node happens
//! to be empty of them, which at a high load of small ones takes very long: large ones starve. Kept as the reference that quickswap
//! mends.

use super::{Action, Policy, PolicyInfo};
use crate::scheduler::view::View;
use crate::types::Class;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "msf",
    about: "most servers first: large requests until none remains, then small ones until none is queued or running",
    settings: &[],
    make: |_, _| Ok(Box::new(Msf)),
};

#[derive(Debug)]
struct Msf;

impl Policy for Msf {
    fn name(&self) -> &str {
        INFO.name
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        if view.all_free()
            && let Some(large) = view.oldest(Class::Large)
        {
            return Action::StartLarge(large.job);
        }
        if view.free().is_empty() {
            return Action::IDLE;
        }
        // With no small one queued either, lanes stand free while the last ones run: a drain, if a large one waits for it.
        match view.oldest(Class::Small) {
            Some(small) => Action::small(small.job),
            None if view.queued(Class::Large) > 0 => Action::DRAIN,
            None => Action::IDLE,
        }
    }
}
