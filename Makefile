# Every habit of the project is a target; `make help` lists them. All that they make lies in git-ignored folders.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
WORKERS ?= 2
FUZZ_SECONDS ?= 600
MODEL ?= .models/SmolLM2-135M-Instruct.Q4_1.gguf
# Modules that begin with an underscore are shared by the others; peers need `make setup-peers`.
BENCH ?= $(filter-out _% peers validate_simulator,$(basename $(notdir $(wildcard benchmarks/*.py))))
ARGS ?=

.PHONY: help setup model browser run serve test lint format types contracts unit fuzz bench validate-simulator setup-peers bench-peers lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Virtual environment with the locked dependencies (PYTHON=… chooses the interpreter)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" scripts/setup.sh

model: setup ## Fetch the demo model, SmolLM2-135M-Instruct (98 MB), into .models/
	@$(BIN)/python scripts/fetch_demo_model.py

run: model ## One load under static, dynamic and continuous batching on the demo model
	@$(BIN)/chairlift demo $(ARGS)

serve: model ## OpenAI-compatible server (MODEL=…, ARGS=…)
	@$(BIN)/chairlift serve $(MODEL) $(ARGS)

test: setup model lint types contracts unit ## Lint, types, import contracts and tests: what CI runs

lint: setup ## Rules and formatting
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check || { $(BIN)/ruff format --check; exit 1; }

format: setup ## Rewrite formatting and fix what can be fixed safely
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

types: setup ## mypy --strict over package, tests, scripts and benchmarks
	@$(BIN)/mypy

contracts: setup ## Imports point downwards, and the scheduler is pure
	@$(BIN)/lint-imports --no-logo --cache-dir build/import-linter

browser:
	@scripts/setup_browser.sh

unit: model browser ## The tests (ARGS='tests/core -k name' narrows, WORKERS=0 runs them in one process)
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup $(ARGS)

fuzz: setup ## Property tests with fresh random seeds for ten minutes (FUZZ_SECONDS=…)
	@$(BIN)/python scripts/fuzz.py --seconds $(FUZZ_SECONDS) -- $(ARGS)

bench: model ## Benchmarks (BENCH='scheduler …' chooses)
	@for name in $(BENCH); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name $(ARGS); done

validate-simulator: model ## Calibrate this machine, and put twelve loads to model and simulator (20 minutes)
	@$(BIN)/python -m benchmarks.validate_simulator $(ARGS)

setup-peers: model ## OpenVINO GenAI and the demo model in f32, for bench-peers (1.5 GB to keep, several GB to fetch)
	@scripts/setup_peers.sh

bench-peers: setup-peers ## Chairlift beside OpenVINO GenAI, taking turns (20 minutes)
	@$(BIN)/python -m benchmarks.peers $(ARGS)

lock: setup ## Resolve pyproject.toml into requirements/*.lock (ARGS=--upgrade for the newest)
	@scripts/lock.sh $(ARGS)

clean: ## Remove environment, caches and results; the model stays
	rm -rf $(VENV) build dist .ruff_cache
	find . -name __pycache__ -type d -not -path './.models/*' -prune -exec rm -rf {} +
