//! `phalanx sim`, `optimum` and `tune`: what they leave, that it is the same every time, and how they refuse.

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{command, phalanx, text};
use phalanx_sim::record::{LogReader, replay};
use serde_json::Value;

#[track_caller]
fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The program with these words and where its files go; what it printed. It must succeed.
#[track_caller]
fn done<S: AsRef<str>>(words: &[S]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let output = phalanx(&words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// It must end with this status, and say this.
#[track_caller]
fn ends(words: &[&str], status: i32, says: &str) -> String {
    let output = phalanx(words);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{words:?}: {err}");
    assert!(err.contains(says) && !err.contains("panicked"), "{words:?}: no `{says}` in {err}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_for_every_policy() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let files = [text(&folder.path().join(format!("{name}.json"))), text(&folder.path().join(format!("{name}.html")))];
        let words = ["sim", "--requests", "4000", "--seeds", "2", "--workload", "mix:load=0.6,error=0.3", "--policy"];
        let policies = "balance,drain:backfill=on,easy,fcfs,msf,msfq,small-first,server-filling,optimum:w=2";
        let out = done(&[&words[..], &[policies, "--json", &files[0], "--report", &files[1]]].concat());
        (out, files.map(|file| fs::read_to_string(file).unwrap()))
    };
    let first = run("a");
    assert_eq!(first, run("b"));
    let (out, [document, page]) = first;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["schema"], "phalanx.result/1");
    let (runs, estimates) = (document["runs"].as_array().unwrap(), document["estimates"].as_array().unwrap());
    assert_eq!((runs.len(), estimates.len()), (18, 9));
    for run in runs {
        assert_eq!((&run["mode"], &run["lanes"], &run["load"]), (&"virtual".into(), &8.into(), &0.6.into()));
        let classes = &run["classes"];
        let counted = |class: &str, what: &str| classes[class][what].as_u64().unwrap();
        assert_eq!(counted("small", "submitted") + counted("large", "submitted"), 3_600);
        assert_eq!(counted("small", "completed") + counted("large", "completed"), 3_600);
        assert!(classes["large"]["wait_ms"]["p999"].is_number() && run["simulated"]["stable"] == true);
        assert!(out.contains(run["policy"].as_str().unwrap()));
    }
    let balance = &estimates[0];
    assert_eq!((&balance["policy"], &balance["unstable"]), (&"balance".into(), &0.into()));
    let mean = &balance["classes"]["small"]["response_ms_mean"];
    assert!(mean["half_width"].as_f64().unwrap() > 0.0 && mean["samples"] == 2);
    assert!(out.contains("again       phalanx sim --workload mix:load=0.6,error=0.3 --requests 4000 --seed 1 --seeds 2"));

    // The page needs nothing but itself, and its data are the document and the pictures.
    for outside in ["src=", "href=", "@import", "url(", "fetch("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let data = page.split_once("application/json\" id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["runs"], document["runs"]);
    let profiles = data["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), 9);
    // Server filling is no scheduler of ours, and leaves no records to draw.
    assert!(profiles.iter().enumerate().all(|(n, profile)| profile.is_null() == (n == 7)));
    assert!(profiles[0]["timeline"]["spans"].as_array().unwrap().len() > 100);
    assert!(data["curve"].as_array().unwrap().len() > 3);
}

#[test]
fn a_simulated_log_is_audited_and_replays_as_a_real_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let words = ["sim", "--policy", "balance", "--requests", "5000", "--hard-deadlines", "--queue", "60", "--workload"];
    let mix = "mix:load=1.1,error=0.3,slo_small=400ms,slo_large=4s";
    done(&[&words[..], &[mix, "--events", &at("e.jsonl"), "--chrome-trace", &at("c.json"), "--quiet"]].concat());
    let file = fs::File::open(folder.path().join("e.jsonl")).unwrap();
    let report = phalanx_audit::audit(std::io::BufReader::new(file)).unwrap();
    assert!(report.passed(), "{report}");
    let mut log = LogReader::open(at("e.jsonl")).unwrap();
    let replayed = replay("balance", &mut log).unwrap();
    assert!(replayed.events > 5_000 && replayed.decisions > 5_000, "{replayed:?}");
    assert!(json(&folder.path().join("c.json"))["traceEvents"].as_array().unwrap().len() > 5_000);
}

#[test]
fn what_grows_for_ever_has_no_mean() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.json");
    let mix = "mix:load=1.2,share=0.3";
    let out = done(&["sim", "--policy", "fcfs,msf", "--workload", mix, "--requests", "40000", "--json", &text(&file)]);
    assert!(out.contains("unstable    fcfs: the queue of"), "{out}");
    for run in json(&file)["runs"].as_array().unwrap() {
        assert_eq!(run["simulated"]["stable"], false);
        assert!(run["classes"]["small"]["response_ms"]["mean"].is_null());
        assert!(run["classes"]["small"]["completed"].as_u64().unwrap() > 10_000);
    }
}

#[test]
fn the_optimum_is_solved_written_and_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let mix = "mix:load=0.5,share=0.9";
    let words = ["optimum", "--workload", mix, "--requests", "100000", "--json"];
    let out = done(&[&words[..], &[&at("o.json"), "--table", &at("t.json")]].concat());
    assert!(out.contains("span bound") && out.contains("balance:w=8"), "{out}");
    let document = json(&folder.path().join("o.json"));
    let optimum = &document["optimum"];
    assert_eq!((&optimum["weight"], &optimum["converged"]), (&8.0.into(), &true.into()));
    let best = &document["estimates"][0];
    let simulated = best["cost"]["mean"].as_f64().unwrap() / optimum["cost"].as_f64().unwrap();
    assert!((simulated - 1.0).abs() < 0.05, "{simulated}");
    for run in document["runs"].as_array().unwrap() {
        assert!(run["ratio"].as_f64().unwrap() > 0.97, "{run}");
    }
    let table = format!("optimum:table={}", at("t.json"));
    let words = ["sim", "--workload", mix, "--requests", "20000", "--policy"];
    assert_eq!(
        done(&[&words[..], &[&table]].concat()).lines().nth(2).unwrap().split_whitespace().skip(1).collect::<Vec<_>>(),
        done(&[&words[..], &["optimum"]].concat()).lines().nth(2).unwrap().split_whitespace().skip(1).collect::<Vec<_>>()
    );
    ends(&["sim", "--lanes", "4", "--policy", &table, "--requests", "1000"], 2, "was solved for 8 lanes, and there are 4");
    ends(&["sim", "--policy", &format!("optimum:table={}", at("o.json")), "--requests", "1000"], 2, "o.json: is no table");
    let unsolved = ["optimum", "--workload", mix, "--tolerance", "1e-15", "--json", &at("n.json")];
    let out = ends(&unsolved, 1, "did not converge");
    assert!(out.contains("not converged (between"), "{out}");
    assert_eq!(json(&folder.path().join("n.json"))["optimum"]["converged"], false);
}

#[test]
fn tune_names_a_policy_that_meets_the_slas_or_says_that_none_does() {
    let words = ["tune", "--requests", "20000", "--seeds", "2", "--workload", "mix:load=0.7"];
    let out = done(&[&words[..], &["--slo", "small=2s,large=6s@90"]].concat());
    let chosen = out.lines().last().unwrap().strip_prefix("choose      --policy ").unwrap();
    assert!(chosen.parse::<phalanx::scheduler::PolicySpec>().is_ok() && out.contains("\n* "), "{out}");
    let quiet = done(&[&words[..], &["--slo", "small=2s,large=6s@90", "--quiet"]].concat());
    assert_eq!(quiet.trim_end(), chosen);
    let out = ends(&[&words[..], &["--slo", "small=1us,large=1us", "--quiet"]].concat(), 1, "no choice meets the SLAs");
    assert!(out.is_empty());
    ends(&["tune", "--workload", "mix:load=3", "--requests", "20000", "--slo", "small=1s"], 1, "more is asked for");
}

#[test]
fn bad_input_is_refused_in_one_line_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let file = at("x");
    let refused = |words: &[&str], says: &str| {
        let out = ends(words, 2, says);
        assert!(out.is_empty(), "{out}");
        let err = String::from_utf8(phalanx(words).stderr).unwrap();
        assert!(
            err.starts_with("phalanx: ") && err.trim_end().lines().filter(|line| !line.starts_with("note: ")).count() == 1,
            "{err}"
        );
    };
    refused(&["sim", "--seeds", "0", "--json", &file], "--seeds: 0 is out of range");
    refused(&["sim", "--requests", "0", "--json", &file], "--requests: 0 leaves nothing");
    refused(&["sim", "--requests", "100", "--warm-up", "100", "--json", &file], "--warm-up: 100 leaves none of about 100");
    refused(&["sim", "--events", &file], "--events: is of one policy");
    refused(&["sim", "--policy", "server-filling", "--events", &file], "server-filling has no events");
    refused(&["sim", "--policy", "balance,blance"], "server-filling, optimum");
    refused(&["sim", "--lanes", "65", "--json", &file], "--lanes: 65 is out of range; a simulated node has 1 to 64");
    refused(&["sim", "--policy", "msfq:l=8", "--lanes", "8", "--json", &file], "--policy: policy msfq: l=8");
    refused(&["sim", "--policy", "optimum", "--workload", "mix:service=fixed", "--json", &file], "service=exp");
    refused(&["sim", "--policy", "optimum:table=/nonexistent/t", "--json", &file], "/nonexistent/t: cannot be read");
    refused(&["sim", "--minute", "5s"], "--report");
    refused(&["sim", "--json", &file, "--report", &file], "--report:");
    refused(&["optimum", "--workload", "mix:load=1", "--json", &file], "load");
    refused(&["optimum", "--workload", "mix:arrivals=bursty", "--json", &file], "service=exp and arrivals=poisson");
    refused(&["optimum", "--weight", "-1", "--json", &file], "weight");
    refused(&["optimum", "--tolerance", "0", "--json", &file], "--tolerance: 0 is out of range");
    refused(&["optimum", "--max-states", "1000", "--json", &file], "states needed, 1000 allowed");
    refused(&["tune", "--json", &file], "--slo");
    refused(&["tune", "--slo", "small=0s", "--json", &file], "cannot be had");
    // A trace whose large requests need more lanes than there are, found on its last line.
    let trace = at("t.jsonl");
    let line = |gpus: u32, class: &str| format!(r#"{{"timestamp": 0, "class": "{class}", "gpus": {gpus}, "service_ms": 1}}"#);
    fs::write(&trace, [line(1, "small"), line(16, "large")].join("\n")).unwrap();
    refused(&["sim", "--trace", &trace, "--json", &file], "t.jsonl: line 2: field `gpus`");
    let there: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(there, ["t.jsonl"]);
}

#[test]
fn ctrl_c_leaves_no_half_written_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let (json, report, events) = (at("r.json"), at("r.html"), at("e.jsonl"));
    let words =
        ["sim", "--requests", "1000000000", "--policy", "easy", "--json", &json, "--report", &report, "--events", &events];
    let child = command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(began.elapsed() < Duration::from_secs(10) && output.stdout.is_empty());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_help_of_each_command_says_what_it_takes() {
    for (command, says) in [("sim", "server-filling"), ("optimum", "--preemptive"), ("tune", "--slo")] {
        let output = phalanx(&[command, "--help"]);
        let out = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && out.contains(says) && out.contains(&format!("Examples:\n  phalanx {command}")),
            "{out}"
        );
    }
}
