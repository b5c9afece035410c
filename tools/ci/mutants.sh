#!/usr/bin/env bash
# Mutants: each ordering weakened and each guard dropped, one at a time, must make the loom model fail that src/docs/testing.md names.
#
#   tools/ci/mutants.sh [MUTANT...]        (default: all of the table)
#
# Fails when one survives, when a model fails without a mutant, and when it covered nothing.
source "$(dirname "$0")/lib.sh"
export RUSTFLAGS="--cfg loom --cfg mutants" PHALANX_EXPECT_CFG="loom mutants"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
began=$SECONDS
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
cargo test --profile model --package phalanx-loom-tests --test guard --test mutant_table
binary="$(cargo test --profile model --package phalanx-loom-tests --test loom --no-run 2>&1 | sed -n 's/.*(\(.*\))$/\1/p' | tail -1)"
[ -x "$binary" ] || { echo "mutants.sh: the models were not built" >&2; exit 1; }

# one MODEL: runs it; a model that does not end is neither passed nor failed.
one() { timeout 300 "$binary" --exact "loom::$1" >"$log" 2>&1; }

table="$(sed -n 's/^| `\([a-z_.]*:[a-z-]*\)` | `\([a-z_:]*\)` |$/\1 \2/p' src/docs/testing.md)"
for model in $(printf '%s\n' "$table" | cut -d' ' -f2 | sort -u); do
    one "$model" && grep -q '1 passed' "$log" || { cat "$log"; echo "mutants.sh: $model fails, or is not there, without any mutant" >&2; exit 1; }
done

killed=0
survived=""
while read -r mutant model; do
    [ $# = 0 ] || [[ " $* " == *" $mutant "* ]] || continue
    status=0
    { PHALANX_MUTANT="$mutant" one "$model" || status=$?; } 2>/dev/null
    # 101: a test failed. 134: the model checker gave up within a destructor, having reported what it found.
    if [ "$status" = 101 ] || { [ "$status" = 134 ] && grep -q 'panicked at' "$log"; }; then
        killed=$((killed + 1))
        printf 'killed   %-42s %s\n' "$mutant" "$model"
    else
        survived="$survived $mutant"
        printf 'SURVIVED %-42s %s (status %s)\n' "$mutant" "$model" "$status"
    fi
done <<<"$table"
[ -z "$survived" ] || { echo "mutants.sh: survived:$survived" >&2; exit 1; }
[ "$killed" -gt 0 ] || { echo "mutants.sh: no mutant ran" >&2; exit 1; }
echo "mutants.sh: $killed mutants killed; $((SECONDS - began)) s with building"
