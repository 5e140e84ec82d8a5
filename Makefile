# Everything runs in .venv, which `make setup` creates and every target brings up to date.
#   ARGS     flags for the program behind a target:  make tune ARGS="--rate 0.5"
#   RUNS     where a study keeps its runs; default: a temporary folder
#   PYTHON   the Python (3.11 or newer) to build .venv with
#   ENGINE   auto, cpu or cuda

ARGS ?=
ENGINE ?= auto
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; exit; }; done)

# A complete .venv is kept, whatever its Python, unless PYTHON was named.
KEEP_PYTHON = $(if $(filter file,$(origin PYTHON)),--keep-python)

.DEFAULT_GOAL := help
.PHONY: help setup tune test lint clean study-live-fresh study-independent study-client study-simulator-accuracy \
	study-simulator-published study-simulator-speed study-simulator-differential study-prefix-reuse \
	study-trace-speed

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

setup: ## Create or repair .venv, prepare the bundled model
	$(if $(PYTHON),,$(error Python 3.11 or newer is needed and none was found: install it, or name it with PYTHON=/path/to/python3))
	@$(PYTHON) tuner/setup/install.py --engine $(ENGINE) $(KEEP_PYTHON)

tune: setup ## Tune vLLM on this machine with the CPU preset and the bundled model
	@.venv/bin/tune run --preset cpu $(ARGS)

test: setup ## Run all tests, those with the real engine too
	@.venv/bin/python -m pytest $(ARGS)

lint: setup ## ruff and mypy
	@.venv/bin/ruff check .
	@.venv/bin/mypy

study-live-fresh: setup ## Compare live budgets with freshly started engines (9 minutes)
	@.venv/bin/python docs/studies/live_vs_fresh.py

study-independent: setup ## Compare tune bench with a measurement written without it (7 minutes)
	@.venv/bin/python docs/studies/independent.py

study-client: setup ## Compare tune bench and vllm bench serve with the truth of a paced server (3 minutes)
	@.venv/bin/python docs/studies/client_accuracy.py

study-simulator-accuracy: setup ## Compare simulated with measured runs of the bundled model (35 minutes); RUNS=DIR keeps them
	@runs="$(or $(RUNS),$$(mktemp -d)/runs)"; \
	.venv/bin/python docs/studies/simulator_accuracy.py measure "$$runs" && \
	.venv/bin/python docs/studies/simulator_accuracy.py compare "$$runs"

SHARED = ../shared/data

study-simulator-published: setup ## Compare the simulator with published runs and capacities (5 minutes); SHARED=DIR holds them
	@.venv/bin/python docs/studies/simulator_published.py runs $(SHARED)/llmservingsim_vllm_runs
	@.venv/bin/python docs/studies/simulator_published.py sarathi $(SHARED)/sarathi_osdi24_measured

study-simulator-speed: setup ## Time the simulator; ARGS="--peer NAME=PYTHON" times another beside it (2 minutes)
	@.venv/bin/python docs/studies/simulator_speed.py $(ARGS)

study-simulator-differential: setup ## Compare the simulator's decisions with vLLM's scheduler, step by step (1 minute)
	@.venv/bin/python docs/studies/simulator_differential.py $(ARGS)

study-prefix-reuse: setup ## Compare the prefix reuse of realised traces with vLLM's own counters (6 minutes); SHARED=DIR holds them
	@.venv/bin/python docs/studies/prefix_reuse.py $(SHARED)/mooncake $(ARGS)

study-trace-speed: setup ## Time reading, planning and summarising a million rows (3 minutes)
	@.venv/bin/python docs/studies/trace_speed.py $(ARGS)

clean: ## Remove .venv and everything built; the bundled model stays in the user's cache
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
