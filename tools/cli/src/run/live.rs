//! The live line: how far the run is, what runs where.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use phalanx::observe::Terminal;
use phalanx::{Class, Nanos};
use phalanx_sim::record::Summary;

/// How often the line is drawn.
const EVERY: Duration = Duration::from_millis(100);

/// Rates are of the last second or so.
const WINDOW: Duration = Duration::from_secs(1);

/// One line on stderr, redrawn while the run goes on; nothing where stderr is no terminal.
#[derive(Debug)]
pub(crate) struct Live {
    bar: ProgressBar,
    began: Instant,
    drawn: Option<Instant>,
    window: (Instant, [u64; 2]),
    rates: [f64; 2],
}

impl Live {
    pub(crate) fn new(quiet: bool, expected: Option<Nanos>) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(expected.map(|span| span.0 / 1_000_000), target);
        let template = match expected {
            Some(span) => format!("{{msg}} {{bar:12}} of {:.0} s", span.as_secs_f64().max(1.0)),
            None => "{msg}".to_owned(),
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        let now = Instant::now();
        Self { bar, began: now, drawn: None, window: (now, [0; 2]), rates: [0.0; 2] }
    }

    pub(crate) fn update(&mut self, summary: &Summary) {
        let now = Instant::now();
        if self.bar.is_hidden() || self.drawn.is_some_and(|drawn| now - drawn < EVERY) {
            return;
        }
        self.drawn = Some(now);
        let (since, before) = self.window;
        if now - since >= WINDOW {
            let done = Class::ALL.map(|class| summary.ended(class, Terminal::Completed));
            let seconds = (now - since).as_secs_f64();
            self.rates = [0, 1].map(|class| (done[class] - before[class]) as f64 / seconds);
            self.window = (now, done);
        }
        let elapsed = now - self.began;
        // The message first: moving the position may draw.
        self.bar.set_message(line(elapsed, self.rates, summary));
        self.bar.set_position(elapsed.as_millis() as u64);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// `12.3 s  small 95.0/s large 0.6/s  queued 3+1  [▪▪▪·····] draining`
fn line(elapsed: Duration, [small, large]: [f64; 2], summary: &Summary) -> String {
    let book = summary.book();
    let cell = |lane| match (book.offline().contains(lane), book.busy().contains(lane), book.gang_running()) {
        (_, true, true) => '█',
        (_, true, false) => '▪',
        (true, false, _) => 'x',
        (false, false, _) => '·',
    };
    let lanes: String = book.lanes().map(cell).collect();
    let state = if book.gang_running() {
        "gang    "
    } else if book.draining() {
        "draining"
    } else {
        "        "
    };
    let (small_queued, large_queued) = (book.queued(Class::Small), book.queued(Class::Large));
    let seconds = elapsed.as_secs_f64();
    format!("{seconds:6.1} s  small {small:.1}/s large {large:.1}/s  queued {small_queued}+{large_queued}  [{lanes}] {state}")
}
