#!/usr/bin/env bash
# Runs the quick tests: those that share one Spark session beside all others, since Spark leaves the processors idle most
# of the time. Their output follows that of the others. Fails if one of the two runs fails.
# Usage: scripts/tests.sh PYTEST MARKERS WORKERS [pytest arguments...], with MARKERS as the expression of the quick tests.
set -euo pipefail

pytest="$1" quick="$2" workers="$3"
shift 3
# Pytest's exit code if arguments select no test of a kind.
none_selected=5

output="$(mktemp)"
"$pytest" -q -m "$quick and spark" -p no:cacheprovider "$@" > "$output" 2>&1 &
spark=$!
# After Ctrl-C the other run must not go on in the background.
trap 'kill "$spark" 2> /dev/null || true; rm -f "$output"' EXIT

failed=0
"$pytest" -q -n "$workers" --dist worksteal -m "$quick and not spark" --ignore tests/test_tidy.py "$@" || {
    [ $? -eq $none_selected ] || failed=1
}
wait "$spark" || { [ $? -eq $none_selected ] || failed=1; }
cat "$output"
exit "$failed"
