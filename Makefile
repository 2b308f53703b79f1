# Everything from a fresh clone with Python 3.11 or newer, pip and make. Set-up happens once, in $(VENV).
VENV ?= .venv
PYTHON ?= python3
PIP_ARGS ?=
ARGS ?=

BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) -c constraints.txt -e
CHECKED := src tests $(wildcard scripts benchmarks studies examples)
# guard is left out: it needs a policy that was trained.
BENCHMARKS := $(filter-out __init__ __main__ guard,$(basename $(notdir $(wildcard benchmarks/[a-z]*.py))))

.PHONY: demo test test-all check bench clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo       train, grade and audit a small agent on this machine (about 10 minutes)"
	@echo "make test       the quick tests          make test-all   all tests"
	@echo "make check      lint, format, types, import rules"
	@echo "make bench      benchmarks               make clean      remove $(VENV) and caches"

demo: $(VENV)/.installed-run
	$(BIN)/strop demo $(ARGS)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-all: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev
	@set -e; for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name --json; done

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("strop needs Python 3.11 or newer; name one: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-run: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing strop into $(VENV); once, a few minutes"
	$(INSTALL) ".[local]"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing strop and its tools into $(VENV); once, a few minutes"
	$(INSTALL) ".[local,dev]"
	@touch $@ $(VENV)/.installed-run
