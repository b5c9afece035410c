//! Lines of the log as plain values.

use std::fmt;
use std::io::{self, BufRead};

use serde_json::{Map, Value};

/// The log cannot be read: it is no event log, or not written to its end. One line that names the line.
#[derive(Debug)]
pub struct Unreadable {
    /// Which line, from 1.
    pub line: u64,
    what: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl Unreadable {
    pub(crate) fn empty() -> Self {
        Self { line: 1, what: "is missing: the file is empty".to_owned() }
    }
}

impl std::error::Error for Unreadable {}

/// One line: a JSON object and its place.
pub(crate) struct Line {
    pub(crate) number: u64,
    object: Map<String, Value>,
}

/// The lines of a log.
pub(crate) struct Lines<R> {
    input: R,
    number: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) const fn new(input: R) -> Self {
        Self { input, number: 0, text: Vec::new() }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Line>, Unreadable> {
        self.number += 1;
        self.text.clear();
        let unreadable = |what: String| Unreadable { line: self.number, what };
        let cannot = |error: io::Error| unreadable(format!("cannot be read: {error}"));
        if self.input.read_until(b'\n', &mut self.text).map_err(cannot)? == 0 {
            return Ok(None);
        }
        if self.text.last() != Some(&b'\n') {
            return Err(unreadable("is cut off: the log was not written to its end".to_owned()));
        }
        match serde_json::from_slice(&self.text) {
            Ok(Value::Object(object)) => Ok(Some(Line { number: self.number, object })),
            Ok(_) => Err(unreadable("is not a JSON object".to_owned())),
            Err(_) => Err(unreadable("is not JSON".to_owned())),
        }
    }
}

impl Line {
    pub(crate) fn error(&self, what: impl Into<String>) -> Unreadable {
        Unreadable { line: self.number, what: what.into() }
    }

    pub(crate) fn has(&self, field: &str) -> bool {
        self.object.contains_key(field)
    }

    /// A number that must be there.
    pub(crate) fn number(&self, field: &str) -> Result<u64, Unreadable> {
        self.object
            .get(field)
            .and_then(Value::as_u64)
            .ok_or_else(|| self.error(format!("field `{field}` is missing or not a whole number from 0")))
    }

    /// A number that may be absent.
    pub(crate) fn optional(&self, field: &str) -> Result<Option<u64>, Unreadable> {
        match self.object.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.number(field).map(Some),
        }
    }

    pub(crate) fn text(&self, field: &str) -> Result<&str, Unreadable> {
        self.object
            .get(field)
            .and_then(Value::as_str)
            .ok_or_else(|| self.error(format!("field `{field}` is missing or not a text")))
    }

    /// Whether the class is large.
    pub(crate) fn large(&self) -> Result<bool, Unreadable> {
        match self.text("class")? {
            "small" => Ok(false),
            "large" => Ok(true),
            _ => Err(self.error("field `class` is neither `small` nor `large`")),
        }
    }

    pub(crate) fn lane(&self, lanes: usize) -> Result<usize, Unreadable> {
        let lane = self.number("lane")?;
        if lane < lanes as u64 { Ok(lane as usize) } else { Err(self.error(format!("lane {lane} is none of the {lanes}"))) }
    }
}
