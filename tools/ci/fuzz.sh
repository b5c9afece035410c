#!/usr/bin/env bash
# Fuzzing: the scheduler under any sequence of events and every policy.
#
#   tools/ci/fuzz.sh [--long]     (--long: a hundred times as many sequences)
#
# A sequence that fails is shrunk, printed, and kept in tests/scheduler_fuzz.regressions: commit it.
source "$(dirname "$0")/lib.sh"
export PROPTEST_CASES=30000
case "${1:-}" in
    "") ;;
    --long) PROPTEST_CASES=10000000 ;;
    *) echo "fuzz.sh: unknown argument '$1'; usage: fuzz.sh [--long]" >&2; exit 2 ;;
esac
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
began=$SECONDS
cargo test --profile model --package phalanx --test scheduler_fuzz 2>&1 | tee "$log"
grep -q '^test result: ok. [1-9]' "$log" || { echo "fuzz.sh: nothing was fuzzed" >&2; exit 1; }
echo "fuzz.sh: $PROPTEST_CASES sequences under every policy; $((SECONDS - began)) s with building"
