#!/usr/bin/env bash
# ThreadSanitizer over a short stress run: unordered accesses in what really runs, with crossbeam's ring and the waker cell.
#
#   tools/ci/tsan.sh [--long]     (--long: ten minutes)
#
# Needs no nightly toolchain: RUSTC_BOOTSTRAP lets the stable one take -Z. The standard library is not instrumented, hence the
# suppressions in tools/ci/tsan-suppressions, each with its reason.
source "$(dirname "$0")/lib.sh"
seconds=14 transitions=1000000
case "${1:-}" in
    "") ;;
    --long) seconds=600 transitions=50000000 ;;
    *) echo "tsan.sh: unknown argument '$1'; usage: tsan.sh [--long]" >&2; exit 2 ;;
esac
case "$(uname -sm)" in
    "Linux x86_64" | "Linux aarch64") target="$(uname -m)-unknown-linux-gnu" ;;
    *) echo "SKIPPED: ThreadSanitizer is not to be had on $(uname -sm)" >&2; exit 0 ;;
esac
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
export TSAN_OPTIONS="suppressions=$PWD/tools/ci/tsan-suppressions halt_on_error=1 exitcode=66"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
began=$SECONDS
cargo build --profile model --package phalanx-stress --target "$target"
"$CARGO_TARGET_DIR/$target/model/phalanx-stress" --seconds "$seconds" --transitions "$transitions" 2>&1 | tee "$log"
rounds="$(grep -c '^ROUND .* ok$' "$log")"
[ "$rounds" -gt 0 ] || { echo "tsan.sh: nothing ran" >&2; exit 1; }
echo "tsan.sh: $rounds rounds without a report; $((SECONDS - began)) s with building"
echo "tsan.sh: SKIPPED Miri: this toolchain does not have it" >&2
