//! What a check found.

use crate::engine::Estimate;
use std::fmt;

/// What a measured number should be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Want {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// This, to within so much.
    Near(f64, f64),
}

/// One number: what it is, what it was, what it should be.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What was measured, with its unit.
    pub what: String,
    /// The mean over the seeds.
    pub measured: Estimate,
    /// The target.
    pub want: Want,
    /// Whether it is met.
    pub passed: bool,
}

/// All rows of a check.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// The numbers held to a target.
    pub rows: Vec<Row>,
    /// What is worth knowing beside them; also what was left out, and why.
    pub notes: Vec<String>,
    quick: bool,
}

impl Report {
    pub(super) fn new(quick: bool) -> Self {
        Self { quick, ..Self::default() }
    }

    /// Holds a number to its target: its mean, or in the quick size its confidence interval.
    pub(super) fn hold(&mut self, what: impl Into<String>, measured: Estimate, want: Want) {
        // One sample has no interval.
        let room = if self.quick && measured.half_width.is_finite() { measured.half_width } else { 0.0 };
        let passed = match want {
            Want::AtMost(most) => measured.mean - room <= most,
            Want::AtLeast(least) => measured.mean + room >= least,
            Want::Near(target, tolerance) => (measured.mean - target).abs() <= tolerance + room,
        };
        self.rows.push(Row { what: what.into(), measured, want, passed });
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Whether every number met its target. A check that could measure nothing has not failed: its notes say so.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.passed)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row { what, measured, want, passed } in &self.rows {
            let verdict = if *passed { "PASS " } else { "SHORT" };
            write!(f, "{verdict} {what}: {:.4}", measured.mean)?;
            if measured.half_width.is_finite() {
                write!(f, " ± {:.4}", measured.half_width)?;
            }
            match want {
                Want::AtMost(most) => writeln!(f, " (at most {most})")?,
                Want::AtLeast(least) => writeln!(f, " (at least {least})")?,
                Want::Near(target, tolerance) => writeln!(f, " ({target} ± {tolerance:.4})")?,
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "      {note}"))
    }
}
