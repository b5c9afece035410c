//! The command line.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, Subcommand, ValueEnum};
use phalanx::scheduler::policy::POLICIES;
use phalanx::scheduler::{Limits, PolicySpec};
use phalanx_sim::units::Span;
use phalanx_sim::{Format, InputError, LargeIf, Step, WorkloadSpec};

use crate::policy::SimPolicy;
use crate::tune::Slo;

/// Schedules inference requests on the GPUs of one node: small ones, which need one GPU, and large ones, which need all of them at the
/// same instant and share none.
///
/// Without a command it is `phalanx run`: ten seconds of the default mix.
#[derive(Debug, Parser)]
#[command(
    name = "phalanx",
    version,
    after_help = "Examples:
  phalanx                             ten seconds of the default mix on emulated GPUs
  phalanx run --policy easy           the same by another policy
  phalanx run --help                  every flag, every policy with its settings, and more examples
  phalanx sim --report r.html         every policy in virtual time, as a table and as a page of pictures
  phalanx optimum                     how near the policies come to the exact optimum
  phalanx tune --slo small=1s,large=4s    the settings that meet these
  phalanx bench                       scheduling latency beside the machine's limit and the rivals

Exit status: 0 done; 1 the run broke a rule; 2 something given is wrong, in one line on stderr; 130 ended by Ctrl-C"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Args {
    /// The command line of this process; without a command it is that of `phalanx run`.
    pub(crate) fn of_this_process() -> Result<Command, clap::Error> {
        match Self::try_parse()?.command {
            Some(command) => Ok(command),
            None => Self::parsed(&["phalanx", "run"]),
        }
    }

    /// A command line with a command.
    pub(crate) fn parsed(words: &[&str]) -> Result<Command, clap::Error> {
        let command = Self::try_parse_from(words)?.command;
        command.ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingSubcommand))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a workload or a trace in real time, shows it live, and ends with a table
    ///
    /// Requests are submitted at the times that the workload or the trace says, whether or not the node keeps up (open loop). The
    /// lanes are emulated GPUs: work takes its time on them, and work of two requests at once is refused.
    #[command(after_help = run_help())]
    Run(Box<RunArgs>),
    /// Simulates a workload or a trace in virtual time, under any number of policies over the same arrivals
    ///
    /// What decides is the very scheduler that a node runs; only time is virtual. The same seed gives the same result to the last
    /// digit. Seeds and policies are spread over the cores there are. Waits and responses of a policy whose queues grow for ever are
    /// not printed: it is `unstable`.
    #[command(after_help = sim_help())]
    Sim(Box<SimArgs>),
    /// Solves the Markov model of the node exactly, and says how near the policies come to the optimum
    ///
    /// The model: Poisson arrivals, exponential service, nothing known of a request but its class. The cost is the mean number of
    /// smalls in the system plus W times that of larges: no policy without further knowledge has a lower one.
    #[command(after_help = OPTIMUM_HELP)]
    Optimum(Box<OptimumArgs>),
    /// Finds the policy and settings that meet SLAs on a trace or workload, by simulation
    ///
    /// Simulates every policy over a grid of its settings, refines around the best, prints the choices that no other beats in both
    /// classes, and the one that meets the SLAs with the most goodput, as `--policy` takes it.
    #[command(after_help = TUNE_HELP)]
    Tune(Box<TuneArgs>),
    /// Measures scheduling latency beside the machine's own limit and what one would otherwise use
    ///
    /// One request at a time between two pinned threads, every measurement in turn so that drift cancels; then an open loop, in which a
    /// stall is not forgiven. Close other programs: two CPUs must be free.
    #[command(after_help = BENCH_HELP)]
    Bench(Box<BenchArgs>),
}

/// What arrives: of every command that has requests.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "What arrives")]
pub(crate) struct InputArgs {
    /// Requests from this file, plain or gzip: Mooncake JSONL and our superset of it, Azure, BurstGPT, Vidur and Splitwise CSV, SWF
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    pub(crate) trace: Option<PathBuf>,

    /// The trace's format, where its content should not tell: jsonl, azure, burstgpt, vidur, splitwise, swf
    #[arg(long, value_parser = Format::from_str, requires = "trace")]
    pub(crate) format: Option<Format>,

    /// Which requests of the trace are large, such as `input>8000`; by default as the trace says
    #[arg(long, value_name = "RULE", value_parser = LargeIf::from_str, requires = "trace")]
    pub(crate) large_if: Option<LargeIf>,

    /// How tokens become time where the trace gives no service time: a JSON file, then the entries for small and large requests
    #[arg(long, value_name = "FILE[,SMALL,LARGE]", requires = "trace")]
    pub(crate) service_model: Option<ServiceModelArg>,

    /// Generated requests: `mix:key=value,…`; see below for the keys [default: mix]
    #[arg(long, value_name = "SPEC", value_parser = WorkloadSpec::from_str)]
    pub(crate) workload: Option<WorkloadSpec>,

    /// Stretches the arrivals so that this is asked for: GPU time over the GPU time there is; above 1 is overload
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) load: Option<f64>,

    /// Time and service both so many times faster
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) speed: f64,

    /// Ends the arrivals after this time; what has arrived still runs [default: the whole of a trace; of a workload see above]
    #[arg(long, value_name = "SPAN", value_parser = Span::from_str, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,

    /// Seeds everything that is drawn; the same seed gives the same requests
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// Makes soft targets hard deadlines: a request that has not started by then is expired
    #[arg(long)]
    pub(crate) hard_deadlines: bool,

    /// Gives each request a prediction of its service time, with a lognormal error of this coefficient of variation; 0 is perfect
    #[arg(long, value_name = "CV", allow_negative_numbers = true)]
    pub(crate) prediction_error: Option<f64>,

    /// Gives each request steps, between which it can stop and go on later: of so long, or, with `token`, one for each token that comes out
    #[arg(long, value_name = "SPAN|token", value_parser = Step::from_str, allow_hyphen_values = true)]
    pub(crate) step: Option<Step>,
}

/// `phalanx run`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Who starts next: `name:key=value:key=value`; see below for the names
    #[arg(long, value_name = "POLICY", value_parser = PolicySpec::from_str, default_value_t, help_heading = "Who runs it")]
    pub(crate) policy: PolicySpec,

    /// How many lanes (GPUs), 1 to 8; a large request holds all [default: the workload's, or 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Who runs it")]
    pub(crate) lanes: Option<usize>,

    /// How many requests of each class may wait; one more is rejected. One number, or one for each class
    #[arg(long, value_name = "N|SMALL,LARGE", default_value_t, help_heading = "Who runs it")]
    pub(crate) queue: QueueArg,

    /// What the lanes are
    #[arg(long, value_enum, default_value_t, help_heading = "Who runs it")]
    pub(crate) device: DeviceArg,

    /// The figures as one JSON document (phalanx.result/1)
    #[arg(long, value_name = "FILE", help_heading = "What is left")]
    pub(crate) json: Option<PathBuf>,

    /// The run as a page of pictures, which needs no network
    #[arg(long, value_name = "FILE.html", help_heading = "What is left")]
    pub(crate) report: Option<PathBuf>,

    /// Every event, decision and span as JSON lines (phalanx.events/1), for the auditor and for replay
    #[arg(long, value_name = "FILE", help_heading = "What is left")]
    pub(crate) events: Option<PathBuf>,

    /// The run as a picture: open the file at https://ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = "What is left")]
    pub(crate) chrome_trace: Option<PathBuf>,

    /// Prints errors alone: no live line, no notes, no table
    #[arg(long, short, help_heading = "What is left")]
    pub(crate) quiet: bool,
}

/// `phalanx sim`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SimArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Ends the arrivals after so many requests [default: 200000 of a workload without --duration, the whole of a trace]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "What arrives")]
    pub(crate) requests: Option<u64>,

    /// The first so many requests are simulated and not counted [default: a tenth of a workload, none of a trace]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "What arrives")]
    pub(crate) warm_up: Option<u64>,

    /// Simulates with so many seeds, from --seed on, and says how sure the means are [default: 5, or 1 where nothing is drawn]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "What arrives")]
    pub(crate) seeds: Option<u64>,

    /// Who starts next: one policy or several, `A,B:key=value`, over the same arrivals; see below for the names
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', value_parser = SimPolicy::from_str,
        default_values_t = SimPolicy::compared(), help_heading = "Who runs it")]
    pub(crate) policy: Vec<SimPolicy>,

    /// How many lanes (GPUs), 1 to 64; a large request holds all [default: the workload's, or 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Who runs it")]
    pub(crate) lanes: Option<usize>,

    /// How many requests of each class may wait; one more is rejected. One number, or one for each class
    #[arg(long, value_name = "N|SMALL,LARGE", default_value_t, help_heading = "Who runs it")]
    pub(crate) queue: QueueArg,

    /// What it costs to stop a request at a step, and again what it costs to resume it
    #[arg(long, value_name = "SPAN", value_parser = Span::from_str, default_value = "1ms", allow_hyphen_values = true,
        help_heading = "Who runs it")]
    pub(crate) step_cost: Span,

    /// The figures of every run as one JSON document (phalanx.result/1)
    #[arg(long, value_name = "FILE", help_heading = "What is left")]
    pub(crate) json: Option<PathBuf>,

    /// The runs as a page of pictures, which needs no network
    #[arg(long, value_name = "FILE.html", help_heading = "What is left")]
    pub(crate) report: Option<PathBuf>,

    /// Where the minute begins whose lanes the report draws [default: in the middle of the run]
    #[arg(long, value_name = "SPAN", value_parser = Span::from_str, requires = "report", help_heading = "What is left")]
    pub(crate) minute: Option<Span>,

    /// Every event, decision and span as JSON lines (phalanx.events/1): of one policy and the first seed
    #[arg(long, value_name = "FILE", help_heading = "What is left")]
    pub(crate) events: Option<PathBuf>,

    /// The run as a picture, of one policy and the first seed: open the file at https://ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = "What is left")]
    pub(crate) chrome_trace: Option<PathBuf>,

    /// Prints errors alone: no progress, no notes, no table
    #[arg(long, short, help_heading = "What is left")]
    pub(crate) quiet: bool,
}

/// `phalanx optimum`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OptimumArgs {
    /// What arrives, Poisson and exponential: `mix:load=0.8,share=0.3,small=50ms,large=400ms,lanes=8` [default: mix]
    #[arg(long, value_name = "SPEC", value_parser = WorkloadSpec::from_str, help_heading = "The model")]
    pub(crate) workload: Option<WorkloadSpec>,

    /// How many smalls in the system one large counts for
    #[arg(long, value_name = "W", default_value_t = 8.0, allow_negative_numbers = true, help_heading = "The model")]
    pub(crate) weight: f64,

    /// Solves the model in which service may be stopped and resumed free of charge; no policy is compared with it
    #[arg(long, conflicts_with = "table", help_heading = "The model")]
    pub(crate) preemptive: bool,

    /// How near the bounds on the cost must come, relative to it
    #[arg(long, value_name = "X", default_value_t = 1e-4, allow_negative_numbers = true, help_heading = "The model")]
    pub(crate) tolerance: f64,

    /// States of the model at most, about 400 bytes each
    #[arg(long, value_name = "N", default_value_t = 4_000_000, allow_negative_numbers = true, help_heading = "The model")]
    pub(crate) max_states: usize,

    /// Policies to compare with the optimum, over the same arrivals [default: balance with this weight, msfq, easy, fcfs]
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', value_parser = PolicySpec::from_str, help_heading = "Compared with it")]
    pub(crate) policy: Option<Vec<PolicySpec>>,

    /// So many requests are simulated for each policy and seed; the first tenth is not counted
    #[arg(long, value_name = "N", default_value_t = 500_000, allow_negative_numbers = true, help_heading = "Compared with it")]
    pub(crate) requests: u64,

    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, help_heading = "Compared with it")]
    pub(crate) seed: u64,

    /// So many seeds
    #[arg(long, value_name = "N", default_value_t = 5, allow_negative_numbers = true, help_heading = "Compared with it")]
    pub(crate) seeds: u64,

    /// The solution and the figures of every run as one JSON document (phalanx.result/1)
    #[arg(long, value_name = "FILE", help_heading = "What is left")]
    pub(crate) json: Option<PathBuf>,

    /// The table of decisions, for `phalanx sim --policy optimum:table=FILE`
    #[arg(long, value_name = "FILE", help_heading = "What is left")]
    pub(crate) table: Option<PathBuf>,

    /// Prints errors alone
    #[arg(long, short, help_heading = "What is left")]
    pub(crate) quiet: bool,
}

/// `phalanx tune`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Ends the arrivals after so many requests [default: 100000 of a workload without --duration, the whole of a trace]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "What arrives")]
    pub(crate) requests: Option<u64>,

    /// So many seeds, from --seed on [default: 3, or 1 where nothing is drawn]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "What arrives")]
    pub(crate) seeds: Option<u64>,

    /// What is to be met: `small=500ms,large=4s` or `small=500ms@99,large=4s@90`: the response, and by how many in a hundred [95]
    #[arg(long, value_name = "SLO", value_parser = Slo::from_str, help_heading = "What is wanted")]
    pub(crate) slo: Slo,

    /// How many lanes (GPUs), 1 to 64; a large request holds all [default: the workload's, or 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Who runs it")]
    pub(crate) lanes: Option<usize>,

    /// How many requests of each class may wait; one more is rejected. One number, or one for each class
    #[arg(long, value_name = "N|SMALL,LARGE", default_value_t, help_heading = "Who runs it")]
    pub(crate) queue: QueueArg,

    /// The figures of every run as one JSON document (phalanx.result/1)
    #[arg(long, value_name = "FILE", help_heading = "What is left")]
    pub(crate) json: Option<PathBuf>,

    /// Prints errors and the chosen policy alone
    #[arg(long, short, help_heading = "What is left")]
    pub(crate) quiet: bool,
}

/// `phalanx bench`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// How often everything is measured in turn
    #[arg(long, value_name = "N", default_value_t = 20, allow_negative_numbers = true)]
    pub(crate) rounds: u32,

    /// Round trips of each of the fast measurements in a round; slow ones do fewer
    #[arg(long, value_name = "N", default_value_t = 20_000, allow_negative_numbers = true)]
    pub(crate) samples: u32,

    /// Requests a second of the open loop
    #[arg(long, value_name = "X", default_value_t = 200_000.0, allow_negative_numbers = true)]
    pub(crate) rate: f64,

    /// Exits with status 1 if a target is missed
    #[arg(long)]
    pub(crate) check: bool,

    /// Measures, too, how costs grow with lanes, with what is queued, and with submitters
    #[arg(long)]
    pub(crate) scaling: bool,

    /// The figures as one JSON document (phalanx.bench/2)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// The distributions as a page of pictures, which needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Prints errors alone
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What the lanes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum DeviceArg {
    /// CUDA where this build has it and a driver answers, else emulated; it says which, and why
    #[default]
    Auto,
    /// Emulated GPUs: work takes its time, nothing is computed
    Emulated,
    /// CUDA GPUs
    Cuda,
}

/// The capacities of the queues, small first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueArg(pub(crate) [usize; 2]);

impl Default for QueueArg {
    fn default() -> Self {
        Self([Limits::DEFAULT_QUEUE; 2])
    }
}

impl FromStr for QueueArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let capacity = |text: &str| match text.trim().parse() {
            Ok(n) if (1..=Limits::MAX_QUEUE).contains(&n) => Ok(n),
            _ => Err(format!("give a whole number from 1 to {}, or one for each class as `1000,50`", Limits::MAX_QUEUE)),
        };
        match text.split_once(',') {
            Some((small, large)) => Ok(Self([capacity(small)?, capacity(large)?])),
            None => Ok(Self([capacity(text)?; 2])),
        }
    }
}

impl std::fmt::Display for QueueArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [small, large] = self.0;
        if small == large { write!(f, "{small}") } else { write!(f, "{small},{large}") }
    }
}

/// A file of service models, and the entries for each class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServiceModelArg {
    pub(crate) text: String,
}

impl FromStr for ServiceModelArg {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        Ok(Self { text: text.to_owned() })
    }
}

impl ServiceModelArg {
    /// The file, and the names of the entries for small and large requests where they are given.
    pub(crate) fn parts(&self) -> (PathBuf, Option<&str>, Option<&str>) {
        let mut parts = self.text.rsplitn(3, ',');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(large), Some(small), Some(file)) => (file.into(), Some(small), Some(large)),
            _ => ((&self.text).into(), None, None),
        }
    }
}

/// What stands below the flags of `phalanx run`.
fn run_help() -> String {
    let mut help = what_there_is();
    help.push_str(
        "
A workload runs for ten seconds unless --duration says otherwise.

Examples:
  phalanx run
  phalanx run --duration 30s --workload mix:load=0.9,error=0.3 --policy drain:backfill=on
  phalanx run --trace t.jsonl.gz --load 0.7 --speed 100 --json r.json --events e.jsonl
  phalanx run --trace azure.csv --large-if 'input>8000' --hard-deadlines --chrome-trace c.json
  cargo run -p phalanx-audit -- e.jsonl      checks what --events wrote",
    );
    help
}

/// What stands below the flags of `phalanx sim`.
fn sim_help() -> String {
    let mut help = what_there_is();
    for (name, about) in [
        ("server-filling", "simulator only: preemptive reference, stops and resumes requests free of charge"),
        ("optimum", "simulator only: the exact optimum of the Markov model of this workload"),
    ] {
        hang(&mut help, &format!("  {name:<14}"), about);
    }
    hang(&mut help, "    w=8               ", "how many smalls one large counts for");
    hang(&mut help, "    table=FILE        ", "a table that `phalanx optimum --table` wrote, instead of solving it now");
    help.push_str(
        "
Examples:
  phalanx sim                                           every policy on the default mix
  phalanx sim --trace t.jsonl --load 0.7 --report r.html
  phalanx sim --workload mix:load=0.9 --policy balance,balance:w=1,optimum,server-filling --seeds 10 --json r.json
  phalanx sim --policy balance --events e.jsonl --requests 1000
  phalanx sim --step 20ms --prediction-error 0.3 --policy swap,balance,server-filling",
    );
    help
}

const OPTIMUM_HELP: &str = "Exit status: 1 where the solution did not converge; its cost is then no result.

Examples:
  phalanx optimum
  phalanx optimum --workload mix:load=0.9,share=0.5 --weight 1 --policy balance:w=1,msfq:l=3
  phalanx optimum --table t.json && phalanx sim --policy optimum:table=t.json,balance
  phalanx optimum --preemptive";

const TUNE_HELP: &str = "Exit status: 1 where no choice meets the SLAs.

Examples:
  phalanx tune --trace t.jsonl --load 0.7 --slo small=5s,large=60s
  phalanx tune --workload mix:load=0.9,error=0.3 --slo small=500ms@95,large=4s@90
  phalanx run --policy \"$(phalanx tune --quiet --slo small=1s,large=4s)\"";

const BENCH_HELP: &str = "Examples:
  phalanx bench
  phalanx bench --rounds 5 --samples 5000 --json b.json
  phalanx bench --check && echo every target is met here";

/// The workload's keys and the policies.
fn what_there_is() -> String {
    let mut help = String::from(
        "Workload keys (mix:key=value,…), all optional:
  load=0.8 share=0.3      GPU time asked for over what there is; the share of it that is large
  rate_small= rate_large= requests a second, instead of load and share
  small=50ms large=400ms  mean service times
  service=exp             exp, lognormal (with cv_small=1.5 cv_large=1) or fixed
  arrivals=poisson        poisson or bursty
  slo_small=10x slo_large=10x   soft targets: times the mean, a span, or none
  lanes=8                 lanes that a large request holds
  error=0.3               gives predictions with this coefficient of variation; absent: none

Policies:
",
    );
    for policy in POLICIES {
        let default = if policy.name == PolicySpec::default().name() { " (default)" } else { "" };
        hang(&mut help, &format!("  {:<14}", policy.name), &format!("{}{default}", policy.about));
        for (key, default, meaning) in policy.settings {
            hang(&mut help, &format!("    {:<18}", format!("{key}={default}")), meaning);
        }
    }
    help
}

/// The narrowest terminal for which the policies' lines are made: wider than this they would be wrapped by clap, without an indent.
const WIDTH: usize = 96;

/// A head, and beside it a text in as many lines as it takes.
fn hang(help: &mut String, head: &str, text: &str) {
    let indent = head.chars().count();
    let mut column = indent;
    help.push_str(head);
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > indent && column + width > WIDTH {
            help.truncate(help.trim_end().len());
            // Writing to a String cannot fail.
            let _ = write!(help, "\n{:indent$}", "");
            column = indent;
        }
        help.push_str(word);
        help.push(' ');
        column += width + 1;
    }
    help.truncate(help.trim_end().len());
    help.push('\n');
}
