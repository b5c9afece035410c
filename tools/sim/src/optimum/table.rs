//! The optimal decision in every state, small enough to look up at every event and to keep in a file.

use serde::{Deserialize, Serialize};

use super::model::{Model, ModelError};
use super::rule::{Choice, Rule, View};
use super::solve::Truncation;

/// The optimal decisions of a [`Model`], two bits a state.
///
/// Beyond its edge the table goes on as the solution itself does, whose switching curve grows as the square root of the larges that
/// wait: with nl larges beyond the last row m, row m is asked with the small queue times sqrt(m / nl); a small queue beyond the last
/// column asks the last one. The rows next to the model's own edge feel its price, and are not used: the table ends at seven eighths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct Table {
    model: Model,
    smalls: usize,
    larges: usize,
    bits: Vec<u8>,
}

/// Why a file is not a table.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The model in it is not one.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A row is missing, too short, too long, or has a letter that is no choice.
    #[error("row {row}: expected runs of s, l and h that add up to {wanted} states")]
    Row {
        /// Index of the row, from 0.
        row: usize,
        /// States in each row.
        wanted: usize,
    },
    /// There are not as many rows as the model has.
    #[error("{found} rows instead of {wanted}")]
    Rows {
        /// Rows found.
        found: usize,
        /// Rows needed.
        wanted: usize,
    },
}

impl Table {
    /// Asks `choice(i, j, r)` for every state that the truncation has, short of its edge.
    pub(crate) fn build(model: Model, truncation: Truncation, choice: impl Fn(usize, usize, usize) -> Choice) -> Self {
        let keep = |n: usize| n - n / 8;
        let (smalls, larges) = (keep(truncation.smalls), keep(truncation.larges));
        let mut table = Self { model, smalls, larges, bits: Vec::new() };
        table.bits = vec![0; table.states().div_ceil(4)];
        for j in 0..=larges {
            for r in 0..model.lanes {
                for i in 0..=smalls {
                    let x = table.index(i, j, r);
                    table.bits[x / 4] |= code(choice(i, j, r)) << (2 * (x % 4));
                }
            }
        }
        table
    }

    fn states(&self) -> usize {
        (self.smalls + 1) * (self.larges + 1) * self.model.lanes
    }

    /// The small queue is the fastest index: a row is one `(larges, running)`.
    fn index(&self, i: usize, j: usize, r: usize) -> usize {
        (j * self.model.lanes + r) * (self.smalls + 1) + i
    }

    /// The model that this table solves.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The longest queues that have an entry of their own, `(smalls, larges)`.
    #[must_use]
    pub fn edge(&self) -> (usize, usize) {
        (self.smalls, self.larges)
    }

    /// Bytes that the decisions take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bits.len()
    }

    /// What to do with these numbers waiting and running. After a start, ask again.
    ///
    /// Never an impossible start: with a large running, or every lane busy, or nothing queued that a choice could start, it is
    /// [`Choice::Hold`].
    #[must_use]
    pub fn decide(&self, queued_small: usize, queued_large: usize, running_small: usize, large_running: bool) -> Choice {
        if large_running || running_small >= self.model.lanes {
            return Choice::Hold;
        }
        let (mut i, mut j) = (queued_small, queued_large);
        if j > self.larges {
            // With no row for a large at all (none arrives in the model) there is no curve to scale.
            if self.larges > 0 {
                let scaled = (i as f64 * (self.larges as f64 / j as f64).sqrt()).round() as usize;
                i = scaled.clamp(usize::from(i > 0), i);
            }
            j = self.larges;
        }
        let x = self.index(i.min(self.smalls), j, running_small);
        let choice = match self.bits[x / 4] >> (2 * (x % 4)) & 3 {
            0 => Choice::Hold,
            1 => Choice::StartSmall,
            _ => Choice::StartLarge,
        };
        // A model without one of the classes has no entries for it; a request of it starts as soon as it can.
        match choice {
            Choice::Hold if running_small == 0 && queued_large > 0 && self.larges == 0 => Choice::StartLarge,
            Choice::Hold if queued_small > 0 && self.smalls == 0 && queued_large == 0 => Choice::StartSmall,
            choice => choice,
        }
    }
}

impl Rule for Table {
    fn decide(&self, view: &View) -> (Choice, u8) {
        (Table::decide(self, view.queued_small, view.queued_large, view.running_small, false), 0)
    }
}

fn code(choice: Choice) -> u8 {
    match choice {
        Choice::Hold => 0,
        Choice::StartSmall => 1,
        Choice::StartLarge => 2,
    }
}

/// A table as it is written: for each row (larges outermost, then running) the choices for 0, 1, 2, ... queued smalls as runs, a
/// letter and a count: `h12s300` holds up to 11 queued smalls and starts one from 12 on.
#[derive(Serialize, Deserialize)]
struct Document {
    schema: Schema,
    model: Model,
    smalls: usize,
    larges: usize,
    rows: Vec<String>,
}

/// The file's kind and version, so that another kind of file is refused by name.
#[derive(Serialize, Deserialize)]
enum Schema {
    #[serde(rename = "phalanx.optimum/1")]
    V1,
}

const LETTERS: [char; 3] = ['h', 's', 'l'];

impl From<Table> for Document {
    fn from(table: Table) -> Self {
        use std::fmt::Write as _;
        let width = table.smalls + 1;
        let code_at = |x: usize| table.bits[x / 4] >> (2 * (x % 4)) & 3;
        let rows = (0..table.states() / width)
            .map(|row| {
                let mut text = String::new();
                let mut from = 0;
                while from < width {
                    let code = code_at(row * width + from);
                    let count = (from..width).take_while(|i| code_at(row * width + i) == code).count();
                    // Writing to a String does not fail.
                    let _ = write!(text, "{}{count}", LETTERS[code as usize]);
                    from += count;
                }
                text
            })
            .collect();
        Self { schema: Schema::V1, model: table.model, smalls: table.smalls, larges: table.larges, rows }
    }
}

impl TryFrom<Document> for Table {
    type Error = TableError;

    fn try_from(document: Document) -> Result<Self, TableError> {
        document.model.check()?;
        let Document { model, smalls, larges, rows, .. } = document;
        let wanted = larges.saturating_add(1).saturating_mul(model.lanes);
        if rows.len() != wanted {
            return Err(TableError::Rows { found: rows.len(), wanted });
        }
        // Rows are counted before anything is allocated from `smalls`, and each run against what is left of its row.
        let width = smalls.saturating_add(1);
        let mut codes: Vec<u8> = Vec::new();
        for (row, text) in rows.iter().enumerate() {
            let bad = || TableError::Row { row, wanted: width };
            let mut left = width;
            let mut rest = text.as_str();
            while let Some(letter) = rest.chars().next() {
                let code = LETTERS.iter().position(|&l| l == letter).ok_or_else(bad)?;
                rest = &rest[1..];
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let count: usize = rest[..digits].parse().map_err(|_| bad())?;
                left = left.checked_sub(count).ok_or_else(bad)?;
                // A row of a real table has at most some thousands of states; refuse to fill memory for one that claims more.
                if count > MAX_ROW {
                    return Err(bad());
                }
                codes.resize(codes.len() + count, code as u8);
                rest = &rest[digits..];
            }
            if left != 0 {
                return Err(bad());
            }
        }
        let mut bits = vec![0u8; codes.len().div_ceil(4)];
        for (x, code) in codes.iter().enumerate() {
            bits[x / 4] |= code << (2 * (x % 4));
        }
        Ok(Self { model, smalls, larges, bits })
    }
}

/// Most states in a row that a file may claim.
const MAX_ROW: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds with a lane busy up to 10 + 2 j queued smalls.
    fn table() -> Table {
        let model = Model::new(4, 0.5, 0.5, 0.05, 0.4, 1.0).unwrap();
        Table::build(model, Truncation { smalls: 64, larges: 16 }, |i, j, r| match (i, j, r) {
            (0, 0, _) => Choice::Hold,
            (i, 0, _) if i > 0 => Choice::StartSmall,
            (i, j, 0) if i <= 10 + 2 * j => Choice::StartLarge,
            (i, j, _) if i <= 10 + 2 * j => Choice::Hold,
            _ => Choice::StartSmall,
        })
    }

    #[test]
    fn it_answers_inside_and_beyond_its_edge() {
        let table = table();
        assert_eq!(table.edge(), (56, 14));
        assert_eq!(table.decide(12, 1, 0, false), Choice::StartLarge);
        assert_eq!(table.decide(13, 1, 0, false), Choice::StartSmall);
        assert_eq!(table.decide(12, 1, 2, false), Choice::Hold);
        assert_eq!(table.decide(500, 1, 2, false), Choice::StartSmall);
        assert_eq!(table.decide(13, 1, 4, false), Choice::Hold, "no lane is free");
        assert_eq!(table.decide(13, 1, 0, true), Choice::Hold, "a large runs");
        // The last row holds up to 38; four times as many larges, twice the small queue.
        assert_eq!(table.decide(76, 56, 1, false), Choice::Hold);
        assert_eq!(table.decide(78, 56, 1, false), Choice::StartSmall);
    }

    #[test]
    fn a_written_table_reads_back_and_a_damaged_one_is_refused() {
        let table = table();
        let text = serde_json::to_string(&table).unwrap();
        assert!(text.len() < 2000, "{} bytes", text.len());
        assert_eq!(serde_json::from_str::<Table>(&text).unwrap(), table);
        for (from, to) in [
            ("optimum/1", "optimum/9"),
            ("h13s44", "h13s45"),
            ("h13s44", "h13x44"),
            ("h13s44", "é13"),
            ("\"lanes\":4", "\"lanes\":5"),
        ] {
            assert!(text.contains(from), "{text}");
            assert!(serde_json::from_str::<Table>(&text.replacen(from, to, 1)).is_err(), "{from} -> {to}");
        }
    }
}
