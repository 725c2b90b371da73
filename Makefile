# Each target does everything it needs, set-up included. PYTHON chooses the interpreter for a new .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench docs release-check clean

demo: $(VENV)/.ready  ## learn, compare and report on the embedded data
	$(BIN)/unem demo --output unem-demo

test: lint  ## everything that must hold before a change lands
	$(BIN)/pytest -n auto

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: $(VENV)/.ready-dev  ## speed against the direct form, on this machine (ARGS="--quick"); never part of the tests
	$(BIN)/python benchmarks/run.py $(ARGS)

docs: $(VENV)/.ready-dev  ## the pages as a site, into site/; strict: a dead link is an error
	$(BIN)/python docs/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

release-check:  ## wheel and sdist: build, twine check, install into a clean environment, try; publishes nothing
	$(PYTHON) tests/release_check.py

clean:
	rm -rf $(VENV) unem-demo site

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install -q -c constraints.txt -e "."
	touch $@

$(VENV)/.ready-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	touch $@ $(VENV)/.ready
