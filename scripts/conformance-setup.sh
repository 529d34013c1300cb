#!/usr/bin/env bash
# Fetches what the conformance suite needs besides Python: kcat, Prometheus, a Java runtime, Apache Kafka's own tools,
# Spark's own connector, PostgreSQL's JDBC driver, and a Kerberos KDC with the library for logins.
# Usage: scripts/conformance-setup.sh [DIRECTORY for the jars; Spark's go to DIRECTORY-spark]; with KCAT=no if kcat and
# Prometheus are not needed. With SPARK=4.0, or another version that spark.xml names, the jars for that Spark instead of
# the newest, into DIRECTORY-spark-4.0. With KERBEROS=PYTHON a KDC, and gssapi for that interpreter's environment.
set -euo pipefail

jars="${1:-.cache/java}"
poms="tests/conformance/java"
missing=()

[ "${KCAT:-yes}" = no ] || command -v kcat > /dev/null || missing+=(kcat)
[ "${KCAT:-yes}" = no ] || command -v prometheus > /dev/null || missing+=(prometheus)
command -v java > /dev/null || missing+=(default-jre-headless)
command -v mvn > /dev/null || missing+=(maven)

if [ -n "${KERBEROS:-}" ]; then
    # Only root's PATH leads to the programs of a KDC.
    PATH="$PATH:/usr/sbin" command -v krb5kdc > /dev/null || missing+=(krb5-kdc)
    PATH="$PATH:/usr/sbin" command -v kadmin.local > /dev/null || missing+=(krb5-admin-server)
    command -v kinit > /dev/null || missing+=(krb5-user)
    # The plugin with which kcat logs in.
    compgen -G '/usr/lib/*/sasl2/libgssapiv2.so' > /dev/null || missing+=(libsasl2-modules-gssapi-mit)
    if ! "$KERBEROS" -c 'import gssapi' 2> /dev/null; then
        # It has no wheels: pip compiles it.
        command -v krb5-config > /dev/null || missing+=(libkrb5-dev)
        command -v cc > /dev/null || missing+=(gcc libc6-dev)
        header="$("$KERBEROS" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"
        [ -e "$header" ] || missing+=("$("$KERBEROS" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')")
    fi
fi

if [ "${#missing[@]}" -gt 0 ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
        echo "setup: these are missing: ${missing[*]}. Run: sudo apt-get install ${missing[*]}" >&2
        exit 1
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

if [ -n "${KERBEROS:-}" ] && ! "$KERBEROS" -c 'import gssapi' 2> /dev/null; then
    "$KERBEROS" -m pip install --quiet --disable-pip-version-check --editable '.[kerberos]'
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
