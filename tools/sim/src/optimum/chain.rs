//! Average cost and relative values of a large Markov chain with costs: the linear algebra under everything else here.
//!
//! A chain in continuous time with rates `q` and cost rate `c` has the average cost g and the relative values h of
//!
//! ```text
//! c(x) + sum_y q(x, y) (h(y) - h(x)) = g      for every state x,    h(reference) = 0
//! ```
//!
//! For ANY h the left side's least and greatest value over x bound g from below and above (Odoni 1969): that is the span bound,
//! and it is computed from the final h itself, so it holds however h was found.
//!
//! h is found by GMRES with right preconditioning (Saad and Schultz 1986). The reference's equation gives g, and is subtracted from
//! the others. The preconditioner is a multigrid cycle for the chain that stops at the reference. It smooths by symmetric
//! Gauss-Seidel sweeps: downwards in the queues, which carries what arrivals do while a class is not served, then upwards, which
//! carries what services do. It corrects on coarser chains that merge neighbours in both queues, weighted by roughly how often each is
//! visited, as in the aggregation methods for Markov chains (Horton and Leutenegger 1994). Without the weights a coarse chain can drift
//! the wrong way, and the cycle diverges. If a restart brings too little, the rest is done with sweeps alone: they converge for any
//! policy (the matrix is a nonsingular M-matrix), only slowly. Relative value iteration would need about (1 - load)^-2 sweeps.

/// The box of states: `(small, large, phase)`, the phase fastest, the small queue slowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) smalls: usize,
    pub(crate) larges: usize,
    pub(crate) phases: usize,
}

impl Shape {
    fn halved(self) -> Self {
        Self { smalls: self.smalls.div_ceil(2), larges: self.larges.div_ceil(2), phases: self.phases }
    }

    pub(crate) fn len(self) -> usize {
        self.smalls * self.larges * self.phases
    }

    #[inline]
    pub(crate) fn index(self, small: usize, large: usize, phase: usize) -> usize {
        debug_assert!(small < self.smalls && large < self.larges && phase < self.phases);
        (small * self.larges + large) * self.phases + phase
    }
}

/// A chain with three events a state: a small arrives, a large arrives, a service ends.
///
/// State 0 is the reference and must be reachable from every state. An event whose target is its own state is a refused arrival:
/// it moves nothing, its price is in `cost`.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) shape: Shape,
    pub(crate) target: Vec<[u32; 3]>,
    pub(crate) rate: Vec<[f64; 3]>,
    pub(crate) cost: Vec<f64>,
}

/// What [`Chain::evaluate`] found.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    /// Average cost.
    pub(crate) gain: f64,
    /// Bounds of the average cost that h proves.
    pub(crate) lower: f64,
    pub(crate) upper: f64,
    /// Relative values, 0 at the reference.
    pub(crate) h: Vec<f64>,
    /// GMRES steps used.
    pub(crate) steps: usize,
}

/// Coarse chains that leave more than this of the residual after a whole restart are no help.
const COARSE_HELPS: f64 = 0.7;

/// GMRES vectors before a restart.
const RESTART: usize = 40;

impl Chain {
    /// Solves for the relative values, starting from `h`, until the span bound is at most `tolerance` times the cost, or
    /// `max_steps` are used up. The caller looks at the bounds: this function promises nothing else.
    pub(crate) fn evaluate(&self, mut h: Vec<f64>, tolerance: f64, max_steps: usize) -> Values {
        let n = self.shape.len();
        assert_eq!(h.len(), n, "one value a state");
        let offset = h[0];
        h.iter_mut().for_each(|v| *v -= offset);
        let mut hierarchy = Hierarchy::new(self);
        let mut steps = 0;
        let mut basis: Vec<Vec<f64>> = Vec::new();
        let mut r = vec![0.0; n];
        loop {
            let (gain, low, high) = self.residual(&h, &mut r);
            let done = high - low <= tolerance * gain.abs();
            if done || steps >= max_steps || !gain.is_finite() {
                return Values { gain, lower: gain + low, upper: gain + high, h, steps };
            }
            // One GMRES cycle on  A' y = r,  h += y,  where A' = -(Q - 1 q_0).
            let mut projected = Projected::new(norm(&r));
            if basis.is_empty() {
                basis.push(vec![0.0; n]);
            }
            scale_into(&mut basis[0], &r, 1.0 / projected.norm);
            // The spread allowed in each state, as a 2-norm over all states, is the aim of this cycle; the loop above decides.
            let aim = 0.3 * tolerance * gain.abs();
            let mut m = 0;
            let mut z = vec![0.0; n];
            while m < RESTART && steps < max_steps {
                hierarchy.apply(&basis[m], &mut z);
                steps += 1;
                if basis.len() <= m + 1 {
                    basis.push(vec![0.0; n]);
                }
                let (head, tail) = basis.split_at_mut(m + 1);
                let next = &mut tail[0];
                self.apply(&z, next);
                let mut column = Vec::with_capacity(m + 2);
                for v in head.iter() {
                    let d = dot(v, next);
                    axpy(next, v, -d);
                    column.push(d);
                }
                let rest = norm(next);
                column.push(rest);
                if rest > 0.0 {
                    next.iter_mut().for_each(|v| *v /= rest);
                }
                m += 1;
                let left = projected.push(column);
                if left < aim || rest == 0.0 {
                    break;
                }
            }
            let kept = h.clone();
            let y = projected.solve();
            r.fill(0.0);
            for (v, &a) in basis.iter().zip(&y) {
                axpy(&mut r, v, a);
            }
            hierarchy.apply(&r, &mut z);
            axpy(&mut h, &z, 1.0);
            let offset = h[0];
            h.iter_mut().for_each(|v| *v -= offset);
            if hierarchy.coarse && m == RESTART {
                // What the arithmetic promised against what came out: a bad coarse chain blows up, and rounding then eats the gain.
                self.residual(&h, &mut r);
                let came_out = norm(&r);
                if came_out.is_nan() || came_out > COARSE_HELPS * projected.norm {
                    hierarchy.coarse = false;
                    if came_out.is_nan() || came_out > projected.norm {
                        h.copy_from_slice(&kept);
                    }
                }
            }
        }
    }

    /// r(x) = c(x) + sum q (h(y) - h(x)) - g, with g from the reference's own equation; and the least and greatest r.
    fn residual(&self, h: &[f64], r: &mut [f64]) -> (f64, f64, f64) {
        let at = |x: usize| {
            let (t, q) = (&self.target[x], &self.rate[x]);
            let own = h[x];
            self.cost[x] + q[0] * (h[t[0] as usize] - own) + q[1] * (h[t[1] as usize] - own) + q[2] * (h[t[2] as usize] - own)
        };
        let gain = at(0);
        let (mut low, mut high) = (0.0f64, 0.0f64);
        for (x, out) in r.iter_mut().enumerate() {
            *out = at(x) - gain;
            low = low.min(*out);
            high = high.max(*out);
        }
        (gain, low, high)
    }

    /// out = A' z: the residual's linear part with its sign turned. z is taken to be 0 at the reference.
    fn apply(&self, z: &[f64], out: &mut [f64]) {
        let at = |x: usize| {
            let (t, q) = (&self.target[x], &self.rate[x]);
            let own = z[x];
            q[0] * (own - z[t[0] as usize]) + q[1] * (own - z[t[1] as usize]) + q[2] * (own - z[t[2] as usize])
        };
        let gain = at(0);
        for (x, o) in out.iter_mut().enumerate() {
            *o = at(x) - gain;
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    // Four sums, so that the additions do not wait for each other.
    let mut sums = [0.0; 4];
    let (ca, cb) = (a.chunks_exact(4), b.chunks_exact(4));
    let tail: f64 = ca.remainder().iter().zip(cb.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in ca.zip(cb) {
        for l in 0..4 {
            sums[l] += x[l] * y[l];
        }
    }
    sums.iter().sum::<f64>() + tail
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

fn axpy(y: &mut [f64], x: &[f64], a: f64) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

fn scale_into(y: &mut [f64], x: &[f64], a: f64) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = a * x;
    }
}

/// The small least-squares problem of GMRES, kept triangular by Givens rotations.
#[derive(Debug)]
struct Projected {
    norm: f64,
    columns: Vec<Vec<f64>>,
    rotations: Vec<(f64, f64)>,
    rhs: Vec<f64>,
}

impl Projected {
    fn new(norm: f64) -> Self {
        Self { norm, columns: Vec::new(), rotations: Vec::new(), rhs: vec![norm] }
    }

    /// Adds a Hessenberg column; returns the norm of what remains.
    fn push(&mut self, mut column: Vec<f64>) -> f64 {
        for (i, &(c, s)) in self.rotations.iter().enumerate() {
            let (a, b) = (column[i], column[i + 1]);
            column[i] = c * a + s * b;
            column[i + 1] = c * b - s * a;
        }
        let m = self.columns.len();
        let (a, b) = (column[m], column[m + 1]);
        let len = a.hypot(b);
        let (c, s) = if len > 0.0 { (a / len, b / len) } else { (1.0, 0.0) };
        column[m] = len;
        column.truncate(m + 1);
        self.columns.push(column);
        self.rotations.push((c, s));
        let top = self.rhs[m];
        self.rhs[m] = c * top;
        self.rhs.push(-s * top);
        (s * top).abs()
    }

    fn solve(&self) -> Vec<f64> {
        let m = self.columns.len();
        let mut y = self.rhs[..m].to_vec();
        for i in (0..m).rev() {
            let d = self.columns[i][i];
            y[i] = if d == 0.0 { 0.0 } else { y[i] / d };
            let yi = y[i];
            for (row, v) in y.iter_mut().enumerate().take(i) {
                *v -= self.columns[i][row] * yi;
            }
        }
        y
    }
}

/// Gauss-Seidel sweeps for the chain that stops at the reference.
#[derive(Debug)]
struct Sweeps {
    /// For each state the three targets with their probabilities, and the mean time to the next event that moves it. The reference is
    /// left out as a target by a probability of 0.
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    target: [u32; 3],
    probability: [f64; 3],
    time: f64,
}

/// Symmetric sweeps in one application without coarse chains: so many that they cost about as much as the orthogonalisation.
const SWEEPS: usize = 5;

impl Sweeps {
    fn new(chain: &Chain) -> Self {
        let rows = chain.target.iter().zip(&chain.rate).enumerate().map(|(x, (target, rate))| {
            let moves = |e: usize| if target[e] as usize == x { 0.0 } else { rate[e] };
            let total = moves(0) + moves(1) + moves(2);
            // A state that nothing leaves is not reached either (or the chain is not one that this solver can do, and the bound will
            // say so); any positive time keeps the arithmetic finite.
            let time = if total > 0.0 { 1.0 / total } else { 1.0 };
            let probability = |e: usize| if target[e] == 0 { 0.0 } else { moves(e) * time };
            Row { target: *target, probability: [probability(0), probability(1), probability(2)], time }
        });
        Self { rows: rows.collect() }
    }

    #[inline]
    fn inflow(&self, x: usize, z: &[f64]) -> f64 {
        let Row { target: t, probability: p, .. } = &self.rows[x];
        p[0] * z[t[0] as usize] + p[1] * z[t[1] as usize] + p[2] * z[t[2] as usize]
    }

    fn sweep(&self, b: &[f64], z: &mut [f64]) {
        for x in (1..self.rows.len()).rev() {
            z[x] = b[x] * self.rows[x].time + self.inflow(x, z);
        }
        for x in 1..self.rows.len() {
            z[x] = b[x] * self.rows[x].time + self.inflow(x, z);
        }
    }

    /// How often each state is visited, roughly: some steps of the chain from everywhere. What matters is the ratio between
    /// neighbours, which settles soon.
    fn visits(&self) -> Vec<f64> {
        let n = self.rows.len();
        let mut now = vec![1.0; n];
        let mut next = vec![0.0; n];
        for _ in 0..VISIT_STEPS {
            next.fill(0.0);
            for (x, row) in self.rows.iter().enumerate() {
                // Half stays, against the chain's parity.
                next[x] += 0.5 * now[x];
                for e in 0..3 {
                    next[row.target[e] as usize] += 0.5 * now[x] * row.probability[e];
                }
            }
            std::mem::swap(&mut now, &mut next);
        }
        // Visits times the time spent at each; and what was never visited still needs some weight in its group.
        for (v, row) in now.iter_mut().zip(&self.rows) {
            *v = *v * row.time + 1e-30;
        }
        now
    }
}

const VISIT_STEPS: usize = 200;

/// The preconditioner: sweeps, and coarse chains as long as they help.
#[derive(Debug)]
struct Hierarchy {
    sweeps: Sweeps,
    coarse: bool,
    group: Vec<u32>,
    weight: Vec<f64>,
    levels: Vec<Level>,
    last: Dense,
}

#[derive(Debug)]
struct Level {
    matrix: Matrix,
    group: Vec<u32>,
    weight: Vec<f64>,
    b: Vec<f64>,
    z: Vec<f64>,
}

/// A row-compressed matrix diag(d) - R with R >= 0.
#[derive(Debug)]
struct Matrix {
    start: Vec<u32>,
    entries: Vec<(u32, f64)>,
    diagonal: Vec<f64>,
}

/// Group of a state that belongs to none: the reference, whose value is fixed.
const NONE: u32 = u32::MAX;

impl Matrix {
    fn len(&self) -> usize {
        self.diagonal.len()
    }

    #[inline]
    fn row(&self, x: usize) -> &[(u32, f64)] {
        &self.entries[self.start[x] as usize..self.start[x + 1] as usize]
    }

    #[inline]
    fn inflow(&self, x: usize, z: &[f64]) -> f64 {
        self.row(x).iter().map(|&(y, q)| q * z[y as usize]).sum()
    }

    fn sweep(&self, b: &[f64], z: &mut [f64]) {
        for x in (0..self.len()).rev() {
            z[x] = (b[x] + self.inflow(x, z)) / self.diagonal[x];
        }
        for x in 0..self.len() {
            z[x] = (b[x] + self.inflow(x, z)) / self.diagonal[x];
        }
    }
}

/// Pairs of neighbours in both queues.
fn groups(shape: Shape, pin: bool) -> Vec<u32> {
    let coarse = shape.halved();
    let mut group = Vec::with_capacity(shape.len());
    for i in 0..shape.smalls {
        for j in 0..shape.larges {
            group.extend((0..shape.phases).map(|p| coarse.index(i / 2, j / 2, p) as u32));
        }
    }
    if pin {
        group[0] = NONE;
    }
    group
}

/// Weights that add up to 1 in each group, and the groups' own.
fn share_out(weight: &mut [f64], group: &[u32], groups: usize) -> Vec<f64> {
    let mut sums = vec![0.0; groups];
    for (w, &g) in weight.iter().zip(group).filter(|&(_, &g)| g != NONE) {
        sums[g as usize] += w;
    }
    for (w, &g) in weight.iter_mut().zip(group) {
        *w = if g == NONE { 0.0 } else { *w / sums[g as usize] };
    }
    sums
}

/// The matrix between groups: rows averaged with the weights, columns added.
fn merge<'a, I: Iterator<Item = (u32, f64)> + 'a>(
    rows: impl Fn(usize) -> (f64, I),
    group: &[u32],
    weight: &[f64],
    groups: usize,
) -> Matrix {
    let mut begin = vec![0u32; groups + 1];
    for &g in group.iter().filter(|&&g| g != NONE) {
        begin[g as usize + 1] += 1;
    }
    for g in 0..groups {
        begin[g + 1] += begin[g];
    }
    let mut order = vec![0u32; begin[groups] as usize];
    let mut fill = begin.clone();
    for (x, &g) in group.iter().enumerate().filter(|&(_, &g)| g != NONE) {
        order[fill[g as usize] as usize] = x as u32;
        fill[g as usize] += 1;
    }
    let mut matrix = Matrix { start: vec![0], entries: Vec::new(), diagonal: Vec::with_capacity(groups) };
    let mut place = vec![NONE; groups];
    for g in 0..groups {
        let first = matrix.entries.len();
        let mut diagonal = 0.0;
        for &x in &order[begin[g] as usize..begin[g + 1] as usize] {
            let w = weight[x as usize];
            let (own, entries) = rows(x as usize);
            diagonal += w * own;
            for (y, q) in entries {
                let to = group[y as usize];
                if to as usize == g {
                    diagonal -= w * q;
                } else if to != NONE {
                    let at = place[to as usize] as usize;
                    if at >= first && at < matrix.entries.len() && matrix.entries[at].0 == to {
                        matrix.entries[at].1 += w * q;
                    } else {
                        place[to as usize] = matrix.entries.len() as u32;
                        matrix.entries.push((to, w * q));
                    }
                }
            }
        }
        matrix.diagonal.push(if diagonal > 0.0 { diagonal } else { 1.0 });
        matrix.start.push(matrix.entries.len() as u32);
    }
    matrix
}

impl Hierarchy {
    fn new(chain: &Chain) -> Self {
        let sweeps = Sweeps::new(chain);
        let mut weight = sweeps.visits();
        let group = groups(chain.shape, true);
        let mut shape = chain.shape.halved();
        let mut up = share_out(&mut weight, &group, shape.len());
        let rows = |x: usize| {
            let row = &sweeps.rows[x];
            let rate = 1.0 / row.time;
            // The probabilities leave the reference out; what goes there is in the diagonal.
            (rate, (0..3).map(move |e| (row.target[e], row.probability[e] * rate)).filter(|&(_, q)| q > 0.0))
        };
        let mut matrix = merge(rows, &group, &weight, shape.len());
        let mut levels: Vec<Level> = Vec::new();
        while shape.len() > 600 && (shape.smalls > 2 || shape.larges > 2) {
            let mut weight = up;
            let group = groups(shape, false);
            shape = shape.halved();
            up = share_out(&mut weight, &group, shape.len());
            let rows = |x: usize| (matrix.diagonal[x], matrix.row(x).iter().copied());
            let next = merge(rows, &group, &weight, shape.len());
            let n = matrix.len();
            levels.push(Level { matrix, group, weight, b: vec![0.0; n], z: vec![0.0; n] });
            matrix = next;
        }
        Self { sweeps, coarse: true, group, weight, levels, last: Dense::factor(&matrix) }
    }

    /// z = about A^-1 b, where b is 0 at the reference.
    fn apply(&mut self, b: &[f64], z: &mut [f64]) {
        z.fill(0.0);
        if !self.coarse {
            for _ in 0..SWEEPS {
                self.sweeps.sweep(b, z);
            }
            return;
        }
        self.sweeps.sweep(b, z);
        let mut coarse = vec![0.0; self.levels.first().map_or(self.last.n, |l| l.matrix.len())];
        for x in 1..z.len() {
            let r = b[x] - (z[x] - self.sweeps.inflow(x, z)) / self.sweeps.rows[x].time;
            coarse[self.group[x] as usize] += self.weight[x] * r;
        }
        descend(&mut self.levels, &self.last, &mut coarse);
        for x in 1..z.len() {
            z[x] += coarse[self.group[x] as usize];
        }
        self.sweeps.sweep(b, z);
    }
}

/// One cycle over `levels`: `b` is the right side, and then the result.
fn descend(levels: &mut [Level], last: &Dense, b: &mut Vec<f64>) {
    let Some((here, below)) = levels.split_first_mut() else {
        last.solve(b);
        return;
    };
    std::mem::swap(&mut here.b, b);
    let Level { matrix, group, weight, b: rhs, z } = here;
    z.fill(0.0);
    matrix.sweep(rhs, z);
    let mut coarse = vec![0.0; below.first().map_or(last.n, |l| l.matrix.len())];
    for x in 0..matrix.len() {
        let r = rhs[x] + matrix.inflow(x, z) - matrix.diagonal[x] * z[x];
        coarse[group[x] as usize] += weight[x] * r;
    }
    descend(below, last, &mut coarse);
    for x in 0..matrix.len() {
        z[x] += coarse[group[x] as usize];
    }
    matrix.sweep(rhs, z);
    b.resize(z.len(), 0.0);
    b.copy_from_slice(z);
}

/// A dense LU factorisation. No pivots: the matrix is a nonsingular M-matrix, for which elimination in order is stable.
#[derive(Debug)]
struct Dense {
    n: usize,
    lu: Vec<f64>,
}

impl Dense {
    fn factor(matrix: &Matrix) -> Self {
        let n = matrix.len();
        let mut lu = vec![0.0; n * n];
        for x in 0..n {
            lu[x * n + x] = matrix.diagonal[x];
            for &(y, q) in matrix.row(x) {
                lu[x * n + y as usize] -= q;
            }
        }
        for p in 0..n {
            let (top, bottom) = lu.split_at_mut((p + 1) * n);
            let pivots = &top[p * n..];
            for row in bottom.chunks_exact_mut(n) {
                let factor = row[p] / pivots[p];
                if factor != 0.0 {
                    row[p] = factor;
                    axpy(&mut row[p + 1..], &pivots[p + 1..], -factor);
                }
            }
        }
        Self { n, lu }
    }

    fn solve(&self, z: &mut [f64]) {
        let n = self.n;
        for x in 1..n {
            let (known, rest) = z.split_at_mut(x);
            rest[0] -= dot(&self.lu[x * n..x * n + x], known);
        }
        for x in (0..n).rev() {
            let (head, known) = z.split_at_mut(x + 1);
            let row = &self.lu[x * n..(x + 1) * n];
            head[x] = (head[x] - dot(&row[x + 1..], known)) / row[x];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M/M/1: the mean number is rho / (1 - rho), and h(i) = i (i + 1) / (2 (mu - lambda)).
    #[test]
    fn the_single_server_queue_has_its_closed_form() {
        let (lambda, mu) = (0.8, 1.0);
        let n = 400;
        let shape = Shape { smalls: n, larges: 1, phases: 1 };
        let last = n - 1;
        let chain = Chain {
            shape,
            target: (0..n).map(|i| [if i == last { i } else { i + 1 } as u32, i as u32, i.saturating_sub(1) as u32]).collect(),
            rate: (0..n).map(|i| [lambda, 0.0, if i == 0 { 0.0 } else { mu }]).collect(),
            cost: (0..n).map(|i| i as f64 + if i == last { lambda * (i as f64 + 1.0) / (mu - lambda) } else { 0.0 }).collect(),
        };
        let values = chain.evaluate(vec![0.0; n], 1e-9, 1000);
        assert!((values.gain - 4.0).abs() < 1e-6, "{} after {}", values.gain, values.steps);
        assert!(values.lower <= values.gain && values.gain <= values.upper);
        for i in [1, 10, 100, 399] {
            let exact = (i * (i + 1)) as f64 / (2.0 * (mu - lambda));
            assert!((values.h[i] / exact - 1.0).abs() < 1e-5, "h({i}) = {} not {exact}", values.h[i]);
        }
    }
}
