//! Policy iteration with a span bound, without and with preemption.

use super::chain::{Chain, Shape};
use super::model::{Model, ModelError, Price};
use super::rule::{self, Choice, Event, Modeless, Rule, SquareRoot, SquareRootShape, View};
use super::table::Table;

/// The longest queues that a truncated model has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Most smalls that wait (with preemption: that are in the system).
    pub smalls: usize,
    /// Most larges that wait (with preemption: that are in the system).
    pub larges: usize,
}

impl Truncation {
    /// A first choice for `model`; the solver makes it longer until the cost stands still.
    ///
    /// Work in the system has a tail with the decay rate of heavy traffic, here cut at e^-12. Under an optimal
    /// policy nearly all of it is work of the class that the c-mu rule serves last; the other class queues for as long as a batch of
    /// the former lasts.
    #[must_use]
    pub fn for_model(model: &Model) -> Self {
        let (first, last) = Self::estimates(model);
        if model.beta() < 1.0 {
            let theta = SquareRoot::new(model, &SquareRootShape::default()).theta(last.larges);
            let smalls = first.smalls + (theta.ceil() as usize).min(last.smalls);
            Self { smalls, larges: 16 + last.larges }.of(model)
        } else {
            Self { smalls: first.smalls + last.smalls, larges: first.larges }.of(model)
        }
    }

    /// The same with free preemption: smalls go first when they fill the node, larges when they do not, so that larges wait, and near
    /// beta = 1 and beyond smalls too.
    fn preemptive(model: &Model) -> Self {
        let (first, last) = Self::estimates(model);
        let smalls = first.smalls + (model.beta().min(1.0) * last.smalls as f64).ceil() as usize;
        Self { smalls, larges: 16 + last.larges }.of(model)
    }

    /// What each class needs if it is served first, and if it is served last.
    fn estimates(model: &Model) -> (Self, Self) {
        let k = model.lanes as f64;
        let work_s = 12.0 / model.work_decay();
        let tail = |load: f64| if load > 0.0 { 6.0 / -load.ln() } else { 0.0 };
        let per_large = model.lambda_small / model.mu_large;
        let whole = |smalls: f64, larges: f64| Self { smalls: smalls.ceil() as usize, larges: larges.ceil() as usize };
        (
            whole(4.0 * k + 4.0 * per_large + tail(model.load_small()), 16.0 + tail(model.load_large())),
            whole(work_s * k * model.mu_small, work_s * model.mu_large),
        )
    }

    /// A class that never arrives has no queue.
    fn of(self, model: &Model) -> Self {
        Self {
            smalls: if model.lambda_small > 0.0 { self.smalls.max(2) } else { 0 },
            larges: if model.lambda_large > 0.0 { self.larges.max(2) } else { 0 },
        }
    }

    /// The box with its queues `long` and `short` times as long; which class is the long one, `last` says.
    fn scaled(self, last: Last, long: f64, short: f64) -> Self {
        let times = |n: usize, by: f64| (n as f64 * by).ceil() as usize;
        let (by_smalls, by_larges) = match last {
            Last::Smalls => (long, short),
            Last::Larges => (short, long),
            Last::Both => (long, long),
        };
        Self { smalls: times(self.smalls, by_smalls), larges: times(self.larges, by_larges) }
    }

    pub(crate) fn shape(self, phases: usize) -> Shape {
        Shape { smalls: self.smalls + 1, larges: self.larges + 1, phases }
    }

    fn states(self, phases: usize) -> usize {
        (self.smalls + 1).saturating_mul(self.larges + 1).saturating_mul(phases)
    }
}

/// Which class waits longest. The other one waits for batches of it, whose length grows as a root of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Smalls,
    Larges,
    Both,
}

/// The boxes that one problem is solved in, each longer than the last, until the cost stands still.
#[derive(Debug)]
pub(crate) struct Growth<'a> {
    model: &'a Model,
    settings: &'a Settings,
    phases: usize,
    last: Last,
    pub(crate) truncation: Truncation,
    pub(crate) price: Price,
    /// Relative change of the cost from the box before.
    pub(crate) change: f64,
    before: Option<(f64, Shape, Vec<f64>)>,
}

impl<'a> Growth<'a> {
    pub(crate) fn new(model: &'a Model, settings: &'a Settings, phases: usize) -> Result<Self, SolveError> {
        let last = if model.beta() < 1.0 { Last::Larges } else { Last::Smalls };
        Self::from(model, settings, phases, Truncation::for_model(model), last)
    }

    fn from(model: &'a Model, settings: &'a Settings, phases: usize, first: Truncation, last: Last) -> Result<Self, SolveError> {
        let truncation = settings.truncation.unwrap_or(first).of(model);
        let states = truncation.states(phases);
        if states > settings.max_states.min(u32::MAX as usize / 4) {
            return Err(SolveError::TooManyStates { states, limit: settings.max_states });
        }
        Ok(Self {
            model,
            settings,
            phases,
            last,
            truncation: truncation.scaled(last, 0.5, 0.67).of(model),
            price: Price::FIRST,
            change: f64::INFINITY,
            before: None,
        })
    }

    /// Relative values to start from: those of the box before, and beyond it the fluid's growth.
    pub(crate) fn guess(&self, new: Shape) -> Vec<f64> {
        let Some((_, old, h)) = &self.before else { return vec![0.0; new.len()] };
        let fluid = |i: usize, j: usize| self.model.fluid_cost(i as f64, j as f64);
        // Next to its edge the old box felt a price that was not quite right.
        let (last_i, last_j) = (old.smalls - 1 - old.smalls / 8, old.larges - 1 - old.larges / 8);
        let mut out = vec![0.0; new.len()];
        // The slope is the old values' own, so that there is no kink, and the curvature the fluid's.
        for i in 0..new.smalls {
            for j in 0..new.larges.min(last_j + 1) {
                let oi = i.min(last_i);
                let back = oi.saturating_sub(1);
                let run = (i - oi) as f64;
                let bend = fluid(i, j) - fluid(oi, j) - run * (fluid(oi, j) - fluid(back, j));
                for p in 0..new.phases {
                    let own = h[old.index(oi, j, p)];
                    let more = if run > 0.0 { bend + run * (own - h[old.index(back, j, p)]) } else { 0.0 };
                    out[new.index(i, j, p)] = own + more;
                }
            }
            for j in last_j + 1..new.larges {
                let back = last_j.saturating_sub(1);
                let run = (j - last_j) as f64;
                let bend = fluid(i, j) - fluid(i, last_j) - run * (fluid(i, last_j) - fluid(i, back));
                for p in 0..new.phases {
                    let own = out[new.index(i, last_j, p)];
                    out[new.index(i, j, p)] = own + bend + run * (own - out[new.index(i, back, p)]);
                }
            }
        }
        out
    }

    pub(crate) fn settled(&self) -> bool {
        self.change <= self.settings.truncation_tolerance
    }

    /// Takes in the result of this box; moves to the next one and returns false, or returns true if this was the last.
    pub(crate) fn done(&mut self, cost: f64, solved: bool, shape: Shape, h: Vec<f64>) -> bool {
        if let Some((before, ..)) = self.before {
            self.change = (cost / before - 1.0).abs();
        }
        let next = match self.settings.truncation {
            Some(wanted) => wanted.of(self.model),
            None => self.truncation.scaled(self.last, 1.7, 1.3).of(self.model),
        };
        if !solved || self.settled() || next == self.truncation || next.states(self.phases) > self.settings.max_states {
            return true;
        }
        self.price = self.measure(shape, &h);
        self.before = Some((cost, shape, h));
        self.truncation = next;
        false
    }

    /// The price for the next box: how much dearer than the fluid one more is in the middle of this one.
    fn measure(&self, shape: Shape, h: &[f64]) -> Price {
        let at = |n: usize, parts: usize| (n - 1) / parts;
        let ratio = |i: usize, j: usize, (di, dj): (usize, usize), fluid: f64| {
            let step = h[shape.index(i + di, j + dj, 0)] - h[shape.index(i, j, 0)];
            // The excess falls as the root of the queue, and the next edge is about four times as far out.
            if fluid > 0.0 && step.is_finite() { (1.0 + 0.5 * (step / fluid - 1.0)).clamp(1.0, 2.0) } else { 1.0 }
        };
        let mut price = Price { small: 1.0, large: 1.0 };
        if shape.smalls > 2 {
            let (i, j) = (at(shape.smalls, 2), at(shape.larges, 8));
            price.small = ratio(i, j, (1, 0), self.model.marginal_small(i, j));
        }
        if shape.larges > 2 {
            let (i, j) = (at(shape.smalls, 8), at(shape.larges, 2));
            price.large = ratio(i, j, (0, 1), self.model.marginal_large(i, j));
        }
        price
    }
}

/// When a solution is good enough, and when to give up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Span bound, relative to the cost, at which a truncation counts as solved.
    pub tolerance: f64,
    /// Relative change of the cost from the truncation before, about half as long, at which the truncation counts as long enough.
    pub truncation_tolerance: f64,
    /// The last truncation to use (a smaller one comes first, to compare with); `None`: chosen from the load and grown as needed.
    pub truncation: Option<Truncation>,
    /// Most states of a chain; about 150 bytes each, and as much again for each of the 30 vectors of 8 bytes that GMRES keeps.
    pub max_states: usize,
    /// Most policy improvements for each truncation.
    pub max_improvements: usize,
    /// Most GMRES steps for each evaluation of a policy.
    pub max_steps: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tolerance: 1e-4,
            truncation_tolerance: 1e-3,
            truncation: None,
            max_states: 4_000_000,
            max_improvements: 60,
            max_steps: 3000,
        }
    }
}

/// Why there is no solution to look at.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SolveError {
    /// The parameters are not a model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Even the first truncation is larger than allowed.
    #[error("{states} states needed, {limit} allowed: raise the limit or lower the load")]
    TooManyStates {
        /// States needed.
        states: usize,
        /// `Settings::max_states`.
        limit: usize,
    },
}

/// A solution and the proof of how good it is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// W_w of the optimum: mean smalls in the system + w x mean larges in the system.
    pub cost: f64,
    /// No policy of the truncated model costs less than this.
    pub lower: f64,
    /// The policy in the table costs no more than this in the truncated model.
    pub upper: f64,
    /// (upper - lower) / cost.
    pub span_bound: f64,
    /// Relative change of the cost from the truncation before, about half as long, to this one.
    pub truncation_change: f64,
    /// Whether `span_bound` and `truncation_change` both met the settings. If not, say so to whoever reads `cost`.
    pub converged: bool,
    /// The longest queues in the model.
    pub truncation: Truncation,
    /// States in the model.
    pub states: usize,
    /// Policy improvements, all truncations together.
    pub improvements: usize,
    /// GMRES steps, all evaluations together; each is ten Gauss-Seidel sweeps of relative value iteration.
    pub steps: usize,
}

/// A decision problem on a chain: what [`iterate`] needs to know of it.
trait Problem {
    fn shape(&self) -> Shape;
    /// The chain of the current policy.
    fn chain(&self) -> Chain;
    /// Makes the policy greedy with respect to h; returns the least and greatest of its per-state residual, which bound the optimum
    /// from below and the new policy's cost from above.
    fn improve(&mut self, h: &[f64]) -> (f64, f64);
}

struct Iterated {
    lower: f64,
    upper: f64,
    h: Vec<f64>,
    improvements: usize,
    steps: usize,
}

/// Policy iteration: evaluate, improve, until the improved policy's span bound is met.
fn iterate(problem: &mut impl Problem, mut h: Vec<f64>, settings: &Settings) -> Iterated {
    let mut steps = 0;
    let mut improvements = 0;
    // Early policies are not worth an exact evaluation: a tenth of the last gap found is.
    let mut gap = 0.1f64;
    loop {
        let wanted = (0.1 * gap).clamp(0.3 * settings.tolerance, 1e-2);
        let values = problem.chain().evaluate(h, wanted, settings.max_steps);
        h = values.h;
        steps += values.steps;
        improvements += 1;
        if values.upper - values.lower > 2.0 * wanted * values.gain.abs() {
            // Not evaluated, so that an improvement would rest on noise: give up, with what bounds there are.
            return Iterated { lower: values.lower, upper: values.upper, h, improvements, steps };
        }
        let (lower, upper) = problem.improve(&h);
        gap = (upper - lower) / (0.5 * (upper + lower)).abs();
        let stuck = improvements >= settings.max_improvements || !gap.is_finite();
        if gap <= settings.tolerance || stuck {
            return Iterated { lower, upper, h, improvements, steps };
        }
    }
}

/// Solves boxes of growing size until the cost stands still. `make` gets the box and the problem solved before.
fn grow<P: Problem>(mut growth: Growth<'_>, mut make: impl FnMut(&Growth<'_>, Option<&P>) -> P) -> (Solution, P) {
    let settings = growth.settings;
    let mut previous: Option<P> = None;
    let (mut improvements, mut steps) = (0, 0);
    loop {
        let mut problem = make(&growth, previous.as_ref());
        let shape = problem.shape();
        let found = iterate(&mut problem, growth.guess(shape), settings);
        improvements += found.improvements;
        steps += found.steps;
        let cost = 0.5 * (found.lower + found.upper);
        let span_bound = (found.upper - found.lower) / cost.abs();
        let solved = span_bound <= settings.tolerance;
        let truncation = growth.truncation;
        if growth.done(cost, solved, shape, found.h) {
            let solution = Solution {
                cost,
                lower: found.lower,
                upper: found.upper,
                span_bound,
                truncation_change: growth.change,
                converged: solved && growth.settled(),
                truncation,
                states: shape.len(),
                improvements,
                steps,
            };
            return (solution, problem);
        }
        previous = Some(problem);
    }
}

/// Solves the nonpreemptive model: the optimum and the table of its decisions.
///
/// # Errors
/// [`SolveError`], when the model is not valid or needs too many states. A solution that did not converge is returned with
/// `converged` false.
pub fn solve(model: &Model, settings: &Settings) -> Result<(Solution, Table), SolveError> {
    model.check()?;
    let growth = Growth::new(model, settings, model.lanes + 2)?;
    let (solution, problem) = grow(growth, |growth, before| Nonpreemptive::new(model, growth, before));
    Ok((solution, problem.table()))
}

/// The nonpreemptive problem. State `(i, j, s)` holds AFTER a decision: i smalls and j larges wait, s smalls run or, s = k + 1, the
/// large. An event leads to a state in which decisions are made, which cost no time; `best` is where they lead.
struct Nonpreemptive {
    model: Model,
    truncation: Truncation,
    price: Price,
    shape: Shape,
    /// For each `(i, j, r)`, r = 0..=k: the state that the chosen starts lead to.
    best: Vec<u32>,
    /// For each `(i, j, r)`: the first of those starts.
    choice: Vec<Choice>,
}

impl Nonpreemptive {
    /// Starts from the policy of `before` well inside its edge, and from the square-root rule elsewhere.
    fn new(model: &Model, growth: &Growth<'_>, before: Option<&Self>) -> Self {
        let Growth { truncation, price, .. } = *growth;
        let shape = truncation.shape(model.lanes + 2);
        let mut this = Self { model: *model, truncation, price, shape, best: Vec::new(), choice: Vec::new() };
        let rule = Modeless(SquareRoot::new(model, &SquareRootShape::default()));
        this.choose(|i, j, r, _, _, _| match before {
            Some(b) if 4 * i < 3 * b.shape.smalls && 4 * j < 3 * b.shape.larges => b.choice(i, j, r),
            _ => rule.decide(&View { queued_small: i, queued_large: j, running_small: r, mode: 0 }).0,
        });
        this
    }

    /// Fills `best` and `choice`, upwards in the small queue, so that what a start leads to is known before the start is judged.
    /// `pick` gets the state and where holding, a small and a large lead to.
    fn choose(&mut self, mut pick: impl FnMut(usize, usize, usize, u32, Option<u32>, Option<u32>) -> Choice) {
        let k = self.model.lanes;
        let Shape { smalls, larges, .. } = self.shape;
        let at = |i: usize, j: usize, r: usize| (i * larges + j) * (k + 1) + r;
        let n = smalls * larges * (k + 1);
        self.best.resize(n, 0);
        self.choice.resize(n, Choice::Hold);
        for i in 0..smalls {
            for j in 0..larges {
                for r in 0..=k {
                    let hold = self.shape.index(i, j, r) as u32;
                    let small = (i > 0 && r < k).then(|| self.best[at(i - 1, j, r + 1)]);
                    let large = (j > 0 && r == 0).then(|| self.shape.index(i, j - 1, k + 1) as u32);
                    let (choice, best) = match pick(i, j, r, hold, small, large) {
                        Choice::StartSmall if small.is_some() => (Choice::StartSmall, small.unwrap_or(hold)),
                        Choice::StartLarge if large.is_some() => (Choice::StartLarge, large.unwrap_or(hold)),
                        _ => (Choice::Hold, hold),
                    };
                    self.best[at(i, j, r)] = best;
                    self.choice[at(i, j, r)] = choice;
                }
            }
        }
    }

    fn choice(&self, i: usize, j: usize, r: usize) -> Choice {
        self.choice[(i * self.shape.larges + j) * (self.model.lanes + 1) + r]
    }

    fn table(&self) -> Table {
        Table::build(self.model, self.truncation, |i, j, r| self.choice(i, j, r))
    }
}

impl Problem for Nonpreemptive {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn chain(&self) -> Chain {
        let k = self.model.lanes;
        let (shape, large) = (self.shape, k + 1);
        let at = |i: usize, j: usize, r: usize| self.best[(i * shape.larges + j) * (k + 1) + r];
        rule::build(&self.model, shape, k + 2, self.price, |event, i, j, s, _| match event {
            Event::Small(to) if s == large => shape.index(to, j, large) as u32,
            Event::Large(to) if s == large => shape.index(i, to, large) as u32,
            Event::Small(to) => at(to, j, s),
            Event::Large(to) => at(i, to, s),
            Event::End if s == large => at(i, j, 0),
            Event::End => at(i, j, s - 1),
        })
    }

    fn improve(&mut self, h: &[f64]) -> (f64, f64) {
        let (last_i, last_j) = (self.shape.smalls - 1, self.shape.larges - 1);
        self.choose(|i, j, r, hold, small, large| {
            // Holding must gain something real to be chosen: among equals, to start is the plainer rule.
            let mut least = h[hold as usize];
            let mut choice = Choice::Hold;
            if i == last_i && j == last_j && r == 0 {
                // The corner: no arrival gets in and nothing runs, so holding would be for ever.
                least = f64::INFINITY;
            }
            let margin = 1e-10 * (1.0 + h[hold as usize].abs());
            for (to, start) in [(small, Choice::StartSmall), (large, Choice::StartLarge)] {
                if let Some(to) = to
                    && h[to as usize] <= least + margin
                {
                    least = h[to as usize];
                    choice = start;
                }
            }
            choice
        });
        bounds(&self.chain(), h)
    }
}

/// The least and greatest of c(x) + sum q (h(y) - h(x)).
fn bounds(chain: &Chain, h: &[f64]) -> (f64, f64) {
    let mut least = f64::INFINITY;
    let mut greatest = f64::NEG_INFINITY;
    for (x, ((target, rate), cost)) in chain.target.iter().zip(&chain.rate).zip(&chain.cost).enumerate() {
        let drift: f64 = target.iter().zip(rate).map(|(&t, q)| q * (h[t as usize] - h[x])).sum();
        least = least.min(cost + drift);
        greatest = greatest.max(cost + drift);
    }
    (least, greatest)
}

/// Solves the model in which service may be stopped and resumed at any time, free of charge: a bound that no scheduler passes, and
/// near what requests that stop at steps can reach.
///
/// State: the numbers in the system; decision: whether the smalls or the large run. It is optimal to run smalls if and only if they
/// fill the node, up to the weight at which larges come first anyhow; here that is found, not assumed.
///
/// # Errors
/// As for [`solve`].
pub fn solve_preemptive(model: &Model, settings: &Settings) -> Result<Solution, SolveError> {
    model.check()?;
    let growth = Growth::from(model, settings, 1, Truncation::preemptive(model), Last::Both)?;
    let (solution, _) = grow(growth, |growth, _: Option<&Preemptive>| Preemptive::new(model, growth));
    Ok(solution)
}

struct Preemptive {
    model: Model,
    price: Price,
    shape: Shape,
    /// For each `(i, j)`: whether the large runs.
    large: Vec<bool>,
}

impl Preemptive {
    fn new(model: &Model, growth: &Growth<'_>) -> Self {
        let shape = growth.truncation.shape(1);
        let large = (0..shape.len()).map(|x| x % shape.larges > 0 && x / shape.larges < model.lanes).collect();
        Self { model: *model, price: growth.price, shape, large }
    }

    fn small_rate(&self, i: usize) -> f64 {
        i.min(self.model.lanes) as f64 * self.model.mu_small
    }
}

impl Problem for Preemptive {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn chain(&self) -> Chain {
        let (model, shape) = (&self.model, self.shape);
        let n = shape.len();
        let mut chain = Chain { shape, target: Vec::with_capacity(n), rate: Vec::with_capacity(n), cost: Vec::with_capacity(n) };
        for i in 0..shape.smalls {
            for j in 0..shape.larges {
                let own = shape.index(i, j, 0);
                let mut cost = i as f64 + model.weight * j as f64;
                let mut target = [own as u32; 3];
                if i + 1 < shape.smalls {
                    target[0] = shape.index(i + 1, j, 0) as u32;
                } else if model.lambda_small > 0.0 {
                    cost += model.lambda_small * self.price.small * model.marginal_small(i, j);
                }
                if j + 1 < shape.larges {
                    target[1] = shape.index(i, j + 1, 0) as u32;
                } else if model.lambda_large > 0.0 {
                    cost += model.lambda_large * self.price.large * model.marginal_large(i, j);
                }
                let end = if self.large[own] {
                    target[2] = shape.index(i, j - 1, 0) as u32;
                    model.mu_large
                } else if i > 0 {
                    target[2] = shape.index(i - 1, j, 0) as u32;
                    self.small_rate(i)
                } else {
                    0.0
                };
                chain.target.push(target);
                chain.rate.push([model.lambda_small, model.lambda_large, end]);
                chain.cost.push(cost);
            }
        }
        chain
    }

    fn improve(&mut self, h: &[f64]) -> (f64, f64) {
        for i in 0..self.shape.smalls {
            for j in 1..self.shape.larges {
                let own = self.shape.index(i, j, 0);
                let by_large = self.model.mu_large * (h[own] - h[self.shape.index(i, j - 1, 0)]);
                let by_small = if i > 0 { self.small_rate(i) * (h[own] - h[self.shape.index(i - 1, j, 0)]) } else { 0.0 };
                self.large[own] = by_large > by_small;
            }
        }
        bounds(&self.chain(), h)
    }
}
