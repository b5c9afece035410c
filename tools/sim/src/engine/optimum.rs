//! The exact optimum as a policy: what the solved table says, in the scheduler's own clothes.

use crate::optimum::{Choice, Table};
use phalanx::scheduler::{Action, Hold, Policy, View};
use phalanx::{Class, Nanos};

/// Decides as the solution of the Markov model does. It knows the model's true rates, so no node can have it; and it is the optimum only
/// for arrivals and service as the model has them.
///
/// In some states the optimum keeps the whole node idle though requests wait, for the next small ones to come before a large one. At the
/// end of a trace none will: after ten minutes without an event it starts what there is.
#[derive(Clone, Debug)]
pub struct OptimumPolicy {
    table: Table,
    /// Everything idles, though requests wait, until then.
    patience: Option<Nanos>,
}

/// Many times any gap between arrivals of a model worth solving.
const PATIENCE: Nanos = Nanos::from_secs(600);

impl OptimumPolicy {
    /// The policy of a solved table.
    #[must_use]
    pub const fn new(table: Table) -> Self {
        Self { table, patience: None }
    }
}

impl Policy for OptimumPolicy {
    fn name(&self) -> &'static str {
        "optimum"
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        let (smalls, larges) = (view.queued(Class::Small), view.queued(Class::Large));
        let start_small = |view: &View<'_>| view.oldest(Class::Small).map(|small| Action::small(small.job));
        let start_large = |view: &View<'_>| view.oldest(Class::Large).map(|large| Action::StartLarge(large.job));
        let free = view.free();
        let start = match self.table.decide(smalls, larges, view.smalls_running(), view.gang_running()) {
            Choice::StartSmall if !free.is_empty() => start_small(view),
            Choice::StartLarge if view.all_free() => start_large(view),
            _ => None,
        };
        if start.is_none() && view.all_free() && smalls + larges > 0 {
            let now = view.now();
            if self.patience.is_some_and(|until| now >= until) {
                self.patience = None;
                return start_large(view).or_else(|| start_small(view)).unwrap_or(Action::IDLE);
            }
            let until = now + PATIENCE;
            self.patience = Some(until);
            return Action::Hold(Hold { drain: larges > 0, wake_at: Some(until) });
        }
        self.patience = None;
        let drains = larges > 0 && !view.gang_running() && !free.is_empty();
        start.unwrap_or(if drains { Action::DRAIN } else { Action::IDLE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkloadSpec;
    use crate::engine::{SimOptions, simulate_with};
    use crate::optimum::{Model, Settings, solve};

    #[test]
    fn it_costs_what_the_solution_says() {
        let (solution, table) = solve(&Model::new(8, 0.5, 0.9, 0.05, 0.4, 8.0).unwrap(), &Settings::default()).unwrap();
        let spec: WorkloadSpec = "mix:load=0.5,share=0.9".parse().unwrap();
        let options = SimOptions { requests: Some(300_000), ..SimOptions::new(8, "fcfs".parse().unwrap()) };
        let result = simulate_with(&mut spec.source(1), &options, Box::new(OptimumPolicy::new(table)), &mut ()).unwrap();
        let ratio = result.weighted_number(8.0) / solution.cost;
        assert!((ratio - 1.0).abs() < 0.03, "{ratio}");
    }
}
