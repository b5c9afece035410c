#!/usr/bin/env bash
# Everything that verifies concurrency, within the quick bounds: under ten minutes on two cores. Each line is a script of its own; most take
# --long.
#
#   tools/ci/verify.sh
source "$(dirname "$0")/lib.sh"
timed "loom: every schedule of each protocol" tools/ci/loom.sh
timed "mutants: the models see each ordering and guard" tools/ci/mutants.sh
timed "shuttle: the whole runtime in random schedules" tools/ci/shuttle.sh
timed "fuzz: the scheduler under any events" tools/ci/fuzz.sh
timed "stress: real threads, faults, an independent audit" tools/ci/stress.sh
timed "ThreadSanitizer" tools/ci/tsan.sh
