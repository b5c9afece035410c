//! Which requests are large, by a rule of the user's.

use std::fmt;
use std::str::FromStr;

use phalanx::{Class, Nanos};

use super::raw::Raw;
use super::service::ServiceModels;
use crate::InputError;
use crate::error::excerpt;
use crate::units::Span;

/// A rule that says which requests are large: a field, a comparison, a value. All others are small.
///
/// | field | compares | value |
/// |---|---|---|
/// | `input`, `output` | tokens in, tokens out | a whole number |
/// | `gpus` | as the trace says | a whole number |
/// | `prefill`, `service` | the span until the first token, and the whole; where the trace gives tokens alone, what one GPU would need | a span, such as `2s` |
/// | `tenant`, `model` | the name, with `=` and `!=` alone | a text |
///
/// The comparisons are `=` (or `==`), `!=`, `<`, `<=`, `>`, `>=`. A request without the field never matches. A rule is stronger than
/// the trace's own `class` and `gpus`.
///
/// ```
/// use phalanx_sim::LargeIf;
///
/// let rule: LargeIf = "input > 8000".parse()?;
/// assert_eq!(rule.to_string(), "input>8000");
/// assert!("input > many".parse::<LargeIf>().is_err());
/// # Ok::<(), phalanx_sim::InputError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargeIf {
    field: Field,
    comparison: Comparison,
    value: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Input,
    Output,
    Gpus,
    Prefill,
    Service,
    Tenant,
    Model,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    Count(u32),
    Span(Nanos),
    Text(String),
}

const FIELDS: [(&str, Field); 7] = [
    ("input", Field::Input),
    ("output", Field::Output),
    ("gpus", Field::Gpus),
    ("prefill", Field::Prefill),
    ("service", Field::Service),
    ("tenant", Field::Tenant),
    ("model", Field::Model),
];

/// The two-letter ones first: `>` is the beginning of `>=`.
const COMPARISONS: [(&str, Comparison); 7] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("=", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Comparison {
    fn holds<T: PartialOrd + ?Sized>(self, a: &T, b: &T) -> bool {
        match self {
            Self::Equal => a == b,
            Self::Unequal => a != b,
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
        }
    }
}

impl LargeIf {
    /// Whether this request is large; `None` if it lacks the field.
    pub(super) fn matches(&self, raw: &Raw<'_>, models: &ServiceModels) -> Option<bool> {
        let times = || models.class(Class::Small).times(raw.input?, raw.output?);
        match &self.value {
            Value::Count(value) => {
                let count = match self.field {
                    Field::Input => raw.input,
                    Field::Output => raw.output,
                    _ => raw.gpus,
                };
                Some(self.comparison.holds(&count?, value))
            }
            Value::Span(value) => {
                let span = match self.field {
                    Field::Prefill => raw.prefill.or_else(|| times().map(|(prefill, _)| prefill)),
                    _ => raw.service.or_else(|| times().map(|(_, service)| service)),
                };
                Some(self.comparison.holds(&span?, value))
            }
            Value::Text(value) => {
                let text = if self.field == Field::Tenant { &raw.tenant } else { &raw.model };
                Some(self.comparison.holds(text.as_deref()?, value.as_str()))
            }
        }
    }
}

impl FromStr for LargeIf {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        const REMEDY: &str = "write field, comparison, value, such as `input>8000`, `tenant=code`, `gpus=8` or `service>2s`";
        let refuse = |what: String| InputError::setting("--large-if", what, REMEDY);
        let shown = excerpt(text.as_bytes());
        let Some(at) = text.find(['=', '!', '<', '>']) else {
            return Err(refuse(format!("`{shown}` compares nothing")));
        };
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let Some(&(sign, comparison)) = COMPARISONS.iter().find(|(sign, _)| rest.starts_with(sign)) else {
            return Err(refuse(format!("`{shown}` has no comparison of =, !=, <, <=, >, >=")));
        };
        let value = rest[sign.len()..].trim();
        let Some(&(_, field)) = FIELDS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
            let what = format!("`{}` is not a field (known: {})", excerpt(name.as_bytes()), known.join(", "));
            return Err(refuse(what));
        };
        if value.is_empty() {
            return Err(refuse(format!("`{shown}` has no value")));
        }
        let shown = excerpt(value.as_bytes());
        let value = match field {
            Field::Input | Field::Output | Field::Gpus => {
                Value::Count(value.parse().map_err(|_| refuse(format!("`{shown}` is not a whole number")))?)
            }
            Field::Prefill | Field::Service => {
                Value::Span(value.parse::<Span>().map_err(|e| InputError::setting("--large-if", "has no span", e.to_string()))?.0)
            }
            Field::Tenant | Field::Model => {
                if !matches!(comparison, Comparison::Equal | Comparison::Unequal) {
                    return Err(refuse(format!("`{name}` is a text, which is compared by = and != alone")));
                }
                Value::Text(value.to_owned())
            }
        };
        Ok(Self { field, comparison, value })
    }
}

impl fmt::Display for LargeIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = FIELDS.iter().find(|(_, field)| *field == self.field).map_or("", |(name, _)| name);
        // From the end: `=` is the usual way to write what `==` means too.
        let sign = COMPARISONS.iter().rev().find(|(_, comparison)| *comparison == self.comparison).map_or("", |(sign, _)| sign);
        match &self.value {
            Value::Count(value) => write!(f, "{field}{sign}{value}"),
            Value::Span(value) => write!(f, "{field}{sign}{}", Span(*value)),
            Value::Text(value) => write!(f, "{field}{sign}{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rules_parse_print_and_match() {
        let raw = Raw {
            input: Some(100),
            output: Some(5),
            gpus: Some(8),
            service: Some(Nanos::from_secs(3)),
            tenant: Some("code".into()),
            ..Raw::default()
        };
        for (text, printed, large) in [
            ("input>99", "input>99", Some(true)),
            ("input > 100", "input>100", Some(false)),
            ("input>=100", "input>=100", Some(true)),
            ("output<6", "output<6", Some(true)),
            ("output<=4", "output<=4", Some(false)),
            ("gpus==8", "gpus=8", Some(true)),
            ("gpus!=8", "gpus!=8", Some(false)),
            ("service>2s", "service>2s", Some(true)),
            ("service>3000ms", "service>3s", Some(false)),
            ("prefill>1us", "prefill>1us", Some(true)),
            ("tenant=code", "tenant=code", Some(true)),
            ("tenant!=code", "tenant!=code", Some(false)),
            ("model=a=b", "model=a=b", None),
        ] {
            let rule: LargeIf = text.parse().unwrap();
            assert_eq!(rule.to_string(), printed);
            assert_eq!(rule.matches(&raw, &ServiceModels::default()), large, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("", "`` compares nothing"),
            ("large", "`large` compares nothing"),
            ("input!5", "has no comparison"),
            ("tokens>5", "`tokens` is not a field (known: input, output"),
            ("input>", "has no value"),
            ("input>-5", "`-5` is not a whole number"),
            ("input=>5", "`>5` is not a whole number"),
            ("service>2", "`2` has no unit"),
            ("tenant>code", "`tenant` is a text"),
        ] {
            let error = text.parse::<LargeIf>().expect_err(text).to_string();
            assert!(error.starts_with("--large-if: ") && error.contains(says) && !error.contains('\n'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(input|service|tenant|.{0,8})[=!<>]{0,3}.{0,10}") {
            let _ = text.parse::<LargeIf>();
        }
    }
}
