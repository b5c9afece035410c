#!/usr/bin/env bash
# Stress: the node on real threads with every kind of fault, audited; many requests through nodes that live on; and the state word through
# many transitions.
#
#   tools/ci/stress.sh [--long] [FLAG...]     (--long: 30 minutes, a soak of 10^7 and 10^9 transitions; flags are passed on to phalanx-stress)
#
# Prints the seed, rounds and transitions; fails when something is lost, doubled or stuck, and when it covered nothing.
source "$(dirname "$0")/lib.sh"
seconds=30 transitions=100000000 soak=300000
if [ "${1:-}" = --long ]; then seconds=1800 transitions=1000000000 soak=10000000; shift; fi
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
began=$SECONDS
# With the assertions of a debug build: they are half of what is checked.
cargo build --profile model --package phalanx-stress
"${CARGO_TARGET_DIR:-target}/model/phalanx-stress" --seconds "$seconds" --transitions "$transitions" --soak "$soak" "$@" 2>&1 | tee "$log"
awk -v seconds=$((SECONDS - began)) '/^WORD/ { made = $3 } /^ROUND .* ok$/ { rounds++; for (i = 1; i < NF; i++) if ($i == "requests") requests += $(i + 1) }
    END { if (made + requests == 0) { print "stress.sh: nothing was stressed"; exit 1 }
          printf "stress.sh: %d transitions; %d rounds, %d requests, audited; %d s with building\n", made, rounds, requests, seconds }' "$log"
