# Everything a contributor runs. Every target makes .venv itself (hack/venv.sh) and says so.
# A machine needs Python >= 3.11 with venv, make and a C compiler; no GPU, no cluster, no container engine.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Two workers, a file on one of them. Tests on real programs and end-to-end tests run alone: they keep their own time.
WORKERS ?= 2
ARGS ?=

.PHONY: help
help: ## Say what there is
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 28

.PHONY: venv
venv: ## Make .venv hold requirements/dev.txt and this checkout
	@bash hack/venv.sh

.PHONY: demo
demo: venv ## The story in under 90 s: fake GPUs, real programs (ARGS="--json"; ARGS="--cluster" on a real control plane)
	@$(BIN)/python -m hack.demo $(ARGS)

.PHONY: test
test: venv ## All tests, doctests, and a real control plane, built first where it is missing (ARGS=tests/agent/core for some)
	@$(BIN)/python -m hack.teststages --workers $(WORKERS) -- $(ARGS)

.PHONY: test-fast
test-fast: venv ## Tests that start no whole programs and build nothing
	@$(PYTEST) -n $(WORKERS) --dist loadfile -m "not e2e and not real" $(ARGS)

.PHONY: check
check: venv ## Everything CI holds against a change, tests aside
	@$(BIN)/python -m hack.check $(ARGS)

.PHONY: proto
proto: venv ## Generate muster/pb from proto/
	@$(BIN)/python hack/codegen.py

.PHONY: rules
rules: venv ## Make docs/rules.md from the rules
	@$(BIN)/python -m hack.rulespage

.PHONY: matrix
matrix: venv ## Which profile sees which fault: replay all captures, make docs/fault-matrix.md, print the figures
	@$(BIN)/python -m hack.matrix

.PHONY: alerts
alerts: venv ## Make daemonset/monitoring/prometheusrule.yaml from alerts.yaml
	@$(BIN)/python -m hack.alerts

.PHONY: promtool
promtool: ## Take promtool out of Debian's prometheus package, for the tests of the alert rules
	@bash hack/promtool.sh

.PHONY: baseline
baseline: venv ## Take proto/ as the new wire baseline; a page in docs/decisions must carry its digest
	@$(BIN)/buf build -o proto/baseline.binpb
	@sha256sum proto/baseline.binpb

.PHONY: bench-agent
bench-agent: venv ## Memory and CPU of agent and reader, 8 GPUs, steady
	@$(BIN)/python -m hack.bench.agent $(ARGS)

.PHONY: bench-fault-latency
bench-fault-latency: venv ## From a fault to the admitter's view of it
	@$(BIN)/python -m hack.bench.fault_latency $(ARGS)

.PHONY: bench-feed
bench-feed: venv ## Deltas a second over mutual TLS, memory at 5,000 nodes, and a fleet with tokens that comes back
	@$(BIN)/python -m hack.bench.feed $(ARGS)

.PHONY: soak
soak: venv ## Random faults against running agents, held against an oracle (ARGS="--injections 300 --seed 7", "--unscaled")
	@$(BIN)/python -m hack.soak $(ARGS)

.PHONY: bench-images
bench-images: venv ## From a cold image to its first process, with and without the warmer (real containerd; ARGS="--mib 64")
	@$(BIN)/python -m hack.bench.images $(ARGS)

.PHONY: bench-place
bench-place: venv ## One decision at 5,000 nodes and 40,000 GPUs, and the engine against an exact solver
	@$(BIN)/python -m hack.bench.place $(ARGS)

.PHONY: bench-fleet
bench-fleet: venv ## 1,000 fake nodes on a real control plane until all are ready, and a Job of 1,000 pods
	@$(BIN)/python -m hack.bench.fleet $(ARGS)

.PHONY: bench-schedule
bench-schedule: venv ## Pods a second that plain kube-scheduler places on 500 fake nodes
	@$(BIN)/python -m hack.bench.schedule $(ARGS)

.PHONY: bench-release
bench-release: venv ## From a gang's decision to its last pod bound, on a real API server (ARGS="--scale 0.1")
	@$(BIN)/python -m hack.bench.release $(ARGS)

.PHONY: bench-failover
bench-failover: venv ## The leader killed 50 times under load, on a real API server (ARGS="--kills 10")
	@$(BIN)/python -m hack.bench.failover $(ARGS)

.PHONY: requirements
requirements: ## Compile requirements/*.txt with the pinned uv (ARGS="--upgrade")
	@bash hack/requirements.sh $(ARGS)

.PHONY: clean
clean: ## Remove what the targets above made
	rm -rf .venv .build .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A real control plane (docs/cluster.md). The first time, Go compiles it for minutes, into ~/.cache/muster.
# ARGS="--nodes 8 --with kueue"; MUSTER_CLUSTER_LINE=1.35 for the older Kubernetes.

.PHONY: cluster
cluster: venv ## A real control plane on loopback, built when it is missing
	@$(BIN)/python -m hack.cluster start $(ARGS)

.PHONY: cluster-stop
cluster-stop: venv ## End what make cluster started
	@$(BIN)/python -m hack.cluster stop $(ARGS)

.PHONY: cluster-status
cluster-status: venv ## Say which parts work; exit status 1 if one does not
	@$(BIN)/python -m hack.cluster status

.PHONY: test-cluster
test-cluster: venv ## Only the tests on real programs; builds them first
	@$(BIN)/python -m hack.teststages --only real --only images -- $(ARGS)

.PHONY: test-older
test-older: venv ## The tests of tests/cluster on Kubernetes 1.35 with the containerd 1.6 of Debian
	@bash hack/cluster/older.sh $(ARGS)
