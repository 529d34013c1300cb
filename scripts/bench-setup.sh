#!/usr/bin/env bash
# Fetches what the benchmark compares with: a Java runtime and the jars of Apache Kafka.
# Usage: scripts/bench-setup.sh [DIRECTORY for the jars]; ROOKERY_BENCH_JARS names a directory that has them already.
set -euo pipefail

if [ -n "${ROOKERY_BENCH_JARS:-}" ]; then
    command -v java > /dev/null || { echo "bench: there is no java" >&2; exit 1; }
    exit 0
fi

# The server is in the same jars as the tools that the conformance suite runs.
export KCAT=no
exec "$(dirname "$0")/conformance-setup.sh" "${1:-.cache/java}"
