//! The CSV formats: the header says which column is what.

use std::borrow::Cow;

use csv_core::{ReadRecordResult, Reader};
use jiff::civil::DateTime;
use phalanx::Nanos;

use super::Format;
use super::raw::{self, FieldNames, MAX_TOKENS, Parsed, Raw, Unit};
use crate::InputError;
use crate::error::{Place, excerpt};

/// The most columns of a file.
const MAX_COLUMNS: usize = 256;

/// How the column of arrivals is written.
#[derive(Clone, Copy, Debug)]
enum Clock {
    Number(Unit),
    /// `2023-11-16 18:17:03.9799600`, with or without an offset, which is ignored: only differences count.
    Date,
}

/// The columns of one format: what may stand for each, the first that is there.
struct Columns {
    format: Format,
    arrival: &'static [(&'static str, Clock)],
    input: &'static [&'static str],
    output: &'static [&'static str],
    tenant: &'static [&'static str],
    model: &'static [&'static str],
    /// What must be there besides.
    also: &'static [&'static str],
}

const FORMATS: [Columns; 4] = [
    Columns {
        format: Format::BurstGpt,
        arrival: &[("Timestamp", Clock::Number(Unit::Seconds))],
        input: &["Request tokens"],
        output: &["Response tokens"],
        tenant: &["Log Type"],
        model: &["Model"],
        also: &["Model"],
    },
    Columns {
        format: Format::Vidur,
        arrival: &[("arrived_at", Clock::Number(Unit::Seconds))],
        input: &["num_prefill_tokens"],
        output: &["num_decode_tokens"],
        tenant: &[],
        model: &[],
        also: &[],
    },
    Columns {
        format: Format::Splitwise,
        arrival: &[("arrival_timestamp", Clock::Number(Unit::Seconds))],
        input: &["prompt_size"],
        output: &["token_size"],
        tenant: &["application_id"],
        model: &[],
        also: &[],
    },
    Columns {
        format: Format::Azure,
        arrival: &[
            ("TIMESTAMP", Clock::Date),
            ("arrival_s", Clock::Number(Unit::Seconds)),
            ("arrival_ms", Clock::Number(Unit::Millis)),
        ],
        input: &["ContextTokens", "input_length"],
        output: &["GeneratedTokens", "output_length"],
        tenant: &["service"],
        model: &[],
        also: &[],
    },
];

/// Where the columns of a file stand.
#[derive(Debug)]
pub(super) struct Header {
    format: Format,
    clock: Clock,
    arrival: usize,
    input: usize,
    output: usize,
    tenant: Option<usize>,
    model: Option<usize>,
    columns: usize,
    names: FieldNames,
    cells: Cells,
}

/// The cells of one line, in buffers that are used again.
#[derive(Debug, Default)]
struct Cells {
    text: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

impl Cells {
    /// Splits a line; says what is wrong if it is no record.
    fn split(&mut self, line: &[u8]) -> Result<(), &'static str> {
        // Unquoting only shortens.
        self.text.resize(self.text.len().max(line.len() + 1), 0);
        self.ends.resize(MAX_COLUMNS + 1, 0);
        let mut reader = Reader::new();
        let (result, read, text, ends) = reader.read_record(line, &mut self.text, &mut self.ends);
        let (result, ends) = match result {
            // All of the line is read, and the end of the input is what an empty one says.
            ReadRecordResult::InputEmpty => {
                let (result, _, _, more) = reader.read_record(&[], &mut self.text[text..], &mut self.ends[ends..]);
                (result, ends + more)
            }
            other => (other, ends),
        };
        match result {
            ReadRecordResult::Record if read == line.len() && ends <= MAX_COLUMNS => {
                self.count = ends;
                Ok(())
            }
            ReadRecordResult::OutputEndsFull | ReadRecordResult::Record if ends > MAX_COLUMNS => Err("has more than 256 columns"),
            _ => Err("is no CSV record"),
        }
    }

    fn get(&self, at: usize) -> Option<&str> {
        if at >= self.count {
            return None;
        }
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        std::str::from_utf8(&self.text[start..self.ends[at]]).ok().map(str::trim)
    }
}

/// The format whose columns this header has.
pub(super) fn detect(line: &[u8]) -> Option<Format> {
    let mut cells = Cells::default();
    cells.split(line).ok()?;
    FORMATS.iter().find(|columns| columns.find(&cells).is_ok()).map(|columns| columns.format)
}

impl Columns {
    /// Where the columns stand, or which is missing.
    fn find(&self, cells: &Cells) -> Result<([usize; 3], Clock), String> {
        let at = |name: &str| (0..cells.count).find(|&i| cells.get(i).is_some_and(|cell| cell.eq_ignore_ascii_case(name)));
        let any = |names: &[&str]| names.iter().find_map(|name| at(name)).ok_or_else(|| names.join("` or `"));
        for name in self.also {
            any(&[name])?;
        }
        let (arrival, clock) = self
            .arrival
            .iter()
            .find_map(|&(name, clock)| at(name).map(|i| (i, clock)))
            .ok_or_else(|| self.arrival.map_names())?;
        Ok(([arrival, any(self.input)?, any(self.output)?], clock))
    }
}

/// The names of the columns of arrivals, for an error.
trait MapNames {
    fn map_names(&self) -> String;
}

impl MapNames for &'static [(&'static str, Clock)] {
    fn map_names(&self) -> String {
        self.iter().map(|&(name, _)| name).collect::<Vec<_>>().join("` or `")
    }
}

impl Header {
    /// Reads the header of a file of this format.
    pub(super) fn parse(format: Format, line: &[u8], place: Place<'_>) -> Result<Self, InputError> {
        const REMEDY: &str = "write the header of the format as the first line, or choose another format";
        let mut cells = Cells::default();
        cells.split(line).map_err(|what| place.line(format!("the header {what}"), REMEDY))?;
        let Some(columns) = FORMATS.iter().find(|columns| columns.format == format) else {
            return Err(place.line(format!("{format} is no CSV format"), REMEDY));
        };
        let ([arrival, input, output], clock) = columns
            .find(&cells)
            .map_err(|missing| place.line(format!("the {format} header has no column `{missing}`"), REMEDY))?;
        let at = |names: &[&str]| {
            names
                .iter()
                .find_map(|name| (0..cells.count).find(|&i| cells.get(i).is_some_and(|cell| cell.eq_ignore_ascii_case(name))))
        };
        let name = |at: usize| cells.get(at).unwrap_or_default().to_owned();
        let names = FieldNames {
            arrival: name(arrival),
            service: "service time".into(),
            gpus: "gpus".into(),
            input: name(input),
            output: name(output),
        };
        let (tenant, model, columns) = (at(columns.tenant), at(columns.model), cells.count);
        Ok(Self { format, clock, arrival, input, output, tenant, model, columns, names, cells })
    }

    pub(super) fn field_names(&self) -> FieldNames {
        self.names.clone()
    }

    pub(super) fn parse_line<'a>(&'a mut self, line: &[u8], place: Place<'_>) -> Result<Parsed<'a>, InputError> {
        const REMEDY: &str = "write one record a line, with as many columns as the header";
        self.cells.split(line).map_err(|what| place.line(what, REMEDY))?;
        let Self { cells, names, .. } = &*self;
        if cells.count != self.columns {
            return Err(place.line(format!("has {} columns where the header has {}", cells.count, self.columns), REMEDY));
        }
        let cell = |at: usize, field: &str| {
            cells.get(at).ok_or_else(|| place.field(field, "is not valid UTF-8", "write the file as UTF-8"))
        };
        let arrival = cell(self.arrival, &names.arrival)?;
        let arrival = match self.clock {
            Clock::Number(unit) => raw::arrival(place, &names.arrival, raw::number(place, &names.arrival, arrival)?, unit)?,
            Clock::Date => date(place, &names.arrival, arrival)?,
        };
        let tokens =
            |at: usize, field: &str| raw::count(place, field, raw::number(place, field, cell(at, field)?)?, MAX_TOKENS).map(Some);
        let (input, output) = (tokens(self.input, &names.input)?, tokens(self.output, &names.output)?);
        if self.format == Format::BurstGpt && output == Some(0) {
            // So it marks a request that failed.
            return Ok(Parsed::Skipped);
        }
        let text = |at: Option<usize>, field: &str| at.map(|at| cell(at, field).map(Cow::Borrowed)).transpose();
        let (tenant, model) = (text(self.tenant, "tenant")?, text(self.model, "model")?);
        Ok(Parsed::Request(Raw { arrival, input, output, tenant, model, ..Raw::default() }))
    }
}

/// Nanoseconds since 1970 of a date.
fn date(place: Place<'_>, field: &str, text: &str) -> Result<Nanos, InputError> {
    let remedy = "write it as `2023-11-16 18:17:03.9799600`, from 1970 on";
    let refuse = || place.field(field, format!("`{}` is not a date with a time", excerpt(text.as_bytes())), remedy);
    // The offset, if any, is the same on every line: only differences count.
    let text = text.find('+').map_or(text, |plus| &text[..plus]).trim_end_matches('Z');
    let date: DateTime = text.parse().map_err(|_| refuse())?;
    let since = date.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    let (Ok(seconds), Ok(part)) = (u64::try_from(since.as_secs()), u64::try_from(since.subsec_nanos())) else {
        return Err(refuse());
    };
    raw::arrival(place, field, seconds as f64, Unit::Seconds)?;
    Ok(Nanos::from_secs(seconds) + Nanos(part))
}
