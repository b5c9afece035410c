//! What can be wrong with what a user gave.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

/// Something a user gave cannot be used. The text is one line that names the file, the line and the field, says what is wrong and
/// what to do about it; programs print it and exit with status 2.
///
/// ```
/// use phalanx_sim::{TraceFile, TraceOptions};
///
/// let bytes = br#"{"timestamp": 0, "class": "small", "service_ms": -3}"#;
/// let error = TraceFile::from_bytes("t.jsonl", bytes.as_slice(), TraceOptions::default())?.summary().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "t.jsonl: line 1: field `service_ms`: -3 is negative; give a number from 0 to 366 days, in ms"
/// );
/// # Ok::<(), phalanx_sim::InputError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The file is missing, or may not be read.
    #[error("{file}: cannot be opened: {source}; check the path and its permissions")]
    Open {
        /// The file.
        file: Arc<str>,
        /// What the operating system says.
        source: io::Error,
    },
    /// Reading failed half-way.
    #[error("{file}: line {line}: cannot be read: {source}; check the disk, or copy the file again")]
    Read {
        /// The file.
        file: Arc<str>,
        /// The line at which reading stopped, from 1.
        line: u64,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file begins like gzip but is truncated or corrupt.
    #[error("{file}: line {line}: the gzip data is truncated or corrupt ({source}); fetch or compress the file again")]
    Gzip {
        /// The file.
        file: Arc<str>,
        /// The line at which unpacking stopped, from 1, counted in the unpacked text.
        line: u64,
        /// What the decoder says.
        source: io::Error,
    },
    /// Not one request in the file.
    #[error("{file}: holds no request; give a trace with at least one")]
    Empty {
        /// The file.
        file: Arc<str>,
    },
    /// The content is of no known format.
    #[error(
        "{file}: line {line}: of no known trace format (it begins `{begins}`); known: jsonl (an object a line), azure, burstgpt, \
         vidur and splitwise (CSV with its header), swf (18 numbers a line)"
    )]
    UnknownFormat {
        /// The file.
        file: Arc<str>,
        /// The first line that says something, from 1.
        line: u64,
        /// How that line begins, escaped.
        begins: String,
    },
    /// A line without an end.
    #[error("{file}: line {line}: longer than {limit} bytes; a trace holds one request a line")]
    LongLine {
        /// The file.
        file: Arc<str>,
        /// The line, from 1.
        line: u64,
        /// The longest line that is read, in bytes.
        limit: usize,
    },
    /// A line that is not what its format says.
    #[error("{file}: line {line}: {what}; {remedy}")]
    Line {
        /// The file.
        file: Arc<str>,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A field is missing, of the wrong kind, out of range, or contradicts another.
    #[error("{file}: line {line}: field `{field}`: {what}; {remedy}")]
    Field {
        /// The file.
        file: Arc<str>,
        /// The line, from 1.
        line: u64,
        /// The field or column, as the file calls it.
        field: String,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A setting, not a file, is wrong.
    #[error("{setting}: {what}; {remedy}")]
    Setting {
        /// Which one, as the user knows it: `--load`, or `mix: share`.
        setting: String,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
}

impl InputError {
    /// A [`InputError::Setting`].
    pub(crate) fn setting(setting: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Setting { setting: setting.into(), what: what.into(), remedy: remedy.into() }
    }

    /// The line of the file that is at fault, from 1, if it is a line.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        match *self {
            Self::Read { line, .. }
            | Self::Gzip { line, .. }
            | Self::UnknownFormat { line, .. }
            | Self::LongLine { line, .. }
            | Self::Line { line, .. }
            | Self::Field { line, .. } => Some(line),
            Self::Open { .. } | Self::Empty { .. } | Self::Setting { .. } => None,
        }
    }

    /// The field or column at fault, if it is one.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Field { field, .. } => Some(field),
            _ => None,
        }
    }
}

/// Where in a file something stands: makes the errors that name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) file: &'a Arc<str>,
    pub(crate) line: u64,
}

impl Place<'_> {
    #[cold]
    pub(crate) fn field(self, field: &str, what: impl Into<String>, remedy: impl Into<String>) -> InputError {
        InputError::Field {
            file: Arc::clone(self.file),
            line: self.line,
            field: field.to_owned(),
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    #[cold]
    pub(crate) fn line(self, what: impl Into<String>, remedy: &'static str) -> InputError {
        InputError::Line { file: Arc::clone(self.file), line: self.line, what: what.into(), remedy }
    }
}

/// The beginning of something a file holds, fit for one line of a terminal: control characters are escaped, and it is cut.
pub(crate) fn excerpt(text: &[u8]) -> String {
    const MOST: usize = 40;
    let mut out = String::new();
    let head = &text[..text.len().min(4 * MOST)];
    for (n, c) in String::from_utf8_lossy(head).chars().enumerate() {
        if n == MOST {
            out.push('…');
            break;
        }
        if c.is_control() {
            // Writing to a String cannot fail.
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
