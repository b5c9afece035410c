//! The collector: takes the records of the run from the event ring to the summary and the files.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use phalanx::Nanos;
use phalanx::observe::{Outcome, Record, What};
use phalanx::runtime::EventReader;
use phalanx_sim::record::{Header, Profiler, Summary};

use super::Stop;
use super::live::Live;
use crate::fail::Fail;
use crate::files::Files;

/// How long the collector sleeps when there is nothing to collect: far shorter than the ring takes to fill, long enough to leave the
/// cores to the run.
const NAP: Duration = Duration::from_millis(2);

/// How many records are taken before the live line and the refusals are looked at.
const BATCH: usize = 4096;

/// What a run leaves besides its summary.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) files: Files,
    pub(crate) profiler: Option<Profiler>,
}

/// Takes records until the node is gone.
#[derive(Debug)]
pub(crate) struct Collector {
    summary: Summary,
    files: Files,
    /// What a report is drawn from, where one is asked for.
    profiler: Option<Profiler>,
    live: Live,
    events: EventReader,
    refused: Receiver<Outcome>,
    /// The time of the latest record.
    now: Nanos,
}

impl Collector {
    pub(crate) fn new(header: Header, left: Left, live: Live, events: EventReader, refused: Receiver<Outcome>) -> Self {
        let Left { files, profiler } = left;
        Self { summary: Summary::new(header), files, profiler, live, events, refused, now: Nanos::ZERO }
    }

    /// Collects to the end. A file that cannot be written stops the run, but the ring is emptied all the same.
    pub(crate) fn collect(mut self, stop: &Stop) -> Result<(Summary, Left), Fail> {
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
            None => Ok((self.summary, Left { files: self.files, profiler: self.profiler })),
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
        if let Some(profiler) = &mut self.profiler {
            profiler.add(record);
        }
        if failed.is_none()
            && let Err(fail) = self.files.write(record)
        {
            *failed = Some(fail);
        }
    }
}
