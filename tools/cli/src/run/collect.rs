//! The collector: takes the records of the run from the event ring to the summary and the files.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use phalanx::Nanos;
use phalanx::observe::{Outcome, Record, What};
use phalanx::runtime::EventReader;
use phalanx_sim::record::{ChromeTrace, Header, LogWriter, Summary};

use super::Stop;
use super::live::Live;
use crate::args::RunArgs;
use crate::fail::Fail;
use crate::output::Output;

/// How long the collector sleeps when there is nothing to collect: far shorter than the ring takes to fill, long enough to leave the
/// cores to the run.
const NAP: Duration = Duration::from_millis(2);

/// How many records are taken before the live line and the refusals are looked at.
const BATCH: usize = 4096;

/// The files that are written while the run goes on.
#[derive(Debug, Default)]
pub(crate) struct Files {
    events: Option<(PathBuf, LogWriter<Output>)>,
    chrome: Option<(PathBuf, ChromeTrace<Output>)>,
}

impl Files {
    pub(crate) fn create(args: &RunArgs, header: &Header) -> Result<Self, Fail> {
        let mut files = Self::default();
        if let Some(path) = &args.events {
            let log = LogWriter::new(Output::create(path)?, header).map_err(|error| Fail::write(path, &error))?;
            files.events = Some((path.clone(), log));
        }
        if let Some(path) = &args.chrome_trace {
            let trace = ChromeTrace::new(Output::create(path)?, header).map_err(|error| Fail::write(path, &error))?;
            files.chrome = Some((path.clone(), trace));
        }
        Ok(files)
    }

    fn write(&mut self, record: &Record) -> Result<(), Fail> {
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

/// Takes records until the node is gone.
#[derive(Debug)]
pub(crate) struct Collector {
    summary: Summary,
    files: Files,
    live: Live,
    events: EventReader,
    refused: Receiver<Outcome>,
    /// The time of the latest record.
    now: Nanos,
}

impl Collector {
    pub(crate) fn new(header: Header, files: Files, live: Live, events: EventReader, refused: Receiver<Outcome>) -> Self {
        Self { summary: Summary::new(header), files, live, events, refused, now: Nanos::ZERO }
    }

    /// Collects to the end. A file that cannot be written stops the run, but the ring is emptied all the same.
    pub(crate) fn collect(mut self, stop: &Stop) -> Result<(Summary, Files), Fail> {
        let mut failed = None;
        loop {
            // Asked before the last look into the ring: what came before the end is then seen by that look.
            let closed = self.events.is_closed();
            let took = self.take(&mut failed);
            if failed.is_some() {
                stop.ask();
            }
            self.live.update(&self.summary);
            if took == 0 {
                if closed {
                    break;
                }
                thread::sleep(NAP);
            }
        }
        self.live.finish();
        match failed {
            Some(fail) => Err(fail),
            None => Ok((self.summary, self.files)),
        }
    }

    /// Takes what is there, up to a batch. How many records that were.
    fn take(&mut self, failed: &mut Option<Fail>) -> usize {
        let mut took = 0;
        while took < BATCH {
            let Some(record) = self.events.pop() else { break };
            took += 1;
            self.record(&record, failed);
        }
        while let Ok(outcome) = self.refused.try_recv() {
            took += 1;
            // It comes by another way than the node's own records, of which earlier ones may still come: the log's time stays.
            self.record(&Record { now: self.now, what: What::Outcome(outcome) }, failed);
        }
        took
    }

    fn record(&mut self, record: &Record, failed: &mut Option<Fail>) {
        self.now = self.now.max(record.now);
        self.summary.add(record);
        if failed.is_none()
            && let Err(fail) = self.files.write(record)
        {
            *failed = Some(fail);
        }
    }
}
