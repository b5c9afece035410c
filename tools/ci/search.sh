#!/usr/bin/env bash
# Searches every state of the state word's protocol at a width that is too large for an ordinary test run.
#
#   tools/ci/search.sh [--width 4|8]      (default: 8)
#
# Safety and liveness: the properties are those of src/word/explore.rs. Prints states, edges and seconds; fails when one does not hold, with the steps that lead there, and when it covered
# nothing. Width 4 has every power but close, width 8 the gang with all that can befall it.
set -euo pipefail
cd "$(dirname "$0")/../.."

width=8
while [ $# -gt 0 ]; do
    case "$1" in
        --width) width="${2:-}"; shift 2 || true ;;
        *) echo "search.sh: unknown argument '$1'; usage: search.sh [--width 4|8]" >&2; exit 2 ;;
    esac
done
case "$width" in
    4 | 8) ;;
    *) echo "search.sh: no search of width '$width'; there are 4 and 8" >&2; exit 2 ;;
esac

# The model checkers' cfgs in the environment would compile the search away.
unset RUSTFLAGS
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
cargo test --release --package phalanx --lib -- --ignored --exact --nocapture \
    "word::explore::width_${width}_in_full" 2>&1 | tee "$log"

# A test that was renamed or filtered away is green too: demand what it covered.
states="$(sed -n "s/.*searched width ${width}: \([0-9]*\) states.*/\1/p" "$log" | awk '{ sum += $1 } END { print sum + 0 }')"
if [ "$states" -lt 1000000 ]; then
    echo "search.sh: width ${width} covered ${states} states, expected millions: did the test's name or its powers change?" >&2
    exit 1
fi
echo "search.sh: width ${width} holds in all of ${states} states"
