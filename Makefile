PYTHON ?= $(or $(shell command -v python3.11),python3)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FIRST := $(VENV)/.first
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
# Compiled kernels stay where an installation without --editable was; Python would import that folder instead of ours.
NO_LEFTOVERS = for d in $(VENV)/lib/python*/site-packages/hocket; do [ -e $$d/__init__.py ] || rm -rf $$d; done

PARALLEL = -n 2 --dist loadfile --no-loadscope-reorder

LOWEST := $(VENV)-lowest
# What the extras are for, and what every version of numpy, numba and the rest has to pass.
OF_EXTRAS := tests/unit/runtime tests/unit/planner tests/unit/sim tests/unit/predictor tests/unit/cluster/live \
  tests/unit/interop tests/property/test_exact.py tests/multiprocess

.PHONY: demo kernels test test-slow test-long test-gpu test-lowest lint fuzz bench docs dist clean

# Profile a real model on this machine, plan, simulate, and write the report: hocket-demo/report.html
demo: $(FIRST)
	$(BIN)/hocket demo

# In a new clone kernels are compiled first, each once: two processes that test would both compile all of them.
kernels: $(STAMP)
	$(BIN)/python -m tests.kernels

# Files of tests go by folder, not by how many tests they hold: the docs' and those with real processes hold few, take
# longest and must not come last.
test: kernels
	$(BIN)/python -m pytest -q -m "not slow and not long and not gpu" $(PARALLEL)

# What measures a lab's network does so alone, with both processors.
test-slow: kernels
	$(BIN)/python -m pytest -q -m "slow and not long" $(PARALLEL) --ignore tests/lab/measured
	$(BIN)/python -m pytest -q -m "slow and not long" tests/lab/measured

# On a machine with a GPU and a torch that was built for it; without one every test of it is skipped.
test-gpu: $(STAMP)
	$(BIN)/python -m pytest -q -rs -m gpu tests/gpu

test-long: $(STAMP)
	$(BIN)/python -m pytest -q -m long

# The lowest versions that pyproject.toml allows, in an environment of their own (gigabytes: torch with CUDA)
test-lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python scripts/lowest_versions.py > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOWEST)/lowest.txt \
	  --editable '.[torch,dev,optimal,ray,grpc,chakra,cluster,lightning,accelerate]'
	$(LOWEST)/bin/python -m pytest -q -m "not slow and not long and not gpu" $(OF_EXTRAS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A million damaged inputs for everything that reads files or messages; FUZZ=N for as many
FUZZ ?= 1000000
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --inputs $(FUZZ)
	$(BIN)/python -m tests.fuzz.control $(FUZZ) 0

bench: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest benchmarks -q -s --benchmark-enable --benchmark-columns=min,median,iqr,rounds

# The documentation site: site/index.html
docs: $(STAMP)
	$(BIN)/zensical build --strict

# Wheel and source distribution: dist/
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --outdir dist

# The virtual environment is made when it is missing and brought up to date when its inputs change: with what the first
# picture needs, or with what tests and documentation need.
$(VENV)/bin/python:
	command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(FIRST): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) '.[torch]'
	$(NO_LEFTOVERS)
	touch $@

$(STAMP): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) '.[torch,dev,docs,optimal,ray,grpc,chakra,cluster,lightning,accelerate]'
	$(NO_LEFTOVERS)
	touch $(FIRST) $@

clean:
	rm -rf $(VENV) $(LOWEST) hocket-demo dist site .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
