//! What every importer makes of a line, before classes and service times are settled; and the checks of its numbers.

use std::borrow::Cow;

use phalanx::Nanos;

use crate::InputError;
use crate::error::{Place, excerpt};
use crate::units::MAX_SPAN;

/// The latest arrival: 200 years, so that times counted from 1970 fit.
const MAX_ARRIVAL: Nanos = Nanos::from_secs(200 * 365 * 86_400);

/// The most tokens of one request.
pub(super) const MAX_TOKENS: u32 = 100_000_000;

/// A line as its importer reads it.
#[derive(Debug, Default)]
pub(super) struct Raw<'a> {
    /// As the file counts, not yet from the first.
    pub(super) arrival: Nanos,
    pub(super) service: Option<Nanos>,
    pub(super) prefill: Option<Nanos>,
    pub(super) expected: Option<Nanos>,
    pub(super) deadline: Option<Nanos>,
    pub(super) target: Option<Nanos>,
    pub(super) step: Option<Nanos>,
    pub(super) input: Option<u32>,
    pub(super) output: Option<u32>,
    pub(super) gpus: Option<u32>,
    pub(super) class: Option<Cow<'a, str>>,
    pub(super) tenant: Option<Cow<'a, str>>,
    pub(super) model: Option<Cow<'a, str>>,
}

/// What a line turned out to be.
pub(super) enum Parsed<'a> {
    Request(Raw<'a>),
    /// Of the format, but nothing that ran.
    Skipped,
    /// A comment.
    Nothing,
}

/// What a format calls its fields, for errors that are found after the importer is done.
#[derive(Clone, Debug)]
pub(super) struct FieldNames {
    pub(super) arrival: String,
    pub(super) service: String,
    pub(super) gpus: String,
    pub(super) input: String,
    pub(super) output: String,
}

/// A unit of time of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Seconds,
    Millis,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Millis => "ms",
        }
    }

    fn nanos(self) -> f64 {
        match self {
            Self::Seconds => 1e9,
            Self::Millis => 1e6,
        }
    }
}

fn time(place: Place<'_>, field: &str, value: f64, unit: Unit, limit: Nanos, limit_name: &str) -> Result<Nanos, InputError> {
    let ns = value * unit.nanos();
    // NaN is in no range.
    if (0.0..=limit.0 as f64).contains(&ns) {
        return Ok(Nanos(ns.round() as u64));
    }
    let what = if value.is_nan() {
        "NaN is not a time".to_owned()
    } else if value < 0.0 {
        format!("{value} is negative")
    } else {
        format!("{value:e} is longer than {limit_name}")
    };
    Err(place.field(field, what, format!("give a number from 0 to {limit_name}, in {}", unit.name())))
}

/// A moment of arrival.
pub(super) fn arrival(place: Place<'_>, field: &str, value: f64, unit: Unit) -> Result<Nanos, InputError> {
    time(place, field, value, unit, MAX_ARRIVAL, "200 years")
}

/// A span of time.
pub(super) fn span(place: Place<'_>, field: &str, value: f64, unit: Unit) -> Result<Nanos, InputError> {
    time(place, field, value, unit, MAX_SPAN, "366 days")
}

/// A count.
pub(super) fn count(place: Place<'_>, field: &str, value: f64, most: u32) -> Result<u32, InputError> {
    if value.fract() == 0.0 && (0.0..=f64::from(most)).contains(&value) {
        return Ok(value as u32);
    }
    let what = if value.is_nan() {
        "NaN is not a count".to_owned()
    } else if value < 0.0 {
        format!("{value} is negative")
    } else if value > f64::from(most) {
        format!("{value:e} is more than {most}")
    } else {
        format!("{value} is not a whole number")
    };
    Err(place.field(field, what, format!("give a whole number from 0 to {most}")))
}

/// A number written as text: a column of CSV or SWF.
pub(super) fn number(place: Place<'_>, field: &str, text: &str) -> Result<f64, InputError> {
    let text = text.trim();
    text.parse().map_err(|_| {
        if text.is_empty() {
            place.field(field, "is missing", "give a number")
        } else {
            place.field(field, format!("`{}` is not a number", excerpt(text.as_bytes())), "give a number")
        }
    })
}
