#!/usr/bin/env bash
# The benches build and run: each criterion bench once, and a short `phalanx bench` whose document must have every figure. Says nothing about
# speed: on a machine that others share, times are not for a gate. `cargo bench` and `phalanx bench --check` are, on a quiet one.
#
#   tools/ci/bench.sh
source "$(dirname "$0")/lib.sh"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
timed "benches build" cargo bench --no-run --quiet
ran="$(cargo bench --quiet -- --test 2>&1 | grep -c '^Testing ' || true)"
echo "criterion: $ran benches ran once"
[ "$ran" -ge 30 ] || { echo "fewer than there are: were they compiled out?" >&2; exit 1; }
timed "a short phalanx bench" cargo run --quiet --release -- bench --quiet --rounds 2 --samples 400 --json "$out/bench.json"
for figure in clock pingpong_rtt turn_rtt dispatcher_rtt gang_start gang_skew decision scheduler_event open_loop \
    tokio_semaphore tokio_acquire_many mutex_condvar greedy_cas crossbeam_spin crossbeam_block rayon_broadcast; do
    grep -q "\"$figure\": {" "$out/bench.json" || { echo "no $figure in the document" >&2; exit 1; }
done
echo "every figure is there"
