#!/usr/bin/env bash
# The numbers that the README promises of the scheduling, measured: closed forms, the exact optimum, predictions, overload, traces. Each prints
# PASS or its shortfall.
#
#   tools/ci/checks.sh              the quick size of those that take seconds, and need neither the published traces nor a quiet machine
#   tools/ci/checks.sh --long       all of them in full, also the one that falls short (the README says by how much): an hour
source "$(dirname "$0")/lib.sh"
check=(cargo run --quiet --release --package phalanx-sim --example check --)
if [ "${1:-}" = --long ]; then
    timed "every number, in full" "${check[@]}"
else
    timed "the numbers, quick size" "${check[@]}" closed-forms solver-preemptive optimum overload --quick
fi
