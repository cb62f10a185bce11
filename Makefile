# Needs python3, make and gcc, nothing else. `make help` lists the targets.
SHELL := /bin/sh
PYTHON := .venv/bin/python
PAGODA := .venv/bin/pagoda
WORKERS ?= 2
QUESTION ?= What is the capital of France?

# One BLAS thread a process: the test workers already fill the cores.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
PYTEST := $(TEST_ENV) $(PYTHON) -m pytest
INSTALLED_FROM := pyproject.toml constraints.txt scripts/install setup.py $(wildcard native/*.cpp native/*.h native/*.inc)

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev run test test-fast test-slow test-sanitized soak lint format coverage bench-host clean
.PHONY: bench-streaming bench-http bench-gpu bench-gpu-all
.PHONY: bench-memory bench-cpu bench-cpu-models bench-cpu-quality bench-cpu-instructions bench-cpu-profile bench-cpu-growth

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.installed-base ## Make .venv and install pagoda, without torch
setup-dev: .venv/.installed-dev ## The same with the development tools and the test oracles

.venv/.installed-base: $(INSTALLED_FROM)
	@scripts/install base
	@touch $@

.venv/.installed-dev: $(INSTALLED_FROM)
	@scripts/install dev
	@touch .venv/.installed-base $@

run: setup ## Pull the default model, answer a question, stay in a chat
	@$(PAGODA) run smollm2 --temperature 0 --first "$(QUESTION)"

test: lint test-fast ## Lint, types and every test that is not slow

test-fast: setup-dev
	$(PYTEST) -n $(WORKERS) --dist loadfile -m "not slow and not soak and not gpu"

test-slow: setup-dev ## The slow tests: real models, vocabularies, long properties
	$(PYTEST) -n $(WORKERS) --dist loadfile -rP -m "slow and not soak and not gpu"

test-sanitized: setup-dev ## The native kernels under the address, undefined-behaviour and thread sanitizers
	native/sanitize address
	native/sanitize thread

soak: setup-dev ## The tests that run for many minutes
	$(PYTEST) -m "soak and not gpu"

lint: setup-dev ## ruff check, ruff format --check, mypy
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

format: setup-dev ## Let ruff format and mend what it can
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

coverage: setup-dev ## The fast tests with a coverage report
	$(PYTEST) -n $(WORKERS) --dist loadfile -m "not slow and not soak and not gpu" --cov --cov-report=term

bench-host: setup-dev ## Host time of plan + commit against rows and waiting requests
	$(TEST_ENV) $(PYTHON) -m benchmarks.host_cost

bench-cpu: setup-dev ## Speed and memory beside llama.cpp, OpenVINO, vLLM and transformers
	$(PYTHON) -m benchmarks.cpu.compare

bench-cpu-models: setup-dev ## The same for Gemma 3 270M and a random model of Llama 3.2 1B's shape
	$(PYTHON) -m benchmarks.cpu.models

bench-cpu-quality: setup-dev ## How far each engine lies from the float32 model
	$(PYTHON) -m benchmarks.cpu.quality

bench-cpu-instructions: setup-dev ## Instructions a token by kernel, counted by valgrind
	$(PYTHON) -m benchmarks.cpu.instructions

bench-cpu-profile: setup-dev ## Where the time of a decoding step goes
	$(PYTHON) -m benchmarks.cpu.step_profile

bench-cpu-growth: setup-dev ## Decoding by streams and by context, against the roofline
	$(PYTHON) -m benchmarks.cpu.growth

bench-gpu: setup-dev ## One NVIDIA GPU beside vLLM and SGLang: kernels against their twins, then the table
	$(PYTHON) -m benchmarks.gpu.run --check

bench-gpu-all: setup-dev ## All that is claimed of a GPU: bits, memory, start, the table, the deterministic mode
	$(PYTHON) -m benchmarks.gpu.everything

bench-streaming: setup-dev ## What a token costs on its way through HTTP, with a model that costs nothing
	$(PYTHON) -m benchmarks.server.streaming_cost

bench-http: setup-dev ## Output tokens a second through HTTP against the offline engine, in turns
	$(PYTHON) -m benchmarks.server.http_vs_offline

bench-memory: setup-dev ## What `pagoda plan` says beside what a server under load really holds
	$(PYTHON) -m benchmarks.memory_plan

clean: ## Remove .venv and every cache (models are kept)
	rm -rf .venv build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache .coverage .coverage.* htmlcov
	find pagoda tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
