//! The bridge: what the dispatcher's thread decided in real time is what the pure scheduler decides of the same events.

mod common;

use common::{phalanx, text};
use phalanx::scheduler::policy::POLICIES;
use phalanx_sim::record::{LogReader, replay};

#[test]
fn a_recorded_run_of_every_policy_replays_to_the_same_decisions() {
    let folder = tempfile::tempdir().unwrap();
    for policy in POLICIES {
        let log = text(&folder.path().join(format!("{}.jsonl", policy.name)));
        // Predictions, so that backfilling has something to go by; a short queue and overload, so that the door turns some away; deadlines.
        let words = [
            "run",
            "--policy",
            policy.name,
            "--duration",
            "1s",
            "--queue",
            "40",
            "--hard-deadlines",
            "--events",
            &log,
            "--workload",
            "mix:load=1.2,small=2ms,large=8ms,error=0.3,slo_small=20ms,slo_large=200ms",
        ];
        let output = phalanx(&words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut log = LogReader::open(&log).unwrap();
        let replayed = replay(policy.name, &mut log).unwrap_or_else(|error| panic!("{error}"));
        assert!(replayed.events > 1_000 && replayed.decisions > 1_000, "{}: {replayed:?}", policy.name);
    }
}
