//! Random streams that give the same numbers on every platform.
//!
//! The bits come from ChaCha8, whose output is fixed by its specification. The two distributions are made here, by inversion and by
//! Box and Muller, with the logarithm, sine and exponential of the `libm` crate: the standard library's come from the platform and
//! may differ in the last bit, and the ready-made samplers of the ecosystem use them in their tails and may change their algorithm
//! between versions.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What a stream is for. Each purpose has one of its own, for each class: to turn one knob leaves the draws of all others as they were.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The gaps between arrivals.
    Arrivals = 0,
    /// Service times.
    Service = 1,
    /// The errors of predictions that a workload gives.
    Error = 2,
    /// When bursts begin and end.
    Bursts = 3,
    /// The errors of predictions that are added to a trace.
    AddedError = 4,
}

/// One stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    bits: ChaCha8Rng,
    /// Box and Muller give two at a time.
    spare: Option<f64>,
}

impl Stream {
    /// The stream of this purpose and class under `seed`. Streams of one seed share no bits: ChaCha numbers its streams.
    pub(crate) fn new(seed: u64, purpose: Purpose, class: phalanx::Class) -> Self {
        let mut bits = ChaCha8Rng::seed_from_u64(seed);
        bits.set_stream(2 * purpose as u64 + class.index() as u64);
        Self { bits, spare: None }
    }

    /// Uniform in (0, 1]: 53 bits, never 0, so that its logarithm is finite.
    fn uniform(&mut self) -> f64 {
        ((self.bits.next_u64() >> 11) + 1) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -libm::log(self.uniform())
    }

    /// Normal with mean 0 and variance 1.
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = libm::sqrt(-2.0 * libm::log(self.uniform()));
        let (sin, cos) = libm::sincos(std::f64::consts::TAU * self.uniform());
        self.spare = Some(radius * sin);
        radius * cos
    }

    /// Lognormal with mean 1 and this coefficient of variation.
    pub(crate) fn lognormal(&mut self, shape: Lognormal) -> f64 {
        libm::exp(shape.sigma * self.normal() - shape.sigma * shape.sigma / 2.0)
    }
}

/// A lognormal of mean 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lognormal {
    /// The deviation of its logarithm.
    sigma: f64,
}

impl Lognormal {
    pub(crate) fn with_cv(cv: f64) -> Self {
        Self { sigma: libm::sqrt(libm::log1p(cv * cv)) }
    }
}

#[cfg(test)]
mod tests {
    use phalanx::Class;

    use super::*;

    #[test]
    fn means_and_variations_are_as_asked() {
        let mut stream = Stream::new(7, Purpose::Service, Class::Small);
        let shape = Lognormal::with_cv(1.5);
        let n = 400_000;
        let moments = |draw: &mut dyn FnMut() -> f64| {
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..n {
                let x = draw();
                sum += x;
                squares += x * x;
            }
            let mean = sum / f64::from(n);
            (mean, (squares / f64::from(n) - mean * mean).sqrt() / mean)
        };
        let (mean, cv) = moments(&mut || stream.exponential());
        assert!((mean - 1.0).abs() < 0.01 && (cv - 1.0).abs() < 0.01, "{mean} {cv}");
        let (mean, cv) = moments(&mut || stream.lognormal(shape));
        assert!((mean - 1.0).abs() < 0.015 && (cv - 1.5).abs() < 0.1, "{mean} {cv}");
        assert_eq!(stream.lognormal(Lognormal::with_cv(0.0)), 1.0);
    }

    /// These very numbers on every platform: a change of one of them changes every published result.
    #[test]
    fn the_numbers_never_change() {
        let mut stream = Stream::new(42, Purpose::Arrivals, Class::Large);
        let drawn: Vec<u64> = (0..3).map(|_| (stream.exponential() * 1e9) as u64).collect();
        assert_eq!(drawn, [332_970_062, 1_790_298_498, 728_950_697]);
        let shape = Lognormal::with_cv(0.3);
        let drawn: Vec<u64> = (0..3).map(|_| (stream.lognormal(shape) * 1e9) as u64).collect();
        assert_eq!(drawn, [1_118_414_246, 1_026_127_550, 1_110_168_430]);
    }
}
