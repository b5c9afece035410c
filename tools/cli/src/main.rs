//! The program `phalanx`: schedules small and large requests over the lanes of a node, in real time.

mod args;
mod fail;
mod interrupt;
mod output;
mod run;
mod table;

use std::process::ExitCode;

use args::{Args, Command};
use clap::error::ErrorKind;
use fail::Fail;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Args::of_this_process() {
        Ok(Command::Run(args)) => run::run(&args),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // A reader that went away (a pager that was closed) is no failure of ours.
            let _ = error.print();
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(Fail::usage(&error)),
    };
    done.unwrap_or_else(|fail| {
        eprintln!("phalanx: {fail}");
        ExitCode::from(2)
    })
}
