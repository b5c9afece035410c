#!/usr/bin/env bash
# House rules that no compiler checks. Each line printed is a place and its rule; none means tidy.
#
#   tools/ci/tidy.sh
source "$(dirname "$0")/lib.sh"
found="$(mktemp)"
trap 'rm -f "$found"' EXIT
rule() { # rule TEXT < places. It runs in a pipeline's subshell, so that a file keeps the count.
    local places
    places="$(cat)"
    if [ -n "$places" ]; then
        printf '%s\n' "$places" | sed "s|\$|   <- $1|"
        echo "$1" >>"$found"
    fi
}
sources() { git ls-files --cached --others --exclude-standard -- "$@"; }

# Every use of an ordering has, in the ten lines above it, a comment that names its partner or says why none is needed. Tests are not asked.
ordering() {
    awk '
        FNR == 1 { last = -100; tests = 0 }
        /^#\[cfg\(.*test/ || /^mod tests/ { tests = 1 }
        /ORDERING:/ { last = FNR }
        tests { next }
        /^ *\/\// { next }
        /Ordering::(Relaxed|Acquire|Release|AcqRel|SeqCst)/ && FNR - last > 10 { print FILENAME ":" FNR }
    ' "$@"
}
# shellcheck disable=SC2046
ordering $(sources 'src/word/*.rs' 'src/runtime/*.rs' | grep -v tests.rs | grep -v explore.rs) | rule "an Ordering without an ORDERING: comment"

{ grep -nE '\b(std|core)::sync::atomic|std::thread::|loom::|shuttle::' $(sources 'src/word/*.rs' 'src/runtime/*.rs' | grep -v tests.rs) || true; } |
    awk -F: '{ cmd = "awk \"FNR <= " $2 " && /^#\\[cfg\\(.*test/ { found = 1 } END { print found + 0 }\" " $1; cmd | getline intest; close(cmd); if (!intest) print $1 ":" $2 }' |
    rule "atomics and threads come from crate::sync, so that the models see them"

grep -nE 'std::(time|thread|sync)|\bunsafe\b|Instant' $(sources 'src/scheduler/*.rs' 'src/scheduler/policy/*.rs') |
    { grep -vE ':[0-9]+: *//|forbid\(unsafe_code\)' || true; } | rule "the scheduler is pure: no clock, thread, atomic or unsafe code"

{ git grep -nIE '\b(todo!|unimplemented!|FIXME|XXX)' -- '*.rs' '*.cu' || true; } | cut -d: -f1,2 | rule "unfinished"

# A file that a person has to scroll through for minutes is data, not code.
git ls-files -z | xargs -0 -r du -k 2>/dev/null | awk '$1 > 1024 { print $2 }' | rule "over 1 MiB"

if [ -s "$found" ]; then
    echo "tidy.sh: see above" >&2
    exit 1
fi
echo "tidy.sh: tidy"
