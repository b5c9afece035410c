//! Tables for people.

use std::fmt::Write as _;

use phalanx::Class;
use phalanx::observe::Terminal;
use phalanx_sim::record::{Figures, MsFigures, RunResult};

/// The result of a run for people.
pub(crate) fn table(result: &RunResult, device_note: &str, command: &str) -> String {
    let mut out = rows(result);
    let mut line = |name: &str, text: String| out.push_str(&format!("{name:<12}{text}\n"));
    line(
        "span",
        format!(
            "{}; utilization {}; drain idle {}; goodput {:.2}/s",
            time(result.span_s * 1e9),
            percent(result.utilization),
            percent(result.drain_idle_fraction),
            result.goodput_per_s
        ),
    );
    let stage = |name: &str| result.overhead_ns.as_ref().and_then(|overhead| overhead.get(name)).copied();
    let spread = |figures: Figures| {
        format!("p50 {}, p99 {}, max {}", time(figures.p50 as f64), time(figures.p99 as f64), time(figures.max as f64))
    };
    if let Some(skew) = stage("gang_skew") {
        line("gang skew", format!("{} (between the starts of its members; {} gangs)", spread(skew), skew.n));
    }
    if let Some(reserved) = stage("submit_to_reserved") {
        line("free lane", format!("{} (from submit to its reservation)", spread(reserved)));
    }
    if let Some(lateness) = stage("generator_lateness") {
        line("generator", format!("late by {}", spread(lateness)));
    }
    if result.lost_records > 0 {
        line("LOST", format!("{} records: the figures above are incomplete", result.lost_records));
    }
    line("device", format!("{device_note}; {} lanes", result.lanes));
    let load = result.load.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.3}"));
    line("policy", format!("{}; load {load}; speed {}; seed {}", result.policy, result.speed, result.seed));
    line("again", command.to_owned());
    out
}

fn rows(result: &RunResult) -> String {
    let mut columns: Vec<[String; 4]> = Vec::new();
    let mut column = |group: &str, name: &str, cell: &dyn Fn(Class) -> String| {
        columns.push([group.to_owned(), name.to_owned(), cell(Class::Small), cell(Class::Large)]);
    };
    let of = |class| result.classes.of(class);
    column("", "class", &|class| class.to_string());
    column("", "submitted", &|class| of(class).submitted.to_string());
    for terminal in Terminal::ALL {
        let name = match terminal {
            Terminal::Completed => "completed",
            Terminal::Failed => "failed",
            Terminal::Expired => "expired",
            Terminal::Cancelled => "cancelled",
            Terminal::ShutDown => "shut down",
            Terminal::Rejected => "rejected",
        };
        let any = Class::ALL.into_iter().any(|class| of(class).count(terminal) > 0);
        if any || terminal == Terminal::Completed {
            column("", name, &|class| of(class).count(terminal).to_string());
        }
    }
    if Class::ALL.into_iter().any(|class| of(class).unfinished > 0) {
        column("", "unfinished", &|class| of(class).unfinished.to_string());
    }
    column("", "SLO met", &|class| of(class).slo_met.map_or_else(|| "-".to_owned(), percent));
    type Pick = fn(&MsFigures) -> Option<f64>;
    let figures: [(&str, Pick); 4] = [("mean", |f| f.mean), ("p50", |f| f.p50), ("p99", |f| f.p99), ("max", |f| f.max)];
    for (group, response) in [("wait", false), ("response", true)] {
        for (n, (name, pick)) in figures.into_iter().enumerate() {
            column(if n == 0 { group } else { "" }, name, &|class| {
                let ms = if response { &of(class).response_ms } else { &of(class).wait_ms };
                pick(ms).map_or_else(|| "-".to_owned(), |ms| time(ms * 1e6))
            });
        }
    }
    let rows: Vec<Vec<String>> = (0..4).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect();
    aligned(&rows)
}

/// Rows of equally many cells as a table: the first column to the left, the others to the right, nothing at the end of a line.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |n: usize| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (n, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = if n == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A span in the unit that fits, with three significant digits.
pub(crate) fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 999.5e3 => (ns * 1e-3, "us"),
        ns if ns < 999.5e6 => (ns * 1e-6, "ms"),
        ns => (ns * 1e-9, "s"),
    };
    let decimals = match value {
        value if unit == "ns" || value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fit_their_units() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (999.0, "999 ns"),
            (1_000.0, "1.00 us"),
            (12_340.0, "12.3 us"),
            (999_600.0, "1.00 ms"),
            (123_456_789.0, "123 ms"),
            (9_996_000.0, "10.0 ms"),
            (12_345_678_901.0, "12.3 s"),
            (4.2e12, "4200 s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }
}
