# Everything here works on a machine that has Python (3.11 or later) and make: .venv makes itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Nothing is written outside this directory: not to pip's cache, nor to Matplotlib's, nor to /tmp.
export PIP_NO_CACHE_DIR := 1
export MPLCONFIGDIR     := $(CURDIR)/build/matplotlib
export TMPDIR           := $(CURDIR)/build/tmp
# Bytecode is kept, also where the environment says otherwise: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/bytecode
$(shell mkdir -p $(MPLCONFIGDIR) $(TMPDIR))

.DEFAULT_GOAL := help
.PHONY: help run demo test test-compilers test-system kubernetes soak failover fuzz defects lint pins bench docs dist check-wheel lock clean test-tools test-browser test-kubernetes test-libvirt

help: ## this list, with how long it takes on two cores where that was measured
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("slotwise needs Python 3.11 or later; try make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@echo "making $(VENV) (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --no-compile -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: $(READY) ## reproduce the paper's evaluation and open the way to its report
	$(BIN)/slotwise reproduce --out build/reproduce

test: $(READY) ## every test; then the core again with the compiler off (6 min)
	$(BIN)/slotwise warm
	$(BIN)/python -m pytest -n 2
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n 2 -m core

test-compilers: $(READY) ## the core on Numba alone and without a compiler
	SLOTWISE_COMPILER=numba $(BIN)/python -m pytest -n 2 -m core
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n 2 -m core

test-system: $(READY) ## the live scheduler with a real PostgreSQL, Slurm, Chromium and two more users, installed and started here; Kubernetes where it is built
	SLOTWISE_KUBERNETES_BUILD=--no-build SLOTWISE_SNAKEMAKE_JOBS=10 tools/system/with-postgres tools/system/with-slurm tools/system/with-users \
	    tools/system/with-chromium tools/system/with-tools tools/system/with-kubernetes $(BIN)/python -m pytest -m system tests/live

test-tools: $(READY) ## the plugin for Snakemake, and Slurm's commands under submitit and dask-jobqueue, with the real packages
	tools/system/with-tools $(BIN)/python -m pytest -m system tests/live/test_tools.py

test-browser: $(READY) ## the dashboard in a real Chromium, installed here
	tools/system/with-chromium $(BIN)/python -m pytest -m system tests/live/test_browser.py

test-kubernetes: $(READY) ## the engine for Kubernetes with real servers (make kubernetes builds them)
	SLOTWISE_KUBERNETES_BUILD=--no-build tools/system/with-kubernetes $(BIN)/python -m pytest -m system tests/live/test_kubernetes_real.py

test-libvirt: $(READY) ## the engine for libvirt with three real libvirtd and QEMU, installed here
	tools/system/with-libvirt $(BIN)/python -m pytest -m system tests/live/test_libvirt_real.py

kubernetes: ## etcd, the servers of Kubernetes and KWOK for test-system, built with Go into ~/.cache/slotwise (8 min, once)
	tools/system/build-kubernetes

soak: $(READY) ## the live scheduler killed 1,000 times on SQLite and 300 times on PostgreSQL, and many real commands; 300 jobs on Slurm; 300 virtual machines; 5,000 pods on Kubernetes
	SLOTWISE_CRASHES=1000 SLOTWISE_CRASH_POLICY=guarded SLOTWISE_COMMANDS=1000 $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/live/test_crashes.py \
	    tests/live/test_store.py tests/live/test_api.py -k "killed or restarts"
	SLOTWISE_CRASHES=300 SLOTWISE_CRASH_POLICY=guarded tools/system/with-postgres $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/live/test_crashes.py \
	    tests/live/test_store.py -k "killed and postgres"
	SLOTWISE_SLURM_JOBS=300 tools/system/with-slurm $(BIN)/python -m pytest -m system tests/live/test_slurm.py
	SLOTWISE_LIBVIRT_MACHINES=300 SLOTWISE_LIBVIRT_KILLS=50 SLOTWISE_LIBVIRT_PATIENCE=3600 tools/system/with-libvirt \
	    $(BIN)/python -m pytest -m system tests/live/test_libvirt_real.py -k kills
	SLOTWISE_KUBE_PODS=5000 SLOTWISE_KUBE_NODES=200 SLOTWISE_KUBE_KILLS=50 tools/system/with-kubernetes \
	    $(BIN)/python -m pytest -m system tests/live/test_kubernetes_real.py -k kills

SCHEDULES ?= 10000
SEED ?= 0
failover: $(READY) ## random failovers of two services on PostgreSQL (40 min; SCHEDULES=10000, from SEED=0 on)
	tools/system/with-postgres $(BIN)/python tests/live/failover.py --schedules $(SCHEDULES) --seed $(SEED) --at-once 16

defects: $(READY) ## each mended defect of the service's safety, put back: its test must fail (15 min)
	$(BIN)/python tests/live/defects.py

SECONDS ?= 60
TARGETS ?= supervisor_log supervisor_socket backup journal checkpoint cluster_file hosts_file kubeconfig
FUZZER  := build/atheris
fuzz: $(READY) ## what is read from files and sockets, fuzzed with coverage guidance (SECONDS=60 for each target; Linux on x86-64)
	@test -d $(FUZZER)/atheris || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
	    --target $(FUZZER) -r tests/fuzz/requirements.txt
	for target in $(TARGETS); do \
	    PYTHONPATH=$(FUZZER) $(BIN)/python tests/fuzz/run.py $$target --seconds $(SECONDS) || exit 1; done

lint: $(READY) ## ruff, mypy --strict and the prose (1 min)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/prose.py

pins: $(READY) ## compare every figure and decision of every policy with tests/pins.json (5 min, then 2)
	$(BIN)/python tests/pins.py --check

demo: $(READY) ## a living cluster to look at; in another terminal: .venv/bin/slotwise open
	$(BIN)/slotwise serve --demo

bench: $(READY) ## the benchmarks, side by side in one run
	$(BIN)/python -m benchmarks --check

docs: $(READY) ## the documentation as a site, in site/
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: $(READY) ## sdist and wheel, in dist/
	$(BIN)/python -m build --no-isolation --outdir dist

check-wheel: $(READY) ## install the packages into clean environments and use them (PYTHONS="python3.11 python3.13")
	rm -rf dist
	$(MAKE) dist
	$(BIN)/python tools/check_wheel.py $(PYTHONS)

# not the extra libvirt: it has no wheels, and building it needs the C library
lock: ## write requirements.lock anew from pyproject.toml (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra dask --extra executor --extra serve --group dev \
	    --no-emit-index-url --no-header --no-annotate pyproject.toml -o requirements.lock

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
