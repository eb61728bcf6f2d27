# `make run` and `make test` set up everything that they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run help test test-long test-oldest-torch check lint format bench bench-judge bench-builds chaos doctor clean

run: $(READY)          ## the main job on an example, without a GPU or a key
	$(BIN)/python supervisor.py --task examples/gelu_bias_residual.py --budget 12

help:                  ## this list
	@sed -nE 's/^([a-z-]+):[^#]*## /\1\t/p' Makefile | expand -t 20

test: $(READY)         ## the gate: all tests but slow ones and those that need a GPU or a key
	tests/gate.sh $(BIN)/python

test-long: $(READY)    ## slow tests: the whole corpus, chaos, partitions, repeated kills, guests
	$(BIN)/python -m pytest -m "long and not (gpu or live)" --timeout 600

test-oldest-torch:     ## what users' torch runs (packages, drop-ins), with the oldest torch allowed: 3 GB
	$(PYTHON) -m venv .venv-oldest-torch
	.venv-oldest-torch/bin/python -m pip install --quiet --editable . torch==2.11.0 numpy pytest pytest-timeout hypothesis
	.venv-oldest-torch/bin/python -m pytest tests/adopt tests/ship tests/release -W ignore::UserWarning \
		-m "not (long or gpu or live)"

check: lint test       ## format, lint, types, tests

lint: $(READY)         ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)       ## formats the code, and mends what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)        ## the figures of docs/figures.md, on this machine
	$(BIN)/python -m scripts.benchmarks

bench-judge: $(READY)  ## the judge's figures: candidates a minute, against the field's way
	$(BIN)/python -m scripts.benchmarks.judge

bench-builds: $(READY) ## seconds of each kind of build, each alone and prepared: some minutes
	$(BIN)/python -m scripts.benchmarks.warm_builds

chaos: $(READY)        ## whole runs hurt at random, and what was lost: nothing, or it fails
	$(BIN)/python scripts/chaos.py --minutes 5

doctor: $(READY)       ## what this machine has, and what is missing
	$(BIN)/python scripts/doctor.py

# pip compiles its 10,000 files in one process, compileall in one for each processor; it says no to
# some packages' files for other Pythons.  A quarter of the text is never imported.
NOT_IMPORTED := /(mypy|mypyc|networkx|pip|pygments|torch/onnx|torch/testing/_internal)/
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[dev]" --constraint constraints.txt
	$(BIN)/python -m compileall -q -j 0 -x '$(NOT_IMPORTED)' $(VENV)/lib > /dev/null 2>&1 || true
	touch $@

clean:                 ## removes .venv and all caches of this folder
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
