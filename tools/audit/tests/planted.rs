//! A correct log passes; each planted violation is found, by the rule that is meant to find it, at its line.

use phalanx_audit::{Report, audit};

const HEADER: &str = r#"{"schema":"phalanx.events/1","mode":"real","lanes":2,"policy":"drain","queue":[8,8],"workload":"mix","load":0.5,"speed":1,"seed":1}"#;

/// Two lanes: small 0 on lane 0, small 1 on lane 1, large 2 on both; 3 expires, 4 is taken back, 5 is refused, 6 fails,
/// 7 is refused at the door. Line 1 is the header, so that entry n stands in line n + 2.
const GOOD: &[&str] = &[
    r#"{"now":10,"event":"arrive","id":0,"class":"small","arrival":9,"model":0}"#,
    r#"{"now":10,"decision":"admit","slot":0,"id":0}"#,
    r#"{"now":10,"decision":"start_small","slot":0,"id":0,"lane":0,"backfill":false}"#,
    r#"{"now":20,"event":"arrive","id":1,"class":"small","arrival":19,"model":0}"#,
    r#"{"now":20,"decision":"admit","slot":1,"id":1}"#,
    r#"{"now":20,"decision":"start_small","slot":1,"id":1,"lane":1,"backfill":false}"#,
    r#"{"now":30,"event":"arrive","id":2,"class":"large","arrival":29,"model":0}"#,
    r#"{"now":30,"decision":"admit","slot":2,"id":2}"#,
    r#"{"now":30,"decision":"drain_on","shadow":40}"#,
    r#"{"now":31,"event":"arrive","id":3,"class":"small","arrival":31,"deadline":35,"model":0}"#,
    r#"{"now":31,"decision":"admit","slot":3,"id":3}"#,
    r#"{"now":32,"event":"arrive","id":4,"class":"small","arrival":32,"model":0}"#,
    r#"{"now":32,"decision":"admit","slot":4,"id":4}"#,
    r#"{"now":33,"event":"cancel","slot":4,"id":4}"#,
    r#"{"now":33,"outcome":"cancelled","id":4,"class":"small","submitted":32,"ended":33}"#,
    r#"{"now":36,"event":"tick"}"#,
    r#"{"now":36,"decision":"expire","slot":3,"id":3}"#,
    r#"{"now":36,"outcome":"expired","id":3,"class":"small","submitted":31,"ended":36}"#,
    r#"{"now":40,"span":0,"class":"small","lane":0,"reserved":11,"started":12,"ended":39}"#,
    r#"{"now":40,"outcome":"completed","id":0,"class":"small","submitted":9,"started":12,"ended":39}"#,
    r#"{"now":40,"event":"finish","slot":0,"id":0,"end":"completed","ran":27}"#,
    r#"{"now":41,"span":1,"class":"small","lane":1,"reserved":21,"started":22,"ended":40}"#,
    r#"{"now":41,"outcome":"completed","id":1,"class":"small","submitted":19,"started":22,"ended":40}"#,
    r#"{"now":41,"event":"finish","slot":1,"id":1,"end":"completed","ran":18}"#,
    r#"{"now":41,"decision":"start_large","slot":2,"id":2}"#,
    r#"{"now":41,"decision":"drain_off"}"#,
    r#"{"now":42,"event":"arrive","id":5,"class":"small","arrival":42,"model":0}"#,
    r#"{"now":42,"decision":"refuse","id":5,"reason":"queue_full"}"#,
    r#"{"now":42,"outcome":"rejected","id":5,"class":"small","submitted":42,"ended":42}"#,
    r#"{"now":60,"span":2,"class":"large","lane":0,"reserved":42,"started":43,"ended":58}"#,
    r#"{"now":60,"span":2,"class":"large","lane":1,"reserved":42,"started":45,"ended":59}"#,
    r#"{"now":60,"outcome":"completed","id":2,"class":"large","submitted":29,"started":43,"ended":59,"slo_met":true}"#,
    r#"{"now":60,"event":"finish","slot":2,"id":2,"end":"completed","ran":16}"#,
    r#"{"now":61,"event":"arrive","id":6,"class":"small","arrival":61,"model":0}"#,
    r#"{"now":61,"decision":"admit","slot":6,"id":6}"#,
    r#"{"now":61,"decision":"start_small","slot":6,"id":6,"lane":0,"backfill":false}"#,
    r#"{"now":70,"span":6,"class":"small","lane":0,"reserved":61,"started":62,"ended":66}"#,
    r#"{"now":70,"outcome":"failed","id":6,"class":"small","submitted":61,"started":62,"ended":66}"#,
    r#"{"now":70,"event":"finish","slot":6,"id":6,"end":"failed","ran":4}"#,
    r#"{"now":71,"outcome":"rejected","id":7,"class":"large","submitted":71,"ended":71}"#,
];

fn run(lines: &[String]) -> Report {
    audit(format!("{HEADER}\n{}\n", lines.join("\n")).as_bytes()).expect("readable")
}

fn good() -> Vec<String> {
    GOOD.iter().map(ToString::to_string).collect()
}

/// The good log with one text replaced, which must be there exactly once.
fn with(from: &str, to: &str) -> Vec<String> {
    let mut lines = good();
    let hits: Vec<usize> = (0..lines.len()).filter(|&n| lines[n].contains(from)).collect();
    assert_eq!(hits.len(), 1, "{from}");
    lines[hits[0]] = lines[hits[0]].replace(from, to);
    lines
}

fn without(text: &str) -> Vec<String> {
    let mut lines = good();
    let before = lines.len();
    lines.retain(|line| !line.contains(text));
    assert_eq!(lines.len(), before - 1, "{text}");
    lines
}

fn moved(text: &str, to: usize) -> Vec<String> {
    let mut lines = good();
    let at = lines.iter().position(|line| line.contains(text)).expect("a line to move");
    let line = lines.remove(at);
    lines.insert(to, line);
    lines
}

#[track_caller]
fn found(lines: &[String], rule: &str, says: &str) {
    let report = run(lines);
    assert!(!report.passed());
    let hit = report.violations.iter().find(|violation| violation.check == rule && violation.text.contains(says));
    let Some(hit) = hit else { panic!("no `{rule}` that says `{says}` in\n{report}") };
    assert!(hit.line as usize <= lines.len() + 1);
    assert!(report.to_string().contains(&format!("line {}: {rule}: ", hit.line)) && report.to_string().contains("FAILED"));
}

#[test]
fn a_correct_log_passes() {
    let report = run(&good());
    assert!(report.passed(), "{report}");
    assert_eq!((report.requests, report.completed), ([6, 2], [2, 1]));
    assert_eq!(report.skew.map(|skew| (skew.p50, skew.max)), Some((2, 2)));
    for check in &report.checks {
        // No lane goes wrong in it, and nobody stops: see `lanes_that_come_back_unprobed` and `stops_that_nobody_asked_for`.
        assert_eq!(
            check.covered == 0,
            ["probed first", "stops asked"].contains(&check.name),
            "{} covered {}",
            check.name,
            check.covered
        );
    }
}

#[test]
fn two_at_once_on_a_lane() {
    let late = r#""reserved":61,"started":62,"ended":66"#;
    found(&with(late, r#""reserved":57,"started":57,"ended":66"#), "running alone", "lane 0 runs for request 6 while");
    let lines = with(late, r#""reserved":57,"started":62,"ended":66"#);
    found(&lines, "holding alone", "lane 0 is held for request 6 while");
    assert_eq!(run(&lines).named("running alone").map(|check| check.violations), Some(0));
}

#[test]
fn a_long_span_over_several_others() {
    // Small 0 ends after the gang and after small 6: both overlap with it, though they are not neighbours.
    let mut lines = with(r#""reserved":11,"started":12,"ended":39}"#, r#""reserved":11,"started":12,"ended":64}"#);
    lines.retain(|line| !line.contains(r#""outcome":"completed","id":0"#));
    let report = run(&lines);
    assert_eq!(report.named("running alone").map(|check| check.violations), Some(2), "{report}");
}

#[test]
fn a_gang_that_was_none() {
    found(&without(r#""span":2,"class":"large","lane":1"#), "gang at once", "ran in 1 spans");
    let member = r#""span":2,"class":"large","lane":1"#;
    found(&with(member, r#""span":2,"class":"large","lane":0"#), "gang at once", "not 1 on each of 2 lanes");
    found(&with(r#""started":43,"ended":58"#, r#""started":43,"ended":44"#), "gang at once", "before the last one began");
}

#[test]
fn stops_that_nobody_asked_for() {
    let at = GOOD.iter().position(|line| line.contains(r#""event":"arrive","id":2"#)).expect("a line");
    let mut lines = good();
    lines.insert(at, r#"{"now":25,"event":"parked","slot":0,"id":0,"ran":13}"#.to_owned());
    found(&lines, "stops asked", "request 0 stops, and has no steps");
    let mut lines = good();
    lines.insert(at, r#"{"now":25,"decision":"resume","slot":0,"id":0,"lanes":1}"#.to_owned());
    found(&lines, "stops asked", "`resume` of request 0 on lanes 0b1");
}

#[test]
fn ends_that_are_not_one() {
    found(&without(r#""outcome":"completed","id":1"#), "one end", "request 1 has 0 outcomes");
    found(&without(r#""outcome":"completed","id":1"#), "books", "6 small requests were submitted, and 5 have");
    let mut twice = good();
    twice.push(r#"{"now":80,"outcome":"cancelled","id":1,"class":"small","submitted":19,"ended":80}"#.to_owned());
    found(&twice, "one end", "request 1 has 2 outcomes");
    found(&with(r#""outcome":"completed","id":0"#, r#""outcome":"expired","id":0"#), "one end", "was Finished before");
    found(&with(r#""outcome":"expired","id":3"#, r#""outcome":"completed","id":3"#), "one end", "was Expired before");
    let mut again = good();
    again.push(GOOD[0].replace(":10,", ":80,"));
    found(&again, "one end", "arrives a second time");
}

#[test]
fn starts_that_must_not_be() {
    found(&without(r#""decision":"admit","slot":0"#), "admitted first", "request 0 is started, and was Arrived");
    found(&moved(r#""decision":"start_small","slot":1"#, 3), "admitted first", "was Unknown");
    let late = |id: u64| {
        let mut lines = good();
        lines.push(format!(r#"{{"now":80,"decision":"start_small","slot":{id},"id":{id},"lane":1,"backfill":false}}"#));
        lines
    };
    found(&late(3), "admitted first", "was Expired");
    found(&late(4), "admitted first", "was Withdrawn");
    found(&late(5), "admitted first", "was Refused");
    found(&late(0), "admitted first", "was Finished");
    let start = r#""decision":"start_large","slot":2,"id":2}"#;
    let small = r#""decision":"start_small","slot":2,"id":2,"lane":0,"backfill":false}"#;
    found(&with(start, small), "admitted first", "of the other class");
}

#[test]
fn starts_on_lanes_that_are_not_free() {
    let second = r#""decision":"start_small","slot":1,"id":1,"lane":1"#;
    found(&with(second, &second.replace("lane\":1", "lane\":0")), "decided alone", "on lane 0, which request 0 holds");
    found(&moved(r#""decision":"start_large""#, 19), "decided alone", "which request 0 holds");
    let mut down = good();
    down.insert(0, r#"{"now":1,"event":"lane_down","lane":1}"#.to_owned());
    found(&down, "decided alone", "on lane 1, which is out of service");
}

#[test]
fn lanes_that_come_back_unprobed() {
    let care = |what: &[&str]| {
        let mut lines = good();
        let events = what.iter().map(|what| match *what {
            "down" => r#"{"now":80,"event":"lane_down","lane":1}"#.to_owned(),
            "up" => r#"{"now":80,"event":"lane_up","lane":1}"#.to_owned(),
            care => format!(r#"{{"now":80,"lane_care":"{care}","lane":1}}"#),
        });
        lines.extend(events);
        lines
    };
    let right = ["fault", "down", "probe", "failed", "probe", "fault", "let_go", "probe", "passed", "up"];
    let report = run(&care(&right));
    assert!(report.passed() && report.named("probed first").unwrap().covered == 9, "{report}");
    found(&care(&["fault", "down", "up"]), "probed first", "lane 1 is back in service, and was Faulty");
    found(&care(&["fault", "down", "probe", "up"]), "probed first", "was Probing");
    found(&care(&["fault", "down", "probe", "failed", "up"]), "probed first", "was Faulty");
    found(&care(&["fault", "down", "probe", "passed", "fault", "up"]), "probed first", "was Faulty");
    found(&care(&["fault", "down", "probe", "fault", "passed", "up"]), "probed first", "becomes Passed, and was Faulty");
    found(&care(&["fault", "down", "probe", "probe"]), "probed first", "was Probing");
    found(&care(&["probe"]), "probed first", "becomes Probing");
    found(&care(&["fault", "probe", "passed", "up"]), "probed first", "becomes Probing");
}

#[test]
fn spans_of_those_that_never_ran() {
    let mut lines = good();
    lines.push(r#"{"now":80,"span":3,"class":"small","lane":1,"reserved":70,"started":71,"ended":72}"#.to_owned());
    found(&lines, "never ran", "request 3 is expired, and ran");
    found(&without(r#""span":1,"class":"small","lane":1"#), "one lane", "request 1 ran on lanes []");
    let moved = with(r#""span":1,"class":"small","lane":1"#, r#""span":1,"class":"small","lane":0"#);
    found(&moved, "one lane", "ran on lanes [0], decided was Some(1)");
}

#[test]
fn time_losses_and_books() {
    found(&with(r#"{"now":36,"event":"tick"}"#, r#"{"now":30,"event":"tick"}"#), "order", "now 30 comes after 33");
    found(&with(r#""reserved":11,"started":12,"ended":39"#, r#""reserved":13,"started":12,"ended":39"#), "order", "reserved");
    found(&with(r#""submitted":9,"started":12"#, r#""submitted":13,"started":12"#), "order", "submitted");
    found(
        &without(r#""decision":"drain_off""#).into_iter().chain([GOOD[8].replace(":30,", ":80,")]).collect::<Vec<_>>(),
        "order",
        "`drain_on` follows",
    );
    let mut lost = good();
    lost.push(r#"{"now":80,"lost":17}"#.to_owned());
    found(&lost, "complete", "17 records were lost");
    found(&without(r#""event":"finish","slot":6"#), "books", "request 6 is still Started");
    found(
        &with(r#""event":"finish","slot":6,"id":6"#, r#""event":"finish","slot":0,"id":0"#),
        "books",
        "request 0 finishes, and was",
    );
    found(&with(r#""started":43,"ended":59,"slo"#, r#""started":44,"ended":59,"slo"#), "agreement", "request 2 ran 43..59");
    let other = with(r#""outcome":"completed","id":0,"class":"small""#, r#""outcome":"completed","id":0,"class":"large""#);
    found(&other, "agreement", "of the other class");
}

#[test]
fn what_proves_nothing_fails() {
    let report = audit(format!("{HEADER}\n").as_bytes()).unwrap();
    assert!(!report.passed() && report.to_string().contains("proves nothing: it holds no request"));
    let report = run(&good()[39..]);
    assert!(!report.passed() && report.to_string().contains("no request in it completed"));
}

#[test]
fn unreadable_logs_name_the_line() {
    let error = |text: String| audit(text.as_bytes()).expect_err("unreadable").to_string();
    assert_eq!(error(String::new()), "line 1: is missing: the file is empty");
    assert!(error("{}\n".into()).contains("line 1: field `schema`"));
    assert!(error(HEADER.replace("events/1", "events/2") + "\n").contains("is not `phalanx.events/1`"));
    assert!(error(HEADER.replace("\"lanes\":2", "\"lanes\":0") + "\n").contains("0 lanes"));
    let tail = |line: &str| error(format!("{HEADER}\n{}\n{line}", GOOD[0]));
    assert!(tail(r#"{"now":1"#).starts_with("line 3: is cut off"));
    assert_eq!(tail("x\n"), "line 3: is not JSON");
    assert_eq!(tail("[]\n"), "line 3: is not a JSON object");
    assert!(tail("{\"now\":-1}\n").contains("line 3: field `now`"));
    assert!(tail("{\"now\":1}\n").contains("none of event"));
    assert!(tail("{\"now\":1,\"event\":\"tock\"}\n").contains("`tock` is not known"));
    assert!(tail("{\"now\":1,\"event\":\"lane_down\",\"lane\":2}\n").contains("lane 2 is none of the 2"));
}

#[test]
fn the_program_says_it_with_its_exit_status() {
    let run = |args: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_phalanx-audit")).args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let dir = std::env::temp_dir().join(format!("phalanx-audit-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let write = |name: &str, lines: &[String]| {
        let path = dir.join(name);
        std::fs::write(&path, format!("{HEADER}\n{}\n", lines.join("\n"))).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (status, out, _) = run(&[&write("good", &good())]);
    assert!(status == Some(0) && out.contains("gang at once") && out.ends_with("passed\n"), "{out}");
    let (status, out, _) = run(&[&write("bad", &without(r#""event":"finish","slot":6"#))]);
    assert!(status == Some(1) && out.contains("FAILED"), "{out}");
    let (status, _, err) = run(&[&write("broken", &["x".to_owned()])]);
    assert!(status == Some(2) && err.contains("line 2: is not JSON"), "{err}");
    assert_eq!(run(&["/nonexistent/log"]).0, Some(2));
    assert_eq!(run(&[]).0, Some(2));
    std::fs::remove_dir_all(&dir).unwrap();
}
