//! The policies that `phalanx sim` takes: those of a node, and two that no node can have.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use phalanx::Class;
use phalanx::scheduler::{Policy, PolicyError, PolicySpec};
use phalanx_sim::engine::OptimumPolicy;
use phalanx_sim::optimum::{Model, Settings, Table, solve};
use phalanx_sim::workload::{Arrivals, Service};

use crate::fail::Fail;
use crate::input::Input;

/// A policy of a simulation.
#[derive(Clone, Debug)]
pub(crate) enum SimPolicy {
    /// One that a node can run.
    Node(PolicySpec),
    /// The preemptive reference.
    ServerFilling,
    /// The exact optimum of the Markov model: solved for this weight, or read from a file.
    Optimum { weight: f64, table: Option<PathBuf> },
}

impl SimPolicy {
    /// What is compared if the user names none.
    pub(crate) fn compared() -> Vec<Self> {
        let node = |text: &str| Self::Node(text.parse().expect("these are policies: a test parses them"));
        ["balance", "drain:batch=all", "easy", "msfq", "msf", "fcfs"].map(node).to_vec()
    }

    /// Everything that it takes to run it, any number of times. For `optimum` that may be minutes, which it says unless it is to be quiet.
    pub(crate) fn ready(&self, input: &Input, quiet: bool) -> Result<Ready, Fail> {
        match self {
            Self::Node(spec) => {
                spec.check(input.lanes).map_err(|error| Fail::new(format!("--policy: {error}")))?;
                Ok(Ready::Node(spec.clone()))
            }
            Self::ServerFilling => Ok(Ready::ServerFilling),
            Self::Optimum { weight, table: None } => Ok(Ready::Optimum(Box::new(solved(input, *weight, quiet)?))),
            Self::Optimum { table: Some(file), .. } => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| Fail::new(format!("{}: cannot be read: {error}; check the path", file.display())))?;
                let table: Table = serde_json::from_str(&text).map_err(|error| {
                    Fail::new(format!("{}: is no table: {error}; give one that `phalanx optimum --table` wrote", file.display()))
                })?;
                if table.model().lanes != input.lanes {
                    let (made, lanes) = (table.model().lanes, input.lanes);
                    return Err(Fail::new(format!("{}: was solved for {made} lanes, and there are {lanes}", file.display())));
                }
                Ok(Ready::Optimum(Box::new(table)))
            }
        }
    }
}

fn solved(input: &Input, weight: f64, quiet: bool) -> Result<Table, Fail> {
    let Some(spec) = input.mix() else {
        let text =
            "--policy: `optimum` is solved for a workload, and a trace has no model; name a table of one as optimum:table=FILE";
        return Err(Fail::new(text));
    };
    if spec.service() != Service::Exponential || spec.arrivals() != Arrivals::Poisson {
        let text = "--policy: `optimum` is solved for service=exp and arrivals=poisson, and --workload has others; give a table as \
                    optimum:table=FILE to see what it does here all the same";
        return Err(Fail::new(text));
    }
    let model = model(spec, input.load, weight)?;
    if !quiet {
        eprintln!("note: the optimum is being solved; this takes from seconds to some minutes, the more the higher the load");
    }
    let (solution, table) =
        solve(&model, &Settings::default()).map_err(|error| Fail::new(format!("--policy optimum: {error}")))?;
    if solution.converged {
        return Ok(table);
    }
    Err(Fail::new(format!(
        "--policy: `optimum` did not converge (span bound {:.1e}); lower the load, or solve it by `phalanx optimum --table` with more \
         --max-states",
        solution.span_bound
    )))
}

/// The Markov model of a workload.
pub(crate) fn model(spec: &phalanx_sim::WorkloadSpec, load: Option<f64>, weight: f64) -> Result<Model, Fail> {
    let mean = |class| spec.service_mean(class).as_secs_f64();
    let load = load.unwrap_or(spec.load());
    Model::new(spec.lanes(), load, spec.share(), mean(Class::Small), mean(Class::Large), weight)
        .map_err(|error| Fail::new(format!("the model of {spec}: {error}")))
}

/// A policy, ready to be made as often as there are runs.
#[derive(Debug)]
pub(crate) enum Ready {
    Node(PolicySpec),
    ServerFilling,
    Optimum(Box<Table>),
}

impl Ready {
    /// The policy for one run; none for server filling, which is no policy of this scheduler.
    pub(crate) fn make(&self, lanes: usize) -> Option<Box<dyn Policy>> {
        match self {
            Self::Node(spec) => Some(spec.build(lanes)),
            Self::ServerFilling => None,
            Self::Optimum(table) => Some(Box::new(OptimumPolicy::new((**table).clone()))),
        }
    }
}

impl FromStr for SimPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut parts = text.split(':');
        match parts.next() {
            Some("server-filling") => match parts.next() {
                None => Ok(Self::ServerFilling),
                Some(part) => Err(PolicyError::new(format!("policy server-filling has no settings, so no '{part}'"))),
            },
            Some("optimum") => {
                let (mut weight, mut table) = (8.0, None);
                for part in parts {
                    match part.split_once('=') {
                        Some(("w", text)) => match text.parse() {
                            Ok(value) if (0.0..=1e6).contains(&value) => weight = value,
                            _ => return Err(PolicyError::new(format!("policy optimum: w={text}: it is a number from 0 to 1e6"))),
                        },
                        Some(("table", file)) if !file.is_empty() => table = Some(file.into()),
                        _ => {
                            let text = format!("policy optimum has no setting '{part}'; its settings are w=8 and table=FILE");
                            return Err(PolicyError::new(text));
                        }
                    }
                }
                Ok(Self::Optimum { weight, table })
            }
            _ => text.parse().map(Self::Node).map_err(|error: PolicyError| {
                let unknown = error.to_string().starts_with("no policy is named");
                PolicyError::new(if unknown { format!("{error}, and here server-filling, optimum") } else { error.to_string() })
            }),
        }
    }
}

impl fmt::Display for SimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(spec) => spec.fmt(f),
            Self::ServerFilling => f.write_str("server-filling"),
            Self::Optimum { weight, table: None } => write!(f, "optimum:w={weight}"),
            Self::Optimum { table: Some(file), .. } => write!(f, "optimum:table={}", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_printed_as_they_are_parsed() {
        for policy in SimPolicy::compared() {
            assert_eq!(policy.to_string().parse::<SimPolicy>().unwrap().to_string(), policy.to_string());
        }
        for text in ["server-filling", "optimum:w=1", "optimum:table=t.json", "balance:w=3"] {
            assert_eq!(text.parse::<SimPolicy>().unwrap().to_string(), text);
        }
        for (text, says) in [
            ("optimum:w=-1", "w=-1"),
            ("optimum:v=1", "no setting 'v=1'"),
            ("server-filling:l=1", "no settings"),
            ("best", "server-filling, optimum"),
            ("msfq:l=x", "l=x"),
        ] {
            let error = text.parse::<SimPolicy>().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
