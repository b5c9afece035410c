//! Each importer on a small sample; each kind of bad input; arbitrary bytes; and the public traces where they are at hand.

use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;
use crate::units::MAX_SPAN;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn open(text: &str, options: TraceOptions) -> Result<TraceFile, InputError> {
    TraceFile::from_bytes("t", text.as_bytes(), options)
}

fn read(text: &str, options: TraceOptions) -> Result<Vec<TraceRequest>, InputError> {
    open(text, options)?.requests()?.iter().collect()
}

fn rule(rule: &str) -> TraceOptions {
    TraceOptions { large_if: Some(rule.parse().unwrap()), ..TraceOptions::default() }
}

/// A model in which prefill is a millisecond a token in, and decode one a token out.
fn simple() -> ServiceModels {
    let model = ServiceModel {
        prefill_fixed_ms: 0.0,
        prefill_per_token_ms: 1.0,
        prefill_per_token2_ms: 0.0,
        decode_per_token_ms: 1.0,
        decode_per_token_per_ctx_ms: 0.0,
    };
    ServiceModels { small: model, large: ServiceModel { prefill_fixed_ms: 100.0, ..model } }
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Arrival, class and service of each.
fn brief(requests: &[TraceRequest]) -> Vec<(u64, Class, u64)> {
    requests.iter().map(|r| (r.arrival.0 / 1_000_000, r.class, r.service.0 / 1_000_000)).collect()
}

use Class::{Large, Small};

#[test]
fn jsonl_with_every_field() {
    let text = r#"{"request_id":7,"timestamp":10.5,"input_length":374,"output_length":44,"class":"small","gpus":1,"prefill_ms":11.77,"service_ms":292.28,"slo_ttft_ms":500,"slo_ms":1790.0,"tenant":"a","model":"m","expected_ms":300,"deadline_ms":2000,"step_ms":20,"hash_ids":[1,2]}

{"timestamp":11.0,"class":"large","service_ms":0.5,"tenant":"b","slo_ms":null}
  {"timestamp":11.0,"gpus":8,"service_ms":0,"tenant":"a\u0062"}
{"timestamp":12,"gpus":1,"service_ms":1,"tenant":"a"}"#;
    let trace = open(text, TraceOptions::default()).unwrap();
    assert_eq!(trace.format(), Format::Jsonl);
    let mut source = trace.requests().unwrap();
    let all: Vec<TraceRequest> = source.iter().map(Result::unwrap).collect();
    let first = TraceRequest {
        number: 0,
        arrival: Nanos::ZERO,
        class: Small,
        service: Nanos(292_280_000),
        expected: Some(ms(300)),
        deadline: Some(ms(2_000)),
        target: Some(ms(1_790)),
        tenant: 1,
        model: 1,
        prefill: Some(Nanos(11_770_000)),
        input_tokens: Some(374),
        output_tokens: Some(44),
        step: Some(ms(20)),
    };
    assert_eq!(all[0], first);
    assert_eq!(
        all.iter().map(|r| (r.number, r.arrival.0, r.class, r.service.0, r.tenant)).collect::<Vec<_>>(),
        [
            (0, 0, Small, 292_280_000, 1),
            (1, 500_000, Large, 500_000, 2),
            (2, 500_000, Large, 1, 3),
            (3, 1_500_000, Small, 1_000_000, 1),
        ]
    );
    assert_eq!((source.tenants().get(3), source.models().get(1), source.models().get(0)), (Some("ab"), Some("m"), None));
    assert!(source.next_request().unwrap().is_none());
    let summary = trace.summary().unwrap();
    assert_eq!((summary.count(), summary.class(Small).with_expected, summary.warnings.len()), (4, 1, 0));
}

#[test]
fn mooncake_takes_classes_from_a_rule_and_times_from_a_model() {
    let text = r#"{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 30535, "input_length": 40000, "output_length": 26, "hash_ids": []}"#;
    let options = TraceOptions { service: simple(), ..rule("input>39744") };
    assert_eq!(brief(&read(text, options.clone()).unwrap()), [(0, Small, 7_006), (3_053, Large, 40_125)]);
    let plain = TraceOptions { large_if: None, ..options };
    assert_eq!(open(text, plain).unwrap().summary().unwrap().warnings, [Warning::NoClasses]);
}

#[test]
fn a_trace_reads_the_same_twice_plain_and_packed_whatever_its_name() {
    let text =
        "{\"timestamp\":0,\"class\":\"large\",\"service_ms\":5}\r\n{\"timestamp\":9,\"class\":\"small\",\"service_ms\":5}\r\n";
    let plain = read(text, TraceOptions::default()).unwrap();
    // Two members, as `cat a.gz b.gz` makes them.
    let (head, tail) = text.as_bytes().split_at(20);
    let packed = [gzip(head), gzip(tail)].concat();
    let mut file = tempfile::Builder::new().suffix(".txt").tempfile().unwrap();
    file.write_all(&packed).unwrap();
    let trace = TraceFile::open(file.path(), TraceOptions::default()).unwrap();
    for _ in 0..2 {
        assert_eq!(trace.requests().unwrap().iter().map(Result::unwrap).collect::<Vec<_>>(), plain);
    }
    let bom = format!("\u{feff}{text}");
    assert_eq!(read(&bom, TraceOptions::default()).unwrap(), plain);
}

#[test]
fn azure_with_real_dates() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,100,8\n\
                2023-11-17 00:00:00,1,1\n";
    let options = TraceOptions { service: simple(), ..rule("input>4000") };
    assert_eq!(open(text, options.clone()).unwrap().format(), Format::Azure);
    let all = read(text, options.clone()).unwrap();
    assert_eq!(brief(&all), [(0, Large, 4_917), (52, Small, 107), (20_576_020, Small, 1)]);
    assert_eq!(all[2].arrival, Nanos(20_576_020_040_000));
    // The traces of 2024 have an offset.
    let text =
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,10,1\n2024-05-10 00:00:00.010930+00:00,10,1\n";
    assert_eq!(read(text, options).unwrap()[1].arrival, ms(1));
}

#[test]
fn azure_with_numbers_and_a_tenant() {
    let options = TraceOptions { service: simple(), ..rule("tenant=code") };
    let text = "arrival_s,service,input_length,output_length\n0.0,conv,374,44\n4.314579,code,396,109\n";
    assert_eq!(brief(&read(text, options.clone()).unwrap()), [(0, Small, 417), (4_314, Large, 604)]);
    let text = "output_length,input_length,arrival_ms\n4,3,7\n4,3,9\n";
    assert_eq!(brief(&read(text, options.clone()).unwrap()), [(0, Small, 6), (2, Small, 6)]);
    let warnings = open(text, options).unwrap().summary().unwrap().warnings;
    assert_eq!(warnings, [Warning::RuleMatchesNothing { rule: "tenant=code".into(), field_seen: false }]);
}

#[test]
fn burstgpt_skips_what_failed() {
    let text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n\
                45,GPT-4,1087,230,1317,\"API, log\"\n118,GPT-4,417,0,417,API log\n";
    let options = TraceOptions { service: simple(), ..rule("model=GPT-4") };
    let trace = open(text, options).unwrap();
    assert_eq!(trace.format(), Format::BurstGpt);
    let mut source = trace.requests().unwrap();
    let all: Vec<TraceRequest> = source.iter().map(Result::unwrap).collect();
    assert_eq!(brief(&all), [(0, Small, 489), (40_000, Large, 1_416)]);
    assert_eq!((source.skipped(), source.tenants().get(all[1].tenant)), (1, Some("API, log")));
    assert_eq!(trace.summary().unwrap().skipped, 1);
}

#[test]
fn vidur_and_splitwise() {
    let options = TraceOptions { service: simple(), ..rule("output>=100") };
    let text = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.1,374,44\n4.3,396,109\n";
    assert_eq!(open(text, options.clone()).unwrap().format(), Format::Vidur);
    assert_eq!(brief(&read(text, options.clone()).unwrap()), [(0, Small, 417), (4_200, Large, 604)]);
    let text = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,2,0,0.0,1,374,44\n\
                1,2,3,0.5,1,396,109\n";
    assert_eq!(open(text, options.clone()).unwrap().format(), Format::Splitwise);
    assert_eq!(brief(&read(text, options).unwrap()), [(0, Small, 417), (500, Large, 604)]);
    assert_eq!(brief(&read(text, TraceOptions { service: simple(), ..rule("tenant=3") }).unwrap())[1].1, Large);
}

#[test]
fn swf() {
    let text = "; Version: 2.2\n; MaxProcs: 8\n1 100 -1 20 8 -1 -1 8 30 -1 1 -1 10 -1 -1 -1 -1 -1\n\
                2 101 -1 -1 1 -1 -1 1 30 -1 5 7 10 -1 -1 -1 -1 -1\n3 102.5 0 1.5 -1 -1 -1 1 30 -1 1 7 10 4 -1 -1 -1 -1\n";
    let trace = open(text, TraceOptions::default()).unwrap();
    assert_eq!(trace.format(), Format::Swf);
    let mut source = trace.requests().unwrap();
    let all: Vec<TraceRequest> = source.iter().map(Result::unwrap).collect();
    assert_eq!(brief(&all), [(0, Large, 20_000), (2_500, Small, 1_500)]);
    assert_eq!(
        (source.skipped(), source.tenants().get(all[0].tenant), source.tenants().get(all[1].tenant)),
        (1, Some("10"), Some("7"))
    );
    assert_eq!(source.models().get(all[1].model), Some("4"));
    // Without a comment the 18 numbers tell.
    let bare = text.split_once("8\n").unwrap().1;
    assert_eq!(read(bare, TraceOptions::default()).unwrap(), all);
    let error = read(text, TraceOptions { lanes: 4, ..TraceOptions::default() }).unwrap_err().to_string();
    assert!(error.starts_with("t: line 3: field `processors`: 8 is neither 1 nor the lane count 4; "), "{error}");
}

#[test]
fn a_rule_is_stronger_than_the_trace() {
    let text = r#"{"timestamp":0,"class":"best-effort","gpus":8,"service_ms":5}
{"timestamp":1,"class":"x","gpus":1,"service_ms":3000}"#;
    assert_eq!(brief(&read(text, rule("service>2s")).unwrap()), [(0, Small, 5), (1, Large, 3_000)]);
    let summary = open(text, rule("gpus>=1")).unwrap().summary().unwrap();
    assert_eq!(summary.warnings, [Warning::RuleMatchesAll { rule: "gpus>=1".into() }]);
    let summary = open(text, rule("service>1h")).unwrap().summary().unwrap();
    assert_eq!(summary.warnings, [Warning::RuleMatchesNothing { rule: "service>1h".into(), field_seen: true }]);
    assert_eq!(summary.warnings[0].to_string(), "the rule `service>1h` matched 0 requests: all are small");
}

#[test]
fn the_summary_measures() {
    let text = r#"{"timestamp":50,"class":"small","service_ms":10}
{"timestamp":100,"class":"small","service_ms":30}
{"timestamp":150,"class":"large","service_ms":40}"#;
    let summary = open(text, TraceOptions::default()).unwrap().summary().unwrap();
    // (10 + 30 + 8 x 40) / (8 x 100)
    assert!((summary.native_load().unwrap() - 0.45).abs() < 1e-12);
    assert!((summary.large_share() - 320.0 / 360.0).abs() < 1e-12);
    let small = summary.class(Small);
    assert!((small.service_mean_ns - 20e6).abs() < 1e-3 && (small.service_cv() - 0.5).abs() < 1e-12);
    assert_eq!((small.service_max, summary.span), (ms(30), ms(100)));
    let one = text.lines().next().unwrap();
    let summary = open(one, TraceOptions::default()).unwrap().summary().unwrap();
    assert_eq!(summary.native_load(), None);
    let load = crate::Adapt { load: Some(0.5), ..Default::default() };
    let error = load.apply(open(one, TraceOptions::default()).unwrap().requests().unwrap(), summary.native_load()).unwrap_err();
    assert!(error.to_string().starts_with("--load: the trace has no span"));
}

/// The error of a trace, which is one line and ends in a remedy.
fn error(bytes: &[u8], options: TraceOptions) -> String {
    let result = TraceFile::from_bytes("t", bytes, options).and_then(|trace| trace.summary());
    let text = result.expect_err(&String::from_utf8_lossy(bytes)).to_string();
    assert!(!text.contains('\n') && (text.contains("; ") || text.contains("known")), "{text}");
    text
}

#[test]
fn bad_jsonl_is_named_by_line_and_field() {
    let good = r#"{"timestamp":5,"class":"small","service_ms":1}"#;
    for (line, says) in [
        (r#"{"timestamp":5"#, "line 2: is no JSON: EOF while parsing an object at column 14"),
        ("nonsense", "line 2: is not a JSON object (it begins `nonsense`)"),
        ("[5, \"small\"]", "line 2: is not a JSON object"),
        (r#"{"timestamp":5}}"#, "line 2: is no JSON: trailing characters"),
        (r#"{"timestamp":5,"timestamp":6}"#, "line 2: is no JSON: duplicate field `timestamp`"),
        (r#"{"class":"small","service_ms":1}"#, "line 2: field `timestamp`: is missing"),
        (r#"{"timestamp":5,"class":"small"}"#, "line 2: field `service_ms`: is missing, and so is `input_length`"),
        (
            r#"{"timestamp":5,"class":"small","input_length":3}"#,
            "line 2: field `service_ms`: is missing, and so is `output_length`",
        ),
        (
            r#"{"timestamp":5,"service_ms":-1}"#,
            "line 2: field `service_ms`: -1 is negative; give a number from 0 to 366 days, in ms",
        ),
        (
            r#"{"timestamp":-5,"service_ms":1}"#,
            "line 2: field `timestamp`: -5 is negative; give a number from 0 to 200 years, in ms",
        ),
        (r#"{"timestamp":5,"service_ms":NaN}"#, "line 2: field `service_ms`: NaN is not a number"),
        (r#"{"timestamp":5,"service_ms": -Infinity, "gpus":1}"#, "line 2: field `service_ms`: infinity is not a number"),
        (r#"{"timestamp":5,"service_ms":1e999}"#, "line 2: field `service_ms`: the number is too large"),
        (r#"{"timestamp":5,"service_ms":1e300}"#, "line 2: field `service_ms`: 1e300 is longer than 366 days"),
        (r#"{"timestamp":1e20,"service_ms":1}"#, "line 2: field `timestamp`: 1e20 is longer than 200 years"),
        (r#"{"timestamp":5,"service_ms":"1"}"#, "line 2: field `service_ms`: the text \"1\" is not a number"),
        (r#"{"timestamp":5,"service_ms":[1]}"#, "line 2: field `service_ms`: a list is not a number"),
        (r#"{"timestamp":5,"service_ms":{"a":1}}"#, "line 2: field `service_ms`: an object is not a number"),
        (r#"{"timestamp":true}"#, "line 2: field `timestamp`: true or false is not a number"),
        (r#"{"timestamp":5,"service_ms":1,"prefill_ms":2}"#, "line 2: field `prefill_ms`: is longer than the service time"),
        (r#"{"timestamp":5,"service_ms":1,"step_ms":0}"#, "line 2: field `step_ms`: 0 is not a step"),
        (r#"{"timestamp":5,"service_ms":1,"tenant":4}"#, "line 2: field `tenant`: the number 4 is not a text"),
        (
            r#"{"timestamp":5,"service_ms":1,"class":"medium"}"#,
            "line 2: field `class`: `medium` is not a class; write `small` or `large`",
        ),
        (r#"{"timestamp":5,"service_ms":1,"class":"large","gpus":1}"#, "line 2: field `class`: `large` contradicts 1 GPUs"),
        (r#"{"timestamp":5,"service_ms":1,"class":"small","gpus":8}"#, "line 2: field `class`: `small` contradicts 8 GPUs"),
        (r#"{"timestamp":5,"service_ms":1,"gpus":4}"#, "line 2: field `gpus`: 4 is neither 1 nor the lane count 8"),
        (r#"{"timestamp":5,"service_ms":1,"gpus":0}"#, "line 2: field `gpus`: 0 is neither 1 nor the lane count 8"),
        (r#"{"timestamp":5,"service_ms":1,"gpus":1.5}"#, "line 2: field `gpus`: 1.5 is not a whole number"),
        (r#"{"timestamp":5,"input_length":1e12,"output_length":1}"#, "line 2: field `input_length`: 1e12 is more than 100000000"),
        (r#"{"timestamp":5,"input_length":100000000,"output_length":100000000}"#, "by the service model"),
        (
            r#"{"timestamp":4,"service_ms":1}"#,
            "line 2: field `timestamp`: arrives 1ms before the request above it; sort the file",
        ),
        ("{\"timestamp\":5,\"tenant\":\"\u{1}\"}", "line 2: is no JSON: control character"),
    ] {
        let text = error(format!("{good}\n{line}\n{good}").as_bytes(), TraceOptions::default());
        assert!(text.starts_with("t: line 2: ") && text.contains(says), "{line}: {text}");
    }
}

#[test]
fn bad_csv_and_swf_are_named_by_line_and_column() {
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4808,10\n";
    for (line, says) in [
        ("2023-11-16 18:17:03,5", "line 3: has 2 columns where the header has 3"),
        ("2023-11-16 18:17:03,x,5", "line 3: field `ContextTokens`: `x` is not a number"),
        ("2023-11-16 18:17:03,,5", "line 3: field `ContextTokens`: is missing"),
        ("2023-11-16 18:17:03,NaN,5", "line 3: field `ContextTokens`: NaN is not a count"),
        ("2023-11-16 18:17:03,-1,5", "line 3: field `ContextTokens`: -1 is negative"),
        ("2023-11-16 18:17:03,inf,5", "line 3: field `ContextTokens`: inf is more than"),
        ("2023-11-16 18:17:03,1,0.5", "line 3: field `GeneratedTokens`: 0.5 is not a whole number"),
        ("2023-13-16 18:17:03,1,5", "line 3: field `TIMESTAMP`: `2023-13-16 18:17:03` is not a date with a time"),
        ("1923-11-16 18:17:03,1,5", "line 3: field `TIMESTAMP`"),
        ("2023-11-16 18:17:02.9,1,5", "line 3: field `TIMESTAMP`: arrives 100ms before the request above it"),
    ] {
        let text = error(format!("{azure}{line}\n").as_bytes(), TraceOptions::default());
        assert!(text.contains(says), "{line}: {text}");
    }
    let vidur = "arrived_at,num_prefill_tokens,num_decode_tokens\n";
    for (line, says) in [("NaN,1,1", "NaN is not a time"), ("-1,1,1", "-1 is negative"), ("1e30,1,1", "longer than 200 years")] {
        let text = error(format!("{vidur}{line}\n").as_bytes(), TraceOptions::default());
        assert!(text.starts_with("t: line 2: field `arrived_at`: ") && text.contains(says), "{text}");
    }
    let swf = "; MaxProcs: 8\n";
    for (line, says) in [
        ("1 2 3", "line 2: has 3 fields where SWF has 18"),
        ("1 0 -1 x 8 -1 -1 8 1 -1 1 -1 10 -1 -1 -1 -1 -1", "line 2: field `run time`: `x` is not a number"),
        ("1 0 -1 -7 8 -1 -1 8 1 -1 1 -1 10 -1 -1 -1 -1 -1", "line 2: field `run time`: -7 is negative"),
        ("1 0 -1 7 -1 -1 -1 -1 1 -1 1 -1 10 -1 -1 -1 -1 -1", "line 2: field `processors`: -1 is negative"),
        ("1 0 -1 7 16 -1 -1 16 1 -1 1 -1 10 -1 -1 -1 -1 -1", "line 2: field `processors`: 16 is neither 1 nor the lane count 8"),
    ] {
        let text = error(format!("{swf}{line}\n").as_bytes(), TraceOptions::default());
        assert!(text.contains(says), "{line}: {text}");
    }
}

#[test]
fn bad_files_are_named() {
    let missing = TraceFile::open("nowhere/t.jsonl", TraceOptions::default()).unwrap_err().to_string();
    assert!(
        missing.starts_with("nowhere/t.jsonl: cannot be opened: ") && missing.ends_with("; check the path and its permissions")
    );
    let folder = tempfile::tempdir().unwrap();
    assert!(TraceFile::open(folder.path(), TraceOptions::default()).unwrap_err().to_string().contains("cannot be opened"));
    let d = TraceOptions::default;
    for empty in ["", "\n \n", "; only a comment\n", "arrived_at,num_prefill_tokens,num_decode_tokens\n"] {
        assert_eq!(error(empty.as_bytes(), d()), "t: holds no request; give a trace with at least one");
    }
    for unknown in ["\n\u{7}PK\u{3}\u{4}", "a,b,c\n1,2,3\n", "1 2 3\n", "[1]"] {
        assert!(error(unknown.as_bytes(), d()).contains("of no known trace format"), "{unknown}");
    }
    assert!(
        error("\n\u{7}\u{1b}[2J".as_bytes(), d())
            .starts_with("t: line 2: of no known trace format (it begins `\\u{7}\\u{1b}[2J`)")
    );
    let as_vidur = TraceOptions { format: Some(Format::Vidur), ..d() };
    assert!(error(b"TIMESTAMP,b\n", as_vidur).starts_with("t: line 1: the vidur header has no column `arrived_at`; "));
    let as_azure = TraceOptions { format: Some(Format::Azure), ..d() };
    assert!(error(b"a\n", as_azure).contains("no column `TIMESTAMP` or `arrival_s` or `arrival_ms`; "));
    assert_eq!(
        "csv".parse::<Format>().unwrap_err().to_string(),
        "--format: `csv` is not a format; known: jsonl, azure, burstgpt, vidur, splitwise, swf"
    );
    for lanes in [0, 65] {
        let text = error(b"{}", TraceOptions { lanes, ..d() });
        assert!(text.starts_with("--lanes: ") && text.contains("from 1 to 64"));
    }
}

#[test]
fn broken_gzip_is_named() {
    let text: String = (0..2_000).map(|i| format!("{{\"timestamp\":{i},\"class\":\"small\",\"service_ms\":1.{i}}}\n")).collect();
    let packed = gzip(text.as_bytes());
    let says = |bytes: &[u8]| error(bytes, TraceOptions::default());
    let cut = says(&packed[..packed.len() / 2]);
    assert!(cut.starts_with("t: line ") && cut.contains("the gzip data is truncated or corrupt"), "{cut}");
    assert!(says(&packed[..packed.len() - 3]).contains("line 2001: the gzip data is truncated or corrupt"));
    assert!(says(&packed[..2]).contains("line 1: the gzip data is truncated or corrupt"));
    let mut flipped = packed.clone();
    let end = flipped.len() - 6;
    flipped[end] ^= 1;
    assert!(says(&flipped).contains("the gzip data is truncated or corrupt"));
}

#[test]
fn a_line_without_end_is_refused_in_bounded_memory() {
    let long = format!("{{\"timestamp\":0,\"class\":\"small\",\"service_ms\":1}}\n{{\"x\":\"{}", "y".repeat(3 << 20));
    for bytes in [long.as_bytes().to_vec(), gzip(long.as_bytes())] {
        assert_eq!(
            error(&bytes, TraceOptions::default()),
            "t: line 2: longer than 1048576 bytes; a trace holds one request a line"
        );
    }
    // Of the very limit it is read.
    let mut most = format!("{{\"timestamp\":0,\"class\":\"small\",\"service_ms\":1,\"x\":\"{}\"}}", "y".repeat(1 << 20));
    let over = most.len() + 1 - MAX_LINE;
    most.replace_range(most.len() - 2 - over..most.len() - 2, "");
    assert_eq!(read(&format!("{most}\n"), TraceOptions::default()).unwrap().len(), 1);
}

#[test]
fn after_an_error_a_source_is_at_its_end() {
    let trace =
        open("{\"timestamp\":0,\"service_ms\":1}\n{}\n{\"timestamp\":0,\"service_ms\":1}", TraceOptions::default()).unwrap();
    let mut source = trace.requests().unwrap();
    assert!(source.next_request().unwrap().is_some());
    let error = source.next_request().unwrap_err();
    assert_eq!((error.line(), error.field()), (Some(2), Some("timestamp")));
    assert!(source.next_request().unwrap().is_none());
}

fn exercise(bytes: &[u8]) -> Result<(), TestCaseError> {
    for format in Format::ALL.into_iter().map(Some).chain([None]) {
        for large_if in [None, Some("service>2s".parse().unwrap())] {
            let options = TraceOptions { format, large_if, ..TraceOptions::default() };
            let read =
                TraceFile::from_bytes("t", bytes, options).and_then(|t| t.requests()?.iter().collect::<Result<Vec<_>, _>>());
            match read {
                Ok(requests) => {
                    prop_assert!(requests.windows(2).all(|w| w[0].arrival <= w[1].arrival));
                    prop_assert!(requests.iter().all(|r| r.service >= Nanos(1) && r.service <= MAX_SPAN));
                }
                Err(error) => {
                    let text = error.to_string();
                    prop_assert!(!text.chars().any(char::is_control) && text.len() < 600, "{text}");
                }
            }
        }
    }
    Ok(())
}

/// A line that nearly is one of a known format.
fn nearly() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("0".to_owned()),
        Just("1".to_owned()),
        Just("8".to_owned()),
        Just("-1".to_owned()),
        Just("NaN".to_owned()),
        Just("1e308".to_owned()),
        Just("1e999".to_owned()),
        Just("\"small\"".to_owned()),
        Just("\"large\"".to_owned()),
        Just("2023-11-16 18:17:03.9799600".to_owned()),
        any::<f64>().prop_map(|x| x.to_string()),
        "\\PC{0,8}",
    ];
    let key = prop::sample::select(vec![
        "timestamp",
        "class",
        "gpus",
        "service_ms",
        "prefill_ms",
        "input_length",
        "output_length",
        "tenant",
        "slo_ms",
        "step_ms",
    ]);
    prop_oneof![
        prop::collection::vec((key, value.clone()), 0..6).prop_map(|pairs| {
            let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
            format!("{{{}}}", pairs.join(","))
        }),
        prop::collection::vec(value.clone(), 3).prop_map(|cells| cells.join(",")),
        prop::collection::vec(value.clone(), 6).prop_map(|cells| cells.join(",")),
        prop::collection::vec(value, 18).prop_map(|cells| cells.join(" ")),
        Just("TIMESTAMP,ContextTokens,GeneratedTokens".to_owned()),
        Just("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type".to_owned()),
        Just("arrived_at,num_prefill_tokens,num_decode_tokens".to_owned()),
        Just("; comment".to_owned()),
        "\\PC{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), pack: bool, magic: bool) {
        exercise(&bytes)?;
        if pack {
            exercise(&gzip(&bytes))?;
        }
        if magic {
            exercise(&[&[0x1f, 0x8b, 8, 0], bytes.as_slice()].concat())?;
        }
    }

    #[test]
    fn nearly_right_lines_never_panic(lines in prop::collection::vec(nearly(), 0..6)) {
        exercise(lines.join("\n").as_bytes())?;
    }
}

/// A file of the public traces, which the project does not carry: `PHALANX_SHARED` names the folder above their `data`.
fn shared(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PHALANX_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = root.join("data").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not there (set PHALANX_SHARED to the folder that has data/{name})", path.display());
    None
}

#[test]
fn the_public_traces_have_the_published_counts_and_means() {
    // Count, mean in ms, cv of small and large; load; the share of large work.
    for (name, small, large, load, share) in [
        ("w1_azure_conv_small_code_large", (19_366, 1409.0, 0.76), (8_819, 486.0, 1.77), 2.19, 0.56),
        ("w2_mooncake_long_context", (11_436, 2674.0, 0.68), (595, 2853.0, 0.64), 1.56, 0.31),
        ("w3_philly_native_one_or_eight", (42_998, 139.0, 7.5), (533, 3325.0, 1.62), 0.70, 0.70),
        ("w4_servegen_small_large", (87_020, 70.0, 3.5), (543, 3321.0, 1.05), 0.71, 0.70),
    ] {
        let Some(path) = shared(&format!("{name}.jsonl.gz")) else { continue };
        let summary = TraceFile::open(path, TraceOptions::default()).unwrap().summary().unwrap();
        for (class, (count, mean, cv)) in [(Small, small), (Large, large)] {
            let got = summary.class(class);
            assert_eq!(got.count, count, "{name}");
            assert!((got.service_mean_ns / 1e6 - mean).abs() <= 0.5, "{name}: {class} mean {}", got.service_mean_ns);
            assert!((got.service_cv() - cv).abs() <= 0.051, "{name}: {class} cv {}", got.service_cv());
            assert_eq!(got.with_target, count);
        }
        assert!((summary.native_load().unwrap() - load).abs() <= 0.005, "{name}: {:?}", summary.native_load());
        assert!((summary.large_share() - share).abs() <= 0.005, "{name}: {}", summary.large_share());
        assert!(summary.warnings.is_empty() && summary.skipped == 0);
    }
}

/// The raw sources, through importer, service model and rule, give what was made of them elsewhere.
#[test]
fn the_raw_sources_import_as_published() {
    let Some(constants) = shared("service_constants.json") else { return };
    let models = |large| ServiceModels::read(&constants, Some("small_8b_tp1"), Some(large)).unwrap();
    for (raw, made, rule, large) in [
        ("src_mooncake_conversation.csv.gz", "w2_mooncake_long_context.jsonl.gz", "input>39744", "long_8b_tp8"),
        ("src_mooncake_conversation.csv.gz", "w2_mooncake_long_context.jsonl.gz", "prefill>2s", "long_8b_tp8"),
        ("src_azure_llm_2023.csv.gz", "w1_azure_conv_small_code_large.jsonl.gz", "tenant=code", "large_70b_tp8"),
    ] {
        let (Some(raw), Some(made)) = (shared(raw), shared(made)) else { continue };
        let options = TraceOptions { service: models(large), large_if: Some(rule.parse().unwrap()), ..TraceOptions::default() };
        let raw = TraceFile::open(raw, options).unwrap();
        assert_eq!(raw.format(), Format::Azure);
        let made = TraceFile::open(made, TraceOptions::default()).unwrap();
        let (mut a, mut b) = (raw.requests().unwrap(), made.requests().unwrap());
        while let (Some(a), Some(b)) = (a.next_request().unwrap(), b.next_request().unwrap()) {
            assert_eq!(
                (a.class, a.input_tokens, a.output_tokens),
                (b.class, b.input_tokens, b.output_tokens),
                "{rule} {}",
                a.number
            );
            // The made files are rounded to 10 us, and count the context of the tokens out by half a token differently.
            assert!(
                a.service.0.abs_diff(b.service.0) <= 10_000 + b.service.0 / 100_000,
                "{rule} {}: {} {}",
                a.number,
                a.service,
                b.service
            );
        }
        let (a, b) = (raw.summary().unwrap(), made.summary().unwrap());
        assert_eq!(a.classes.map(|c| c.count), b.classes.map(|c| c.count));
    }
    if let Some(philly) = shared("src_philly_1or8.swf.gz") {
        let trace = TraceFile::open(philly, TraceOptions::default()).unwrap();
        assert_eq!(trace.format(), Format::Swf);
        assert_eq!(trace.summary().unwrap().classes.map(|c| c.count), [76_627, 1_643]);
    }
}

/// Half a million lines stream in under a second, in a release build: `cargo test --release -p phalanx-sim -- --ignored fast`.
#[test]
#[ignore = "measures a release build"]
fn fast() {
    let lines = 500_000;
    let mut text = String::new();
    for i in 0..lines {
        text += &format!(
            "{{\"request_id\":{i},\"timestamp\":{i}.25,\"input_length\":374,\"output_length\":44,\"class\":\"small\",\"gpus\":1,\
             \"prefill_ms\":11.77,\"service_ms\":292.28,\"slo_ttft_ms\":500,\"slo_ms\":1790.0,\"tenant\":\"azure-conv\"}}\n"
        );
    }
    for bytes in [text.as_bytes().to_vec(), gzip(text.as_bytes())] {
        let trace = TraceFile::from_bytes("t", bytes, TraceOptions::default()).unwrap();
        let start = std::time::Instant::now();
        assert_eq!(trace.summary().unwrap().count(), lines);
        let rate = lines as f64 / start.elapsed().as_secs_f64();
        eprintln!("{rate:.0} lines a second");
        assert!(cfg!(debug_assertions) || rate >= 500_000.0);
    }
}
