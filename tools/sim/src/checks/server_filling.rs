//! Server filling solved exactly, to judge its simulation by more than another simulation.
//!
//! With exponential service of mean 1 and one or all lanes a request, what a decision depends on is small. A request's class plays no part
//! before the shortest prefix reaches it; until then it is large with the share of the larges, whatever happened before. So a state is: how
//! many smalls are known at the front (j), whether a large is known behind them (then it runs, and j < k), and how many unknown ones follow (n;
//! none unless a large is known or j = k). An arrival adds an unknown one. When the front has lost a request the next ones become known, until
//! there are k smalls, or a large, or no more.

/// The solution on 32 lanes with a tenth of the requests large: arrivals in a mean service time, and the mean response. Found by
/// `mean_response` below and by sparse elimination, which agree to six digits; solving takes minutes, so that the checks have it from here.
pub(super) const EXACT: [(f64, f64); 3] = [(6.5, 6.768_879), (7.0, 9.932_312), (7.5, 22.694_50)];

/// Mean response in mean service times, for arrivals at rate `lambda`, of which the part `share` is large, on `k` lanes. The unknown ones
/// are cut at `cut`; the probability that lies there is returned beside it.
#[cfg(test)]
fn mean_response(lambda: f64, share: f64, k: usize, cut: usize) -> (f64, f64) {
    let chain = Chain { lambda, share, k, cut };
    let mut pi = vec![1.0 / chain.states() as f64; chain.states()];
    // Into each state: from where, at which rate.
    let mut into: Vec<Vec<(u32, f64)>> = vec![Vec::new(); chain.states()];
    let mut out = vec![0.0; chain.states()];
    for (state, out) in out.iter_mut().enumerate() {
        for (rate, to) in chain.leaves(state) {
            if to != state {
                into[to].push((state as u32, rate));
                *out += rate;
            }
        }
    }
    // Gauss-Seidel, in both directions in turn, since mass moves both ways.
    let mut before = f64::INFINITY;
    for sweep in 0..20_000 {
        let mut balance = |state: usize| {
            let flow: f64 = into[state].iter().map(|&(from, rate)| pi[from as usize] * rate).sum();
            pi[state] = flow / out[state];
        };
        if sweep % 2 == 0 {
            (0..chain.states()).for_each(&mut balance);
        } else {
            (0..chain.states()).rev().for_each(&mut balance);
        }
        if sweep % 50 == 49 {
            let sum: f64 = pi.iter().sum();
            pi.iter_mut().for_each(|p| *p /= sum);
            let mean = chain.mean_number(&pi);
            if (mean / before - 1.0).abs() < 1e-9 {
                break;
            }
            before = mean;
        }
    }
    let edge = (0..chain.states()).filter(|&state| chain.parts(state).2 + 1 >= cut).map(|state| pi[state]).sum();
    (chain.mean_number(&pi) / lambda, edge)
}

#[cfg(test)]
struct Chain {
    lambda: f64,
    share: f64,
    k: usize,
    cut: usize,
}

#[cfg(test)]
impl Chain {
    /// Those without a known large: j below k, then j = k with n unknown ones.
    const fn states(&self) -> usize {
        self.k + self.cut + self.k * self.cut
    }

    fn open(&self, j: usize, n: usize) -> usize {
        debug_assert!(j == self.k || n == 0);
        if j < self.k { j } else { self.k + n.min(self.cut - 1) }
    }

    fn closed(&self, j: usize, n: usize) -> usize {
        self.k + self.cut + j * self.cut + n.min(self.cut - 1)
    }

    /// Whether a large is known, j, n.
    fn parts(&self, state: usize) -> (bool, usize, usize) {
        if state < self.k {
            (false, state, 0)
        } else if state < self.k + self.cut {
            (false, self.k, state - self.k)
        } else {
            let rest = state - self.k - self.cut;
            (true, rest / self.cut, rest % self.cut)
        }
    }

    /// No large is known, and j smalls are: where it goes, and how probably, once as many have become known as can.
    fn become_known(&self, rate: f64, mut j: usize, mut n: usize, to: &mut Vec<(f64, usize)>) {
        let mut left = rate;
        while j < self.k && n > 0 {
            n -= 1;
            to.push((left * self.share, self.closed(j, n)));
            left *= 1.0 - self.share;
            j += 1;
        }
        to.push((left, self.open(j, n)));
    }

    fn leaves(&self, state: usize) -> Vec<(f64, usize)> {
        let (large, j, n) = self.parts(state);
        let mut to = Vec::new();
        if large {
            to.push((self.lambda, self.closed(j, n + 1)));
            self.become_known(1.0, j, n, &mut to);
        } else {
            self.become_known(self.lambda, j, n + 1, &mut to);
            if j > 0 {
                self.become_known(j as f64, j - 1, n, &mut to);
            }
        }
        to
    }

    fn mean_number(&self, pi: &[f64]) -> f64 {
        let number = |state| {
            let (large, j, n) = self.parts(state);
            (usize::from(large) + j + n) as f64
        };
        pi.iter().enumerate().map(|(state, p)| p * number(state)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "takes minutes: cargo test --release -p phalanx-sim --lib -- --ignored exact"]
    fn the_exact_values_are_solutions() {
        for ((lambda, mean), cut) in EXACT.into_iter().zip([600, 900, 2_500]) {
            let (found, edge) = mean_response(lambda, 0.1, 32, cut);
            assert!((found / mean - 1.0).abs() < 1e-5 && edge < 1e-6, "{lambda}: {found}");
        }
    }

    #[test]
    fn without_larges_it_is_erlangs_and_without_smalls_a_single_server() {
        // M/M/2 at load 0.7: E[T] = 1 / (1 - rho^2); M/M/1 at 0.6: 1 / (1 - rho).
        let (smalls, edge) = mean_response(1.4, 0.0, 2, 200);
        assert!((smalls * (1.0 - 0.49) - 1.0).abs() < 1e-6 && edge < 1e-9, "{smalls}");
        let (larges, _) = mean_response(0.6, 1.0, 4, 200);
        assert!((larges * 0.4 - 1.0).abs() < 1e-6, "{larges}");
    }
}
