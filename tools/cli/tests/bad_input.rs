//! Whatever is wrong with what a user gave: one line on stderr that says what and where, exit status 2, no panic, no file left.

mod common;

use std::fs;
use std::path::Path;

use common::{phalanx, text};

/// Runs the program, which must refuse, before the run, with one line that says all of this.
#[track_caller]
fn refused<S: AsRef<str>>(words: &[S], says: &[&str]) {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let output = phalanx(&words);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {err}");
    assert!(err.starts_with("phalanx: ") && err.lines().count() == 1 && !err.contains("panicked"), "{words:?}: {err}");
    assert!(output.stdout.is_empty());
    for part in says {
        assert!(err.contains(part), "{words:?}: no `{part}` in {err}");
    }
}

/// A trace of these lines; the program must refuse it.
#[track_caller]
fn bad_trace(lines: &[&str], says: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    fs::write(&file, lines.join("\n")).unwrap();
    let result = folder.path().join("r.json");
    let says = [&["t.jsonl: "], says].concat();
    refused(&["run", "--trace", &text(&file), "--json", &text(&result)], &says);
    left(folder.path(), &["t.jsonl"]);
}

#[track_caller]
fn left(folder: &Path, names: &[&str]) {
    let there: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(there, names);
}

const GOOD: &str = r#"{"timestamp": 5, "class": "small", "gpus": 1, "service_ms": 10}"#;

#[test]
fn files_that_are_no_traces() {
    refused(&["run", "--trace", "/nonexistent/t.jsonl"], &["/nonexistent/t.jsonl: cannot be opened", "check the path"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl.gz");
    let gzip = |whole: bool| {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        for n in 0..5_000_u32 {
            writeln!(encoder, r#"{{"timestamp": {n}, "class": "small", "service_ms": {}}}"#, n.wrapping_mul(2_654_435_761) % 97)
                .unwrap();
        }
        let mut bytes = encoder.finish().unwrap();
        if !whole {
            bytes.truncate(bytes.len() / 2);
        }
        bytes
    };
    fs::write(&file, gzip(false)).unwrap();
    refused(&["run", "--trace", &text(&file)], &["t.jsonl.gz: line ", "gzip data is truncated or corrupt"]);
    let mut corrupt = gzip(true);
    let middle = corrupt.len() / 2;
    corrupt[middle..middle + 64].fill(0xaa);
    fs::write(&file, corrupt).unwrap();
    refused(&["run", "--trace", &text(&file)], &["t.jsonl.gz: line "]);
    fs::write(&file, "").unwrap();
    refused(&["run", "--trace", &text(&file)], &["holds no request"]);
    fs::write(&file, "what is this\n").unwrap();
    refused(&["run", "--trace", &text(&file)], &["of no known trace format"]);
    refused(&["run", "--trace", &text(folder.path())], &["cannot be"]);
}

#[test]
fn lines_that_are_no_requests() {
    bad_trace(&[GOOD, "{\"timestamp\": 6,"], &["line 2: "]);
    bad_trace(&[GOOD, GOOD, "not JSON"], &["line 3: "]);
    let with = |from: &str, to: &str| {
        assert!(GOOD.contains(from));
        GOOD.replace(from, to)
    };
    for (from, to, says) in [
        (r#", "service_ms": 10"#, "", "field `service_ms`: is missing"),
        (r#""timestamp": 5, "#, "", "field `timestamp`: is missing"),
        (": 10}", ": -10}", "field `service_ms`: -10 is negative"),
        (": 10}", ": NaN}", "line 2: "),
        (": 10}", ": \"NaN\"}", "field `service_ms`"),
        (": 10}", ": 1e300}", "field `service_ms`"),
        (": 5,", ": -5,", "field `timestamp`"),
        (": 5,", ": 1e30,", "field `timestamp`"),
        ("\"small\"", "\"medium\"", "field `class`: `medium` is not a class"),
        ("\"gpus\": 1", "\"gpus\": 4", "field `gpus`: 4 is neither 1 nor the lane count 8"),
        (": 5,", ": 4,", "sort the file by arrival"),
    ] {
        bad_trace(&[GOOD, &with(from, to)], &["line 2: ", says]);
    }
}

#[test]
fn settings_out_of_range() {
    for (words, says) in [
        (&["--policy", "drian"][..], &["no policy is named 'drian'", "drain, ", "easy", "fcfs", "small-first"][..]),
        (&["--policy", "drain:fill=2"], &["has no setting 'fill'", "batch=one", "backfill=off"]),
        (&["--policy", "drain:batch=some"], &["batch=some", "one, all"]),
        (&["--load", "0"], &["--load: 0 is not a load; give a number above 0"]),
        (&["--load", "-0.5"], &["--load: -0.5"]),
        (&["--load", "NaN"], &["--load: NaN"]),
        (&["--load", "much"], &["'much'", "--load"]),
        (&["--speed", "-1"], &["--speed: -1 is not a speed; give"]),
        (&["--speed", "0"], &["--speed: 0"]),
        (&["--speed", "inf"], &["--speed: inf"]),
        (&["--duration", "0"], &["--duration: 0 leaves nothing to run; give a span"]),
        (&["--duration", "0s"], &["--duration: 0"]),
        (&["--duration", "-5s"], &["--duration", "is negative"]),
        (&["--duration", "10"], &["--duration", "has no unit"]),
        (&["--prediction-error", "-1"], &["--prediction-error: -1"]),
        (&["--step", "0s"], &["--step: 0"]),
        (&["--seed", "-1"], &["--seed"]),
        (&["--lanes", "0"], &["--lanes: 0 is out of range; a node in real time has 1 to 8"]),
        (&["--lanes", "9"], &["--lanes: 9"]),
        (&["--queue", "0"], &["--queue", "give a whole number from 1"]),
        (&["--queue", "5,x"], &["--queue"]),
        (&["--device", "cuda"], &["--device: this build has no CUDA"]),
        (&["--device", "tpu"], &["--device", "emulated"]),
        (&["--workload", "mix:lode=1"], &["lode: is not a key; known keys: load"]),
        (&["--workload", "mix:lanes=32"], &["lanes: 32 is out of range"]),
        (&["--workload", "mux"], &["`mux` is not a workload"]),
        (&["--workload", "mix", "--trace", "t"], &["--trace", "cannot be used with"]),
        (&["--large-if", "input>5"], &["--trace"]),
        (&["--format", "xml", "--trace", "t"], &["--format", "jsonl"]),
        (&["--frobnicate"], &["--frobnicate", "phalanx run --help"]),
    ] {
        refused(&[&["run"], words].concat(), says);
    }
    refused(&["frob"], &["frob"]);
}

#[test]
fn files_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    for flag in ["--json", "--events", "--chrome-trace"] {
        refused(&["run", flag, "/nonexistent/folder/out"], &["/nonexistent/folder/out: cannot be written", "check the folder"]);
        refused(&["run", flag, &text(folder.path())], &["is a folder; name a file in it"]);
    }
    let same = text(&folder.path().join("same"));
    refused(&["run", "--json", &same, "--events", &same], &["--events: ", "is given to --json as well"]);
    // One that can be written beside one that cannot: nothing is left of either.
    let good = text(&folder.path().join("good"));
    refused(&["run", "--json", &good, "--events", "/nonexistent/e"], &["/nonexistent/e"]);
    left(folder.path(), &[]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills_up_ends_the_run() {
    // Every write to this device fails as if no space were left.
    let folder = tempfile::tempdir().unwrap();
    let json = text(&folder.path().join("r.json"));
    let words = [
        "run",
        "--quiet",
        "--duration",
        "300ms",
        "--workload",
        "mix:small=1ms,large=5ms",
        "--json",
        &json,
        "--events",
        "/dev/full",
    ];
    refused(&words, &["/dev/full: cannot be written"]);
    refused(&["run", "--quiet", "--duration", "100ms", "--json", "/dev/full"], &["/dev/full: cannot be written"]);
}
