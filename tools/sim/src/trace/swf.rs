//! The Standard Workload Format: `;` comments, then 18 numbers a line.

use std::borrow::Cow;

use super::raw::{self, FieldNames, Parsed, Raw, Unit};
use crate::InputError;
use crate::error::{Place, excerpt};

const FIELDS: usize = 18;

pub(super) fn field_names() -> FieldNames {
    FieldNames {
        arrival: "submit time".into(),
        service: "run time".into(),
        gpus: "processors".into(),
        input: "input".into(),
        output: "output".into(),
    }
}

/// Whether a line could be one of this format.
pub(super) fn detect(line: &[u8]) -> bool {
    line.first() == Some(&b';')
        || std::str::from_utf8(line).is_ok_and(|text| {
            text.split_ascii_whitespace().count() == FIELDS && text.split_ascii_whitespace().all(|f| f.parse::<f64>().is_ok())
        })
}

pub(super) fn parse<'a>(line: &'a [u8], place: Place<'_>) -> Result<Parsed<'a>, InputError> {
    if line.first() == Some(&b';') {
        return Ok(Parsed::Nothing);
    }
    const REMEDY: &str = "write the 18 numbers of SWF, or a comment after `;`";
    let Ok(text) = std::str::from_utf8(line) else {
        return Err(place.line(format!("is not SWF (it begins `{}`)", excerpt(line)), REMEDY));
    };
    let mut fields = [""; FIELDS];
    let mut count = 0;
    for field in text.split_ascii_whitespace() {
        if let Some(slot) = fields.get_mut(count) {
            *slot = field;
        }
        count += 1;
    }
    if count != FIELDS {
        return Err(place.line(format!("has {count} fields where SWF has {FIELDS}"), REMEDY));
    }
    // Numbered from 1 in the format's own description.
    let number = |at: usize, name: &str| raw::number(place, name, fields[at - 1]);
    let arrival = raw::arrival(place, "submit time", number(2, "submit time")?, Unit::Seconds)?;
    let run = number(4, "run time")?;
    if run == -1.0 {
        // A job that never started: the format writes -1 for what is not known.
        return Ok(Parsed::Skipped);
    }
    let service = raw::span(place, "run time", run, Unit::Seconds)?;
    let mut processors = number(5, "processors")?;
    if processors == -1.0 {
        processors = number(8, "requested processors")?;
    }
    let gpus = raw::count(place, "processors", processors, 1_000_000)?;
    // The user, or else the group.
    let known = |at: usize| Some(fields[at - 1]).filter(|&field| field != "-1").map(Cow::Borrowed);
    Ok(Parsed::Request(Raw {
        arrival,
        service: Some(service),
        gpus: Some(gpus),
        tenant: known(12).or_else(|| known(13)),
        model: known(14),
        ..Raw::default()
    }))
}
