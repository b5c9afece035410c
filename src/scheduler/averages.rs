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

/// How many were offered of late, in buckets of 2^33 ns (8.6 s): 14 of them are 120 s.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// The bucket that is being filled.
    bucket: u64,
    counts: [[u32; 2]; Self::BUCKETS],
    /// Of all buckets.
    sum: [u64; 2],
    since: Option<Nanos>,
}

impl Recent {
    const BUCKETS: usize = 14;
    const BITS: u32 = 33;

    const NEW: Self = Self { bucket: 0, counts: [[0; 2]; Self::BUCKETS], sum: [0; 2], since: None };

    #[inline]
    fn add(&mut self, class: Class, count: u32, now: Nanos) {
        let bucket = now.0 >> Self::BITS;
        if bucket > self.bucket {
            let passed = (bucket - self.bucket).min(Self::BUCKETS as u64);
            for i in 0..passed {
                let old = std::mem::take(&mut self.counts[((bucket - i) % Self::BUCKETS as u64) as usize]);
                self.sum = [self.sum[0] - u64::from(old[0]), self.sum[1] - u64::from(old[1])];
            }
            self.bucket = bucket;
        }
        let counted = &mut self.counts[(self.bucket % Self::BUCKETS as u64) as usize][class.index()];
        let before = *counted;
        *counted = before.saturating_add(count);
        self.sum[class.index()] += u64::from(*counted - before);
        self.since.get_or_insert(now);
    }

    /// Offered in a nanosecond. The span is that since the oldest bucket began, or since the first offer, at least one bucket's.
    fn rate_per_ns(&self, class: Class, now: Nanos) -> f64 {
        let oldest = (self.bucket + 1).saturating_sub(Self::BUCKETS as u64) << Self::BITS;
        let from = self.since.unwrap_or(now).max(Nanos(oldest));
        self.sum[class.index()] as f64 / ((now - from).0.max(1 << Self::BITS)) as f64
    }
}

/// The weight of one request's step.
const STEP_WEIGHT: f64 = 0.01;

/// Arrivals and service of both classes.
#[derive(Clone, Copy, Debug)]
pub struct Averages {
    classes: [Seen; 2],
    recent: Recent,
    step: Average,
}

impl Averages {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new() -> Self {
        let nothing = Seen { last_arrival: None, gap: Average::new(WEIGHT), service: Average::new(WEIGHT) };
        Self { classes: [nothing; 2], recent: Recent::NEW, step: Average::new(STEP_WEIGHT) }
    }

    /// A request was offered, taken or not.
    #[inline]
    pub(super) fn offered(&mut self, class: Class, arrival: Nanos) {
        let seen = &mut self.classes[class.index()];
        if let Some(last) = seen.last_arrival {
            seen.gap.add((arrival - last).0 as f64);
        }
        seen.last_arrival = Some(seen.last_arrival.map_or(arrival, |last| last.max(arrival)));
        self.recent.add(class, 1, arrival);
    }

    /// A request with steps of this length was offered.
    #[inline]
    pub(super) fn offered_step(&mut self, step: Nanos) {
        self.step.add(step.0 as f64);
    }

    /// So many requests were offered since the last one that is known, and turned away before anybody could ask when each came: as
    /// if evenly spaced.
    pub(super) fn offered_and_refused(&mut self, class: Class, count: u64, now: Nanos) {
        let seen = &mut self.classes[class.index()];
        if let Some(last) = seen.last_arrival {
            seen.gap.add_repeatedly((now - last).0 as f64 / count as f64, count);
        }
        seen.last_arrival = Some(seen.last_arrival.map_or(now, |last| last.max(now)));
        self.recent.add(class, count.min(u64::from(u32::MAX)) as u32, now);
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

    /// The share of the node's capacity that the class has asked for in the last 120 s, refused ones included; 0 until a request of it has
    /// completed. Unlike [`load`](Self::load) it forgets by the clock: an overload is over when it is over, however few requests that takes.
    #[must_use]
    pub fn recent_load(&self, class: Class, lanes: usize, now: Nanos) -> f64 {
        let width = match class {
            Class::Small => 1.0 / lanes as f64,
            Class::Large => 1.0,
        };
        self.recent.rate_per_ns(class, now) * self.mean_service_ns(class).unwrap_or(0.0) * width
    }

    /// Mean length of a step in nanoseconds, over the requests that have steps; `None` before the first of them.
    #[inline]
    #[must_use]
    pub fn mean_step_ns(&self) -> Option<f64> {
        self.step.get()
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
