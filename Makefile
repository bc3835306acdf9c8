# Everything runs from a virtual environment of its own, made on first use, one for
# each Python version. PYTHON=python3.12 chooses another Python than the one found.

.DEFAULT_GOAL := help
.PHONY: help demo setup lint test test-all test-matrix test-newest test-jax test-gpu fuzz soak
.PHONY: bench tune bench-programs bench-operations bench-whiles gpu-libraries bench-gpu bench-llama parity test-page pictures clean

ifeq ($(PYTHON),)
override PYTHON := $(shell sh scripts/pythons.sh default)
endif
print_version := 'import sys; print("%d.%d" % sys.version_info[:2])'
# the GPU targets take an installation as it is: JAX with CUDA, and llvmlite
GPU_PYTHON ?= python3
version := $(if $(PYTHON),$(shell $(PYTHON) -c $(print_version)))
venv := .venv/$(version)
bin := $(venv)/bin
ready := $(venv)/ready
# PyTorch as it is pinned here installs on Python 3.11
PARITY_PYTHON ?= python3.11
parity := .venv/parity

# many tests start processes, which would compile every module again
unexport PYTHONDONTWRITEBYTECODE

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
	  awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

demo: setup ## ordinary JAX loops under stock JAX and under onescan: a table and a plot
	$(bin)/onescan demo

setup: $(ready) ## the virtual environment, pinned dependencies and the package

$(ready): requirements.txt pyproject.toml
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "onescan needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(venv)
	$(bin)/python -m pip install -q -r requirements.txt
	$(bin)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

lint: setup ## ruff and the type checker
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/basedpyright --pythonpath $(bin)/python

test: lint ## lint and the test suite
	$(bin)/python -m pytest -n 2

test-all: lint ## the suite, with the long tables whole that it samples
	ONESCAN_TEST_ALL=1 $(bin)/python -m pytest -n 2

test-matrix: ## the suite on every supported Python of this machine
	@set -e; for python in $$(sh scripts/pythons.sh all); do \
	  echo "== $$python"; $(MAKE) --no-print-directory test PYTHON=$$python; done

test-newest: ## the suite on the newest supported Python of this machine
	@$(MAKE) --no-print-directory test PYTHON=$$(sh scripts/pythons.sh newest)

test-jax: setup ## JAX's own scan tests with onescan installed, against stock JAX
	$(bin)/python scripts/jax_tests.py $(ARGS)

test-gpu: ## the table of loops on a GPU, by GPU_PYTHON (python3)
	$(GPU_PYTHON) scripts/gpu_tests.py $(ARGS)

test-page: setup ## the page of onescan.explain in a headless Chromium
	$(bin)/python -m pytest tests/explain/test_page.py -rs

pictures: setup ## the pictures of docs/, by a headless Chromium
	$(bin)/python scripts/pictures.py

fuzz: setup ## many more random loops than the test suite tries
	$(bin)/python -m pytest -n 2 --hypothesis-profile=fuzz -m hypothesis
	$(bin)/python scripts/fuzz.py $(ARGS)

soak: setup ## training runs killed at random moments, many times, against a whole one
	$(bin)/python scripts/soak_training.py $(ARGS)

conformance: setup ## every primitive in every type against eager JAX: a page of docs
	$(bin)/python scripts/conformance.py $(ARGS)

bench: setup ## benchmarks against stock JAX
	$(bin)/python benchmarks/run.py

tune: setup ## what instructions and XLA's loops cost on this machine, for predictions
	$(bin)/python benchmarks/costs.py $(ARGS)

bench-programs: setup ## whole programs under both engines, in turns
	$(bin)/python benchmarks/programs.py $(ARGS)

bench-operations: setup ## operations one by one, by our kernels and by XLA
	$(bin)/python benchmarks/operations.py $(ARGS)

gpu-libraries: setup ## Diffrax, Equinox, NumPyro in build/libraries, for a machine without
	$(bin)/pip install --quiet --no-deps --upgrade --target build/libraries \
	  --constraint requirements.txt diffrax equinox jaxtyping lineax multipledispatch \
	  numpyro optimistix tqdm wadler-lindig

bench-whiles: setup ## ensembles of Diffrax and chains of NumPyro, which are while loops
	$(bin)/python benchmarks/whiles.py $(ARGS)

bench-gpu: ## benchmarks on a GPU, by GPU_PYTHON (python3), which has JAX with CUDA
	PYTHONPATH=$(CURDIR) $(GPU_PYTHON) benchmarks/run.py --gpu $(ARGS)

parity: ## the Llama example against Hugging Face transformers, in an environment of its own
	@test -x $(parity)/bin/python || $(PARITY_PYTHON) -m venv $(parity)
	@grep -E '^(jax|jaxlib|numpy|llvmlite|rich)==' requirements.txt > $(parity)/pins.txt
	$(parity)/bin/python -m pip install -q -r $(parity)/pins.txt torch==2.13.0 \
	  transformers==5.22.2
	HF_HUB_OFFLINE=1 $(parity)/bin/python scripts/llama_parity.py $(ARGS)

bench-llama: ## Llama on a GPU, by GPU_PYTHON (python3): scanned, unrolled, PyTorch
	$(GPU_PYTHON) benchmarks/llama.py $(ARGS)

clean: ## remove everything that make made
	rm -rf .venv build
