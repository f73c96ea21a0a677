# `make demo` and `make test` set up everything they need in .venv.

PYTHON ?= python3
VENV := .venv
SENTENCE := "a red circle is over a purple triangle on the water."
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
unexport PYTHONPATH VIRTUAL_ENV

.PHONY: help announce demo test test-system check format docs bench dist clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

demo: announce $(VENV)/installed ## Run all pipelines on the embedded data set
	@fne check --demo
	@dvc repro
	@dvc repro pipelines/tagging/dvc.yaml pipelines/captioning/dvc.yaml pipelines/judgments/dvc.yaml
	@fne inspect metrics/retrieval.json metrics/tags.json metrics/captions.json metrics/judgments.json
	@printf '\nA sentence, and the images that it finds:\n'
	@fne search $(SENTENCE) --k 3
	@printf '\nNext:\n'
	@printf '  source $(VENV)/bin/activate     # in every new shell\n'
	@printf '  fne search %s\n' '$(SENTENCE)'
	@printf '  dvc exp run -S embed.layers=fc      # a variant; then: fne compare HEAD --html compare.html\n'
	@printf '  fne describe scene-0029.jpg         # a sentence and tags for a test image\n'
	@printf '  the report: file://%s/report/index.html\n' '$(CURDIR)'
	@printf '  and the captions: file://%s/report/captions.html\n' '$(CURDIR)'
	@printf '  does the model agree with graded pairs? file://%s/report/judgments.html\n' '$(CURDIR)'
	@printf '  your own images and captions: docs/data.md\n'

announce:
	@[ -e $(VENV)/installed ] || printf 'First, the environment: 6 GB in $(VENV), and as long as the download takes.\n'
	@printf 'The demo draws 200 images and runs the pipelines of retrieval, tags, captions and judgments: 4 to 6 minutes on two cores, nothing is downloaded.\n'
	@printf 'It keeps about 100 MB in this folder: checked/, data/, features/, captions/, models/, vectors/, report/, annotations/, .fne/ and .dvc/cache/.\n'
	@printf 'Stop it at any time with Ctrl-C: the same command continues.\n\n'

test: $(VENV)/installed-dev check ## Lint, check types, run the tests
	@python -m pytest -n 2 --dist loadfile

test-system: $(VENV)/installed-system ## Test with a real browser, SSH, S3, Ray, torchrun and a notebook; as root, install what is missing
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

docs: $(VENV)/installed-dev ## Write docs/parameters.md, and the tables of stages and packages
	@python -m tests.support.parameters
	@python -m tests.support.generated_tables

bench: $(VENV)/installed-dev ## Run all benchmarks
	@python -m benchmarks

dist: $(VENV)/installed ## Build the wheel and the source archive, in dist/
	@rm -rf build dist
	@python -c 'from setuptools import build_meta as build; build.build_sdist("dist"); build.build_wheel("dist")' >/dev/null
	@rm -rf build
	@ls dist

clean: ## Remove .venv; artifacts and caches stay
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fne needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml setup.py constraints.txt
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(VENV)/installed-system: $(VENV)/installed-dev
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,system]'
	@touch $@
