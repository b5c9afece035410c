//! Arrival order with EASY backfilling (Lifka 1995; Mu'alem and Feitelson 2001): the large job at the head is promised the shadow time,
//! and a later small one may pass it if it is predicted to end by then. As a gang takes every lane there are no "extra" lanes on which
//! longer small ones could run past the shadow time.

use super::backfill::Futile;
use super::{Action, Policy, PolicyInfo};
use crate::scheduler::view::{Order, View};
use crate::types::Class;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "easy",
    about: "arrival order; while a large request at the head waits, small ones that are predicted to end in time pass it",
    settings: &[],
    make: |_, _| Ok(Box::new(Easy { futile: None })),
};

#[derive(Debug)]
struct Easy {
    /// The scan for backfill that found nothing.
    futile: Option<Futile>,
}

impl Policy for Easy {
    fn name(&self) -> &str {
        INFO.name
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        let small = view.oldest(Class::Small);
        let Some(large) = view.oldest(Class::Large) else {
            return match small {
                Some(small) if !view.free().is_empty() => Action::small(small.job),
                _ => Action::IDLE,
            };
        };
        if view.all_free() && small.is_none_or(|small| large.seq < small.seq) {
            return Action::StartLarge(large.job);
        }
        if view.free().is_empty() {
            return if view.gang_running() { Action::IDLE } else { Action::DRAIN };
        }
        match small {
            Some(small) if small.seq < large.seq => return Action::small(small.job),
            _ => {}
        }
        let now = Futile::now(view);
        if self.futile.is_some_and(|before| before.covers_exactly(&now)) {
            return Action::DRAIN;
        }
        let room = now.shadow() - view.now();
        let passing = view.first_within(Class::Small, Order::Arrival, room, 0.0, false);
        self.futile = if passing.is_none() { Some(now) } else { None };
        passing.map_or(Action::DRAIN, |small| Action::backfill(small.job))
    }
}
