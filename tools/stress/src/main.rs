//! `phalanx-stress`: real threads, long runs, every kind of fault.
//!
//! Three parts. The *node* runs under every policy in turn, with users who submit small and large requests, cancel some and give some a
//! deadline, bodies that panic or leave early, a device that fails requests and loses lanes; at the end of each round the users' count of
//! ends must be the node's, and the event log must pass an audit that shares no code with the runtime. The *word* is driven through any
//! number of transitions by three threads: nothing may be lost, doubled or stuck. The *soak* sends a number of requests through one living node a
//! policy: the books balance at every quiet moment, and the last tenth is as fast as the first, in as much memory.
//!
//! What is drawn comes from the seed, which is printed; the schedule is the machine's, so that a seed brings the same requests again, not
//! the same run.

mod node;
mod random;
mod soak;
mod word;

use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: phalanx-stress [--seconds N] [--seed N] [--transitions N] [--soak N] [--events FILE]
  --seconds N      how long the node is stressed, all policies together (default 20; 0: not at all)
  --seed N         what the requests are drawn from (default: the clock)
  --transitions N  transitions of the state word (default 10000000; 0: none)
  --soak N         requests of the soak, all policies together (default 0: none)
  --events FILE    keeps the event log of the latest round
exit status: 0 all is well; 1 it is not; 2 the command line is wrong";

struct Options {
    seconds: u64,
    seed: u64,
    transitions: u64,
    soak: u64,
    events: Option<String>,
}

fn options() -> Result<Options, String> {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    let mut options = Options { seconds: 20, seed: u64::from(clock), transitions: 10_000_000, soak: 0, events: None };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{flag} {value}: not a whole number"));
        match flag.as_str() {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            "--transitions" => options.transitions = number()?,
            "--soak" => options.soak = number()?,
            "--events" => options.events = Some(value),
            _ => return Err(format!("unknown argument {flag}")),
        }
    }
    if options.seconds == 0 && options.transitions == 0 && options.soak == 0 {
        return Err("nothing to do: --seconds, --transitions and --soak are 0".to_owned());
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("phalanx-stress: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}", options.seed);
    if options.transitions > 0 {
        word::stress(options.transitions);
    }
    let ok = options.seconds == 0 || node::stress(Duration::from_secs(options.seconds), options.seed, options.events.as_deref());
    let ok = ok && (options.soak == 0 || soak::soak(options.soak, options.seed));
    ExitCode::from(u8::from(!ok))
}
