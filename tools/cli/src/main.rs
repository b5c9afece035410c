//! The program `phalanx`: schedules small and large requests over the lanes of a node, in real time and in virtual time.

mod args;
mod bench;
mod fail;
mod files;
mod input;
mod interrupt;
mod optimum;
mod output;
mod policy;
mod report;
mod run;
mod sim;
mod table;
mod tune;

use std::process::ExitCode;

use args::{Args, Command};
use clap::error::ErrorKind;
use fail::Fail;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Args::of_this_process() {
        Ok(Command::Run(args)) => run::run(&args),
        Ok(Command::Sim(args)) => sim::sim(&args),
        Ok(Command::Optimum(args)) => optimum::optimum(&args),
        Ok(Command::Tune(args)) => tune::tune(&args),
        Ok(Command::Bench(args)) => bench::bench(&args),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // A reader that went away (a pager that was closed) is no failure of ours.
            let _ = error.print();
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let first = std::env::args().nth(1).unwrap_or_default();
            let command = ["sim", "optimum", "tune", "bench"].into_iter().find(|name| *name == first).unwrap_or("run");
            Err(Fail::usage(&error, command))
        }
    };
    done.unwrap_or_else(|fail| {
        eprintln!("phalanx: {fail}");
        ExitCode::from(2)
    })
}
