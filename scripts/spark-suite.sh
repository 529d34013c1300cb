#!/usr/bin/env bash
# Runs the Spark suite with another version of Spark: in a virtual environment of its own, with PySpark from PyPI and
# with Spark's own connector of that version.
# Usage: scripts/spark-suite.sh VERSION [pytest arguments...], with VERSION such as 4.0. PYTHON names the interpreter,
# WORKERS the number of test processes, SPARK_CACHE the directory for environment and jars.
set -euo pipefail

version="$1"
shift
cache="${SPARK_CACHE:-.cache}"
venv="$cache/spark-$version"

# For another PYTHON the environment is made again.
stamp="$venv/.installed-$("${PYTHON:-python3}" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')"
if [ ! "$stamp" -nt pyproject.toml ]; then
    scripts/setup.sh "$venv" "pyspark==$version.*"
    touch "$stamp"
fi
SPARK="$version" KCAT=no scripts/conformance-setup.sh "$cache/java"
ROOKERY_SPARK_JARS="$(realpath "$cache/java-spark-$version")"
export ROOKERY_SPARK_JARS

# Pytest's exit code if arguments select no test of a kind.
none_selected=5
"$venv/bin/python" -c 'import pyspark; print("Spark", pyspark.__version__)'
"$venv/bin/pytest" -q -n "${WORKERS:-4}" --dist worksteal -m "not spark and not soak" tests/pipelines tests/spark "$@" \
    || [ $? -eq $none_selected ]
# The benchmark compares with the newest Spark alone.
"$venv/bin/pytest" -q -m "spark and not soak" --ignore tests/conformance/spark/test_bench.py \
    tests/conformance tests/pipelines tests/spark "$@" || [ $? -eq $none_selected ]
