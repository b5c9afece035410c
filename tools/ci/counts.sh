#!/usr/bin/env bash
# Instructions that each step of a request takes, counted by callgrind and compared with tools/bench/counts.txt. Times on a machine that
# others share drift; counts do not. A step that takes more than the tolerance above its baseline is red; one that takes as much less is told, so
# that the baseline is renewed.
#
#   tools/ci/counts.sh            compares
#   tools/ci/counts.sh --write    makes what is counted now the baseline; say in the commit why it moved
source "$(dirname "$0")/lib.sh"
write=0
case "${1:-}" in
    "") ;;
    --write) write=1 ;;
    *) echo "counts.sh: unknown argument '$1'; usage: counts.sh [--write]" >&2; exit 2 ;;
esac
baseline=tools/bench/counts.txt
if [ "$(uname -m)" != x86_64 ]; then
    echo "SKIPPED: the baseline is of x86-64, this is $(uname -m)" >&2
    exit 0
fi
need valgrind valgrind || exit 0

say "instruction counts"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
# The baseline is of plain release code.
RUSTFLAGS="" cargo build --release --quiet --package phalanx-bench --example counts
program="$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/examples/counts"
count() { # count NAME PART N: the counts of each thread into NAME-01, NAME-02, …
    valgrind --tool=callgrind --separate-threads=yes "--callgrind-out-file=$out/$1" "$program" "$2" "$3" >"$out/$1.log" 2>&1 ||
        { cat "$out/$1.log" >&2; echo "counts.sh: $2 failed under callgrind" >&2; exit 1; }
}
few=500 many=1500
count few smalls $few
count many smalls $many
count larges larges 300
count pure pure 5000
count simulator simulator 50000

# What callers paid for each step, all that it calls included, a call. In the file a function's name stands where its number first does.
steps() { # steps FILE
    awk '
        match($0, /^c?fn=\([0-9]+\)/) {
            called = substr($0, 1, 1) == "c"
            id = $1; sub(/^c?fn=/, "", id)
            if (NF > 1) { name = $0; sub(/^[^ ]* /, "", name); names[id] = name }
            if (called) callee = id
        }
        /^calls=/ { split($1, of, "="); calls[callee] += of[2]; getline; cost[callee] += $NF }
        END { for (id in cost) if (names[id] ~ /^counts::step_[a-z_]+$/) { name = names[id]; sub(/.*step_/, "", name); printf "%s %.1f\n", name, cost[id] / calls[id] } }
    ' "$1"
}
workers() { cat "$out/$1"-0[2-9] | awk '/^summary:/ { sum += $2 } END { print sum }'; }
{
    steps "$out/many-01"
    # What the lanes' threads do for one more request; what they do at their start and end cancels out.
    echo "worker $(workers few) $(workers many)" | awk -v n=$((many - few)) '{ printf "%s %.1f\n", $1, ($3 - $2) / n }'
    steps "$out/larges-01"
    steps "$out/pure-01"
    steps "$out/simulator-01" | awk '{ printf "simulated_request %.1f\n", $2 / 50000 }'
} | sort >"$out/counts"
steps=17
if [ "$(wc -l <"$out/counts")" -ne $steps ]; then
    cat "$out/counts"
    echo "counts.sh: these are not the $steps steps that there are: was one inlined?" >&2
    exit 1
fi

rustc="$(rustc --version)"
if [ $write = 1 ]; then
    {
        echo "# Instructions a call, by tools/ci/counts.sh --write; tools/bench/examples/counts.rs says what each step is."
        echo "# $rustc"
        column -t "$out/counts" 2>/dev/null || cat "$out/counts"
    } >"$baseline"
    cat "$baseline"
    exit 0
fi

# Another compiler makes other code of the same source: then only what nobody would overlook is red.
tolerance=3
if ! grep -qxF "# $rustc" "$baseline"; then
    tolerance=20
    echo "the baseline is of another compiler ($(sed -n 's/^# \(rustc .*\)/\1/p' "$baseline"), this is $rustc): the tolerance is $tolerance %; renew it by counts.sh --write"
fi
# Two instructions more or less are allowed to the shortest steps.
if grep -v '^#' "$baseline" | join -a 1 -a 2 -e none -o 0,1.2,2.2 - "$out/counts" | awk -v tolerance=$tolerance '
    BEGIN { printf "%-22s %10s %10s\n", "instructions", "baseline", "now" }
    {
        off = $2 == "none" || $3 == "none" ? 1e9 : $3 - $2
        limit = tolerance / 100 * $2; if (limit < 2) limit = 2
        verdict = off > limit ? "RED: more" : off < -limit ? "fewer: renew the baseline" : ""
        if ($2 == "none" || $3 == "none") verdict = "RED: in one of the two only"
        printf "%-22s %10s %10s  %+6.1f %%  %s\n", $1, $2, $3, ($2 + 0 ? 100 * off / $2 : 0), verdict
        if (verdict ~ /RED/) red = 1
    }
    END { exit red }
'; then
    echo "none is more than $tolerance % above the baseline"
else
    echo "counts.sh: if that is meant, write the new baseline with tools/ci/counts.sh --write, and say why in the commit" >&2
    exit 1
fi
