#!/usr/bin/env bash
# Loom: every schedule, within bounds, of each shared-memory protocol.
#
#   tools/ci/loom.sh [--long] [FILTER]     (--long: one more preemption in every bounded model: minutes to hours)
#
# Prints the models and how many schedules each had; fails when one fails, and when it covered nothing.
source "$(dirname "$0")/lib.sh"
filter=""
for argument in "$@"; do
    case "$argument" in
        --long) export PHALANX_LOOM_MORE=1 ;;
        -*) echo "loom.sh: unknown argument '$argument'; usage: loom.sh [--long] [FILTER]" >&2; exit 2 ;;
        *) filter="$argument" ;;
    esac
done
# With the mutants built in, and none chosen: one build serves this and mutants.sh.
export RUSTFLAGS="--cfg loom --cfg mutants" PHALANX_EXPECT_CFG="loom mutants"
unset PHALANX_MUTANT
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
began=$SECONDS
cargo test --profile model --package phalanx-loom-tests --test guard
cargo test --profile model --package phalanx-loom-tests --test loom -- --nocapture $filter 2>&1 | tee "$log"
awk -v seconds=$((SECONDS - began)) '/^MODEL|MODEL loom/ { for (i = 1; i < NF; i++) if ($i == "iterations") sum += $(i + 1); models++ }
    END { if (models == 0) { print "loom.sh: no model ran"; exit 1 }
          printf "loom.sh: %d models hold in %d schedules; %d s with building\n", models, sum, seconds }' "$log"
