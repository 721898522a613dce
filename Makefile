# `make demo` and `make test` need only Python 3.11 or later, make and a C compiler.
# Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow lint format bench docs site audit mutants release-check clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

install: $(STAMP) ## Create .venv and install into it, once

# The build backend is installed first and build isolation is off, so that it is pinned as well.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "engramma needs Python 3.11 or later; $(PYTHON) is '$$($(PYTHON) --version 2>&1)'." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Installing into $(VENV) (the first time takes a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e ".[dev]"
	@touch $@

demo: $(STAMP) ## Run the demonstration
	$(BIN)/engramma demo

test: lint ## Lint, check types and run the quick tests
	$(BIN)/python -m pytest -n 2

test-slow: $(STAMP) ## Run the tests that take minutes
	$(BIN)/python -m pytest -m slow

lint: $(STAMP) ## ruff check, ruff format --check, pyright
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: $(STAMP) ## Sort imports, apply safe fixes, format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP) ## Run the benchmarks
	$(BIN)/python -m benchmarks

docs: $(STAMP) ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

SMALL := --data digits --tasks 3 --items 400 --memories 48 --epochs 200 --vertex 2,10

# The report is of small runs, made in a minute and kept for the next time; it says what they are.
site: $(STAMP) ## Build what can be published into site/: docs with the notebooks, gallery, a live report
	for method in vanilla "rehearsal --strength 0.2" allocation; do \
	  $(BIN)/engramma run $(SMALL) --keep-memories --store output/site --method $$method || exit 1; done
	$(BIN)/engramma report --from output/site --out output/site.html --title "engramma: a few small runs"
	REPORT=output/site.html $(MAKE) docs

# An environment of its own: the auditor's packages are not ours. Strict: what could not be looked up fails.
audit: $(STAMP) ## Look every pinned package up in the database of known vulnerabilities
	@test -x $(VENV)/audit/bin/pip-audit || { $(BIN)/python -m venv $(VENV)/audit && \
	  $(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit; }
	$(VENV)/audit/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

# An environment of its own here too, with what makes the mutants; .venv's Python runs the tests on them.
mutants: $(STAMP) ## See whether the tests notice small faults in the sources (hours)
	@test -x $(VENV)/mutants/bin/cosmic-ray || { $(BIN)/python -m venv $(VENV)/mutants && \
	  $(VENV)/mutants/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt cosmic-ray; }
	$(VENV)/mutants/bin/python -m benchmarks.mutants $(ARGS)

release-check: $(STAMP) ## Build what is released, install it afresh and use it without the checkout
	$(BIN)/python tests/release.py

clean: ## Remove .venv, caches and build outputs
	rm -rf $(VENV) .mutants site dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
