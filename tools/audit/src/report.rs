//! What an audit found.

use std::fmt;

/// How many violations are kept with their text; all are counted.
const KEPT: usize = 20;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name in the table.
    pub name: &'static str,
    /// What was looked at.
    pub of: &'static str,
    /// How many of them.
    pub covered: u64,
    /// How many broke the rule.
    pub violations: u64,
}

/// A rule was broken here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which line of the log tells of it, from 1.
    pub line: u64,
    /// Which rule.
    pub check: &'static str,
    /// How.
    pub text: String,
}

/// How far apart the members of a gang began, in nanoseconds, over all completed large requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// The median.
    pub p50: u64,
    /// 99 of 100 are at or below it.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

/// What an audit found. Printed it is a table, and the first violations.
#[derive(Clone, Debug)]
pub struct Report {
    /// Every rule, in the order of the crate's page.
    pub checks: Vec<Check>,
    /// The first violations, in the order of their lines.
    pub violations: Vec<Violation>,
    /// How far apart the members of a gang began, if one completed.
    pub skew: Option<Skew>,
    /// How many requests there are, small and large.
    pub requests: [u64; 2],
    /// How many completed, small and large.
    pub completed: [u64; 2],
}

impl Report {
    pub(crate) fn new() -> Self {
        let checks = RULES.map(|(name, of)| Check { name, of, covered: 0, violations: 0 }).to_vec();
        Self { checks, violations: Vec::new(), skew: None, requests: [0; 2], completed: [0; 2] }
    }

    /// A thing was looked at under a rule.
    pub(crate) fn cover(&mut self, rule: Rule) {
        self.checks[rule as usize].covered += 1;
    }

    /// A thing was looked at under a rule, and must hold.
    pub(crate) fn check(&mut self, rule: Rule, line: u64, holds: bool, text: impl FnOnce() -> String) {
        self.cover(rule);
        if !holds {
            self.violate(rule, line, text());
        }
    }

    pub(crate) fn violate(&mut self, rule: Rule, line: u64, text: String) {
        let check = &mut self.checks[rule as usize];
        check.violations += 1;
        self.violations.push(Violation { line, check: check.name, text });
        // Kept: the first ones by line. A broken log has millions.
        if self.violations.len() > 64 * KEPT {
            self.trim();
        }
    }

    pub(crate) fn trim(&mut self) {
        self.violations.sort_by_key(|violation| violation.line);
        self.violations.truncate(KEPT);
    }

    /// How many violations there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.checks.iter().map(|check| check.violations).sum()
    }

    /// Why the log proves nothing, if so.
    #[must_use]
    pub fn empty(&self) -> Option<&'static str> {
        match (self.requests, self.completed) {
            ([0, 0], _) => Some("it holds no request"),
            (_, [0, 0]) => Some("no request in it completed"),
            _ => None,
        }
    }

    /// Whether every rule was kept, and there was something to keep it.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.count() == 0 && self.empty().is_none()
    }

    /// One rule by its name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }
}

/// The rules, in the order of [`RULES`].
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    Order,
    Complete,
    RunningAlone,
    HoldingAlone,
    DecidedAlone,
    GangAtOnce,
    OneLane,
    StopsAsked,
    AdmittedFirst,
    NeverRan,
    OneEnd,
    Books,
    Agreement,
    ProbedFirst,
}

const RULES: [(&str, &str); 14] = [
    ("order", "records"),
    ("complete", "records"),
    ("running alone", "spans"),
    ("holding alone", "spans"),
    ("decided alone", "starts"),
    ("gang at once", "completed large requests"),
    ("one lane", "completed small requests"),
    ("stops asked", "stops and resumptions"),
    ("admitted first", "starts"),
    ("never ran", "requests that did not run"),
    ("one end", "requests"),
    ("books", "classes and starts"),
    ("agreement", "outcomes of requests that ran"),
    ("probed first", "lanes looked after"),
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<16} {:>10} {:<28} violations", "check", "covered", "")?;
        for check in &self.checks {
            writeln!(f, "{:<16} {:>10} {:<28} {:>10}", check.name, check.covered, check.of, check.violations)?;
        }
        let ([small, large], [small_done, large_done]) = (self.requests, self.completed);
        writeln!(f, "requests: {small} small ({small_done} completed), {large} large ({large_done} completed)")?;
        if let Some(Skew { p50, p99, max }) = self.skew {
            let ms = |ns: u64| ns as f64 * 1e-6;
            writeln!(f, "gang skew: p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms", ms(p50), ms(p99), ms(max))?;
        }
        for violation in &self.violations {
            writeln!(f, "line {}: {}: {}", violation.line, violation.check, violation.text)?;
        }
        let more = self.count().saturating_sub(self.violations.len() as u64);
        if more > 0 {
            writeln!(f, "and {more} more")?;
        }
        match (self.count(), self.empty()) {
            (_, Some(why)) => writeln!(f, "FAILED: the log proves nothing: {why}"),
            (0, None) => writeln!(f, "passed"),
            (n, None) => writeln!(f, "FAILED: {n} violations"),
        }
    }
}
