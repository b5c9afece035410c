//! What will be run: everything that the user gave, checked before anything starts.

use phalanx::Nanos;
use phalanx::types::MAX_LANES;
use phalanx_sim::record::{Header, Mode};

use crate::args::{DeviceArg, RunArgs};
use crate::fail::Fail;
use crate::input::{Command, End, Input, outputs_differ};

/// How long a workload arrives unless it is said: a workload has no end of its own.
const DURATION: Nanos = Nanos::from_secs(10);

/// A run, ready to start.
pub(crate) struct Plan {
    pub(crate) input: Input,
    pub(crate) header: Header,
    /// Which device, and why.
    pub(crate) device_note: String,
}

pub(crate) fn plan(args: &RunArgs) -> Result<Plan, Fail> {
    outputs_differ(&[
        ("--trace", args.input.trace.as_ref()),
        ("--json", args.json.as_ref()),
        ("--report", args.report.as_ref()),
        ("--events", args.events.as_ref()),
        ("--chrome-trace", args.chrome_trace.as_ref()),
    ])?;
    let device_note = match args.device {
        DeviceArg::Auto => "emulated GPUs, since this build has no CUDA",
        DeviceArg::Emulated => "emulated GPUs, as asked for",
        DeviceArg::Cuda => {
            let text = "--device: this build has no CUDA; give `emulated`, or leave it out";
            return Err(Fail::new(text));
        }
    };
    let input = Input::new(&args.input, args.lanes, MAX_LANES, None, End::After(DURATION))?;
    let header = Header {
        mode: Mode::Real,
        lanes: input.lanes,
        policy: args.policy.to_string(),
        queue: args.queue.0,
        workload: input.workload.clone(),
        load: input.load,
        speed: args.input.speed,
        seed: args.input.seed,
        device: Some("emulated".to_owned()),
    };
    Ok(Plan { input, header, device_note: device_note.to_owned() })
}

/// The command that does the same again.
pub(crate) fn command(args: &RunArgs, input: &Input) -> String {
    Command::new("run")
        .input(&args.input, input)
        .put("--policy", Some(&args.policy))
        .put("--lanes", args.lanes)
        .put("--queue", (args.queue != Default::default()).then_some(args.queue))
        .text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command as Parsed};

    fn again(words: &[&str]) -> (String, RunArgs) {
        let Parsed::Run(args) = Args::parsed(words).unwrap() else { panic!("it is `run`") };
        (command(&args, &plan(&args).unwrap().input), *args)
    }

    #[test]
    fn the_command_gives_the_same_run_again() {
        let words = [
            "phalanx",
            "run",
            "--workload",
            "mix:load=0.5,error=0.3",
            "--policy",
            "drain:batch=all",
            "--speed",
            "2.5",
            "--seed",
            "9",
            "--load",
            "0.25",
            "--step",
            "20ms",
            "--queue",
            "10,20",
            "--lanes",
            "4",
            "--hard-deadlines",
            "--prediction-error",
            "0.5",
        ];
        let (first, _) = again(&words);
        let (second, reparsed) = again(&first.split(' ').collect::<Vec<_>>());
        assert_eq!(first, second);
        assert_eq!(reparsed.queue.0, [10, 20]);
        assert!(first.contains("--duration 10s") && reparsed.input.hard_deadlines);
    }
}
