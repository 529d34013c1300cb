# Everything runs in .venv, which the first target that needs it sets up. `make` alone lists the targets.
# With PYTHON=python3.13, each target runs in an environment of that interpreter's own, .cache/venv-3.13.x.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON_IS_CHOSEN := $(filter-out undefined,$(origin PYTHON))
PYTHON ?= python3
PYENV_ROOT ?= $(HOME)/.pyenv
version_of = $(shell $(1) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2> /dev/null)
PYTHON_VERSION := $(call version_of,$(PYTHON))
ifeq ($(PYTHON_VERSION),)
# pyenv puts a python3.13 into PATH that refuses to run until that version is switched on.
override PYTHON := $(or $(lastword $(sort $(wildcard $(PYENV_ROOT)/versions/*/bin/$(PYTHON)))),$(PYTHON))
PYTHON_VERSION := $(call version_of,$(PYTHON))
endif
# How many test processes run side by side: two per core, since many tests wait for clients and disks.
WORKERS ?= 4
# Further pytest arguments, for example: make test PYTEST_ARGS="-k fetch"
PYTEST_ARGS ?=
# What `make test` leaves to other targets, and pytest's exit code if arguments select no test of a kind.
QUICK := not java and not kcat and not kerberos and not long and not soak
NONE_SELECTED := 5
# `make fresh`: which Debian, which users (root, user), which targets; empty is all that scripts/fresh.sh tells of
SUITE ?=
USERS ?=
STEPS ?=
MIRROR ?=
KEEP ?=
# The worlds that `make sim` runs, and further arguments, such as SIM_ARGS="--scenario power --trace"
SEEDS ?= 1..100
SIM_ARGS ?=
# The versions of Spark before the newest, which is in .venv, with which `make sparks` runs the Spark suite.
SPARKS ?= 4.0 4.1 4.2
# How many runs `make soak` makes.
RUNS ?= 200
# Which rows `make bench` runs (all without it), how often, and further arguments: make bench ROWS="produce/*" ROUNDS=5
ROWS ?=
ROUNDS ?= 3
BENCH_ARGS ?=
# Which operations `make cost` counts (all without it), whether it renews the baseline, and further arguments.
OPERATIONS ?=
UPDATE ?=
COST_ARGS ?=
# How many brokers `make up` runs; several are a cluster (docs/cluster.md).
BROKERS ?=
# Further arguments of `make profile`, such as PROFILE_ARGS="--scenarios fetch --native"
PROFILE_ARGS ?=

# Tests start hundreds of Python processes: each would compile its imports again.
unexport PYTHONDONTWRITEBYTECODE

VENV := $(if $(PYTHON_IS_CHOSEN),.cache/venv-$(PYTHON_VERSION),.venv)
BIN := $(VENV)/bin
# The version is in the name: after an upgrade of the system's Python, .venv is made again.
INSTALLED := $(VENV)/.installed-$(PYTHON_VERSION)
COMPILED := .cache/compiled$(if $(PYTHON_IS_CHOSEN),-$(PYTHON_VERSION))

.PHONY: help setup check format test pythons fresh sim explore conformance sparks soak demo tour up bench cost profile wheel image compiled test-compiled docs stubs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Create .venv with everything that development needs

$(INSTALLED): pyproject.toml scripts/setup.sh
	PYTHON="$(PYTHON)" scripts/setup.sh $(VENV)
	touch $@

check: $(INSTALLED) ## Style, types, import rules, tidiness
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -q tests/test_tidy.py

format: $(INSTALLED) ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: check ## The checks and the tests, with the Python clients' part of the conformance suite
	scripts/cost-setup.sh
	scripts/tests.sh $(BIN)/pytest "$(QUICK)" $(WORKERS) $(PYTEST_ARGS)

pythons: ## make test with each Python from 3.11 to 3.14 that the machine has, in PATH or pyenv; a table at the end
	MAKE="$(MAKE)" $(PYTHON) scripts/pythons.py

fresh: ## README's commands on an empty Debian by debootstrap, as root and as a user: make fresh SUITE=trixie USERS=root STEPS=test
	SUITE="$(SUITE)" USERS="$(USERS)" STEPS="$(STEPS)" MIRROR="$(MIRROR)" KEEP="$(KEEP)" scripts/fresh.sh

sim: $(INSTALLED) ## Whole nodes in simulated time, under faults: make sim SEEDS=1..200
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(SIM_ARGS)

explore: $(INSTALLED) ## The property tests with new random examples
	HYPOTHESIS_PROFILE=explore $(BIN)/pytest -q -n $(WORKERS) --dist worksteal \
		$$(grep -rl --include='test_*.py' hypothesis tests) $(PYTEST_ARGS)

conformance: $(INSTALLED) ## Every foreign client: Python, kcat, the Java tools; Kerberos; and the long fault tests
	KERBEROS=$(BIN)/python scripts/conformance-setup.sh .cache/java
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not spark and not soak" tests/conformance tests/faults tests/pipelines tests/spark $(PYTEST_ARGS)
	$(BIN)/pytest -q -m "spark and not soak" tests/conformance tests/pipelines tests/spark $(PYTEST_ARGS) || [ $$? -eq $(NONE_SELECTED) ]
	$(MAKE) sparks

sparks: ## The Spark suite with older versions of Spark, from PyPI: make sparks SPARKS=4.1
	for version in $(SPARKS); do PYTHON="$(PYTHON)" WORKERS=$(WORKERS) scripts/spark-suite.sh $$version $(PYTEST_ARGS); done

soak: $(INSTALLED) ## The Spark sink under kills of drivers, workers and brokers: make soak RUNS=300
	$(BIN)/python -m tests.soak --runs $(RUNS)

demo: $(INSTALLED) ## A website's page views through the platform, checked; KEEP=1 leaves everything running
	$(BIN)/python -W ignore -m demo

tour: $(INSTALLED) ## The broker with four clients: kills, restarts, groups, transactions, columns, schemas
	$(BIN)/python -W ignore -m demo.tour

up: $(INSTALLED) ## The whole platform on its usual ports, until Ctrl-C; a cluster with make up BROKERS=3
	$(BIN)/rookery up $(if $(BROKERS),--brokers $(BROKERS))

bench: $(INSTALLED) ## Side by side with Apache Kafka, written to docs/performance.md: make bench ROWS="produce/*"
	scripts/bench-setup.sh .cache/java
	$(BIN)/python -m bench --rows "$(ROWS)" --rounds $(ROUNDS) $(BENCH_ARGS)

cost: $(INSTALLED) ## Instructions per request, compared with the baseline (docs/cost.md): make cost OPERATIONS="produce-*"; UPDATE=1 renews it
	scripts/cost-setup.sh
	$(BIN)/python -m bench.cost $(if $(OPERATIONS),--operations "$(OPERATIONS)") $(if $(UPDATE),--update) $(COST_ARGS)

profile: $(INSTALLED) ## Flame graphs of the broker's hot paths, in .cache/profile
	$(BIN)/python -m bench.profile $(PROFILE_ARGS)

wheel: $(INSTALLED) ## The wheel to install elsewhere, in dist (docs/install.md)
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps -w dist .
	@ls dist/*.whl

image: ## A container image of broker and registry; needs a Docker engine (docs/deployment.md)
	docker build -f deploy/Dockerfile -t rookery .

compiled: $(INSTALLED) ## A build with the hot modules compiled, in .cache/compiled; needs a C compiler
	PYTHON="$(PYTHON)" scripts/compiled-setup.sh $(COMPILED)

test-compiled: compiled ## The tests against the compiled build
	$(COMPILED)/bin/pytest -q -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

docs: $(INSTALLED) ## Regenerate the pages of settings, metrics and APIs from their tables
	$(BIN)/python -m rookery.base.config_docs > docs/config.md
	$(BIN)/python -m rookery.base.bounds > docs/bounds.md
	$(BIN)/python -m rookery.broker.api_docs > docs/apis.md
	$(BIN)/python -m rookery.client.settings.docs > docs/client-config.md
	$(BIN)/python -m rookery.client.metrics.docs > docs/client-metrics.md
	$(BIN)/python -m rookery.telemetry.docs > docs/metrics.md
	$(BIN)/python -m rookery.spark.option_docs > docs/spark-options.md
	$(BIN)/python -m rookery.doctor.docs > docs/doctor-checks.md

stubs: $(INSTALLED) ## Regenerate the types of Kafka's messages, src/rookery/protocol/messages
	$(BIN)/python scripts/message_stubs.py

clean: ## Remove .venv and all caches
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
