#!/usr/bin/env bash
# Fetches what the conformance suite needs besides Python: kcat, a Java runtime, and Apache Kafka's own tools.
# Usage: scripts/conformance-setup.sh [DIRECTORY for the jars]; with KCAT=no if kcat is not needed.
set -euo pipefail

jars="${1:-.cache/java}"
pom="tests/conformance/java/pom.xml"
missing=()

[ "${KCAT:-yes}" = no ] || command -v kcat > /dev/null || missing+=(kcat)
command -v java > /dev/null || missing+=(default-jre-headless)
command -v mvn > /dev/null || missing+=(maven)

if [ "${#missing[@]}" -gt 0 ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
        echo "setup: these are missing: ${missing[*]}. Run: sudo apt-get install ${missing[*]}" >&2
        exit 1
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

# The stamp is newer than the pom only if the last download was complete.
if [ ! "$jars/.complete" -nt "$pom" ]; then
    rm -rf "$jars"
    mkdir -p "$jars"
    mvn --quiet --batch-mode --file "$pom" dependency:copy-dependencies -DoutputDirectory="$(realpath "$jars")"
    touch "$jars/.complete"
fi
