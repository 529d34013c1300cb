#!/usr/bin/env bash
# Creates a virtual environment and installs Rookery with its development dependencies into it.
# Usage: scripts/setup.sh [DIRECTORY], with PYTHON naming the interpreter.
set -euo pipefail

venv="${1:-.venv}"
python="${PYTHON:-python3}"

fail() {
    echo "setup: $*" >&2
    exit 1
}

command -v "$python" > /dev/null || fail "there is no $python. Install Python 3.11 or newer, or set PYTHON=/path/to/it."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || fail "Rookery needs Python 3.11 or newer, and $python is $("$python" -V). Set PYTHON to a newer one."

# Debian ships venv and ensurepip in a package of their own.
if ! "$python" -c 'import venv, ensurepip' 2> /dev/null; then
    command -v apt-get > /dev/null || fail "$python lacks the venv and ensurepip modules. Install them, then try again."
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    [ "$(id -u)" -eq 0 ] || fail "$python cannot create virtual environments yet. Run: sudo apt-get install $package"
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$package"
fi

# Spark runs on Java. Everything else works without it.
if [ -z "${JAVA_HOME:-}" ] && ! command -v java > /dev/null; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
        apt-get update -q
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends default-jre-headless
    else
        echo "setup: there is no Java: Spark's tests and the demo need Java 17 or newer" >&2
    fi
fi

[ -x "$venv/bin/pip" ] || "$python" -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --editable '.[dev]'
