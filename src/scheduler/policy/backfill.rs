//! Scans for backfill that need not be made again.

use crate::scheduler::SCAN;
use crate::scheduler::view::View;
use crate::types::{Class, Nanos};

/// What a scan that found no small request to backfill has looked at.
///
/// Time passes, the shadow stands still and the queue grows at its end: who did not fit does not fit later. So most events of a drain need no
/// second scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Futile {
    shadow: Nanos,
    version: u64,
    queued: usize,
    completions: u64,
}

impl Futile {
    /// What a scan now would look at.
    pub(super) fn now(view: &View<'_>) -> Self {
        Self {
            shadow: view.shadow(),
            version: view.queue_version(Class::Small),
            queued: view.queued(Class::Small),
            completions: view.completions(),
        }
    }

    pub(super) const fn shadow(&self) -> Nanos {
        self.shadow
    }

    /// Whether a scan now would find nothing either: the same jobs, and no more room. What completions taught the predictor meanwhile is
    /// left out of account: a little of the backfill for most of the scans.
    pub(super) fn covers(&self, now: &Self) -> bool {
        let same = now.queued == self.queued || self.queued >= SCAN;
        same && now.version == self.version && now.shadow <= self.shadow
    }

    /// The same, exactly: predictions are what they were, too.
    pub(super) fn covers_exactly(&self, now: &Self) -> bool {
        self.covers(now) && now.completions == self.completions
    }
}
