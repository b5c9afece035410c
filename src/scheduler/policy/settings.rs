//! The settings of a policy as text: `name:key=value:key=value`.

use super::{POLICIES, PolicyInfo};
use crate::types::Nanos;
use std::fmt;
use std::ops::RangeInclusive;

/// Why a policy cannot be made from its text. One line: what is wrong, and what there is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PolicyError {
    message: String,
}

impl PolicyError {
    /// Says what is wrong, in one line.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    pub(super) fn unknown(name: &str) -> Self {
        let known: Vec<_> = POLICIES.iter().map(|info| info.name).collect();
        Self::new(format!("no policy is named '{name}'; there are: {}", known.join(", ")))
    }
}

/// Key and value pairs, each key known to the policy and given once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    policy: &'static str,
    given: Vec<(&'static str, String)>,
    /// A count above its range is the range's end, no error.
    clamped: bool,
}

/// A length of time: fixed, or so many times a mean that the running node measures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Span {
    /// A duration.
    Fixed(Nanos),
    /// A multiple of a measured mean.
    Multiple(f64),
}

impl Settings {
    pub(super) fn parse<'a>(info: &PolicyInfo, parts: impl Iterator<Item = &'a str>) -> Result<Self, PolicyError> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                PolicyError::new(format!("policy {}: '{part}' is not of the form key=value; {}", info.name, known(info)))
            })?;
            let Some(&(key, ..)) = info.settings.iter().find(|(known, ..)| *known == key) else {
                return Err(PolicyError::new(format!("policy {} has no setting '{key}'; {}", info.name, known(info))));
            };
            if given.iter().any(|(seen, _)| *seen == key) {
                return Err(PolicyError::new(format!("policy {}: '{key}' is given twice", info.name)));
            }
            given.push((key, value.to_owned()));
        }
        Ok(Self { policy: info.name, given, clamped: false })
    }

    pub(super) fn of(info: &PolicyInfo) -> Self {
        Self { policy: info.name, ..Self::default() }
    }

    pub(super) fn clamp(&mut self) {
        self.clamped = true;
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.given.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    /// The value that one of these words stands for; the first is the default.
    ///
    /// # Errors
    /// If the value is none of the words.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T, PolicyError> {
        let Some(text) = self.text(key) else { return Ok(choices[0].1) };
        choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            PolicyError::new(format!("policy {}: {key}={text}: it is one of {}", self.policy, words.join(", ")))
        })
    }

    /// A whole number.
    ///
    /// # Errors
    /// If the value is none, or out of `range`.
    pub fn count(&self, key: &str, default: usize, range: RangeInclusive<usize>) -> Result<usize, PolicyError> {
        let Some(text) = self.text(key) else { return Ok(default) };
        let (low, high) = (*range.start(), *range.end());
        match text.parse() {
            Ok(value) if range.contains(&value) => Ok(value),
            Ok(value) if self.clamped => Ok(value.clamp(low, high)),
            _ => Err(self.wrong(key, text, &format!("it is a whole number from {low} to {high}"))),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// If the value is none, or out of `range`.
    pub fn number(&self, key: &str, default: f64, range: RangeInclusive<f64>) -> Result<f64, PolicyError> {
        let Some(text) = self.text(key) else { return Ok(default) };
        match text.parse() {
            Ok(value) if range.contains(&value) => Ok(value),
            _ => Err(self.wrong(key, text, &format!("it is a number from {} to {}", range.start(), range.end()))),
        }
    }

    /// A duration such as `250ms` or `1.5s`, or a multiple such as `200x`; above 0, and at most 292 years or 1e9 times.
    ///
    /// # Errors
    /// If the value is neither.
    pub fn span(&self, key: &str, default: Span) -> Result<Span, PolicyError> {
        let Some(text) = self.text(key) else { return Ok(default) };
        span(text).ok_or_else(|| {
            self.wrong(key, text, "it is a duration above 0 (units ns, us, ms, s, m, h) such as 1.5s, or a multiple such as 200x")
        })
    }

    /// A duration such as `1ms`, or `0`.
    ///
    /// # Errors
    /// If the value is none.
    pub fn fixed(&self, key: &str, default: Nanos) -> Result<Nanos, PolicyError> {
        let Some(text) = self.text(key) else { return Ok(default) };
        if text == "0" {
            return Ok(Nanos::ZERO);
        }
        match span(text) {
            Some(Span::Fixed(span)) => Ok(span),
            _ => Err(self.wrong(key, text, "it is 0 or a duration (units ns, us, ms, s, m, h) such as 1.5ms")),
        }
    }

    fn wrong(&self, key: &str, text: &str, rule: &str) -> PolicyError {
        PolicyError::new(format!("policy {}: {key}={text}: {rule}", self.policy))
    }
}

fn span(text: &str) -> Option<Span> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    // Digits and a point only: `f64` would also take signs, exponents and words.
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    let unit_ns = match unit {
        "x" => return (number > 0.0 && number <= 1e9).then_some(Span::Multiple(number)),
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3_600e9,
        _ => return None,
    };
    // Half of what 64 bits of nanoseconds hold, so that sums of two do not saturate.
    let ns = (number * unit_ns).round();
    (ns >= 1.0 && ns <= u64::MAX as f64 / 2.0).then_some(Span::Fixed(Nanos(ns as u64)))
}

fn known(info: &PolicyInfo) -> String {
    if info.settings.is_empty() {
        return "it has no settings".to_owned();
    }
    let all: Vec<_> = info.settings.iter().map(|(key, default, _)| format!("{key}={default}")).collect();
    format!("its settings and their defaults: {}", all.join(", "))
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.given.iter().try_for_each(|(key, value)| write!(f, ":{key}={value}"))
    }
}
