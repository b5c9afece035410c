#!/usr/bin/env bash
# Formatting, lints and documentation, with warnings denied.
#
#   tools/ci/lint.sh
source "$(dirname "$0")/lib.sh"

timed "formatting" cargo fmt --all -- --check
timed "tidy" tools/ci/tidy.sh
# The library alone first: in a workspace build its features are the union of what the tools ask for.
timed "clippy, the library alone" cargo clippy --package phalanx --all-targets -- -D warnings
# Clippy knows the minimum Rust version from Cargo.toml and refuses what is newer (incompatible_msrv).
timed "clippy, everything" cargo clippy --workspace --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" timed "documentation" cargo doc --workspace --no-deps --document-private-items
