#!/usr/bin/env bash
# All tests: the one command of the README.
#
#   tools/ci/test.sh [--quick]     (--quick: cargo test alone)
source "$(dirname "$0")/lib.sh"
quick=0
case "${1:-}" in
    "") ;;
    --quick) quick=1 ;;
    *) echo "test.sh: unknown argument '$1'; usage: test.sh [--quick]" >&2; exit 2 ;;
esac
# The linker, and the C compiler that builds mimalloc.
need gcc cc || { echo "test.sh: nothing can be built without a C compiler" >&2; exit 1; }

timed "tests" cargo test --workspace
[ "$quick" = 0 ] || exit 0
# The stress tests of the runtime scale themselves up in a release build: 100,000 gangs, a million submits.
timed "the runtime at full length" cargo test --release --package phalanx --test runtime
timed "the state word, width 4" tools/ci/search.sh --width 4
