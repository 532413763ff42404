# Two commands: `make demo` and `make test`. Each sets up .venv first, once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV_VERSION := 0.13.9
BIN := .venv/bin
BUILD_RECIPE := infra/horovod/uv.toml $(shell find infra/horovod/floodmark-horovod-headers -type f)
ONLY ?=

.PHONY: help setup demo test check format bench lock mpi gpu test-gpu
.DEFAULT_GOAL := help

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10

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

mpi: .venv-mpi/.installed ## Horovod compiled with MPI beside Gloo, in .venv-mpi/

gpu: .venv-gpu/.installed ## Horovod compiled with NCCL for GPUs, in .venv-gpu/

test-gpu: gpu ## The tests that need a GPU
	.venv-gpu/bin/pytest -m gpu tests/test_gpu.py

lock: setup ## Resolve the pins anew (names no registry)
	$(BIN)/uv --config-file infra/horovod/uv.toml pip compile pyproject.toml --group dev \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade -o infra/requirements.lock
	$(BIN)/uv pip compile --group gpu --constraint infra/requirements.lock \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade -o infra/requirements-gpu.lock

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

# The variants: the same lock and recipe with other switches, each in an environment of its own.
.venv-mpi/.locked: .venv/.locked
	@command -v mpicxx >/dev/null && command -v mpirun >/dev/null || \
	  { echo "MPI is missing (Debian: apt-get install libopenmpi-dev openmpi-bin)" >&2; exit 2; }
	sed 's/HOROVOD_WITHOUT_MPI = "1"/HOROVOD_WITH_MPI = "1"/' infra/horovod/uv.toml > build/uv-mpi.toml
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-mpi
	$(BIN)/uv --config-file build/uv-mpi.toml pip sync --quiet --python .venv-mpi/bin/python \
	  --find-links build infra/requirements.lock
	@touch $@

GPU_SWITCHES = HOROVOD_GPU_OPERATIONS = "NCCL", HOROVOD_NCCL_LINK = "SHARED", \
  HOROVOD_CUDA_HOME = "$(CURDIR)/build/cuda", HOROVOD_NCCL_INCLUDE = "$(CURDIR)/build/cuda/include", \
  HOROVOD_NCCL_LIB = "$(CURDIR)/build/cuda/lib64", HOROVOD_BUILD_CUDA_CC_LIST = "75,80,86,89,90", \
  LDFLAGS = "-Wl,-rpath,$$ORIGIN/../../nvidia/nccl/lib"

# First NVIDIA's packages alone, which compile Horovod, then all of them.
.venv-gpu/.locked: .venv/.locked infra/requirements-gpu.lock infra/horovod/cuda_home.sh
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-gpu
	$(BIN)/uv pip sync --quiet --python .venv-gpu/bin/python infra/requirements-gpu.lock
	sh infra/horovod/cuda_home.sh .venv-gpu/lib/python3.11/site-packages/nvidia build/cuda
	sed 's|HOROVOD_WITH_GLOO = "1"|&, $(GPU_SWITCHES)|' infra/horovod/uv.toml > build/uv-gpu.toml
	$(BIN)/uv --config-file build/uv-gpu.toml pip sync --quiet --python .venv-gpu/bin/python \
	  --find-links build infra/requirements.lock infra/requirements-gpu.lock
	@touch $@

.venv-mpi/.installed .venv-gpu/.installed: %/.installed: %/.locked pyproject.toml
	$(BIN)/uv pip install --quiet --no-deps --python $*/bin/python --editable .
	@touch $@
