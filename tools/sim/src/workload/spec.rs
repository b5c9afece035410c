//! `mix:key=value,…`.

use std::fmt;
use std::str::FromStr;

use phalanx::types::MAX_SIM_LANES;
use phalanx::{Class, Nanos};

use super::MixSource;
use crate::InputError;
use crate::error::excerpt;
use crate::units::{Span, SpanOrTimes};

/// How requests of a class arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arrivals {
    /// A Poisson process: independent exponential gaps.
    #[default]
    Poisson,
    /// A Poisson process whose rate switches between two states (Markov-modulated), of the same mean rate: 3 times the mean in a
    /// burst, half of it between bursts. A burst lasts as long as 50 mean gaps, the time between two as long as 200, both
    /// exponential: so a fifth of the time is burst, and a burst brings 150 requests on average. Each class bursts by itself.
    Bursty,
}

/// How the service times of a class are distributed around their mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Service {
    /// Exponential: coefficient of variation 1.
    #[default]
    Exponential,
    /// Lognormal, with the coefficients of variation of the spec.
    Lognormal,
    /// Always the mean.
    Fixed,
}

/// How much arrives.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Volume {
    /// A load of the node, and the share of it that is large.
    Load { load: f64, share: f64 },
    /// Requests a second, by class.
    Rates([f64; 2]),
}

/// A workload of small and large requests: `mix:key=value,…`, parsed and printed.
///
/// | key | default | means |
/// |---|---|---|
/// | `load` | 0.8 | GPU time asked for, over GPU time there is; above 0, at most 1000 (above 1: overload) |
/// | `share` | 0.3 | the share of that work that is large; 0 to 1 |
/// | `rate_small`, `rate_large` | | requests a second, instead of `load` and `share`; one that is not given is 0; at most 1e9 |
/// | `small`, `large` | 50ms, 400ms | mean service times; from 1 us to 1 day |
/// | `service` | exp | `exp`, `lognormal` or `fixed` |
/// | `cv_small`, `cv_large` | 1.5, 1 | coefficients of variation, with `service=lognormal` alone; 0 to 100 |
/// | `arrivals` | poisson | `poisson` or `bursty` ([`Arrivals`] states the process) |
/// | `slo_small`, `slo_large` | 10x, 10x | soft targets: times the mean, a span, or `none` |
/// | `lanes` | 8 | lanes that a large request holds; 1 to 64 |
/// | `step_small`, `step_large` | | a request can stop at multiples of this span of its run; without, it runs to its end; up to 1 day |
/// | `error` | | gives predictions with this coefficient of variation; 0 is perfect; at most 100 |
///
/// ```
/// use phalanx_sim::WorkloadSpec;
///
/// let spec: WorkloadSpec = "mix:load=0.9,share=0.5,small=20ms,slo_large=2s".parse()?;
/// assert_eq!(spec.to_string(), "mix:load=0.9,share=0.5,small=20ms,slo_large=2s");
/// assert_eq!("mix".parse::<WorkloadSpec>()?, WorkloadSpec::default());
/// assert!((spec.load() - 0.9).abs() < 1e-12);
/// # Ok::<(), phalanx_sim::InputError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WorkloadSpec {
    volume: Volume,
    means: [Nanos; 2],
    service: Service,
    cvs: [f64; 2],
    arrivals: Arrivals,
    slos: [Option<SpanOrTimes>; 2],
    lanes: usize,
    error: Option<f64>,
    steps: [Option<Nanos>; 2],
}

const KEYS: &str = "load, share, small, large, service, cv_small, cv_large, arrivals, slo_small, slo_large, rate_small, rate_large, \
                    lanes, step_small, step_large, error";
const LOAD: f64 = 0.8;
const SHARE: f64 = 0.3;

impl Default for WorkloadSpec {
    fn default() -> Self {
        Self {
            volume: Volume::Load { load: LOAD, share: SHARE },
            means: [Nanos::from_millis(50), Nanos::from_millis(400)],
            service: Service::default(),
            cvs: [1.5, 1.0],
            arrivals: Arrivals::default(),
            slos: [Some(SpanOrTimes::Times(10.0)); 2],
            lanes: 8,
            error: None,
            steps: [None; 2],
        }
    }
}

fn setting(key: &str, what: impl Into<String>, remedy: impl Into<String>) -> InputError {
    InputError::setting(format!("workload mix: {key}"), what, remedy)
}

fn number(key: &str, text: &str, low: f64, high: f64, above: bool) -> Result<f64, InputError> {
    let bounds = || {
        if above { format!("give a number above {low} and up to {high}") } else { format!("give a number from {low} to {high}") }
    };
    let shown = excerpt(text.as_bytes());
    let value: f64 = text.parse().map_err(|_| setting(key, format!("`{shown}` is not a number"), bounds()))?;
    // NaN is in no range.
    if !(low..=high).contains(&value) || (above && value == low) {
        return Err(setting(key, format!("{shown} is out of range"), bounds()));
    }
    // No negative zero, so that what is printed parses back to the same.
    Ok(value + 0.0)
}

fn mean(key: &str, text: &str) -> Result<Nanos, InputError> {
    let Span(span) = text.parse().map_err(|e| setting(key, "is not a mean service time", format!("{e}")))?;
    if span < Nanos::from_micros(1) || span > Nanos::from_secs(86_400) {
        return Err(setting(key, format!("{} is out of range", Span(span)), "give a span from 1us to 24h"));
    }
    Ok(span)
}

fn step(key: &str, text: &str) -> Result<Nanos, InputError> {
    let Span(span) = text.parse().map_err(|e| setting(key, "is not a step", format!("{e}")))?;
    if span == Nanos::ZERO || span > Nanos::from_secs(86_400) {
        return Err(setting(key, format!("{} is out of range", Span(span)), "give a span above 0 and up to 24h, such as `20ms`"));
    }
    Ok(span)
}

fn slo(key: &str, text: &str) -> Result<Option<SpanOrTimes>, InputError> {
    if text == "none" {
        return Ok(None);
    }
    let slo: SpanOrTimes = text.parse().map_err(|e| setting(key, "is not a target", format!("{e}, or `none`")))?;
    if slo == SpanOrTimes::Span(Span(Nanos::ZERO)) {
        return Err(setting(
            key,
            "0 can be met by no request",
            "give a span above 0, a multiple of the mean such as `10x`, or `none`",
        ));
    }
    Ok(Some(slo))
}

impl FromStr for WorkloadSpec {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        if name.trim() != "mix" {
            let what = format!("`{}` is not a workload", excerpt(name.as_bytes()));
            return Err(InputError::setting("workload", what, "known: mix, as `mix:key=value,…`"));
        }
        let mut spec = Self::default();
        let (mut load, mut share, mut rates) = (None, None, [None, None]);
        let (mut cvs, mut seen) = ([None, None], Vec::new());
        for pair in settings.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                let shown = excerpt(pair.as_bytes());
                return Err(setting(&shown, "has no value", format!("write key=value; known keys: {KEYS}")));
            };
            let (key, value) = (key.trim(), value.trim());
            match key {
                "load" => load = Some(number(key, value, 0.0, 1_000.0, true)?),
                "share" => share = Some(number(key, value, 0.0, 1.0, false)?),
                "rate_small" => rates[0] = Some(number(key, value, 0.0, 1e9, false)?),
                "rate_large" => rates[1] = Some(number(key, value, 0.0, 1e9, false)?),
                "small" => spec.means[0] = mean(key, value)?,
                "large" => spec.means[1] = mean(key, value)?,
                "service" => {
                    spec.service = match value {
                        "exp" => Service::Exponential,
                        "lognormal" => Service::Lognormal,
                        "fixed" => Service::Fixed,
                        _ => {
                            let what = format!("`{}` is not a distribution", excerpt(value.as_bytes()));
                            return Err(setting(key, what, "known: exp, lognormal, fixed"));
                        }
                    }
                }
                "cv_small" => cvs[0] = Some(number(key, value, 0.0, 100.0, false)?),
                "cv_large" => cvs[1] = Some(number(key, value, 0.0, 100.0, false)?),
                "arrivals" => {
                    spec.arrivals = match value {
                        "poisson" => Arrivals::Poisson,
                        "bursty" => Arrivals::Bursty,
                        _ => {
                            let what = format!("`{}` is not an arrival process", excerpt(value.as_bytes()));
                            return Err(setting(key, what, "known: poisson, bursty"));
                        }
                    }
                }
                "slo_small" => spec.slos[0] = slo(key, value)?,
                "slo_large" => spec.slos[1] = slo(key, value)?,
                "lanes" => {
                    let remedy = format!("give a whole number from 1 to {MAX_SIM_LANES}");
                    spec.lanes = match value.parse() {
                        Ok(lanes) if (1..=MAX_SIM_LANES).contains(&lanes) => lanes,
                        Ok(_) => return Err(setting(key, format!("{} is out of range", excerpt(value.as_bytes())), remedy)),
                        Err(_) => {
                            return Err(setting(key, format!("`{}` is not a whole number", excerpt(value.as_bytes())), remedy));
                        }
                    }
                }
                "step_small" => spec.steps[0] = Some(step(key, value)?),
                "step_large" => spec.steps[1] = Some(step(key, value)?),
                "error" => spec.error = Some(number(key, value, 0.0, 100.0, false)?),
                _ => return Err(setting(&excerpt(key.as_bytes()), "is not a key", format!("known keys: {KEYS}"))),
            }
            if seen.contains(&key) {
                return Err(setting(key, "is given twice", "give each key once"));
            }
            seen.push(key);
        }
        spec.volume = match (rates, load, share) {
            ([None, None], load, share) => Volume::Load { load: load.unwrap_or(LOAD), share: share.unwrap_or(SHARE) },
            (rates, None, None) => Volume::Rates(rates.map(|rate| rate.unwrap_or(0.0))),
            _ => {
                let what = "are given beside `load` or `share`, which say the same in another way";
                return Err(setting("rate_small, rate_large", what, "give either rates or load and share"));
            }
        };
        if spec.volume == Volume::Rates([0.0, 0.0]) {
            return Err(setting("rate_small, rate_large", "both are 0: nothing ever arrives", "make one of them positive"));
        }
        for (at, key) in ["cv_small", "cv_large"].into_iter().enumerate() {
            if let Some(cv) = cvs[at] {
                if spec.service != Service::Lognormal {
                    return Err(setting(key, "has no effect with this service", "add `service=lognormal`, or leave it out"));
                }
                spec.cvs[at] = cv;
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for WorkloadSpec {
    /// The text that parses back to the same spec, with what differs from the defaults alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        let mut separator = ":";
        f.write_str("mix")?;
        let mut put = |key: &str, value: &dyn fmt::Display| {
            let written = write!(f, "{separator}{key}={value}");
            separator = ",";
            written
        };
        match self.volume {
            Volume::Load { load, share } => {
                if load != LOAD {
                    put("load", &load)?;
                }
                if share != SHARE {
                    put("share", &share)?;
                }
            }
            Volume::Rates([small, large]) => {
                put("rate_small", &small)?;
                put("rate_large", &large)?;
            }
        }
        for (at, key) in ["small", "large"].into_iter().enumerate() {
            if self.means[at] != default.means[at] {
                put(key, &Span(self.means[at]))?;
            }
        }
        match self.service {
            Service::Exponential => {}
            Service::Lognormal => put("service", &"lognormal")?,
            Service::Fixed => put("service", &"fixed")?,
        }
        for (at, key) in ["cv_small", "cv_large"].into_iter().enumerate() {
            if self.cvs[at] != default.cvs[at] {
                put(key, &self.cvs[at])?;
            }
        }
        if self.arrivals == Arrivals::Bursty {
            put("arrivals", &"bursty")?;
        }
        for (at, key) in ["slo_small", "slo_large"].into_iter().enumerate() {
            if self.slos[at] != default.slos[at] {
                match self.slos[at] {
                    Some(slo) => put(key, &slo)?,
                    None => put(key, &"none")?,
                }
            }
        }
        if self.lanes != default.lanes {
            put("lanes", &self.lanes)?;
        }
        for (key, step) in ["step_small", "step_large"].into_iter().zip(self.steps) {
            if let Some(step) = step {
                put(key, &Span(step))?;
            }
        }
        if let Some(error) = self.error {
            put("error", &error)?;
        }
        Ok(())
    }
}

impl WorkloadSpec {
    /// The endless source of it; the same seed gives the same requests on every platform.
    #[must_use]
    pub fn source(&self, seed: u64) -> MixSource {
        MixSource::new(*self, seed)
    }

    /// The lanes that a large request holds.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// The same with another lane count: with a load, the rates follow; with rates, the load.
    ///
    /// # Errors
    /// A count that is not from 1 to 64.
    pub fn with_lanes(mut self, lanes: usize) -> Result<Self, InputError> {
        if !(1..=MAX_SIM_LANES).contains(&lanes) {
            return Err(setting(
                "lanes",
                format!("{lanes} is out of range"),
                format!("give a whole number from 1 to {MAX_SIM_LANES}"),
            ));
        }
        self.lanes = lanes;
        Ok(self)
    }

    /// The span of its run at whose multiples a request of a class can stop, if it can.
    #[must_use]
    pub fn step(&self, class: Class) -> Option<Nanos> {
        self.steps[class.index()]
    }

    /// The mean service time of a class.
    #[must_use]
    pub fn service_mean(&self, class: Class) -> Nanos {
        self.means[class.index()]
    }

    /// How service times are distributed.
    #[must_use]
    pub fn service(&self) -> Service {
        self.service
    }

    /// The coefficient of variation of the service times of a class.
    #[must_use]
    pub fn service_cv(&self, class: Class) -> f64 {
        match self.service {
            Service::Exponential => 1.0,
            Service::Lognormal => self.cvs[class.index()],
            Service::Fixed => 0.0,
        }
    }

    /// How requests arrive.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    /// The soft target of a class, from arrival to completion.
    #[must_use]
    pub fn target(&self, class: Class) -> Option<Nanos> {
        self.slos[class.index()].map(|slo| slo.of(self.service_mean(class)))
    }

    /// The coefficient of variation of the predictions; `None` if none are given.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        self.error
    }

    /// Requests of a class, a second, in the long-run mean.
    #[must_use]
    pub fn rate(&self, class: Class) -> f64 {
        let mean = self.service_mean(class).as_secs_f64();
        match (self.volume, class) {
            (Volume::Rates(rates), class) => rates[class.index()],
            (Volume::Load { load, share }, Class::Small) => load * (1.0 - share) * self.lanes as f64 / mean,
            (Volume::Load { load, share }, Class::Large) => load * share / mean,
        }
    }

    /// The GPU time that a class asks for, over what there is.
    fn load_of(&self, class: Class) -> f64 {
        let held = self.rate(class) * self.service_mean(class).as_secs_f64();
        match class {
            Class::Small => held / self.lanes as f64,
            Class::Large => held,
        }
    }

    /// The load: GPU time asked for, over GPU time there is.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.load_of(Class::Small) + self.load_of(Class::Large)
    }

    /// The share of the work that is large, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.load_of(Class::Large) / self.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("mux", "`mux` is not a workload; known: mix"),
            ("mix:lod=1", "lod: is not a key; known keys: load, share"),
            ("mix:load", "load: has no value"),
            ("mix:load=0", "load: 0 is out of range; give a number above 0 and up to 1000"),
            ("mix:load=NaN", "load: NaN is out of range"),
            ("mix:load=-1", "load: -1 is out of range"),
            ("mix:load=inf", "load: inf is out of range"),
            ("mix:load=x", "load: `x` is not a number"),
            ("mix:share=1.1", "share: 1.1 is out of range; give a number from 0 to 1"),
            ("mix:small=50", "has no unit"),
            ("mix:small=0s", "small: 0s is out of range; give a span from 1us to 24h"),
            ("mix:service=gamma", "service: `gamma` is not a distribution; known: exp, lognormal, fixed"),
            ("mix:arrivals=weibull", "known: poisson, bursty"),
            ("mix:cv_small=2", "cv_small: has no effect"),
            ("mix:slo_small=0s", "slo_small: 0 can be met by no request"),
            ("mix:lanes=65", "lanes: 65 is out of range; give a whole number from 1 to 64"),
            ("mix:lanes=8.5", "lanes: `8.5` is not a whole number"),
            ("mix:error=-1", "error: -1 is out of range"),
            ("mix:rate_small=5,load=1", "give either rates or load and share"),
            ("mix:rate_small=0", "nothing ever arrives"),
            ("mix:load=0.5,load=0.6", "load: is given twice"),
        ] {
            let error = text.parse::<WorkloadSpec>().expect_err(text).to_string();
            assert!(error.contains(says) && error.starts_with("workload") && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn rates_and_loads_say_the_same() {
        let spec: WorkloadSpec = "mix:load=0.8,share=0.25,small=50ms,large=400ms".parse().unwrap();
        assert!((spec.rate(Class::Small) - 96.0).abs() < 1e-9 && (spec.rate(Class::Large) - 0.5).abs() < 1e-9);
        let rates: WorkloadSpec = "mix:rate_small=96,rate_large=0.5".parse().unwrap();
        assert!((rates.load() - 0.8).abs() < 1e-9 && (rates.share() - 0.25).abs() < 1e-9);
        assert_eq!(spec.target(Class::Large), Some(Nanos::from_secs(4)));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(mix)?:?[a-z_]{0,10}[=,:]?.{0,20}") {
            let _ = text.parse::<WorkloadSpec>();
        }

        #[test]
        fn what_is_printed_parses_back(
            load in 0.001_f64..1000.0, share in 0.0_f64..=1.0, rates in prop::option::of((0.001_f64..1e6, 0.0_f64..1e6)),
            small in 1_000_u64..86_400_000_000_000, service in 0..3, cv in 0.0_f64..100.0, bursty: bool,
            slo in prop::option::of(0.001_f64..1e9), slo_span in 1_u64..1_000_000_000_000, lanes in 1_usize..=64,
            error in prop::option::of(0.0_f64..100.0),
        ) {
            let mut text = match rates {
                Some((small, large)) => format!("mix:rate_small={small},rate_large={large}"),
                None => format!("mix:load={load},share={share}"),
            };
            text += &format!(",small={small}ns,lanes={lanes},slo_large={slo_span}ns");
            text += &slo.map_or(",slo_small=none".to_owned(), |slo| format!(",slo_small={slo}x"));
            text += &match service { 0 => String::new(), 1 => ",service=fixed".into(), _ => format!(",service=lognormal,cv_large={cv}") };
            if bursty { text += ",arrivals=bursty" }
            if let Some(error) = error { text += &format!(",error={error}") }
            let spec: WorkloadSpec = text.parse().unwrap();
            prop_assert_eq!(spec.to_string().parse::<WorkloadSpec>().unwrap(), spec);
        }
    }
}
