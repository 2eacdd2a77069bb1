# Every target sets up .venv by itself; nothing but Python 3.11 or newer (with venv) is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test lint docs speed results clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

test: setup
	$(BIN)/python -m pytest -n auto

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: setup
	$(BIN)/truepair demo

docs: setup
	$(BIN)/mkdocs build --strict

# Wants a quiet machine. For some items only: make speed ONLY="two-stage recall"
speed: setup
	mkdir -p runs
	cd benchmarks && ../$(BIN)/python -m speed $(if $(ONLY),--only $(ONLY)) --json ../runs/speed.json > ../runs/speed.md
	cat runs/speed.md

# Hours: every method at every noise ratio on the data folder DATA; what is finished is not repeated.
results: setup
	cd benchmarks && ../$(BIN)/python -m methods $(abspath $(DATA)) --tables ../docs/results.md

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache
