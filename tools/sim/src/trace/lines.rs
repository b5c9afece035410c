//! The lines of a file, plain or gzip, one at a time in one buffer.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::PathBuf;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;

use crate::InputError;
use crate::error::Place;

/// The longest line that is read. A Mooncake line with the hashes of a million-token prompt has some 20 KB.
pub const MAX_LINE: usize = 1 << 20;

/// Where the bytes are: opened anew for each pass.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Path(PathBuf),
    Bytes(Arc<[u8]>),
}

pub(super) struct Lines {
    input: Box<dyn BufRead + Send>,
    file: Arc<str>,
    gzip: bool,
    line: Vec<u8>,
    number: u64,
}

const BUFFER: usize = 1 << 16;

impl Lines {
    pub(super) fn open(file: &Arc<str>, origin: &Origin) -> Result<Self, InputError> {
        let fail = |source| InputError::Open { file: Arc::clone(file), source };
        let mut input: Box<dyn BufRead + Send> = match origin {
            Origin::Path(path) => Box::new(BufReader::with_capacity(BUFFER, File::open(path).map_err(fail)?)),
            Origin::Bytes(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
        };
        // The magic bytes decide, not the name. A read of a directory fails here.
        let gzip = input.fill_buf().map_err(fail)?.starts_with(&[0x1f, 0x8b]);
        if gzip {
            input = Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(input)));
        }
        Ok(Self { input, file: Arc::clone(file), gzip, line: Vec::new(), number: 0 })
    }

    /// Goes to the next line that is not blank; false at the end.
    pub(super) fn advance(&mut self) -> Result<bool, InputError> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = self.input.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut self.line);
            match read {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(source) => return Err(self.failed(source)),
            }
            if self.line.len() > MAX_LINE {
                return Err(InputError::LongLine { file: Arc::clone(&self.file), line: self.number, limit: MAX_LINE });
            }
            if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
                self.line.drain(..3);
            }
            if !self.line().is_empty() {
                return Ok(true);
            }
        }
    }

    fn failed(&self, source: io::Error) -> InputError {
        let (file, line) = (Arc::clone(&self.file), self.number);
        // What the disk says has a number of the system's, what the decoder says has none.
        if self.gzip && source.raw_os_error().is_none() {
            InputError::Gzip { file, line, source }
        } else {
            InputError::Read { file, line, source }
        }
    }

    /// The present line, without the white space around it.
    pub(super) fn line(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    pub(super) fn place(&self) -> Place<'_> {
        Place { file: &self.file, line: self.number }
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("file", &self.file).field("number", &self.number).field("gzip", &self.gzip).finish()
    }
}
