//! The bridge between the two times: what the runtime decided, decided again.

use std::io::BufRead;

use phalanx::Class;
use phalanx::observe::What;
use phalanx::scheduler::{Decision, Decisions, Limits, PolicySpec, Scheduler};

use super::LogReader;
use crate::InputError;

/// A log that was replayed and agreed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Events that the scheduler was told.
    pub events: u64,
    /// Decisions that it answered, each the recorded one.
    pub decisions: u64,
}

/// Why a log was not replayed to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read, or its header names no policy that there is.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Its header asks for what cannot be.
    #[error("{file}: line 1: {what}; give a log of this version of the program")]
    Header {
        /// Which log.
        file: String,
        /// What it asks for.
        what: String,
    },
    /// The scheduler decided otherwise than the log says.
    #[error("{file}: line {line}: the log has {recorded}, the scheduler decided {decided}")]
    Differs {
        /// Which log.
        file: String,
        /// Where.
        line: u64,
        /// What is recorded.
        recorded: String,
        /// What the same events brought now.
        decided: String,
    },
    /// Records are missing, so that the events are not all there.
    #[error("{file}: line {line}: {lost} records were lost here; a log with gaps cannot be replayed")]
    Lost {
        /// Which log.
        file: String,
        /// Where.
        line: u64,
        /// How many.
        lost: u64,
    },
}

/// Tells a new scheduler every event of a log at its recorded time, and compares each decision with the recorded one.
///
/// The scheduler is pure: the same events at the same times must give the same decisions, whether a dispatcher thread or a simulator
/// told them. This is what makes a simulation of a policy a statement about the running node.
///
/// # Errors
/// See [`ReplayError`]; [`ReplayError::Differs`] is a bug in Phalanx, or a log of another version.
pub fn replay<R: BufRead>(name: &str, log: &mut LogReader<R>) -> Result<Replayed, ReplayError> {
    let file = || name.to_owned();
    let header = log.header().clone();
    let wrong = |what: String| ReplayError::Header { file: file(), what };
    let policy: PolicySpec = header.policy.parse().map_err(|error| wrong(format!("{error}")))?;
    let mut limits = Limits::new(header.lanes).map_err(|error| wrong(error.to_string()))?;
    for class in Class::ALL {
        limits = limits.queue(class, header.queue[class.index()]).map_err(|error| wrong(error.to_string()))?;
    }
    let mut scheduler = Scheduler::new(limits, policy.build(header.lanes));
    let mut decisions = Decisions::new();
    let mut next = 0;
    let mut done = Replayed::default();
    let differs = |line, recorded: Option<Decision>, decided: Option<&Decision>| {
        let text = |decision: Option<&Decision>| decision.map_or("no decision".to_owned(), |d| format!("{d:?}"));
        ReplayError::Differs { file: file(), line, recorded: text(recorded.as_ref()), decided: text(decided) }
    };
    while let Some(record) = log.next() {
        let record = record?;
        match record.what {
            What::Event(event) => {
                if let Some(left) = decisions.as_slice().get(next) {
                    return Err(differs(log.line(), None, Some(left)));
                }
                scheduler.on(record.now, event, &mut decisions);
                next = 0;
                done.events += 1;
            }
            What::Decision(recorded) => {
                let decided = decisions.as_slice().get(next);
                if decided != Some(&recorded) {
                    return Err(differs(log.line(), Some(recorded), decided));
                }
                next += 1;
                done.decisions += 1;
            }
            What::Lost { lost } => return Err(ReplayError::Lost { file: file(), line: log.line(), lost }),
            What::Span(_) | What::Outcome(_) | What::Lane(_) => {}
        }
    }
    match decisions.as_slice().get(next) {
        Some(left) => Err(differs(log.line(), None, Some(left))),
        None => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"schema":"phalanx.events/1","mode":"real","lanes":2,"policy":"fcfs","queue":[4,4],"workload":"mix","load":0.8,"speed":1.0,"seed":1}"#;

    fn of(lines: &[&str]) -> Result<Replayed, ReplayError> {
        let mut text = HEADER.to_owned() + "\n";
        for line in lines {
            text += line;
            text += "\n";
        }
        replay("e.jsonl", &mut LogReader::new("e.jsonl", text.as_bytes())?)
    }

    const ARRIVE: &str = r#"{"now":5,"event":"arrive","id":0,"class":"small","arrival":5}"#;
    const ADMIT: &str = r#"{"now":5,"decision":"admit","slot":0,"id":0}"#;
    const START: &str = r#"{"now":5,"decision":"start_small","slot":0,"id":0,"lane":0,"backfill":false}"#;

    #[test]
    fn the_same_decisions_agree() {
        assert_eq!(of(&[ARRIVE, ADMIT, START]).unwrap(), Replayed { events: 1, decisions: 2 });
    }

    #[test]
    fn another_decision_a_missing_one_and_one_too_many_are_found() {
        let other = START.replace("\"lane\":0", "\"lane\":1");
        let error = of(&[ARRIVE, ADMIT, &other]).unwrap_err().to_string();
        assert!(error.starts_with("e.jsonl: line 4: the log has StartSmall"), "{error}");
        for lines in [&[ARRIVE, ADMIT][..], &[ARRIVE, START], &[ADMIT], &[ARRIVE, ADMIT, START, START]] {
            assert!(matches!(of(lines), Err(ReplayError::Differs { .. })), "{lines:?}");
        }
        let lost = of(&[r#"{"now":1,"lost":3}"#]).unwrap_err().to_string();
        assert!(lost.contains("3 records were lost"), "{lost}");
    }
}
