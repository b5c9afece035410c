//! Measures what is promised: `cargo run --release -p phalanx-sim --example check -- [NAME …] [--quick]`. Status 1 on a shortfall.

use phalanx_sim::checks::CHECKS;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let (flags, names): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let quick = flags.iter().any(|flag| flag == "--quick");
    let unknown = names.iter().find(|name| CHECKS.iter().all(|check| check.name != **name));
    if let Some(wrong) = flags.iter().find(|flag| *flag != "--quick").or(unknown) {
        let known: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
        eprintln!("no check is named '{wrong}'; there are: {} (and --quick)", known.join(", "));
        return ExitCode::from(2);
    }
    let mut passed = true;
    for check in CHECKS.iter().filter(|check| names.is_empty() || names.iter().any(|name| name == check.name)) {
        println!("{}: {}", check.name, check.about);
        let start = Instant::now();
        match (check.run)(quick) {
            Ok(report) => {
                passed &= report.passed();
                print!("{report}");
                println!("{} {} in {:.1?}\n", if report.passed() { "PASS" } else { "SHORTFALL" }, check.name, start.elapsed());
            }
            Err(error) => {
                passed = false;
                println!("FAILED {}: {error}\n", check.name);
            }
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
