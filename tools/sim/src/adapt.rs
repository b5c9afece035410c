//! Changes to what a source gives: load, speed, an end, predictions, steps, hard deadlines.

use phalanx::{Class, Nanos};

use crate::random::{Lognormal, Purpose, Stream};
use crate::{InputError, Names, Source, TraceRequest};

/// How long the steps are that a source's requests are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// So long; above 0.
    Every(Nanos),
    /// One decode step a token: what follows the prefill, over the tokens that come out. A request whose trace does not say how many keeps
    /// what it brings.
    Token,
}

impl std::str::FromStr for Step {
    type Err = crate::units::UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "token" {
            return Ok(Self::Token);
        }
        text.parse()
            .map(|crate::units::Span(span)| Self::Every(span))
            .map_err(|e| crate::units::UnitError { or: ", or `token`", ..e })
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Every(span) => crate::units::Span(span).fmt(f),
            Self::Token => f.pad("token"),
        }
    }
}

/// What to change about a source. The default changes nothing.
///
/// Load is applied first, then speed, then the rest: `duration` and `step` are spans of the run as it will happen, not of the trace.
///
/// ```
/// use phalanx::Nanos;
/// use phalanx_sim::{Adapt, Source, TraceFile, TraceOptions};
///
/// let text = r#"{"timestamp": 0, "class": "small", "gpus": 1, "service_ms": 10, "slo_ms": 50}
/// {"timestamp": 100, "class": "large", "gpus": 8, "service_ms": 40, "slo_ms": 200}"#;
/// let trace = TraceFile::from_bytes("t.jsonl", text.as_bytes(), TraceOptions::default())?;
/// let adapt = Adapt { speed: 10.0, hard_deadlines: true, ..Adapt::default() };
/// let mut source = adapt.apply(trace.requests()?, trace.summary()?.native_load())?;
/// let last = source.iter().last().unwrap()?;
/// assert_eq!((last.arrival, last.service), (Nanos::from_millis(10), Nanos::from_millis(4)));
/// assert_eq!((last.deadline, last.target), (Some(Nanos::from_millis(20)), None));
/// # Ok::<(), phalanx_sim::InputError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Adapt {
    /// Stretches the arrivals so that the load becomes this; above 0, at most 1000.
    pub load: Option<f64>,
    /// Time and all spans of the requests so many times faster; from 1e-6 to 1e6.
    pub speed: f64,
    /// Ends the source before the first request that would arrive later than this; above 0.
    pub duration: Option<Nanos>,
    /// Ends the source after so many requests; above 0.
    pub requests: Option<u64>,
    /// Gives every request a prediction, in place of what it brings: its service time, times a lognormal error of mean 1 and this
    /// coefficient of variation; 0 (perfect) to 100.
    pub prediction_error: Option<f64>,
    /// Seeds the errors of the predictions; no other source of chance reads the same stream.
    pub seed: u64,
    /// Gives every request steps, in place of what it brings.
    pub step: Option<Step>,
    /// Makes each soft target a hard deadline (the earlier of the two where both are given).
    pub hard_deadlines: bool,
}

impl Default for Adapt {
    fn default() -> Self {
        Self {
            load: None,
            speed: 1.0,
            duration: None,
            requests: None,
            prediction_error: None,
            seed: 0,
            step: None,
            hard_deadlines: false,
        }
    }
}

/// Whether `value` is a number from `low` to `high`: false for NaN.
fn within(value: f64, low: f64, high: f64) -> bool {
    (low..=high).contains(&value)
}

impl Adapt {
    /// The highest load that may be asked for.
    const LOAD_MOST: f64 = 1_000.0;

    /// Checks every setting.
    ///
    /// # Errors
    /// The first one out of range, called by its flag.
    pub fn check(&self) -> Result<(), InputError> {
        if let Some(load) = self.load
            && (!within(load, 0.0, Self::LOAD_MOST) || load == 0.0)
        {
            return Err(InputError::setting("--load", format!("{load} is not a load"), "give a number above 0 and up to 1000"));
        }
        if !within(self.speed, 1e-6, 1e6) {
            let what = format!("{} is not a speed", self.speed);
            return Err(InputError::setting("--speed", what, "give a number from 0.000001 to 1000000"));
        }
        if self.duration == Some(Nanos::ZERO) {
            return Err(InputError::setting("--duration", "0 leaves nothing to run", "give a span above 0, such as `10s`"));
        }
        if self.requests == Some(0) {
            return Err(InputError::setting("--requests", "0 leaves nothing to run", "give a count above 0"));
        }
        if let Some(cv) = self.prediction_error
            && !within(cv, 0.0, 100.0)
        {
            let what = format!("{cv} is not a coefficient of variation");
            return Err(InputError::setting("--prediction-error", what, "give a number from 0 to 100"));
        }
        if self.step == Some(Step::Every(Nanos::ZERO)) {
            return Err(InputError::setting("--step", "0 is not a step", "give a span above 0, such as `20ms`"));
        }
        Ok(())
    }

    /// The source, changed. `native_load` is its load as it is ([`Summary::native_load`](crate::Summary::native_load),
    /// [`WorkloadSpec::load`](crate::WorkloadSpec::load)); it is needed only where a load is asked for.
    ///
    /// # Errors
    /// A setting out of range, or a load that is asked for where the native one cannot be told.
    pub fn apply<S: Source>(self, source: S, native_load: impl Into<Option<f64>>) -> Result<Adapted<S>, InputError> {
        self.check()?;
        let stretch = match self.load {
            None => 1.0,
            Some(load) => match native_load.into().filter(|&native| native > 0.0 && native.is_finite()) {
                Some(native) => native / load,
                None => {
                    let what = "the trace has no span: all its requests arrive at one moment, so that its load cannot be set";
                    return Err(InputError::setting("--load", what, "leave it out, or give a longer trace"));
                }
            },
        };
        let errors = self
            .prediction_error
            .map(|cv| (Lognormal::with_cv(cv), Class::ALL.map(|class| Stream::new(self.seed, Purpose::AddedError, class))));
        Ok(Adapted { source, adapt: self, stretch: stretch / self.speed, errors, given: 0, ended: false })
    }
}

/// A source, changed: made by [`Adapt::apply`].
#[derive(Clone, Debug)]
pub struct Adapted<S> {
    source: S,
    adapt: Adapt,
    /// What every arrival is multiplied by.
    stretch: f64,
    errors: Option<(Lognormal, [Stream; 2])>,
    given: u64,
    ended: bool,
}

/// `time` times `factor`, saturating; the very same where the factor is 1, since a u64 may not fit a float.
fn scale(time: Nanos, factor: f64) -> Nanos {
    if factor == 1.0 { time } else { Nanos((time.0 as f64 * factor).round() as u64) }
}

impl<S> Adapted<S> {
    /// The source behind it.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.source
    }

    fn change(&mut self, mut request: TraceRequest) -> TraceRequest {
        let faster = 1.0 / self.adapt.speed;
        request.arrival = scale(request.arrival, self.stretch);
        // A request holds its lanes for at least a nanosecond at any speed.
        request.service = scale(request.service, faster).max(Nanos(1));
        for span in [&mut request.expected, &mut request.deadline, &mut request.target, &mut request.prefill, &mut request.step] {
            *span = span.map(|span| scale(span, faster));
        }
        // A step that is given is one of at least a nanosecond.
        request.step = request.step.map(|step| step.max(Nanos(1)));
        if let Some((shape, streams)) = &mut self.errors {
            request.expected = Some(scale(request.service, streams[request.class.index()].lognormal(*shape)).max(Nanos(1)));
        }
        match (self.adapt.step, request.output_tokens) {
            (Some(Step::Every(step)), _) => request.step = Some(step),
            (Some(Step::Token), Some(tokens)) if tokens > 0 => {
                let decode = request.service - request.prefill.unwrap_or(Nanos::ZERO);
                request.step = Some(Nanos(decode.0 / u64::from(tokens)).max(Nanos(1)));
            }
            _ => {}
        }
        if self.adapt.hard_deadlines
            && let Some(target) = request.target.take()
        {
            request.deadline = Some(request.deadline.map_or(target, |deadline| deadline.min(target)));
        }
        request
    }
}

impl<S: Source> Source for Adapted<S> {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, InputError> {
        if self.ended || self.adapt.requests.is_some_and(|most| self.given >= most) {
            return Ok(None);
        }
        let Some(request) = self.source.next_request()? else {
            self.ended = true;
            return Ok(None);
        };
        let request = self.change(request);
        if self.adapt.duration.is_some_and(|end| request.arrival > end) {
            self.ended = true;
            return Ok(None);
        }
        self.given += 1;
        Ok(Some(request))
    }

    fn lanes(&self) -> usize {
        self.source.lanes()
    }

    fn tenants(&self) -> &Names {
        self.source.tenants()
    }

    fn models(&self) -> &Names {
        self.source.models()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Summary, WorkloadSpec};

    fn some(adapt: Adapt) -> Vec<TraceRequest> {
        let spec: WorkloadSpec = "mix:load=0.5".parse().unwrap();
        let adapt = Adapt { requests: adapt.requests.or(Some(2_000)), ..adapt };
        adapt.apply(spec.source(3), spec.load()).unwrap().iter().map(Result::unwrap).collect()
    }

    #[test]
    fn load_stretches_arrivals_alone() {
        let (plain, half) = (some(Adapt::default()), some(Adapt { load: Some(0.25), ..Adapt::default() }));
        for (a, b) in plain.iter().zip(&half) {
            assert_eq!((b.arrival, b.service, b.target), (Nanos(2 * a.arrival.0), a.service, a.target));
        }
    }

    #[test]
    fn the_load_asked_for_is_the_load_got() {
        let spec: WorkloadSpec = "mix:load=0.5".parse().unwrap();
        let cut = Adapt { requests: Some(5_000), ..Adapt::default() };
        let native = Summary::of(&mut cut.apply(spec.source(3), None).unwrap()).unwrap().native_load();
        let adapt = Adapt { load: Some(0.9), speed: 7.0, ..cut };
        let got = Summary::of(&mut adapt.apply(spec.source(3), native).unwrap()).unwrap().native_load().unwrap();
        assert!((got - 0.9).abs() < 1e-3, "{got}");
    }

    #[test]
    fn predictions_have_mean_one_and_disturb_nothing() {
        let adapt = Adapt { prediction_error: Some(0.3), requests: Some(50_000), ..Adapt::default() };
        let (plain, predicted) = (some(Adapt { requests: Some(50_000), ..Adapt::default() }), some(adapt));
        let mut ratio = 0.0;
        for (a, b) in plain.iter().zip(&predicted) {
            assert_eq!((a.arrival, a.service), (b.arrival, b.service));
            ratio += b.expected.unwrap().0 as f64 / b.service.0 as f64;
        }
        ratio /= plain.len() as f64;
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
        let perfect = some(Adapt { prediction_error: Some(0.0), ..Adapt::default() });
        assert!(perfect.iter().all(|r| r.expected == Some(r.service)));
    }

    #[test]
    fn duration_steps_and_deadlines() {
        let adapt = Adapt {
            duration: Some(Nanos::from_secs(1)),
            step: Some(Step::Every(Nanos::from_millis(20))),
            hard_deadlines: true,
            ..Adapt::default()
        };
        let cut = some(adapt);
        assert!(!cut.is_empty() && cut.len() < 2_000);
        assert!(cut.iter().all(|r| r.arrival <= Nanos::from_secs(1) && r.step == Some(Nanos::from_millis(20))));
        assert!(cut.iter().all(|r| r.target.is_none() && r.deadline.is_some()));
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let d = Adapt::default();
        for (adapt, flag) in [
            (Adapt { load: Some(0.0), ..d }, "--load"),
            (Adapt { load: Some(f64::NAN), ..d }, "--load"),
            (Adapt { load: Some(-1.0), ..d }, "--load"),
            (Adapt { speed: 0.0, ..d }, "--speed"),
            (Adapt { speed: -1.0, ..d }, "--speed"),
            (Adapt { speed: f64::INFINITY, ..d }, "--speed"),
            (Adapt { duration: Some(Nanos::ZERO), ..d }, "--duration"),
            (Adapt { requests: Some(0), ..d }, "--requests"),
            (Adapt { prediction_error: Some(-0.1), ..d }, "--prediction-error"),
            (Adapt { step: Some(Step::Every(Nanos::ZERO)), ..d }, "--step"),
        ] {
            let text = adapt.check().unwrap_err().to_string();
            assert!(text.starts_with(flag) && text.contains("; give"), "{text}");
        }
    }
}
