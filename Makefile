# `make demo` and `make test` set up everything they need in .venv.

PYTHON ?= python3
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
unexport PYTHONPATH VIRTUAL_ENV

.PHONY: help demo test test-system check format bench clean

help: ## Say what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

demo: $(VENV)/installed ## Run the whole pipeline on the embedded data set
	@fne check --demo
	@dvc repro
	@fne inspect metrics/retrieval.json report/index.html

test: $(VENV)/installed-dev check ## Lint, check types, run the tests
	@python -m pytest -n 2 --dist loadfile

test-system: $(VENV)/installed-system ## Test with a real browser, SSH, S3, Ray and torchrun, installed where this may
	@for program in chromium sshd; do \
	  PATH="$$PATH:/usr/sbin" command -v $$program >/dev/null && continue; \
	  package=$$(echo $$program | sed s/sshd/openssh-server/); \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -qq --yes --no-install-recommends $$package >/dev/null; \
	  fi || echo "$$package could not be installed"; \
	done
	@python -m pytest -rs tests/system

check: $(VENV)/installed-dev ## Lint and check types only
	@ruff check
	@ruff format --check
	@mypy

format: $(VENV)/installed-dev ## Format the code
	@ruff check --fix
	@ruff format

bench: $(VENV)/installed-dev ## Run all benchmarks
	@python -m benchmarks

clean: ## Remove .venv; artifacts and caches stay
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fne needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(VENV)/installed-system: $(VENV)/installed-dev
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,system]'
	@touch $@
