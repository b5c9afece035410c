//! The table of mutants in `src/docs/testing.md` names every one that is in the code, and no ordering is without one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    let mut found = Vec::new();
    for folder in ["word", "runtime"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("tests.rs") || path.ends_with("explore.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // A unit test's own atomics are not the runtime's.
            let code = text.split("#[cfg(all(test").next().unwrap().split("#[cfg(test)]").next().unwrap().to_owned();
            found.push((path, code));
        }
    }
    found
}

/// What stands between the quotes after each `call("`, and what follows up to the closing bracket.
fn calls<'a>(code: &'a str, call: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    code.match_indices(call).filter_map(move |(at, _)| {
        let rest = code[at + call.len()..].trim_start().strip_prefix('"')?;
        let (name, rest) = rest.split_once('"')?;
        Some((name, rest.split([')', '|']).next().unwrap()))
    })
}

fn parts(site: &str, orderings: &str, found: &mut BTreeSet<String>) {
    for (ordering, part) in [
        ("Acquire", "no-acquire"),
        ("Release", "no-release"),
        ("AcqRel", "no-acquire"),
        ("AcqRel", "no-release"),
        ("SeqCst", "no-seqcst"),
    ] {
        if orderings.contains(&format!("Ordering::{ordering}")) {
            found.insert(format!("{site}:{part}"));
        }
    }
}

#[test]
fn the_table_names_every_mutant() {
    let mut in_code = BTreeSet::new();
    for (_, code) in sources() {
        for (site, orderings) in calls(&code, "order(").chain(calls(&code, ".change(")) {
            parts(site, orderings, &mut in_code);
        }
        in_code.extend(calls(&code, "mutant(").map(|(name, _)| name.to_owned()));
    }
    let page = include_str!("../../src/docs/testing.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | `"));
    let in_table: BTreeSet<_> = rows.filter(|(name, _)| name.contains(':')).map(|(name, _)| name.to_owned()).collect();
    assert!(in_code.len() > 50, "the code's mutants were not found: {in_code:?}");
    let missing: Vec<_> = in_code.symmetric_difference(&in_table).collect();
    assert!(missing.is_empty(), "in the code or in the table, but not in both: {missing:#?}");
}

#[test]
fn no_ordering_is_without_a_mutant() {
    for (path, code) in sources() {
        for (number, line) in code.lines().enumerate() {
            let comment = line.trim_start().starts_with("//");
            let strong =
                ["Acquire", "Release", "AcqRel", "SeqCst"].iter().any(|name| line.contains(&format!("Ordering::{name}")));
            let named = line.contains("order(\"") || line.contains(".change(\"") || line.contains(".change(");
            assert!(comment || !strong || named, "{}:{}: an ordering that no mutant weakens", path.display(), number + 1);
        }
    }
}
