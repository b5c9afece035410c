//! Moving averages of what the running system does: the only source of rates and means that a policy has.
//!
//! Instants and spans are whole [`Nanos`] everywhere; an average is an estimate, and is held as `f64` nanoseconds. Only sums,
//! products, quotients and square roots are taken of them, which IEEE 754 rounds alike on every machine: a replay agrees to the bit.

use crate::types::{Class, Nanos};

/// A mean that forgets: the first samples weigh `1/n` each (a plain mean), later ones a fixed weight.
#[derive(Clone, Copy, Debug)]
pub struct Average {
    mean: f64,
    samples: u64,
    weight: f64,
    /// From so many samples on, `1/n` is below `weight` for certain, and needs no division to say so.
    full: u64,
}

/// See [`Average::full`]. One more than it takes, so that no rounding matters.
const fn full(weight: f64) -> u64 {
    ((1.0 / weight) as u64).saturating_add(2)
}

impl Average {
    /// An average with no sample yet, that ends up weighing each new one with `weight` (0 to 1).
    #[must_use]
    pub const fn new(weight: f64) -> Self {
        Self { mean: 0.0, samples: 0, weight, full: full(weight) }
    }

    /// An average that starts from a value that is as good as one sample.
    #[must_use]
    pub const fn starting_at(value: f64, weight: f64) -> Self {
        Self { mean: value, samples: 1, weight, full: full(weight) }
    }

    /// Takes a sample in.
    #[inline]
    pub fn add(&mut self, sample: f64) {
        self.samples = self.samples.saturating_add(1);
        let weight = if self.samples < self.full { (1.0 / self.samples as f64).max(self.weight) } else { self.weight };
        self.mean += weight * (sample - self.mean);
    }

    /// Takes the same sample in so many times, in bounded time: past the first few thousand it would not move the mean any more.
    pub fn add_repeatedly(&mut self, sample: f64, times: u64) {
        const BOUND: u64 = 4_096;
        for _ in 0..times.min(BOUND) {
            self.add(sample);
        }
        self.samples = self.samples.saturating_add(times.saturating_sub(BOUND));
    }

    /// The mean, if there was a sample.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.mean)
    }

    /// How many samples it has seen.
    #[inline]
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }
}

/// The weight of one arrival or one completion. At 0.05 one long small request would drive the means, and with them every
/// threshold, far up. At 0.002 the noise of the measured load, which thresholds divide by what it leaves free, still costs over 1 % near
/// saturation; at 0.001 half of that, and a change of the load is followed within 1000 requests of its class.
const WEIGHT: f64 = 0.001;

/// What the node has seen of one class.
#[derive(Clone, Copy, Debug)]
struct Seen {
    last_arrival: Option<Nanos>,
    gap: Average,
    service: Average,
}

/// Arrivals and service of both classes.
#[derive(Clone, Copy, Debug)]
pub struct Averages {
    classes: [Seen; 2],
}

impl Averages {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new() -> Self {
        let nothing = Seen { last_arrival: None, gap: Average::new(WEIGHT), service: Average::new(WEIGHT) };
        Self { classes: [nothing; 2] }
    }

    /// A request was offered, taken or not.
    #[inline]
    pub(super) fn offered(&mut self, class: Class, arrival: Nanos) {
        let seen = &mut self.classes[class.index()];
        if let Some(last) = seen.last_arrival {
            seen.gap.add((arrival - last).0 as f64);
        }
        seen.last_arrival = Some(seen.last_arrival.map_or(arrival, |last| last.max(arrival)));
    }

    /// So many requests were offered since the last one that is known, and turned away before anybody could ask when each came: as
    /// if evenly spaced.
    pub(super) fn offered_and_refused(&mut self, class: Class, count: u64, now: Nanos) {
        let seen = &mut self.classes[class.index()];
        if let Some(last) = seen.last_arrival {
            seen.gap.add_repeatedly((now - last).0 as f64 / count as f64, count);
        }
        seen.last_arrival = Some(seen.last_arrival.map_or(now, |last| last.max(now)));
    }

    /// A request ran to its end.
    #[inline]
    pub(super) fn completed(&mut self, class: Class, ran: Nanos) {
        self.classes[class.index()].service.add(ran.0 as f64);
    }

    /// Mean service time in nanoseconds, once one request of the class has completed.
    #[inline]
    #[must_use]
    pub fn mean_service_ns(&self, class: Class) -> Option<f64> {
        self.classes[class.index()].service.get()
    }

    /// Arrivals offered in a nanosecond, once two have been.
    #[inline]
    #[must_use]
    pub fn rate_per_ns(&self, class: Class) -> Option<f64> {
        self.classes[class.index()].gap.get().filter(|&gap| gap > 0.0).map(f64::recip)
    }

    /// The share of the node's capacity that the class asks for: arrival rate × mean service × lanes of one request ÷ lanes.
    #[must_use]
    pub fn load(&self, class: Class, lanes: usize) -> Option<f64> {
        let width = match class {
            Class::Small => 1.0 / lanes as f64,
            Class::Large => 1.0,
        };
        Some(self.rate_per_ns(class)? * self.mean_service_ns(class)? * width)
    }
}

impl Default for Averages {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_samples_are_a_plain_mean_and_later_ones_are_forgotten() {
        let mut average = Average::new(0.1);
        for x in 1..=5 {
            average.add(f64::from(x));
        }
        assert!((average.get().unwrap() - 3.0).abs() < 1e-12);
        for _ in 0..200 {
            average.add(100.0);
        }
        assert!((average.get().unwrap() - 100.0).abs() < 1e-6);
    }

    #[test]
    fn the_weight_is_the_same_with_and_without_the_division() {
        for weight in [0.001, 0.01, 0.05, 0.1, 1.0 / 3.0, 0.7, 1.0] {
            let mut average = Average::new(weight);
            let mut plain = 0.0;
            for n in 1..=3_000_u32 {
                let sample = f64::from(n.wrapping_mul(2_654_435_761) >> 8);
                average.add(sample);
                plain += (1.0 / f64::from(n)).max(weight) * (sample - plain);
                assert_eq!(average.get(), Some(plain), "{weight}: sample {n}");
            }
        }
    }

    #[test]
    fn requests_turned_away_are_offered_load_too() {
        let mut averages = Averages::new();
        for i in 1..=100 {
            averages.offered(Class::Small, Nanos(i * 40));
            averages.offered_and_refused(Class::Small, 3, Nanos(i * 40 + 30));
        }
        let rate = averages.rate_per_ns(Class::Small).unwrap();
        assert!((rate - 0.1).abs() < 1e-3, "{rate}");
        averages.offered_and_refused(Class::Small, u64::MAX, Nanos::MAX);
    }

    #[test]
    fn load_is_rate_times_service_over_lanes() {
        let mut averages = Averages::new();
        for i in 0..100 {
            averages.offered(Class::Small, Nanos(i * 10));
            averages.completed(Class::Small, Nanos(40));
        }
        assert!((averages.load(Class::Small, 8).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(averages.load(Class::Large, 8), None);
    }
}
