//! The parameters of the Markov model, and the price of an arrival at the edge of a truncated one.

use serde::{Deserialize, Serialize};

/// The most lanes a model may have.
pub const MAX_LANES: usize = 64;

/// Why a set of parameters is not a model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The number of lanes is outside 1..=64.
    #[error("lanes = {lanes}: must be from 1 to {MAX_LANES}")]
    Lanes {
        /// What was given.
        lanes: usize,
    },
    /// A number that must be finite and above zero is not.
    #[error("{name} = {value}: must be a finite number above zero")]
    NotPositive {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: f64,
    },
    /// A share is outside 0..=1.
    #[error("share = {share}: must be from 0 to 1")]
    Share {
        /// What was given.
        share: f64,
    },
    /// The offered load is one or more, so that no policy has a finite average.
    #[error("load = {load}: unstable, must be below 1 for an average to exist")]
    Unstable {
        /// The offered load.
        load: f64,
    },
}

/// The one-or-all model: `lanes` servers, Poisson arrivals, exponential service.
///
/// A small request takes one lane, a large one takes all of them at the same time, and a request that has started is not
/// interrupted. The cost of a policy is `W_w`: the long-run mean of (smalls in the system) + w (larges in the system).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Lanes, k.
    pub lanes: usize,
    /// Arrivals of small requests, per second.
    pub lambda_small: f64,
    /// Arrivals of large requests, per second.
    pub lambda_large: f64,
    /// Service rate of a small request on its lane, per second: 1 / mean.
    pub mu_small: f64,
    /// Service rate of a large request on all lanes, per second: 1 / mean.
    pub mu_large: f64,
    /// What one large request in the system costs, in small ones: w.
    pub weight: f64,
}

impl Model {
    /// The model of a node at `load` (0..1), of whose work the part `share` (0..=1) is large.
    ///
    /// Means are in seconds. The load of a class is the part of the node's lane-seconds that it asks for: a small one asks for
    /// `small_mean_s / lanes` of the node, a large one for `large_mean_s`; hence the arrival rates
    /// `load (1 - share) lanes / small_mean_s` and `load share / large_mean_s`.
    ///
    /// # Errors
    /// [`ModelError`], when a number is out of its range.
    pub fn new(
        lanes: usize,
        load: f64,
        share: f64,
        small_mean_s: f64,
        large_mean_s: f64,
        weight: f64,
    ) -> Result<Self, ModelError> {
        positive("load", load)?;
        positive("small mean", small_mean_s)?;
        positive("large mean", large_mean_s)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(ModelError::Share { share });
        }
        let model = Self {
            lanes,
            lambda_small: load * (1.0 - share) * lanes as f64 / small_mean_s,
            lambda_large: load * share / large_mean_s,
            mu_small: 1.0 / small_mean_s,
            mu_large: 1.0 / large_mean_s,
            weight,
        };
        model.check()?;
        Ok(model)
    }

    /// Tests every field; for a model made by hand or read from a file.
    ///
    /// # Errors
    /// [`ModelError`], naming the first field that is out of its range.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.lanes == 0 || self.lanes > MAX_LANES {
            return Err(ModelError::Lanes { lanes: self.lanes });
        }
        positive("small service rate", self.mu_small)?;
        positive("large service rate", self.mu_large)?;
        positive("weight", self.weight)?;
        // One class may be absent, both may not.
        for (name, value) in [("small arrival rate", self.lambda_small), ("large arrival rate", self.lambda_large)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(ModelError::NotPositive { name, value });
            }
        }
        positive("sum of the arrival rates", self.lambda_small + self.lambda_large)?;
        let load = self.load();
        // Not `load >= 1.0`: a rounding error below 1 is as unstable to every algorithm as 1 is.
        if load > 1.0 - 1e-9 {
            return Err(ModelError::Unstable { load });
        }
        Ok(())
    }

    /// The part of the node's capacity that small requests ask for: rho_s = lambda_s / (k mu_s).
    #[must_use]
    pub fn load_small(&self) -> f64 {
        self.lambda_small / (self.lanes as f64 * self.mu_small)
    }

    /// The part of the node's capacity that large requests ask for: rho_l = lambda_l / mu_l.
    #[must_use]
    pub fn load_large(&self) -> f64 {
        self.lambda_large / self.mu_large
    }

    /// The offered load, rho = rho_s + rho_l.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.load_small() + self.load_large()
    }

    /// beta = w ms / (k ml): the cost that a second of large service removes over the cost that a second of small service on all
    /// lanes removes. From 1 on, larges go first whenever nothing runs.
    #[must_use]
    pub fn beta(&self) -> f64 {
        self.weight * self.mu_large / (self.lanes as f64 * self.mu_small)
    }

    /// What `smalls` and `larges` in the system cost until a fluid that never idles has drained them.
    ///
    /// In the fluid limit the c-mu rule is optimal: the class whose service removes cost faster goes first, smalls while
    /// beta < 1. The first class drains at its whole capacity, the second waits and grows, then drains with what the first one's
    /// arrivals leave. This is the leading (quadratic) part of the relative value of a state far from empty.
    pub(crate) fn fluid_cost(&self, smalls: f64, larges: f64) -> f64 {
        let small_rate = self.lanes as f64 * self.mu_small;
        // (amount, cost of one, arrival rate, service rate at full capacity)
        let small = (smalls, 1.0, self.lambda_small, small_rate);
        let large = (larges, self.weight, self.lambda_large, self.mu_large);
        let (first, second) = if self.beta() < 1.0 { (small, large) } else { (large, small) };
        let until = first.0 / (first.3 - first.2);
        let waiting = second.0 + second.2 * until;
        let rest = waiting / ((1.0 - first.2 / first.3) * second.3 - second.2);
        0.5 * first.1 * first.0 * until + 0.5 * second.1 * ((second.0 + waiting) * until + waiting * rest)
    }

    /// What one more small costs the fluid.
    pub(crate) fn marginal_small(&self, smalls: usize, larges: usize) -> f64 {
        self.fluid_cost(smalls as f64 + 1.0, larges as f64) - self.fluid_cost(smalls as f64, larges as f64)
    }

    /// What one more large costs the fluid.
    pub(crate) fn marginal_large(&self, smalls: usize, larges: usize) -> f64 {
        self.fluid_cost(smalls as f64, larges as f64 + 1.0) - self.fluid_cost(smalls as f64, larges as f64)
    }

    /// Decay rate of the tail of the work in the system, per second of node time: 2 (1 - rho) / variance rate, the heavy-traffic
    /// limit of any work-conserving discipline.
    pub(crate) fn work_decay(&self) -> f64 {
        let per_small = 1.0 / (self.lanes as f64 * self.mu_small);
        // E[S^2] = 2 mean^2 of exponential work.
        let variance = 2.0 * (self.lambda_small * per_small * per_small + self.lambda_large / self.mu_large.powi(2));
        2.0 * (1.0 - self.load()) / variance
    }
}

/// What an arrival pays that is turned away at the edge of a truncated model, as multiples of the [fluid's marginal
/// cost](Model::marginal_small).
///
/// The fluid knows no drains and is too cheap, the less so the longer the queues (by a term that grows as a root of them). Too low a price
/// is the dangerous side: living at the edge and turning arrivals away would cost less than serving them. Too high a price only
/// overcharges the few that get there. So the first, small box charges double, and larger ones what the box before measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Price {
    pub(crate) small: f64,
    pub(crate) large: f64,
}

impl Price {
    pub(crate) const FIRST: Self = Self { small: 2.0, large: 2.0 };
}

fn positive(name: &'static str, value: f64) -> Result<(), ModelError> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(ModelError::NotPositive { name, value }) }
}

/// H_n = 1 + 1/2 + ... + 1/n: the mean time, in mean services, until n exponential services have all ended.
#[must_use]
pub fn harmonic(n: usize) -> f64 {
    (1..=n).map(|i| 1.0 / i as f64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(load: f64, share: f64, weight: f64) -> Result<Model, ModelError> {
        Model::new(8, load, share, 0.05, 0.4, weight)
    }

    #[test]
    fn loads_come_back_from_the_rates() {
        let model = model(0.8, 0.3, 8.0).unwrap();
        assert!((model.load() - 0.8).abs() < 1e-12);
        assert!((model.load_large() - 0.24).abs() < 1e-12);
        assert!((model.beta() - 8.0 * 0.05 / (8.0 * 0.4)).abs() < 1e-12);
    }

    #[test]
    fn each_error_is_one_line_that_names_the_field() {
        for (result, word) in [
            (model(1.0, 0.3, 1.0), "unstable"),
            (model(0.5, 1.5, 1.0), "share"),
            (model(f64::NAN, 0.5, 1.0), "load"),
            (model(0.5, 0.5, 0.0), "weight"),
            (Model::new(0, 0.5, 0.5, 0.05, 0.4, 1.0), "lanes"),
            (Model::new(65, 0.5, 0.5, 0.05, 0.4, 1.0), "lanes"),
            (Model::new(8, 0.5, 0.5, f64::INFINITY, 0.4, 1.0), "small mean"),
        ] {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(word) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn the_fluid_pays_more_for_what_stands_behind_more() {
        let model = model(0.8, 0.5, 8.0).unwrap();
        assert!(model.marginal_small(100, 10) > model.marginal_small(50, 10));
        assert!(model.marginal_large(100, 20) > model.marginal_large(100, 10));
    }
}
