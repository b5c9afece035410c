//! Strict arrival order. A large job at the head blocks every small one behind it: simple, fair, and wasteful.

use super::{Action, Policy, PolicyInfo};
use crate::scheduler::view::View;
use crate::types::Class;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "fcfs",
    about: "strict arrival order; a large request at the head blocks every small one behind it",
    settings: &[],
    make: |_, _| Ok(Box::new(Fcfs)),
};

#[derive(Debug)]
struct Fcfs;

impl Policy for Fcfs {
    fn name(&self) -> &str {
        INFO.name
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        let small = view.oldest(Class::Small);
        let large = view.oldest(Class::Large);
        match (small, large) {
            (Some(small), large) if large.is_none_or(|large| small.seq < large.seq) => {
                if view.free().is_empty() {
                    Action::IDLE
                } else {
                    Action::small(small.job)
                }
            }
            (_, Some(large)) if view.all_free() => Action::StartLarge(large.job),
            (_, Some(_)) => Action::DRAIN,
            _ => Action::IDLE,
        }
    }
}
