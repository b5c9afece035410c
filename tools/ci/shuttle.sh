#!/usr/bin/env bash
# Shuttle: the whole runtime at eight lanes in random schedules.
#
#   tools/ci/shuttle.sh [--long] [--seed N]     (--long: a hundred times as many schedules)
#
# Prints schedules and seed; fails when one fails, printing how to play it again, and when it covered nothing.
source "$(dirname "$0")/lib.sh"
export PHALANX_SHUTTLE_SCHEDULES="${PHALANX_SHUTTLE_SCHEDULES:-2000}" PHALANX_SHUTTLE_SEED="${PHALANX_SHUTTLE_SEED:-24301}"
while [ $# -gt 0 ]; do
    case "$1" in
        --long) PHALANX_SHUTTLE_SCHEDULES=200000; shift ;;
        --seed) PHALANX_SHUTTLE_SEED="${2:?--seed needs a number}"; shift 2 ;;
        *) echo "shuttle.sh: unknown argument '$1'; usage: shuttle.sh [--long] [--seed N]" >&2; exit 2 ;;
    esac
done
export RUSTFLAGS="--cfg shuttle" PHALANX_EXPECT_CFG="shuttle"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/shuttle"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
began=$SECONDS
cargo test --profile model --package phalanx-loom-tests --test guard
if ! cargo test --profile model --package phalanx-loom-tests --test shuttle -- --nocapture 2>&1 | tee "$log"; then
    echo "shuttle.sh: seed $PHALANX_SHUTTLE_SEED; with a schedule that is printed above, between its quotes and without the line breaks, play it again by" >&2
    echo "  RUSTFLAGS='--cfg shuttle' PHALANX_SHUTTLE_REPLAY=SCHEDULE cargo test --profile model -p phalanx-loom-tests --test shuttle -- --exact TEST" >&2
    exit 1
fi
awk -v seconds=$((SECONDS - began)) '/SHUTTLE / { for (i = 1; i < NF; i++) if ($i == "schedules") sum += $(i + 1); models++ }
    END { if (sum == 0) { print "shuttle.sh: no schedule ran"; exit 1 }
          printf "shuttle.sh: %d models hold in %d schedules; %d s with building\n", models, sum, seconds }' "$log"
