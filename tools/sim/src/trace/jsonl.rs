//! Mooncake JSONL and our superset of it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::raw::{self, FieldNames, MAX_TOKENS, Parsed, Raw, Unit};
use crate::InputError;
use crate::error::{Place, excerpt};

/// The fields that are read; all others are ignored.
#[derive(serde::Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Line<'a> {
    #[serde(borrow)]
    timestamp: Scalar<'a>,
    #[serde(borrow)]
    class: Scalar<'a>,
    #[serde(borrow)]
    gpus: Scalar<'a>,
    #[serde(borrow)]
    input_length: Scalar<'a>,
    #[serde(borrow)]
    output_length: Scalar<'a>,
    #[serde(borrow)]
    prefill_ms: Scalar<'a>,
    #[serde(borrow)]
    service_ms: Scalar<'a>,
    #[serde(borrow)]
    expected_ms: Scalar<'a>,
    #[serde(borrow)]
    slo_ms: Scalar<'a>,
    #[serde(borrow)]
    deadline_ms: Scalar<'a>,
    #[serde(borrow)]
    step_ms: Scalar<'a>,
    #[serde(borrow)]
    tenant: Scalar<'a>,
    #[serde(borrow)]
    model: Scalar<'a>,
}

/// Any value of JSON, so that one of the wrong kind is found by us, who know the name of its field, and not by serde, who does not say it.
#[derive(Default)]
enum Scalar<'a> {
    /// No such field, or null.
    #[default]
    Absent,
    Number(f64),
    Text(Cow<'a, str>),
    /// Of a kind that no field has.
    Other(&'static str),
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Scalar<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Number(v))
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Number(v as f64))
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Number(v as f64))
            }
            fn visit_borrowed_str<E: de::Error>(self, v: &'de str) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Text(Cow::Borrowed(v)))
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Text(Cow::Owned(v.to_owned())))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Absent)
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Scalar<'de>, E> {
                Ok(Scalar::Other("true or false"))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other("a list"))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other("an object"))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

impl<'a> Scalar<'a> {
    fn number(&self, place: Place<'_>, field: &str) -> Result<Option<f64>, InputError> {
        match self {
            Self::Absent => Ok(None),
            Self::Number(number) => Ok(Some(*number)),
            Self::Text(text) => {
                Err(place.field(field, format!("the text \"{}\" is not a number", excerpt(text.as_bytes())), "give a number"))
            }
            Self::Other(kind) => Err(place.field(field, format!("{kind} is not a number"), "give a number")),
        }
    }

    fn span(&self, place: Place<'_>, field: &str) -> Result<Option<phalanx::Nanos>, InputError> {
        self.number(place, field)?.map(|ms| raw::span(place, field, ms, Unit::Millis)).transpose()
    }

    fn count(&self, place: Place<'_>, field: &str, most: u32) -> Result<Option<u32>, InputError> {
        self.number(place, field)?.map(|n| raw::count(place, field, n, most)).transpose()
    }

    fn text(self, place: Place<'_>, field: &str) -> Result<Option<Cow<'a, str>>, InputError> {
        match self {
            Self::Absent => Ok(None),
            Self::Text(text) => Ok(Some(text)),
            Self::Number(number) => Err(place.field(field, format!("the number {number} is not a text"), "put it into quotes")),
            Self::Other(kind) => Err(place.field(field, format!("{kind} is not a text"), "give a text in quotes")),
        }
    }
}

pub(super) fn field_names() -> FieldNames {
    FieldNames {
        arrival: "timestamp".into(),
        service: "service_ms".into(),
        gpus: "gpus".into(),
        input: "input_length".into(),
        output: "output_length".into(),
    }
}

pub(super) fn parse<'a>(line: &'a [u8], place: Place<'_>) -> Result<Parsed<'a>, InputError> {
    // A struct may be read from a list too, says serde; a trace has none.
    if line.first() != Some(&b'{') {
        let what = format!("is not a JSON object (it begins `{}`)", excerpt(line));
        return Err(place.line(what, "write one object a line"));
    }
    let line: Line<'a> = serde_json::from_slice(line).map_err(|e| no_json(line, &e, place))?;
    let Some(timestamp) = line.timestamp.number(place, "timestamp")? else {
        return Err(place.field("timestamp", "is missing", "give the arrival in ms"));
    };
    let step = line.step_ms.span(place, "step_ms")?;
    if step == Some(phalanx::Nanos::ZERO) {
        return Err(place.field("step_ms", "0 is not a step", "give a number above 0, in ms, or leave it out"));
    }
    Ok(Parsed::Request(Raw {
        arrival: raw::arrival(place, "timestamp", timestamp, Unit::Millis)?,
        service: line.service_ms.span(place, "service_ms")?,
        prefill: line.prefill_ms.span(place, "prefill_ms")?,
        expected: line.expected_ms.span(place, "expected_ms")?,
        deadline: line.deadline_ms.span(place, "deadline_ms")?,
        target: line.slo_ms.span(place, "slo_ms")?,
        step,
        input: line.input_length.count(place, "input_length", MAX_TOKENS)?,
        output: line.output_length.count(place, "output_length", MAX_TOKENS)?,
        gpus: line.gpus.count(place, "gpus", 1_000_000)?,
        class: line.class.text(place, "class")?,
        tenant: line.tenant.text(place, "tenant")?,
        model: line.model.text(place, "model")?,
    }))
}

/// The error for a line that serde refuses. What other programs write for a number that is none (`NaN`, `Infinity`, `1e999`) is no
/// JSON either, but it is told as what it is, with its field.
#[cold]
fn no_json(line: &[u8], error: &serde_json::Error, place: Place<'_>) -> InputError {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    let column = error.column();
    if let Some((field, value)) = value_at(line, column) {
        let kind = if value.starts_with("NaN") || value.starts_with("-NaN") || value.starts_with("nan") {
            Some("NaN is not a number")
        } else if value.starts_with("Inf") || value.starts_with("inf") || value.starts_with("-Inf") || value.starts_with("-inf") {
            Some("infinity is not a number")
        } else if what == "number out of range" {
            Some("the number is too large for any field")
        } else {
            None
        };
        if let Some(kind) = kind {
            return place.field(field, kind, "give a finite number, or leave the field out");
        }
    }
    place.line(format!("is no JSON: {what} at column {column}"), "write one complete JSON object a line")
}

/// The field whose value holds this column (from 1), and what its value begins with.
fn value_at(line: &[u8], column: usize) -> Option<(&str, &str)> {
    let head = &line[..column.min(line.len())];
    let colon = head.iter().rposition(|&b| b == b':')?;
    let key = std::str::from_utf8(&line[..colon]).ok()?.trim_end().strip_suffix('"')?;
    let key = &key[key.rfind('"')? + 1..];
    let rest = line[colon + 1..].trim_ascii();
    let value = &rest[..rest.len().min(16)];
    let value = std::str::from_utf8(value).unwrap_or_default();
    (key.len() <= 40 && key.bytes().all(|b| b.is_ascii_graphic())).then_some((key, value))
}
