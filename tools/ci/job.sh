#!/usr/bin/env bash
# The main job, as a newcomer runs it, but shorter: both classes must complete, and the independent audit of the event log must pass.
#
#   tools/ci/job.sh
source "$(dirname "$0")/lib.sh"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
timed "the main job, 3 s" cargo run --release -- run --duration 3s --json "$out/result.json" --events "$out/events.jsonl" --chrome-trace "$out/trace.json"
timed "the audit" cargo run --quiet --release --package phalanx-audit -- "$out/events.jsonl"
