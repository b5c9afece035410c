//! The exact optimum as a policy: what the solved table says, in the scheduler's own clothes.

use crate::optimum::{Choice, Table};
use phalanx::Class;
use phalanx::scheduler::{Action, Policy, View};

/// Decides as the solution of the Markov model does. It knows the model's true rates, so no node can have it; and it is the optimum only
/// for arrivals and service as the model has them.
#[derive(Clone, Debug)]
pub struct OptimumPolicy {
    table: Table,
}

impl OptimumPolicy {
    /// The policy of a solved table.
    #[must_use]
    pub const fn new(table: Table) -> Self {
        Self { table }
    }
}

impl Policy for OptimumPolicy {
    fn name(&self) -> &'static str {
        "optimum"
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        let (small, large) = (view.queued(Class::Small), view.queued(Class::Large));
        let choice = self.table.decide(small, large, view.smalls_running(), view.gang_running());
        match choice {
            Choice::StartSmall if !view.free().is_empty() => {
                view.oldest(Class::Small).map_or(Action::IDLE, |job| Action::small(job.job))
            }
            Choice::StartLarge if view.all_free() => {
                view.oldest(Class::Large).map_or(Action::IDLE, |job| Action::StartLarge(job.job))
            }
            _ if large > 0 && !view.gang_running() && !view.free().is_empty() => Action::DRAIN,
            _ => Action::IDLE,
        }
    }
}
