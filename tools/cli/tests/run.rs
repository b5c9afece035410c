//! `phalanx run`, from its command line to its files.

mod common;

use std::fs::{self, File};
use std::io::{BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{command, phalanx, text};
use serde_json::Value;

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the file is there")).expect("it is JSON")
}

fn audited(path: &Path) -> phalanx_audit::Report {
    phalanx_audit::audit(BufReader::new(File::open(path).unwrap())).expect("the log is readable")
}

/// Only what the user named is left in the folder.
#[track_caller]
fn holds_only(folder: &Path, names: &[&str]) {
    let mut there: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    there.sort();
    assert_eq!(there, names);
}

#[test]
fn a_mix_leaves_a_table_and_three_whole_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let words = ["run", "--duration", "1s", "--workload", "mix:load=0.6,small=5ms,large=20ms,error=0.2", "--policy", "easy"];
    let files = [("--json", "r.json"), ("--events", "e.jsonl"), ("--chrome-trace", "c.json")];
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    for (flag, name) in files {
        words.extend([flag.to_owned(), text(&at(name))]);
    }
    let output = phalanx(&words);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{err}");
    for part in ["class", "small", "large", "SLO met", "gang skew", "utilization", "generator", "emulated GPUs", "seed 1"] {
        assert!(out.contains(part), "no `{part}` in\n{out}");
    }
    assert!(out.contains(
        "again       phalanx run --workload mix:load=0.6,small=5ms,large=20ms,error=0.2 --duration 1s --seed 1 --policy easy"
    ));
    assert!(err.contains("device: emulated GPUs"), "{err}");
    holds_only(folder.path(), &["c.json", "e.jsonl", "r.json"]);

    let result = json(&at("r.json"));
    assert_eq!(result["schema"], "phalanx.result/1");
    let run = &result["runs"][0];
    assert_eq!(
        (&run["mode"], &run["policy"], &run["lanes"], &run["seed"]),
        (&"real".into(), &"easy".into(), &8.into(), &1.into())
    );
    assert_eq!(run["workload"], "mix:load=0.6,small=5ms,large=20ms,error=0.2");
    for field in ["load", "span_s", "utilization", "drain_idle_fraction", "goodput_per_s"] {
        assert!(run[field].as_f64().is_some_and(|value| value >= 0.0), "{field}: {}", run[field]);
    }
    let mut requests = 0;
    for class in ["small", "large"] {
        let figures = &run["classes"][class];
        let count = |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("{class}.{name} is no count"));
        let ends = ["completed", "failed", "expired", "cancelled", "rejected", "shut_down"].map(count);
        assert_eq!(count("submitted"), ends.iter().sum::<u64>());
        assert!(count("completed") > 0 && count("failed") == 0, "{figures}");
        assert!(figures["slo_met"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)));
        for spread in ["wait_ms", "response_ms"] {
            for figure in ["mean", "p50", "p90", "p99", "p999", "max"] {
                assert!(figures[spread][figure].as_f64().is_some_and(|ms| ms >= 0.0), "{class}.{spread}.{figure}");
            }
        }
        requests += count("submitted");
    }
    for stage in ["submit_to_reserved", "reserved_to_started", "gang_reserved_to_started", "gang_skew", "generator_lateness"] {
        assert!(run["overhead_ns"][stage]["p99"].is_u64(), "{stage}: {}", run["overhead_ns"][stage]);
    }

    let report = audited(&at("e.jsonl"));
    assert!(report.passed(), "{report}");
    assert_eq!(report.requests.iter().sum::<u64>(), requests);

    let trace = json(&at("c.json"));
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |category: &str| events.iter().filter(|event| event["cat"] == category).count() as u64;
    assert_eq!((of("small"), of("large")), (report.completed[0], 8 * report.completed[1]));
    assert_eq!(events.iter().filter(|event| event["name"] == "thread_name").count(), 9);
}

/// Two smalls, a large, two smalls.
fn trace() -> String {
    let line = |ms: u32, class: &str, gpus: u32| {
        format!(r#"{{"timestamp": {ms}, "class": "{class}", "gpus": {gpus}, "service_ms": 10, "slo_ms": 5000}}"#)
    };
    [line(0, "small", 1), line(1, "small", 1), line(2, "large", 8), line(3, "small", 1), line(30, "small", 1)].join("\n")
}

#[test]
fn a_trace_runs_whole_plain_and_gzipped() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, gz) = (folder.path().join("t.jsonl"), folder.path().join("t.jsonl.gz"));
    fs::write(&plain, trace()).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(File::create(&gz).unwrap(), flate2::Compression::fast());
    encoder.write_all(trace().as_bytes()).unwrap();
    encoder.finish().unwrap();
    for file in [plain, gz] {
        for policy in phalanx::scheduler::policy::POLICIES {
            let (result, events) = (folder.path().join("r.json"), folder.path().join("e.jsonl"));
            let words = ["run", "--quiet", "--speed", "2", "--policy", policy.name, "--trace"].map(str::to_owned);
            let files = [text(&file), "--json".into(), text(&result), "--events".into(), text(&events)];
            let output = phalanx(&[words.as_slice(), &files].concat());
            assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
            let run = &json(&result)["runs"][0];
            let of = |class: &str| (run["classes"][class]["submitted"].as_u64(), run["classes"][class]["completed"].as_u64());
            assert_eq!((of("small"), of("large")), ((Some(4), Some(4)), (Some(1), Some(1))), "{}", policy.name);
            assert_eq!(run["classes"]["small"]["slo_met"], 1.0);
            let report = audited(&events);
            assert!(report.passed(), "{report}");
        }
    }
}

#[test]
fn what_is_refused_is_in_the_books_and_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (result, events) = (text(&folder.path().join("r.json")), folder.path().join("e.jsonl"));
    let words = ["run", "--workload", "mix:load=4,small=10ms,large=10ms,lanes=2", "--duration", "500ms", "--queue", "4,2"];
    let output = phalanx(&[&words[..], &["--json", &result, "--events", &text(&events)]].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("rejected"));
    let run = &json(Path::new(&result))["runs"][0];
    let small = &run["classes"]["small"];
    assert!(small["rejected"].as_u64() > Some(0) && small["slo_met"].as_f64() < Some(1.0), "{small}");
    let report = audited(&events);
    assert!(report.passed() && report.requests[0] == small["submitted"].as_u64().unwrap(), "{report}");
}

#[test]
fn hard_deadlines_expire() {
    let folder = tempfile::tempdir().unwrap();
    let (result, events) = (text(&folder.path().join("r.json")), folder.path().join("e.jsonl"));
    let spec = "mix:load=5,small=10ms,large=20ms,slo_small=3x,slo_large=3x,lanes=2";
    let words =
        ["run", "--workload", spec, "--duration", "500ms", "--hard-deadlines", "--json", &result, "--events", &text(&events)];
    assert!(phalanx(&words).status.success());
    let small = &json(Path::new(&result))["runs"][0]["classes"]["small"];
    assert!(small["expired"].as_u64() > Some(0) && small["slo_met"].as_f64().is_some(), "{small}");
    let report = audited(&events);
    assert!(report.passed(), "{report}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (result, events) = (text(&folder.path().join("r.json")), folder.path().join("e.jsonl"));
    let words = ["run", "--duration", "10min", "--workload", "mix:load=3,small=20ms,large=50ms", "--json", &result];
    let log = text(&events);
    let words = [&words[..], &["--events", &log]].concat();
    let child = command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let began = Instant::now();
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("shut down") && out.contains("again"), "{out}");
    holds_only(folder.path(), &["e.jsonl", "r.json"]);
    let report = audited(&events);
    assert!(report.passed(), "{report}");
}

#[test]
fn help_names_every_policy_with_its_settings_and_shows_examples() {
    for words in [&["--help"][..], &["run", "--help"]] {
        let output = phalanx(words);
        let out = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && out.contains("Examples:\n  phalanx"), "{out}");
        // Long lines are wrapped to the terminal's width.
        let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.len() == 2 {
            for policy in phalanx::scheduler::policy::POLICIES {
                assert!(out.contains(policy.name) && out.contains(policy.about), "{}", policy.name);
                for (key, default, meaning) in policy.settings {
                    assert!(out.contains(&format!("{key}={default}")) && out.contains(meaning), "{}: {key}", policy.name);
                }
            }
        }
    }
    assert!(phalanx(&["--version"]).status.success());
}
