#!/usr/bin/env bash
# Creates a virtual environment and installs Rookery with its development dependencies into it.
# Usage: scripts/setup.sh [DIRECTORY [REQUIREMENTS that pip must meet as well...]], with PYTHON naming the interpreter.
set -euo pipefail

venv="${1:-.venv}"
requirements=("${@:2}")
python="${PYTHON:-python3}"

warn() {
    echo "setup: $*" >&2
}

fail() {
    warn "$@"
    exit 1
}

has_apt() {
    command -v apt-get > /dev/null
}

is_root() {
    [ "$(id -u)" -eq 0 ]
}

apt_install() {
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$1"
}

command -v "$python" > /dev/null || fail "there is no $python. Install Python 3.11 or newer, or set PYTHON=/path/to/it."
"$python" -c '' || fail "$python does not run. Set PYTHON to the path of one that does."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || fail "Rookery needs Python 3.11 or newer, and $python is $("$python" -V). Set PYTHON to a newer one."

# Debian ships venv and ensurepip in a package of their own.
if ! "$python" -c 'import venv, ensurepip' 2> /dev/null; then
    has_apt || fail "$python lacks the venv and ensurepip modules. Install them, then try again."
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    is_root || fail "$python cannot create virtual environments yet. Run: sudo apt-get install $package"
    apt_install "$package"
fi

# Spark runs on Java. Everything else works without it.
if [ -z "${JAVA_HOME:-}" ] && ! command -v java > /dev/null; then
    if is_root && has_apt; then
        apt_install default-jre-headless
    elif has_apt; then
        warn "there is no Java: Spark's tests and the demo need it. Run: sudo apt-get install default-jre-headless"
    else
        warn "there is no Java: Spark's tests and the demo need Java 17 or newer. Install it, or set JAVA_HOME."
    fi
fi

# What was installed for another Python (PYTHON changed, or the system's was upgraded) does not work with this one.
version="$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')"
made_for="unknown"
if [ -f "$venv/pyvenv.cfg" ]; then
    while IFS=' =' read -r name value; do
        [ "$name" != version ] || made_for="$value"
    done < "$venv/pyvenv.cfg"
fi
if [ ! -x "$venv/bin/pip" ] || [ "$made_for" != "$version" ]; then
    "$python" -m venv --clear "$venv"
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check --editable '.[dev]' ${requirements[@]+"${requirements[@]}"}

# Spark starts in half the time with an archive of its classes (docs/spark.md), and without one as ever.
if [ -n "${JAVA_HOME:-}" ] || command -v java > /dev/null; then
    "$venv/bin/python" -m rookery.spark.class_archive || true
fi
