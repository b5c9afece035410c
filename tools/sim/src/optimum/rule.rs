//! Stationary rules, and their exact cost on the model's own chain: what a simulator estimates, without its noise.
//!
//! A rule fits if its decision is a function of the Markov state (both queues and what runs) and of a small mode that the rule
//! itself moves. Decisions that look at ages, deadlines or predictions do not fit: those need the simulator.

use super::chain::{Chain, Shape};
use super::model::{Model, Price, harmonic};
use super::solve::{Growth, Settings, SolveError, Truncation};

/// What to do next in a state. [`Hold`](Self::Hold) means: nothing more until something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Start one queued small on a free lane; then decide again.
    StartSmall,
    /// Start the large on all lanes.
    StartLarge,
    /// Start nothing.
    Hold,
}

/// The state that a rule decides in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Smalls that wait.
    pub queued_small: usize,
    /// Larges that wait.
    pub queued_large: usize,
    /// Smalls that run; never all lanes, for then nothing is asked.
    pub running_small: usize,
    /// The rule's own mode, 0 at the start.
    pub mode: u8,
}

/// A stationary rule.
pub trait Rule {
    /// Number of modes, at least 1. Modes are `0..modes()`.
    fn modes(&self) -> usize {
        1
    }

    /// The choice in `view`, and the mode after it. Asked again after each start until it answers [`Choice::Hold`]; also asked when
    /// no lane is free for a small or no request is queued, so that it can move its mode: then only `Hold` is obeyed. Never asked
    /// while a large runs.
    fn decide(&self, view: &View) -> (Choice, u8);
}

/// The square-root switching rule of the policy `balance`, with the true parameters in place of measured ones, no predictions and no
/// age bound.
///
/// ```text
/// theta(nl) = max(0, -1 + sqrt( gain sqrt(rho_s / rho) sqrt(k ms / ml) w nl (D / ms) / ((1 - rho) (1 - beta)+) ))
/// ```
///
/// Nothing runs: a large if no small waits or at most theta(nl) do, else fill the lanes. Smalls run: when a large waits, no small is
/// queued and at most `close_at` run, CLOSE: start nothing, and reopen if more than theta (1 - H_r / H_k) smalls are queued with r
/// still running. A drain that has run to its end starts a large in any case.
///
/// The mode says "closed"; it matters only with nothing running, where a drain that has just ended and a large that has just ended ask
/// for different things. With a large waiting and 1 to `close_at` smalls running the phase is always closed.
#[derive(Debug, Clone)]
pub struct SquareRoot {
    theta: Vec<f64>,
    reopen: Vec<f64>,
    close_at: usize,
    lanes: usize,
    drain_s: f64,
}

/// The numbers in [`SquareRoot`] that are choices; the defaults are those of `balance`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SquareRootShape {
    /// The factor under the root, 4.
    pub gain: f64,
    /// Close at this many lanes running or fewer, as a part of the lanes: 5/8.
    pub close_at: f64,
    /// Subtracted from the root, 1.
    pub offset: f64,
    /// Power of (1 - H_r / H_k) in the reopening test, 1.
    pub reopen_power: f64,
    /// Factor on theta in the reopening test, 1.
    pub reopen_scale: f64,
    /// Power of rho_s / rho under the root, 1/2.
    pub mix_power: f64,
    /// Added to the larges that wait under the root, 0.
    pub large_offset: f64,
    /// Mean time from closing to the large's start, in seconds; `None`: H_k mean smalls.
    pub drain_s: Option<f64>,
}

impl Default for SquareRootShape {
    fn default() -> Self {
        Self {
            gain: 4.0,
            close_at: 0.625,
            offset: 1.0,
            reopen_power: 1.0,
            reopen_scale: 1.0,
            mix_power: 0.5,
            large_offset: 0.0,
            drain_s: None,
        }
    }
}

const OPEN: u8 = 0;
const CLOSED: u8 = 1;

impl SquareRoot {
    /// The rule for `model`.
    #[must_use]
    pub fn new(model: &Model, shape: &SquareRootShape) -> Self {
        let k = model.lanes as f64;
        let rho = model.load().min(0.97);
        let (ms, ml) = (1.0 / model.mu_small, 1.0 / model.mu_large);
        let drain_s = shape.drain_s.unwrap_or(harmonic(model.lanes) * ms);
        let slope = shape.gain
            * (model.load_small() / model.load()).powf(shape.mix_power)
            * (k * ms / ml).sqrt()
            * model.weight
            * (drain_s / ms)
            / ((1.0 - rho) * (1.0 - model.beta()).max(0.001));
        // Beyond any truncation that is solved the root is taken when asked.
        let theta = |nl: usize| ((slope * (nl as f64 + shape.large_offset)).sqrt() - shape.offset).max(0.0);
        let full = harmonic(model.lanes);
        Self {
            theta: (0..4096).map(theta).collect(),
            reopen: (0..=model.lanes)
                .map(|r| shape.reopen_scale * (1.0 - harmonic(r) / full).max(0.0).powf(shape.reopen_power))
                .collect(),
            close_at: (shape.close_at * k).floor() as usize,
            lanes: model.lanes,
            drain_s,
        }
    }

    /// The rule with the drain time that it measures itself: D and the drains that D brings about, made consistent.
    ///
    /// `shape.drain_s` is where the search starts. Each round runs the rule's own chain for 300,000 events (a fixed seed, so that the result
    /// is the same each time) and takes the mean time from closing to the large's start, without drains that were reopened. The
    /// threshold depends on the root of D, so five rounds are plenty.
    #[must_use]
    pub fn settled(model: &Model, shape: &SquareRootShape) -> Self {
        let mut rule = Self::new(model, shape);
        for round in 0..5 {
            let Some(drain_s) = rule.measure_drain(model, 300_000, 0x9e37_79b9_7f4a_7c15 ^ round) else { break };
            rule = Self::new(model, &SquareRootShape { drain_s: Some(drain_s), ..*shape });
        }
        rule
    }

    /// Mean time from closing to the large's start over `events` events; `None` without any.
    fn measure_drain(&self, model: &Model, events: u64, seed: u64) -> Option<f64> {
        let mut bits = seed | 1;
        let mut uniform = move || {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            (bits >> 11) as f64 / (1u64 << 53) as f64
        };
        let (mut i, mut j, mut r, mut large, mut mode) = (0, 0, 0, false, OPEN);
        let (mut now, mut closed_at) = (0.0, None);
        let (mut sum, mut samples) = (0.0, 0u64);
        for _ in 0..events {
            let end = if large { model.mu_large } else { r as f64 * model.mu_small };
            let total = model.lambda_small + model.lambda_large + end;
            now -= (1.0 - uniform()).ln() / total;
            let which = uniform() * total;
            if which < model.lambda_small {
                i += 1;
            } else if which < model.lambda_small + model.lambda_large {
                j += 1;
            } else if large {
                large = false;
            } else {
                r -= 1;
            }
            while !large {
                let view = View { queued_small: i, queued_large: j, running_small: r, mode };
                let (choice, next) = self.decide(&view);
                match (mode, next) {
                    (OPEN, CLOSED) => closed_at = Some(now),
                    (CLOSED, OPEN) if choice != Choice::StartLarge => closed_at = None,
                    _ => {}
                }
                mode = next;
                match choice {
                    Choice::StartSmall if i > 0 && r < self.lanes => {
                        i -= 1;
                        r += 1;
                    }
                    Choice::StartLarge if j > 0 && r == 0 => {
                        j -= 1;
                        large = true;
                        if let Some(at) = closed_at.take() {
                            sum += now - at;
                            samples += 1;
                        }
                    }
                    _ => break,
                }
            }
        }
        (samples > 0).then(|| sum / samples as f64)
    }

    /// The threshold with `larges` waiting, in queued smalls.
    #[must_use]
    pub fn theta(&self, larges: usize) -> f64 {
        let last = self.theta.len() - 1;
        if larges <= last { self.theta[larges] } else { (self.theta[last] + 1.0) * (larges as f64 / last as f64).sqrt() - 1.0 }
    }

    /// The drain time D that the threshold used, in seconds.
    #[must_use]
    pub fn drain_s(&self) -> f64 {
        self.drain_s
    }
}

/// [`SquareRoot`] without its mode: the phase is closed if and only if 1 to `close_at` smalls run and a large waits. The start of
/// policy iteration, which knows no modes.
pub(crate) struct Modeless(pub(crate) SquareRoot);

impl Rule for Modeless {
    fn decide(&self, view: &View) -> (Choice, u8) {
        let closed = view.queued_large > 0 && (1..=self.0.close_at).contains(&view.running_small);
        (self.0.decide(&View { mode: if closed { CLOSED } else { OPEN }, ..*view }).0, 0)
    }
}

impl Rule for SquareRoot {
    fn modes(&self) -> usize {
        2
    }

    fn decide(&self, view: &View) -> (Choice, u8) {
        let &View { queued_small: i, queued_large: j, running_small: r, mode } = view;
        if j == 0 {
            return (if i > 0 { Choice::StartSmall } else { Choice::Hold }, OPEN);
        }
        if r == 0 {
            return if i == 0 || mode == CLOSED || i as f64 <= self.theta(j) {
                (Choice::StartLarge, OPEN)
            } else {
                (Choice::StartSmall, OPEN)
            };
        }
        if mode == CLOSED {
            return if i as f64 > self.theta(j) * self.reopen[r] { (Choice::StartSmall, OPEN) } else { (Choice::Hold, CLOSED) };
        }
        if i > 0 && r < self.lanes {
            (Choice::StartSmall, OPEN)
        } else if i == 0 && r <= self.close_at {
            (Choice::Hold, CLOSED)
        } else {
            (Choice::Hold, OPEN)
        }
    }
}

/// MSF with quickswap (Chen et al. 2025, arXiv 2509.01893): serve larges until none is left; fill the lanes with smalls; close as
/// soon as at most `limit` smalls are in the system and a large waits. Mode 1 says "closed, or serving larges".
#[derive(Debug, Clone, Copy)]
pub struct Quickswap {
    /// Lanes, k.
    pub lanes: usize,
    /// L of the paper, 0..k.
    pub limit: usize,
}

impl Rule for Quickswap {
    fn modes(&self) -> usize {
        2
    }

    fn decide(&self, view: &View) -> (Choice, u8) {
        let &View { queued_small: i, queued_large: j, running_small: r, mode } = view;
        if j > 0 && mode == CLOSED {
            return (if r == 0 { Choice::StartLarge } else { Choice::Hold }, CLOSED);
        }
        if i > 0 && r < self.lanes {
            (Choice::StartSmall, OPEN)
        } else if j > 0 && i + r <= self.limit {
            (if r == 0 { Choice::StartLarge } else { Choice::Hold }, CLOSED)
        } else {
            (Choice::Hold, OPEN)
        }
    }
}

/// The exact cost of a rule.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RuleCost {
    /// W_w: mean smalls in the system + w x mean larges in the system.
    pub cost: f64,
    /// (greatest - least) / cost of the per-state residual: how sure `cost` is on this truncation.
    pub span_bound: f64,
    /// Whether `span_bound` and `truncation_change` met the settings.
    pub converged: bool,
    /// Relative change of the cost from half the truncation to this one.
    pub truncation_change: f64,
    /// The greatest queues in the chain.
    pub truncation: Truncation,
    /// GMRES steps, all truncations together.
    pub steps: usize,
}

/// The exact cost of `rule` on `model`; doubles the truncation until the cost stands still.
///
/// # Errors
/// [`SolveError`], when the model is not valid or the chain outgrows `settings.max_states`. A cost that did not converge is not an
/// error: it is returned with `converged` false, and must be reported so.
pub fn evaluate(model: &Model, rule: &impl Rule, settings: &Settings) -> Result<RuleCost, SolveError> {
    model.check()?;
    let width = model.lanes + 2;
    let mut growth = Growth::new(model, settings, width * rule.modes())?;
    let mut steps = 0;
    loop {
        let chain = rule_chain(model, rule, &growth);
        let values = chain.evaluate(growth.guess(chain.shape), settings.tolerance, settings.max_steps);
        steps += values.steps;
        let span_bound = (values.upper - values.lower) / values.gain.abs();
        let solved = span_bound <= settings.tolerance;
        if growth.done(values.gain, solved, chain.shape, values.h) {
            return Ok(RuleCost {
                cost: values.gain,
                span_bound,
                converged: solved && growth.settled(),
                truncation_change: growth.change,
                truncation: growth.truncation,
                steps,
            });
        }
    }
}

/// The rule's chain. A phase is `mode * (k + 2) + s`: s smalls run, or s = k + 1: the large.
fn rule_chain(model: &Model, rule: &impl Rule, growth: &Growth<'_>) -> Chain {
    let k = model.lanes;
    let (large, width, modes) = (k + 1, k + 2, rule.modes());
    let shape = growth.truncation.shape(width * modes);
    // Applies the rule until it holds, and names the state it comes to.
    let settle = |mut i: usize, j: usize, mut r: usize, mut mode: u8| {
        loop {
            let view = View { queued_small: i, queued_large: j, running_small: r, mode };
            let (choice, next) = rule.decide(&view);
            mode = next;
            match choice {
                Choice::StartSmall if i > 0 && r < k => {
                    i -= 1;
                    r += 1;
                }
                Choice::StartLarge if j > 0 && r == 0 => {
                    return shape.index(i, j - 1, mode as usize * width + large) as u32;
                }
                _ => return shape.index(i, j, mode as usize * width + r) as u32,
            }
        }
    };
    build(model, shape, width, growth.price, |event, i, j, s, mode| match event {
        Event::Small(to) if s == large => shape.index(to, j, mode * width + large) as u32,
        Event::Large(to) if s == large => shape.index(i, to, mode * width + large) as u32,
        Event::Small(to) => settle(to, j, s, mode as u8),
        Event::Large(to) => settle(i, to, s, mode as u8),
        Event::End if s == large => settle(i, j, 0, mode as u8),
        Event::End => settle(i, j, s - 1, mode as u8),
    })
}

/// What happened, with the queue it leads to.
pub(crate) enum Event {
    Small(usize),
    Large(usize),
    End,
}

/// The nonpreemptive chain whose event in state `(i, j, s, mode)` leads to `to(event, i, j, s, mode)`.
///
/// At the edge an arrival is turned away and pays about what it would have cost, a [`Price`]. Turned away free of charge, it would
/// teach the optimum to hold everything until the queue is at its edge.
pub(crate) fn build(
    model: &Model,
    shape: Shape,
    width: usize,
    price: Price,
    to: impl Fn(Event, usize, usize, usize, usize) -> u32,
) -> Chain {
    let k = model.lanes;
    let n = shape.len();
    let mut chain = Chain { shape, target: Vec::with_capacity(n), rate: Vec::with_capacity(n), cost: Vec::with_capacity(n) };
    for i in 0..shape.smalls {
        for j in 0..shape.larges {
            for p in 0..shape.phases {
                let (mode, s) = (p / width, p % width);
                let (smalls, larges) = if s > k { (i, j + 1) } else { (i + s, j) };
                let end_rate = if s > k { model.mu_large } else { s as f64 * model.mu_small };
                let own = chain.target.len() as u32;
                let mut cost = smalls as f64 + model.weight * larges as f64;
                // An arrival that is turned away still makes the rule decide: else the idle state in the corner would be left by
                // nothing.
                let (next_i, next_j) = ((i + 1).min(shape.smalls - 1), (j + 1).min(shape.larges - 1));
                if next_i == i && model.lambda_small > 0.0 {
                    cost += model.lambda_small * price.small * model.marginal_small(smalls, larges);
                }
                if next_j == j && model.lambda_large > 0.0 {
                    cost += model.lambda_large * price.large * model.marginal_large(smalls, larges);
                }
                let mut target = [to(Event::Small(next_i), i, j, s, mode), to(Event::Large(next_j), i, j, s, mode), own];
                if s > 0 {
                    target[2] = to(Event::End, i, j, s, mode);
                }
                chain.target.push(target);
                chain.rate.push([model.lambda_small, model.lambda_large, end_rate]);
                chain.cost.push(cost);
            }
        }
    }
    chain
}
