//! Two real traces at load 0.7: w3 (Philly) and w4 (ServeGen). Their files are not part of the project: where they are absent the check
//! says so loudly, and holds nothing.

use super::{CheckError, Report, Want};
use crate::engine::{Estimate, RunResult, SimError, SimOptions, across_seeds, simulate};
use crate::{Adapt, TraceFile, TraceOptions};
use std::path::{Path, PathBuf};

/// File, the small mean response in seconds that `balance` must reach in arrival order, the w of an undominated point.
const TRACES: [(&str, f64, f64); 2] =
    [("w3_philly_native_one_or_eight.jsonl.gz", 8.3, 50.0), ("w4_servegen_small_large.jsonl.gz", 5.4, 200.0)];

/// The policies of the books, those without a setting and `msfq` at each of its thresholds.
pub(super) const CLASSICAL: [&str; 13] = [
    "fcfs",
    "small-first",
    "easy",
    "drain",
    "drain:batch=all",
    "msf",
    "msfq:l=1",
    "msfq:l=2",
    "msfq:l=3",
    "msfq:l=4",
    "msfq:l=5",
    "msfq:l=6",
    "msfq:l=7",
];

/// Where the traces lie: `PHALANX_TRACES`, else beside the repository.
pub(super) fn folder() -> PathBuf {
    std::env::var_os("PHALANX_TRACES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from)
}

pub(super) fn check(quick: bool) -> Result<Report, CheckError> {
    let mut report = Report::new(quick);
    for (name, most, raised) in TRACES {
        let path = folder().join(name);
        if !path.is_file() {
            report.note(format!("NOT MEASURED: {} is absent; set PHALANX_TRACES to the folder that holds it", path.display()));
            continue;
        }
        let trace = TraceFile::open(&path, TraceOptions::default())?;
        let native = trace.summary()?.native_load();
        let mut policies: Vec<String> = CLASSICAL.map(str::to_owned).to_vec();
        let raised = format!("balance:order=arrival:w={raised}");
        policies.extend(["balance:order=arrival".to_owned(), raised.clone(), "balance".to_owned()]);
        let results = across_seeds(&policies, |policy| -> Result<RunResult, CheckError> {
            let adapt = Adapt { load: Some(0.7), ..Adapt::default() };
            let mut source = adapt.apply(trace.requests()?, native)?;
            let spec = policy.parse().map_err(SimError::from)?;
            Ok(simulate(&mut source, &SimOptions { queue: [1 << 20; 2], ..SimOptions::new(8, spec) })?)
        });
        let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        let seconds = |r: &RunResult| [r.small.response_ms.mean * 1e-3, r.large.response_ms.mean * 1e-3];
        let of = |policy: &str| seconds(&results[policies.iter().position(|p| p == policy).expect("it was run")]);
        let one = |x: f64| Estimate::of(&[x]);
        let name = &name[..2];
        report.hold(
            format!("{name}: balance in arrival order, small mean, s"),
            one(of("balance:order=arrival")[0]),
            Want::AtMost(most),
        );
        let [small, large] = of(&raised);
        let better: Vec<&str> = CLASSICAL.into_iter().filter(|policy| of(policy)[0] <= small && of(policy)[1] <= large).collect();
        report.hold(format!("{name}: classical policies that dominate {raised}"), one(better.len() as f64), Want::AtMost(0.0));
        for (policy, result) in policies.iter().zip(&results) {
            let [small, large] = seconds(result);
            report.note(format!("{name} {policy}: mean response {small:.2} s small, {large:.2} s large"));
        }
    }
    Ok(report)
}
