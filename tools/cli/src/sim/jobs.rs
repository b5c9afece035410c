//! Many simulations on the cores there are, with progress, and an end by Ctrl-C.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use phalanx::Nanos;
use phalanx_sim::engine::{self, Scribe, SimError, SimOptions, across_seeds, server_filling, simulate_with};
use phalanx_sim::record::{Profile, Record};
use phalanx_sim::{InputError, Names, Source, TraceRequest};

use crate::fail::Fail;
use crate::input::Input;
use crate::policy::Ready;
use crate::{interrupt, report};

/// One simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) policy: &'a Ready,
    pub(crate) seed: u64,
    /// What a report is drawn from is wanted too; where the minute begins that it draws.
    pub(crate) profile: Option<Option<Nanos>>,
    /// Another target for each class, in place of what the requests bring.
    pub(crate) targets: Option<[Nanos; 2]>,
}

/// What it gave.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) result: engine::RunResult,
    pub(crate) profile: Option<Profile>,
}

/// What all of them share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) input: &'a Input,
    pub(crate) queue: [usize; 2],
    pub(crate) warm_up: u64,
    /// What a stop at a step costs, and what a resumption costs.
    pub(crate) stop_cost: Nanos,
}

/// A bar for so many requests; on stderr, where that is a terminal.
pub(crate) fn bar(quiet: bool, requests: u64, message: &str) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(requests), target);
    if let Ok(style) = ProgressStyle::with_template("{msg}  {bar:40} {percent:>3} %  {eta} left") {
        bar.set_style(style);
    }
    bar.set_message(message.to_owned());
    bar
}

/// Runs them all; the results in their order. `None` if Ctrl-C ended it.
pub(crate) fn run(setting: Setting<'_>, jobs: &[Job<'_>], bar: &ProgressBar) -> Result<Option<Vec<Done>>, Fail> {
    let done = across_seeds(jobs, |job| one(setting, job, bar, &mut |_| {}));
    bar.finish_and_clear();
    if interrupt::asked() {
        return Ok(None);
    }
    Ok(Some(done.into_iter().collect::<Result<_, SimError>>()?))
}

/// Runs one, and gives its records to `take`.
pub(crate) fn one(
    setting: Setting<'_>,
    job: &Job<'_>,
    bar: &ProgressBar,
    take: &mut dyn FnMut(&Record),
) -> Result<Done, SimError> {
    let Setting { input, queue, warm_up, stop_cost } = setting;
    let source = input.source(job.seed)?;
    let lanes = input.lanes;
    let mut source = Watched { source, targets: job.targets, taken: 0, bar };
    let named = SimOptions { queue, warm_up, stop_cost, ..SimOptions::new(lanes, Default::default()) };
    let mut profiler = job.profile.map(|minute| report::profiler(lanes, input.span, minute));
    let result = match job.policy.make(lanes) {
        None => server_filling(&mut source, &named)?,
        Some(policy) => match &mut profiler {
            None => simulate_with(&mut source, &named, policy, &mut ())?,
            Some(profiler) => {
                let mut scribe = Scribe::new(lanes, |record| {
                    profiler.add(record);
                    take(record);
                });
                simulate_with(&mut source, &named, policy, &mut scribe)?
            }
        },
    };
    // Server filling stops requests and is no scheduler of ours: it leaves no records.
    let profile = profiler.map(|profiler| profiler.profile()).filter(|profile| !profile.series.small.is_empty());
    Ok(Done { result, profile })
}

/// A source that tells how far it is, and ends when the user wants an end.
struct Watched<'a, S> {
    source: S,
    targets: Option<[Nanos; 2]>,
    taken: u64,
    bar: &'a ProgressBar,
}

/// How often it looks: a few milliseconds of simulation.
const EVERY: u64 = 4096;

impl<S: Source> Source for Watched<'_, S> {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, InputError> {
        self.taken += 1;
        if self.taken.is_multiple_of(EVERY) {
            self.bar.inc(EVERY);
            if interrupt::asked() {
                return Ok(None);
            }
        }
        let mut request = self.source.next_request()?;
        if let (Some(request), Some(targets)) = (&mut request, self.targets) {
            request.target = Some(targets[request.class.index()]);
        }
        Ok(request)
    }

    fn lanes(&self) -> usize {
        self.source.lanes()
    }

    fn tenants(&self) -> &Names {
        self.source.tenants()
    }

    fn models(&self) -> &Names {
        self.source.models()
    }
}
