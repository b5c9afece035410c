//! More is asked for than there are lanes: the real run does what the simulated one says, within some points.
//!
//! With `PHALANX_LONG` set it takes a minute, else some seconds.

mod common;

use common::{phalanx, text};
use serde_json::Value;

/// Runs a command of the program at one and a half times what the node can do. The one run of its document.
#[track_caller]
fn run(command: &[&str], span: &str, name: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = text(&folder.path().join(format!("{name}.json")));
    let events = text(&folder.path().join(format!("{name}.jsonl")));
    let words = ["--workload", "mix", "--load", "1.5", "--hard-deadlines", "--queue", "150,8", "--seed", "7", "--duration", span];
    let output = phalanx(&[command, &words, &["--policy", "balance", "--quiet", "--json", &file, "--events", &events]].concat());
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let log = std::fs::File::open(&events).unwrap();
    let audit = phalanx_audit::audit(std::io::BufReader::new(log)).unwrap();
    assert!(audit.passed(), "{name}: {audit}");
    let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    document["runs"].get(0).unwrap_or(&document).clone()
}

#[test]
fn a_real_overload_sheds_what_the_simulated_one_sheds() {
    let span = if std::env::var_os("PHALANX_LONG").is_some() { "60s" } else { "8s" };
    let simulated = run(&["sim", "--seeds", "1", "--warm-up", "0"], span, "sim");
    let real = run(&["run"], span, "run");
    for class in ["small", "large"] {
        let count = |run: &Value, what: &str| run["classes"][class][what].as_u64().unwrap_or_else(|| panic!("{class} {what}"));
        // Of all that asked, in hundredths.
        let on_time = |run: &Value| run["classes"][class]["slo_met"].as_f64().unwrap_or_else(|| panic!("{class}")) * 100.0;
        for run in [&simulated, &real] {
            let ends = ["completed", "failed", "expired", "cancelled", "rejected", "shut_down", "unfinished"];
            assert_eq!(ends.map(|end| count(run, end)).iter().sum::<u64>(), count(run, "submitted"), "{class}");
        }
        let (a, b) = (on_time(&simulated), on_time(&real));
        println!("{class}: on time {b:.1} % in real time, {a:.1} % simulated");
        assert!((a - b).abs() <= 5.0, "{class}: {b:.1} % in real time, {a:.1} % simulated");
    }
    assert!(real["classes"]["small"]["expired"].as_u64().unwrap() + real["classes"]["small"]["rejected"].as_u64().unwrap() > 0);
}
