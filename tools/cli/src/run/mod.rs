//! `phalanx run`: a workload over real lanes, in real time.
//!
//! ```text
//!  plan ──► generator thread ──submit──► node ──event ring──► collector thread ──► summary, log, trace, live line
//!                    └────────────── refusals ─────────────────────┘
//! ```
//! The main thread waits for the generator, then shuts the node down, and aborts it when Ctrl-C or an error says so.

mod collect;
mod generate;
mod live;
mod plan;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use phalanx::{Class, Emulated, Phalanx, Shutdown};
use phalanx_sim::record::{Profiler, ResultDocument};

use crate::args::RunArgs;
use crate::fail::Fail;
use crate::files::Files;
use crate::output::{self, Output};
use crate::report::{self, Page};
use crate::{interrupt, table};
use collect::{Collector, Left};
use live::Live;
use plan::Plan;

/// Records that fit between the dispatcher and the collector: 65,536 are enough for a collector that is late by 50 ms at a million
/// records a second.
const RING: usize = 1 << 16;

/// How often the main thread looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Tells the threads of a run to stop: Ctrl-C, or one of them has failed.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    pub(crate) fn ask(&self) {
        // ORDERING: Relaxed: a flag that passes nothing on.
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn asked(&self) -> bool {
        // ORDERING: Relaxed: as above.
        self.0.load(Ordering::Relaxed) || interrupt::asked()
    }
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Fail> {
    let Plan { input, header, device_note } = plan::plan(args)?;
    let source = input.source(args.input.seed)?;
    // Everything that can be refused is refused before the run, an unwritable file above all.
    let json = args.json.as_deref().map(Output::create).transpose()?;
    let report = args.report.as_deref().map(Output::create).transpose()?;
    let left = Left {
        files: Files::create(args.events.as_deref(), args.chrome_trace.as_deref(), &header)?,
        profiler: report.is_some().then(|| report::profiler(header.lanes, input.span, None)),
    };
    if !args.quiet {
        for note in &input.notes {
            eprintln!("note: {note}");
        }
        eprintln!("device: {device_note}");
    }
    let [small, large] = args.queue.0;
    let device = Emulated::default();
    let node = Phalanx::builder()
        .lanes(header.lanes)
        .device(device.clone())
        .policy(args.policy.clone())
        .queue(Class::Small, small)
        .queue(Class::Large, large)
        .events(RING)
        .build()?;
    if !args.quiet {
        eprintln!("threads: {}; they wait by: {}", node.placement(), node.waiting());
    }
    if !node.unpinned().is_empty() {
        let lanes: Vec<_> = node.unpinned().into_iter().map(|lane| lane.to_string()).collect();
        eprintln!("phalanx: warning: the workers of lanes {} could not be pinned and float", lanes.join(","));
    }
    let Some(events) = node.take_events() else { return Err(Fail::new("the node keeps no event log: this is a bug")) };
    interrupt::listen();

    let stop = Arc::new(Stop::default());
    let (refusals, refused) = mpsc::channel();
    let live = Live::new(args.quiet, input.expected());
    let collector = Collector::new(header, left, live, events, refused);
    let collecting = thread::Builder::new().name("phalanx-collect".to_owned()).spawn({
        let stop = Arc::clone(&stop);
        move || collector.collect(&stop)
    });
    let collecting = collecting.map_err(|error| thread_fail(&error))?;

    let generated = thread::scope(|scope| {
        let generating = thread::Builder::new().name("phalanx-generate".to_owned());
        let generating = generating.spawn_scoped(scope, || generate::generate(&node, source, &refusals, &stop));
        let generating = generating.map_err(|error| thread_fail(&error))?;
        let generated = joined(generating.join());
        // What is queued is given up if the run is to stop, now or while the rest runs to its end.
        let ending = scope.spawn(|| node.shutdown(Shutdown::Finish));
        while !ending.is_finished() {
            if stop.asked() {
                node.shutdown(Shutdown::Abort);
            }
            thread::sleep(LOOK);
        }
        generated
    });
    // With the node and the sender both ends are closed, and the collector comes to its end.
    drop(node);
    drop(refusals);
    let (summary, left) = joined(collecting.join())?;
    let generated = generated?;

    let mut result = summary.result();
    if let (Some(overhead), Some(lateness)) = (&mut result.overhead_ns, generated.lateness.figures()) {
        overhead.insert("generator_lateness".to_owned(), lateness);
    }
    let command = plan::command(args, &input);
    let mut document = ResultDocument::new(vec![result.clone()]);
    document.command = Some(command.clone());
    if let Some(file) = json {
        output::write_json(file, &document)?;
    }
    if let Some(file) = report {
        let profiles = vec![left.profiler.as_ref().map(Profiler::profile)];
        report::write(file, &Page { document, profiles, curve: Vec::new() })?;
    }
    left.files.finish()?;
    if !args.quiet {
        // A reader that went away takes nothing from the run.
        let _ = std::io::stdout().write_all(table::table(&result, &device_note, &command).as_bytes());
    }
    let violations = device.violations();
    if violations > 0 {
        eprintln!(
            "phalanx: work of two requests met on one GPU {violations} times: the isolation rule is broken, please report this"
        );
        return Ok(ExitCode::from(1));
    }
    Ok(if interrupt::asked() { ExitCode::from(interrupt::STATUS) } else { ExitCode::SUCCESS })
}

fn thread_fail(error: &std::io::Error) -> Fail {
    Fail::new(format!("a thread could not be started: {error}; allow the process more threads"))
}

/// What a thread returned. Its panic is a bug, and has been printed by itself: it goes on here.
fn joined<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
