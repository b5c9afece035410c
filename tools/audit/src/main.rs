//! `phalanx-audit FILE`: audits an event log.
//!
//! Exit status 0: every rule was kept. 1: one was broken, or the log proves nothing. 2: the log cannot be read.

use std::fs::File;
use std::io::{BufReader, Write};
use std::process::ExitCode;

const USAGE: &str = "usage: phalanx-audit FILE
Audits an event log that `phalanx run --events FILE` wrote: isolation, gangs, one end for each request, the books.
exit status: 0 every rule was kept; 1 one was broken, or the log proves nothing; 2 the log cannot be read";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (Some(path), None) = (args.next(), args.next()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if path == "--help" || path == "-h" {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let name = path.display();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("phalanx-audit: {name}: cannot be opened: {error}");
            return ExitCode::from(2);
        }
    };
    match phalanx_audit::audit(BufReader::with_capacity(1 << 18, file)) {
        Ok(report) => {
            // A reader that went away (a closed pipe) does not change the verdict.
            let _ = write!(std::io::stdout(), "{report}");
            ExitCode::from(u8::from(!report.passed()))
        }
        Err(error) => {
            eprintln!("phalanx-audit: {name}: {error}");
            ExitCode::from(2)
        }
    }
}
