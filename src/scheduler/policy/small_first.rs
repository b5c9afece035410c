//! A small job whenever a lane is free; a large one only when nothing else waits. It starves large jobs as soon as small ones keep
//! one lane busy: kept as the bad example against which the others are tested.

use super::{Action, Policy, PolicyInfo};
use crate::scheduler::view::View;
use crate::types::Class;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "small-first",
    about: "a small request whenever a lane is free, a large one only when no small one waits; starves large requests",
    settings: &[],
    make: |_, _| Ok(Box::new(SmallFirst)),
};

#[derive(Debug)]
struct SmallFirst;

impl Policy for SmallFirst {
    fn name(&self) -> &str {
        INFO.name
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        if let Some(small) = view.oldest(Class::Small) {
            return if view.free().is_empty() { Action::IDLE } else { Action::small(small.job) };
        }
        match view.oldest(Class::Large) {
            Some(large) if view.all_free() => Action::StartLarge(large.job),
            _ => Action::IDLE,
        }
    }
}
