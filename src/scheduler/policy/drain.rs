//! A waiting large job closes the node to small ones until it has run; then the small ones get one fill.
//!
//! While no large one waits, small ones start whenever a lane is free. When one does, no more start (`backfill=on`: but those
//! that are predicted to end before the last running one does, the longest first). Once every lane is free the large one runs;
//! `batch=all`: every large one that waits at that moment, one after the other. Then, if more wait, one fill: as many small
//! ones as are queued, at most one a lane.
//!
//! Both waits are bounded under any arrivals: a large one waits for the longest small one in flight, and for the larges before it
//! with one fill between two batches; a small one is among the next `lanes` of its queue after each batch, and a batch is as long as
//! it was when it began.

use super::backfill::Futile;
use super::{Action, Policy, PolicyInfo};
use crate::scheduler::view::{Order, View, Waiting};
use crate::types::Class;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "drain",
    about: "a waiting large request closes the node to small ones until it has run; then one fill of small ones",
    settings: &[
        ("batch", "one", "one: a fill of small requests after each large one; all: after all that waited when the first began"),
        ("backfill", "off", "on: during a drain start the longest small request that is predicted to end by the shadow time"),
    ],
    make: |settings, _| {
        Ok(Box::new(Drain {
            batch_all: settings.choice("batch", &[("one", false), ("all", true)])?,
            backfill: settings.choice("backfill", &[("off", false), ("on", true)])?,
            phase: Phase::Open,
            futile: None,
        }))
    },
};

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// No large one waits.
    Open,
    /// Small ones are held back.
    Draining,
    /// So many more larges are to run before the next fill.
    Batch(usize),
    /// So many more smalls may start before the next drain.
    Fill(usize),
}

#[derive(Debug)]
struct Drain {
    batch_all: bool,
    backfill: bool,
    phase: Phase,
    /// The scan for backfill that found nothing.
    futile: Option<Futile>,
}

impl Policy for Drain {
    fn name(&self) -> &str {
        INFO.name
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        if view.gang_running() {
            return Action::IDLE;
        }
        let small = view.oldest(Class::Small).filter(|_| !view.free().is_empty());
        let Some(large) = view.oldest(Class::Large) else {
            self.phase = Phase::Open;
            return small.map_or(Action::IDLE, |small| Action::small(small.job));
        };
        if let Phase::Fill(left) = self.phase
            && let (Some(small), 1..) = (small, left)
        {
            self.phase = Phase::Fill(left - 1);
            return Action::small(small.job);
        }
        if !view.all_free() {
            self.phase = Phase::Draining;
            let passing = if self.backfill { self.longest_in_time(view) } else { None };
            return passing.map_or(Action::DRAIN, |small| Action::backfill(small.job));
        }
        let left = match self.phase {
            Phase::Batch(left) => left,
            _ if self.batch_all => view.queued(Class::Large),
            _ => 1,
        };
        self.phase = if left > 1 { Phase::Batch(left - 1) } else { Phase::Fill(view.lane_count()) };
        Action::StartLarge(large.job)
    }
}

impl Drain {
    /// Of the first small jobs in line, the longest that is predicted to end by the shadow time.
    fn longest_in_time(&mut self, view: &mut View<'_>) -> Option<Waiting> {
        if view.free().is_empty() {
            return None;
        }
        let now = Futile::now(view);
        if self.futile.is_some_and(|before| before.covers_exactly(&now)) {
            return None;
        }
        let room = now.shadow() - view.now();
        let longest = view.longest_within(Class::Small, Order::Arrival, room);
        self.futile = if longest.is_none() { Some(now) } else { None };
        longest
    }
}
