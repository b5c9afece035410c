//! The files that are written record by record while a run goes on.

use std::io;
use std::path::{Path, PathBuf};

use phalanx::observe::Record;
use phalanx_sim::record::{ChromeTrace, Header, LogWriter};

use crate::fail::Fail;
use crate::output::Output;

/// The event log and the trace for viewers, where they are asked for.
#[derive(Debug, Default)]
pub(crate) struct Files {
    events: Option<(PathBuf, LogWriter<Output>)>,
    chrome: Option<(PathBuf, ChromeTrace<Output>)>,
}

impl Files {
    pub(crate) fn create(events: Option<&Path>, chrome_trace: Option<&Path>, header: &Header) -> Result<Self, Fail> {
        let mut files = Self::default();
        if let Some(path) = events {
            let log = LogWriter::new(Output::create(path)?, header).map_err(|error| Fail::write(path, &error))?;
            files.events = Some((path.to_owned(), log));
        }
        if let Some(path) = chrome_trace {
            let trace = ChromeTrace::new(Output::create(path)?, header).map_err(|error| Fail::write(path, &error))?;
            files.chrome = Some((path.to_owned(), trace));
        }
        Ok(files)
    }

    /// Whether any is written.
    pub(crate) const fn any(&self) -> bool {
        self.events.is_some() || self.chrome.is_some()
    }

    pub(crate) fn write(&mut self, record: &Record) -> Result<(), Fail> {
        if let Some((path, log)) = &mut self.events {
            log.write(record).map_err(|error| Fail::write(path, &error))?;
        }
        if let Some((path, trace)) = &mut self.chrome {
            trace.write(record).map_err(|error| Fail::write(path, &error))?;
        }
        Ok(())
    }

    /// They are complete: gives them their names.
    pub(crate) fn finish(self) -> Result<(), Fail> {
        let finish = |path: PathBuf, file: io::Result<Output>| match file {
            Ok(file) => file.finish(),
            Err(error) => Err(Fail::write(&path, &error)),
        };
        if let Some((path, log)) = self.events {
            finish(path, log.finish())?;
        }
        if let Some((path, trace)) = self.chrome {
            finish(path, trace.finish())?;
        }
        Ok(())
    }
}
