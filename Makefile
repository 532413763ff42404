# Two commands: `make demo` and `make test`. Each sets up .venv first, once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV_VERSION := 0.13.9
BIN := .venv/bin
BUILD_RECIPE := infra/horovod/uv.toml $(shell find infra/horovod/floodmark-horovod-headers -type f)
ONLY ?=

.PHONY: help setup demo test check format bench lock
.DEFAULT_GOAL := help

help: ## List the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

demo: setup ## The whole loop on demonstration data, in .demo/
	@$(BIN)/python -m flows.demo

test: setup ## All tests that need no other machine
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

check: setup ## Formatting, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## Benchmarks, one JSON object a line; ONLY=name for one
	@$(BIN)/python -m tests.bench $(ONLY)

lock: setup ## Resolve the pins anew (names no registry)
	$(BIN)/uv --config-file infra/horovod/uv.toml pip compile pyproject.toml --group dev \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade -o infra/requirements.lock

setup: .venv/.installed

# Horovod is compiled against TensorFlow while the lock is installed; only the lock and the recipe ask for it.
.venv/.locked: infra/requirements.lock $(BUILD_RECIPE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "Floodmark needs Python 3.11, but $(PYTHON) is $$($(PYTHON) --version 2>&1); try: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@command -v c++ >/dev/null || { echo "Floodmark needs a C++ compiler (Debian: apt-get install g++) to compile Horovod" >&2; exit 2; }
	test -x $(BIN)/uv || { $(PYTHON) -m venv --clear .venv && $(BIN)/python -m pip install --quiet --no-deps uv==$(UV_VERSION); }
	$(BIN)/uv build --quiet --wheel infra/horovod/floodmark-horovod-headers -o build
	$(BIN)/uv --config-file infra/horovod/uv.toml pip sync --quiet --compile-bytecode --python $(BIN)/python \
	  --find-links build infra/requirements.lock
	@touch $@

.venv/.installed: .venv/.locked pyproject.toml
	$(BIN)/uv pip install --quiet --no-deps --python $(BIN)/python --editable .
	@touch $@
