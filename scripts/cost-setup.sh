#!/usr/bin/env bash
# Installs valgrind, which counts the instructions of `make cost` and of its test, where that is possible.
# Always succeeds: without valgrind the test is skipped, and says so.
set -euo pipefail

command -v valgrind > /dev/null && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    apt-get update -q || true
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends valgrind && exit 0
fi
echo "cost: there is no valgrind, so the instructions per request are not counted. Run: sudo apt-get install valgrind" >&2
