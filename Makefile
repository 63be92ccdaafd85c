# What people and machines do with a checkout. `make` alone lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS ?= dev
WORKERS ?= 2
FUZZ_SECONDS ?= 600
OWN_TARGETS := not real and not attack

.PHONY: help demo fuzz test test-slow test-real attack lint types layers check bench format release clean system

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: system $(VENV)/.ready ## solve an issue of the bundled project, offline
	@$(BIN)/agent demo

test: system $(VENV)/.ready-$(EXTRAS) ## unit, property and end-to-end tests (5 minutes, no network)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow and $(OWN_TARGETS)"

test-slow: system $(VENV)/.ready-$(EXTRAS) ## containers, tampering, the miner contract: seconds each (minutes, no network)
	$(BIN)/python -m pytest -n $(WORKERS) -m "slow and $(OWN_TARGETS)"

test-real: system $(VENV)/.ready-$(EXTRAS) ## solve real bugs of real projects, fetched from the package index
	$(BIN)/python -m pytest -m real

attack: system $(VENV)/.ready-$(EXTRAS) ## every attack of docs/security.md, on every backend (minutes, no network)
	$(BIN)/python -m pytest -n $(WORKERS) -m attack tests/attack

fuzz: system $(VENV)/.ready-$(EXTRAS) ## property tests with new examples for FUZZ_SECONDS (600); ends at the first failing one
	@end=$$(($$(date +%s) + $(FUZZ_SECONDS))); while [ $$(date +%s) -lt $$end ]; do \
	  HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -q -x -n $(WORKERS) -m "hypothesis and $(OWN_TARGETS)" || exit 1; done

lint: $(VENV)/.ready-$(EXTRAS) ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-$(EXTRAS) ## mypy, strict
	$(BIN)/mypy

layers: $(VENV)/.ready-$(EXTRAS) ## import-linter: layers, and packages used through their face
	PYTHONPATH=. $(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/unit/test_structure.py

check: lint types layers test test-slow ## all of the above but attacks, models and real projects

bench: system $(VENV)/.ready-$(EXTRAS) ## measure; results go to benchmarks/results/
	$(BIN)/python -m benchmarks

format: $(VENV)/.ready-$(EXTRAS) ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

release: system ## build the wheel, try it in an environment of its own, and say what is left to publish
	rm -rf dist && $(PYTHON) -m pip wheel -q --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PYTHON) -m venv dist/trial && dist/trial/bin/python -m pip install -q --disable-pip-version-check dist/*.whl
	dist/trial/bin/agent demo && rm -rf dist/trial
	@echo "left to do: git tag v$$(dist=$$(ls dist); dist=$${dist#*-}; echo $${dist%%-*}), push the tag, upload dist/*.whl to the package index"

clean: ## remove what the targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist

# bubblewrap isolates the target's tests. It is installed where that needs no password; elsewhere the
# command says what is missing.
system:
	@command -v bwrap >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing bubblewrap" >&2; \
	    (apt-get install -y -qq bubblewrap || { apt-get update -qq && apt-get install -y -qq bubblewrap; }) >&2; \
	  else \
	    echo "note: bubblewrap is missing; tests cannot be run isolated. Install it: apt install bubblewrap, dnf install bubblewrap, pacman -S bubblewrap, apk add bubblewrap" >&2; \
	  fi; }

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "the module venv is missing: on Debian and Ubuntu, apt install python3-venv" >&2; exit 1; }

$(VENV)/.ready: pyproject.toml | $(BIN)/python
	@echo "installing patchshot into $(VENV)" >&2
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.ready-$(EXTRAS): pyproject.toml | $(BIN)/python
	@echo "installing patchshot[$(EXTRAS)] into $(VENV)" >&2
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@ $(VENV)/.ready
