//! Spans of time as people write them: `20ms`, `1.5s`, `250us`, and `10x` where a multiple makes sense.
//!
//! The one place for it: workload specs, rules, policy settings and the program's flags all read and print spans here. A library
//! such as humantime does not do, since it refuses fractions (`1.5s`) and knows no multiples.

use std::fmt;
use std::str::FromStr;

use phalanx::Nanos;

/// The longest span that is accepted anywhere: 366 days.
pub const MAX_SPAN: Nanos = Nanos::from_secs(366 * 86_400);

/// The units, longest first: `Span` prints in the first that gives a short exact number.
const UNITS: [(&str, u64); 6] =
    [("h", 3_600_000_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A text is not a span (or not a multiple). Its text says what is wrong and what is accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` {what}; write a number with a unit of ns, us, ms, s, min or h, such as `20ms` or `1.5s`{or}")]
pub struct UnitError {
    pub(crate) text: String,
    pub(crate) what: &'static str,
    pub(crate) or: &'static str,
}

/// A span of time, from 0 to [`MAX_SPAN`], with the text of people: parses `20ms`, prints it back exactly.
///
/// The units are `ns`, `us` (or `µs`), `ms`, `s`, `min` (or `m`) and `h`; fractions are allowed; a bare number is refused, but for 0.
///
/// ```
/// use phalanx::Nanos;
/// use phalanx_sim::units::Span;
///
/// assert_eq!("1.5ms".parse::<Span>()?.0, Nanos(1_500_000));
/// assert_eq!(Span(Nanos::from_millis(90_000)).to_string(), "90s");
/// assert!("20".parse::<Span>().is_err());
/// # Ok::<(), phalanx_sim::units::UnitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(pub Nanos);

impl From<Span> for Nanos {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let refuse = |what| UnitError { text: crate::error::excerpt(text.as_bytes()), what, or: "" };
        let trimmed = text.trim();
        let (number, unit) = trimmed.split_at(trimmed.find(char::is_alphabetic).unwrap_or(trimmed.len()));
        // "NaN", "inf" and "1e3s" begin their unit at a letter, so none of them reaches the parser of floats as a number.
        let value: f64 = number.trim().parse().map_err(|_| refuse("is not a span of time"))?;
        if value.is_sign_negative() && value != 0.0 {
            return Err(refuse("is negative"));
        }
        let scale: u64 = match unit {
            "" if value == 0.0 => 1,
            "" => return Err(refuse("has no unit")),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(refuse("has an unknown unit")),
        };
        let ns = value * scale as f64;
        if ns > MAX_SPAN.0 as f64 {
            return Err(refuse("is longer than 366 days"));
        }
        Ok(Self(Nanos(ns.round() as u64)))
    }
}

impl fmt::Display for Span {
    /// Exact and short: in whole hours or minutes, or else in the longest unit that needs at most three decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.0;
        if ns == 0 {
            return f.pad("0s");
        }
        // Nobody reads 1.5min at a glance: only seconds and below have decimals.
        let parts = |scale: u64| if scale > 1_000_000_000 { 1 } else { 1_000 };
        let (unit, scale) = UNITS
            .into_iter()
            .find(|&(_, scale)| ns >= scale && (u128::from(ns) * parts(scale)).is_multiple_of(u128::from(scale)))
            .unwrap_or(("ns", 1));
        let (whole, thousandths) = (ns / scale, (u128::from(ns % scale) * 1_000 / u128::from(scale)) as u64);
        let text = if thousandths == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}.{}{unit}", format!("{thousandths:03}").trim_end_matches('0'))
        };
        f.pad(&text)
    }
}

/// A span, or so many times another span which the context names (the mean service time of a class, say): `2s` or `10x`.
///
/// ```
/// use phalanx::Nanos;
/// use phalanx_sim::units::SpanOrTimes;
///
/// let slo: SpanOrTimes = "10x".parse()?;
/// assert_eq!(slo.of(Nanos::from_millis(50)), Nanos::from_millis(500));
/// let slo: SpanOrTimes = "2s".parse()?;
/// assert_eq!(slo.of(Nanos::from_millis(50)), Nanos::from_secs(2));
/// # Ok::<(), phalanx_sim::units::UnitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SpanOrTimes {
    /// A span by itself.
    Span(Span),
    /// So many times the other span; finite, above 0, at most 1e9.
    Times(f64),
}

impl SpanOrTimes {
    /// The span, given the one that a multiple counts; saturating at [`MAX_SPAN`].
    #[must_use]
    pub fn of(self, unit: Nanos) -> Nanos {
        match self {
            Self::Span(span) => span.0,
            Self::Times(times) => Nanos((unit.0 as f64 * times).round() as u64).min(MAX_SPAN),
        }
    }
}

impl FromStr for SpanOrTimes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const OR: &str = ", or a multiple such as `10x`";
        if let Some(number) = text.trim().strip_suffix('x') {
            return match number.parse::<f64>() {
                Ok(times) if times > 0.0 && times <= 1e9 => Ok(Self::Times(times)),
                _ => {
                    let text = crate::error::excerpt(text.as_bytes());
                    Err(UnitError { text, what: "is not a multiple above 0 and up to 1e9", or: OR })
                }
            };
        }
        text.parse().map(Self::Span).map_err(|e: UnitError| UnitError { or: OR, ..e })
    }
}

impl fmt::Display for SpanOrTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Span(span) => span.fmt(f),
            Self::Times(times) => f.pad(&format!("{times}x")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_parse_with_every_unit_and_refuse_the_rest() {
        for (text, ns) in [
            ("20ms", 20_000_000),
            ("1.5s", 1_500_000_000),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("7 ns", 7),
            ("2min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0", 0),
            (".5ms", 500_000),
        ] {
            assert_eq!(text.parse::<Span>().unwrap().0, Nanos(ns), "{text}");
        }
        for bad in ["", "20", "ms", "-1s", "NaNs", "infs", "1e9s", "20parsecs", "367000h", "1..5s", "10x", "1s2ms", "∞"] {
            let error = bad.parse::<Span>().expect_err(bad).to_string();
            assert!(!error.contains('\n') && error.contains("such as"), "{error}");
        }
        assert_eq!("-5ms".parse::<Span>().unwrap_err().to_string().split(';').next(), Some("`-5ms` is negative"));
    }

    #[test]
    fn multiples_parse_and_refuse() {
        assert_eq!("1.5x".parse(), Ok(SpanOrTimes::Times(1.5)));
        for bad in ["x", "0x", "-1x", "NaNx", "infx", "1e10x"] {
            assert!(bad.parse::<SpanOrTimes>().unwrap_err().to_string().ends_with("or a multiple such as `10x`"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(ns in 0..=MAX_SPAN.0 >> 10, coarse in 0_u64..1_000_000) {
            for ns in [ns, coarse * 1_000, coarse * 1_000_000] {
                let span = Span(Nanos(ns));
                prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
            }
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<SpanOrTimes>();
        }
    }
}
