# `make run` and `make test` set up everything that they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Tests that need a device or a key are run by name; slow tests by `make test-long`.
LEFT_OUT := gpu or live or long
PYTEST := $(BIN)/python -m pytest -m
# Of the tests that may run beside others, those that take about half of the time.
FIRST_HALF := tests/agents tests/evaluator tests/fastbuild tests/recipes tests/release

.PHONY: run test test-long check lint format bench bench-judge chaos doctor clean

run: $(READY)          ## the main job on an example, without a GPU or a key
	$(BIN)/python supervisor.py --task examples/gelu_bias_residual.py --budget 12

test: $(READY)         ## the gate: tests that may run beside others in two processes, then the rest alone
	@export STARK_BUILD_STORE=$$(mktemp -d) && trap 'rm -rf "$$STARK_BUILD_STORE"' EXIT && \
	{ $(PYTEST) "not ($(LEFT_OUT) or alone)" $(FIRST_HALF) > "$$STARK_BUILD_STORE/first-half.txt" 2>&1 & } && \
	first=$$! && status=0 && \
	{ $(PYTEST) "not ($(LEFT_OUT) or alone)" $(FIRST_HALF:%=--ignore %) || status=1; } && \
	{ wait $$first || status=1; } && cat "$$STARK_BUILD_STORE/first-half.txt" && \
	{ $(PYTEST) "alone and not ($(LEFT_OUT))" || status=1; } && exit $$status

test-long: $(READY)    ## slow tests: the whole corpus, chaos, partitions, repeated kills, guests
	$(BIN)/python -m pytest -m "long and not (gpu or live)" --timeout 600

check: lint test       ## format, lint, types, tests

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)        ## the figures of docs/figures.md, on this machine
	$(BIN)/python -m scripts.benchmarks

bench-judge: $(READY)  ## the judge's figures: candidates a minute, against the field's way
	$(BIN)/python -m scripts.benchmarks.judge

chaos: $(READY)        ## whole runs hurt at random, and what was lost: nothing, or it fails
	$(BIN)/python scripts/chaos.py --minutes 5

doctor: $(READY)
	$(BIN)/python scripts/doctor.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[dev]" --constraint constraints.txt
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
