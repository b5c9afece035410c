# What the scripts of this folder share. Source it; it goes to the root of the project.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Model-checker cfgs in the environment would compile tests away, and the run would be green with nothing tested.
case "${RUSTFLAGS:-}" in
    *--cfg*) echo "RUSTFLAGS carries a --cfg: unset it, the scripts set what they need" >&2; exit 2 ;;
esac

# say TEXT: a heading that stands out in a long log.
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

# need PACKAGE COMMAND: makes sure of a command, installing Debian's package if that is allowed; false, with a loud line, if it is not to be had.
need() {
    command -v "$2" >/dev/null 2>&1 && return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing Debian's package $1"
        { apt-get install -y -qq "$1" || { apt-get update -qq && apt-get install -y -qq "$1"; }; } >/dev/null 2>&1 || true
        command -v "$2" >/dev/null 2>&1 && return 0
    fi
    echo "SKIPPED: $2 is missing; install Debian's package $1 (or your system's) to run this part" >&2
    return 1
}

# timed NAME COMMAND...: runs it, and says how long it took.
timed() {
    local name="$1" began=$SECONDS
    shift
    say "$name"
    "$@"
    echo "-- $name: $((SECONDS - began)) s"
}
