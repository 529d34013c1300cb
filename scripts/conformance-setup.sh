#!/usr/bin/env bash
# Fetches what the conformance suite needs besides Python: kcat, Prometheus, a Java runtime, Apache Kafka's own tools,
# Spark's own connector, and PostgreSQL's JDBC driver.
# Usage: scripts/conformance-setup.sh [DIRECTORY for the jars; Spark's go to DIRECTORY-spark]; with KCAT=no if kcat and
# Prometheus are not needed. With SPARK=4.0, or another version that spark.xml names, the jars for that Spark instead of
# the newest, into DIRECTORY-spark-4.0.
set -euo pipefail

jars="${1:-.cache/java}"
poms="tests/conformance/java"
missing=()

[ "${KCAT:-yes}" = no ] || command -v kcat > /dev/null || missing+=(kcat)
[ "${KCAT:-yes}" = no ] || command -v prometheus > /dev/null || missing+=(prometheus)
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

# fetch POM DIRECTORY [further arguments of Maven...]
fetch() {
    # The stamp is newer than the pom only if the last download was complete.
    if [ ! "$2/.complete" -nt "$1" ]; then
        rm -rf "$2"
        mkdir -p "$2"
        mvn --quiet --batch-mode --file "$1" dependency:copy-dependencies -DoutputDirectory="$(realpath "$2")" "${@:3}"
        touch "$2/.complete"
    fi
}

fetch "$poms/pom.xml" "$jars"
if [ -n "${SPARK:-}" ]; then
    fetch "$poms/spark.xml" "$jars-spark-$SPARK" -P "spark-$SPARK"
else
    fetch "$poms/spark.xml" "$jars-spark"
fi
