//! The endless source of a [`WorkloadSpec`].

use phalanx::{Class, Nanos};

use super::{Arrivals, Service, WorkloadSpec};
use crate::random::{Lognormal, Purpose, Stream};
use crate::{InputError, Names, Source, TraceRequest};

/// In a burst, the rate over the mean rate.
const BURST_RATE: f64 = 3.0;
/// Between bursts, the rate over the mean rate: with a fifth of the time in bursts, the mean is 1.
const QUIET_RATE: f64 = 0.5;
/// How long a burst lasts on average, in mean gaps.
const BURST_GAPS: f64 = 50.0;
/// How long it is quiet on average, in mean gaps.
const QUIET_GAPS: f64 = 200.0;

/// The requests of a [`WorkloadSpec`], endless; made by [`WorkloadSpec::source`].
///
/// The arrivals of each class, their bursts, its service times and the errors of its predictions draw from streams of their own
/// (ChaCha8, one stream number each, under one seed): to change the service distribution leaves every arrival where it was, and to
/// change one class leaves the other. The same seed gives the same requests on every platform.
#[derive(Clone, Debug)]
pub struct MixSource {
    spec: WorkloadSpec,
    classes: [ClassSource; 2],
    /// The next arrival of each class; `None`: never.
    next: [Option<Nanos>; 2],
    number: u64,
    names: Names,
}

#[derive(Clone, Debug)]
struct ClassSource {
    class: Class,
    mean_ns: f64,
    /// The mean gap between arrivals, in nanoseconds; `None`: this class never arrives.
    gap_ns: Option<f64>,
    shape: Option<Lognormal>,
    error_shape: Option<Lognormal>,
    arrivals: Stream,
    service: Stream,
    error: Stream,
    bursts: Option<Bursts>,
}

#[derive(Clone, Debug)]
struct Bursts {
    stream: Stream,
    in_burst: bool,
    /// How long the present state still lasts, in mean gaps.
    left: f64,
}

impl Bursts {
    fn new(stream: Stream) -> Self {
        let mut bursts = Self { stream, in_burst: true, left: 0.0 };
        bursts.flip();
        bursts
    }

    fn flip(&mut self) {
        self.in_burst = !self.in_burst;
        self.left = self.stream.exponential() * if self.in_burst { BURST_GAPS } else { QUIET_GAPS };
    }

    /// How long it takes, in mean gaps, until so much of a unit-rate process has passed: a change of the clock, so that a bursty
    /// workload uses the same draws of its arrival stream as a Poisson one.
    fn stretch(&mut self, mut due: f64) -> f64 {
        let mut passed = 0.0;
        loop {
            let rate = if self.in_burst { BURST_RATE } else { QUIET_RATE };
            if due <= self.left * rate {
                let last = due / rate;
                self.left -= last;
                return passed + last;
            }
            due -= self.left * rate;
            passed += self.left;
            self.flip();
        }
    }
}

/// Rounded to a whole nanosecond, halves up; saturating. As `round`, which is a call and not an instruction on every machine: what is cut
/// off is exact, and from 2^53 on nothing is.
#[inline]
fn nanos(ns: f64) -> Nanos {
    let whole = ns as u64;
    Nanos(whole.saturating_add(u64::from(ns - whole as f64 >= 0.5)))
}

impl ClassSource {
    fn new(spec: &WorkloadSpec, seed: u64, class: Class) -> Self {
        let rate = spec.rate(class);
        Self {
            class,
            mean_ns: spec.service_mean(class).0 as f64,
            gap_ns: (rate > 0.0).then(|| 1e9 / rate),
            shape: (spec.service() == Service::Lognormal).then(|| Lognormal::with_cv(spec.service_cv(class))),
            error_shape: spec.error().map(Lognormal::with_cv),
            arrivals: Stream::new(seed, Purpose::Arrivals, class),
            service: Stream::new(seed, Purpose::Service, class),
            error: Stream::new(seed, Purpose::Error, class),
            bursts: (spec.arrivals() == Arrivals::Bursty).then(|| Bursts::new(Stream::new(seed, Purpose::Bursts, class))),
        }
    }

    /// The arrival after the one at `now`.
    fn after(&mut self, now: Nanos) -> Option<Nanos> {
        let gap_ns = self.gap_ns?;
        let unit = self.arrivals.exponential();
        let gaps = self.bursts.as_mut().map_or(unit, |bursts| bursts.stretch(unit));
        let next = now + nanos(gaps * gap_ns);
        // The end of time: a rate so low that nothing more ever comes.
        (next < Nanos::MAX).then_some(next)
    }

    fn service(&mut self, kind: Service) -> Nanos {
        let unit = match (kind, self.shape) {
            (Service::Fixed, _) => 1.0,
            (_, Some(shape)) => self.service.lognormal(shape),
            (_, None) => self.service.exponential(),
        };
        nanos(unit * self.mean_ns).max(Nanos(1)).min(crate::units::MAX_SPAN)
    }
}

impl MixSource {
    pub(super) fn new(spec: WorkloadSpec, seed: u64) -> Self {
        let mut classes = Class::ALL.map(|class| ClassSource::new(&spec, seed, class));
        let next = classes.each_mut().map(|class| class.after(Nanos::ZERO));
        Self { spec, classes, next, number: 0, names: Names::new() }
    }

    /// What it was made from.
    #[must_use]
    pub fn spec(&self) -> &WorkloadSpec {
        &self.spec
    }
}

impl Source for MixSource {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, InputError> {
        // Ties go to the small one.
        let at = match self.next {
            [None, None] => return Ok(None),
            [Some(_), None] => 0,
            [None, Some(_)] => 1,
            [Some(small), Some(large)] => usize::from(large < small),
        };
        let Some(arrival) = self.next[at] else { return Ok(None) };
        let source = &mut self.classes[at];
        self.next[at] = source.after(arrival);
        let service = source.service(self.spec.service());
        let expected = source.error_shape.map(|shape| nanos(service.0 as f64 * source.error.lognormal(shape)).max(Nanos(1)));
        let number = self.number;
        self.number += 1;
        Ok(Some(TraceRequest {
            number,
            arrival,
            class: source.class,
            service,
            expected,
            deadline: None,
            target: self.spec.target(source.class),
            tenant: Names::NONE,
            model: Names::NONE,
            prefill: None,
            input_tokens: None,
            output_tokens: None,
            step: self.spec.step(source.class),
        }))
    }

    fn lanes(&self) -> usize {
        self.spec.lanes()
    }

    fn tenants(&self) -> &Names {
        &self.names
    }

    fn models(&self) -> &Names {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Adapt, Summary};

    fn take(spec: &str, seed: u64, n: usize) -> Vec<TraceRequest> {
        spec.parse::<WorkloadSpec>().unwrap().source(seed).iter().take(n).map(Result::unwrap).collect()
    }

    fn of(class: Class, requests: &[TraceRequest]) -> Vec<TraceRequest> {
        requests.iter().filter(|r| r.class == class).copied().collect()
    }

    #[test]
    fn load_share_means_and_variations_are_as_asked() {
        for (text, cvs) in [
            ("mix:load=0.8,share=0.5", [1.0, 1.0]),
            ("mix:load=0.7,share=0.2,service=lognormal", [1.5, 1.0]),
            ("mix:load=1.5,share=0.2,service=fixed", [0.0, 0.0]),
            ("mix:load=0.8,share=0.5,arrivals=bursty", [1.0, 1.0]),
            ("mix:rate_small=60,rate_large=0.5,lanes=4", [1.0, 1.0]),
        ] {
            let spec: WorkloadSpec = text.parse().unwrap();
            let cut = Adapt { requests: Some(1_000_000), ..Adapt::default() };
            let summary = Summary::of(&mut cut.apply(spec.source(1), None).unwrap()).unwrap();
            let load = summary.native_load().unwrap();
            assert!((load / spec.load() - 1.0).abs() < 0.04, "{text}: load {load}");
            assert!((summary.large_share() - spec.share()).abs() < 0.02, "{text}: share {}", summary.large_share());
            for class in Class::ALL {
                let got = summary.class(class);
                let mean = got.service_mean_ns / spec.service_mean(class).0 as f64;
                assert!((mean - 1.0).abs() < 0.04, "{text}: {class} mean {mean}");
                assert!((got.service_cv() - cvs[class.index()]).abs() < 0.12, "{text}: {class} cv {}", got.service_cv());
            }
        }
    }

    #[test]
    fn arrivals_are_in_order_and_numbered() {
        let requests = take("mix:arrivals=bursty", 5, 10_000);
        assert!(requests.windows(2).all(|w| w[0].arrival <= w[1].arrival && w[0].number + 1 == w[1].number));
    }

    #[test]
    fn bursts_spread_the_gaps() {
        let cv = |spec: &str| {
            let arrivals: Vec<f64> = of(Class::Small, &take(spec, 9, 200_000)).iter().map(|r| r.arrival.0 as f64).collect();
            // Counts in windows of 100 mean gaps: their variance over their mean is 1 for Poisson.
            let window = 100.0 * arrivals[arrivals.len() - 1] / arrivals.len() as f64;
            let mut counts = vec![0.0; arrivals.len() / 100 + 1];
            for a in &arrivals {
                counts[(a / window) as usize] += 1.0;
            }
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            counts.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>() / counts.len() as f64 / mean
        };
        let (poisson, bursty) = (cv("mix"), cv("mix:arrivals=bursty"));
        assert!((poisson - 1.0).abs() < 0.2 && bursty > 10.0, "{poisson} {bursty}");
    }

    #[test]
    fn one_knob_leaves_the_other_draws_alone() {
        let base = take("mix", 11, 5_000);
        let strip = |r: &TraceRequest| (r.arrival, r.class);
        // Service, targets and predictions move no arrival.
        for other in ["mix:service=lognormal,cv_small=3", "mix:error=0.3", "mix:slo_small=none"] {
            assert!(base.iter().map(strip).eq(take(other, 11, 5_000).iter().map(strip)), "{other}");
        }
        // Predictions change no service time.
        assert!(base.iter().map(|r| r.service).eq(take("mix:error=0.3", 11, 5_000).iter().map(|r| r.service)));
        // The larges change nothing about the smalls.
        let smalls = of(Class::Small, &take("mix:rate_small=50,rate_large=1", 11, 5_000));
        let alone = take("mix:rate_small=50", 11, 5_000);
        assert!(smalls.iter().zip(&alone).all(|(a, b)| (a.arrival, a.service) == (b.arrival, b.service)));
        // Bursts reuse the services.
        assert!(
            of(Class::Small, &base)
                .iter()
                .zip(&of(Class::Small, &take("mix:arrivals=bursty", 11, 5_000)))
                .all(|(a, b)| a.service == b.service)
        );
        assert_ne!(base, take("mix", 12, 5_000));
        assert_eq!(base, take("mix", 11, 5_000));
    }

    #[test]
    fn nanoseconds_are_rounded_as_round_does() {
        let below = |x: f64| f64::from_bits(x.to_bits() - 1);
        let mut cases =
            vec![0.0, 0.5, below(0.5), 1.5, 2.5, below(2.5), 1e300, f64::INFINITY, u64::MAX as f64, below(u64::MAX as f64)];
        for power in 0..64 {
            let x = 2_f64.powi(power);
            cases.extend([x - 0.5, x, x + 0.5, below(x), below(x + 0.5), x * 1.1]);
        }
        for ns in cases {
            assert_eq!(nanos(ns), Nanos(ns.round() as u64), "{ns}");
        }
    }

    #[test]
    fn a_class_without_rate_never_arrives() {
        assert!(of(Class::Large, &take("mix:share=0", 1, 1_000)).is_empty());
        assert!(of(Class::Small, &take("mix:share=1", 1, 1_000)).is_empty());
    }
}
