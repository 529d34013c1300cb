#!/usr/bin/env bash
# Builds a wheel with the hot modules compiled (docs/decisions/0008) and installs it beside the development tools.
# Usage: scripts/compiled-setup.sh [DIRECTORY of the virtual environment], with PYTHON naming the interpreter.
set -euo pipefail

venv="${1:-.cache/compiled}"
command -v cc > /dev/null || { echo "compiled: there is no C compiler. Run: sudo apt-get install gcc" >&2; exit 1; }

[ -x "$venv/bin/pip" ] || "${PYTHON:-python3}" -m venv --clear "$venv"
# In a copy: the build leaves its modules beside their sources, where Python would prefer them.
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
cp -r src pyproject.toml README.md LICENSE "$copy"
HATCH_BUILD_HOOKS_ENABLE=1 "$venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps -w "$copy/wheel" "$copy"
wheel="$(echo "$copy"/wheel/*.whl)"
"$venv/bin/pip" install --quiet --disable-pip-version-check "rookery-streaming[dev] @ file://$wheel"
# The version is that of the last build: pip would keep the old one.
"$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel"
