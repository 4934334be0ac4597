# The verbs of this repository. Each installs what it needs: Python ≥ 3.11 with venv and pip, make and git suffice.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
UV_VERSION := 0.13.9
PYTHON ?= python3
SYSTEM_UV := $(shell command -v uv 2>/dev/null)
UV := $(if $(SYSTEM_UV),$(SYSTEM_UV),.tools/bin/uv)
# One thread per process: pools of them only cost time and memory here.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# Tests start hundreds of processes: where compiled modules are not kept, each compiles all it imports, 1.5 s every time.
unexport PYTHONDONTWRITEBYTECODE
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
MEMBERS := $(wildcard core/pyproject.toml kubernetes/pyproject.toml services/*/pyproject.toml sim/pyproject.toml cli/pyproject.toml)

.PHONY: help demo docs-images test check bench controlplane cluster cluster-stop clean e2e faults random-plans beside scale steering images pin-base containers release
help: ## list the verbs
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

.tools/bin/uv:
	$(PYTHON) -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/.ready: pyproject.toml uv.lock $(MEMBERS) | $(filter .tools/bin/uv,$(UV))
	$(UV) sync --locked --quiet --compile-bytecode # else each first command spends its time limit on this
	.venv/bin/python -m compileall -q $(addsuffix src,$(dir $(MEMBERS)))
	.venv/bin/python -m kinema_optimizer.search.kernels # compiles, a minute once per machine
	touch $@

demo: .venv/.ready ## the whole pipeline on this machine; leaves out/demo/
	.venv/bin/kinema demo --out out/demo

docs-images: demo ## draw docs/images/plan.png from the demo; needs Chromium or Chrome
	.venv/bin/python tools/docs_images.py out/demo/recording.jsonl.zst

quick: .venv/.ready ## unit and property tests that need no server, a minute and a half on two processors
	.venv/bin/python -m pytest -q -m "not slow and not connected and not pipeline and not cluster" -n 2

# Processes: more than processors, since many tests wait for a clock or a server.
test: .venv/.ready controlplane ## every test that this machine can run; says what it leaves out and why
	.venv/bin/python -m pytest -q -m "not connected and not pipeline and not cluster and not long and not containers" -n 3
	.venv/bin/python -m pytest -q -m "(connected or pipeline or cluster) and not faults and not long and not containers" -n 5 --dist loadscope --no-loadscope-reorder \
	  $$(grep -rlE --include='*.py' 'mark\.(connected|pipeline|cluster)\b' tests | sed 's,/conftest\.py$$,,' | sort)
	@echo "left out: tests marked faults or long, which take minutes each on a real control plane: make faults; and those in containers: make containers"

e2e: .venv/.ready controlplane ## all services on a real control plane, audited from outside; leaves out/e2e/result.json
	.venv/bin/python -m pytest -q tests/e2e/test_e2e.py

faults: .venv/.ready controlplane ## failures of every kind, and every way to move, on a real control plane; minutes for each case
	.venv/bin/python -m pytest -q -m "(faults or long) and not containers"

random-plans: .venv/.ready controlplane ## 2,000 random plans on the simulated cluster and 300 on a real control plane; more than two hours on two idle processors
	.venv/bin/python -m tests.history simulated
	.venv/bin/python -m tests.history real

check: .venv/.ready ## Ruff, mypy --strict, import contracts
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy core/src kubernetes/src sim/src cli/src services/*/src
	.venv/bin/mypy tests benchmarks tools deploy
	.venv/bin/lint-imports

bench: .venv/.ready ## measure; results as JSON in out/bench/
	.venv/bin/python -m benchmarks --out out/bench

beside: .venv/.ready controlplane ## the services on a start of the kind that Karpenter was measured on, on a real control plane, ten minutes; leaves out/bench/after_peak.json
	.venv/bin/python -m benchmarks.after_peak

scale: .venv/.ready controlplane ## one iteration at 1,300 nodes and 12,000 workloads on a real control plane; leaves out/bench/scale.json
	.venv/bin/python -m benchmarks.scale

steering: .venv/.ready controlplane ## share of new pods that land on their planned nodes, by kube-scheduler's configuration; leaves out/bench/steering.json
	.venv/bin/python -m benchmarks.steering

KUBERNETES ?= 1.36
controlplane: .venv/.ready ## build what tests with a real Kubernetes need (KUBERNETES=1.36 or 1.34); minutes once, nothing later
	.venv/bin/python -m tests.controlplane build --kubernetes $(KUBERNETES) || test "$${KINEMA_REQUIRE_ALL:-}" != 1

cluster: controlplane ## leave a real control plane running, with fake nodes; writes out/cluster/kubeconfig
	.venv/bin/python -m tests.controlplane up --kubernetes $(KUBERNETES)

cluster-stop: .venv/.ready ## end what `make cluster` left running
	.venv/bin/python -m tests.controlplane down

BASE ?= $(shell sed -n 's/^ARG BASE=//p' Dockerfile)
IMAGES := observer predictor optimizer decider rescheduler admin cli nats
images: ## build every container image; BASE=… names another Debian with Python
	for service in $(IMAGES); do \
	  docker build --quiet --build-arg BASE=$(BASE) --build-arg SERVICE=$$service --build-arg REVISION=$$(git rev-parse HEAD) \
	    --build-arg VERSION=$(VERSION) --tag kinema-$$service:$(VERSION) . || exit 1; done

pin-base: ## pin the base image by its newest digest, in Dockerfile and .env; asks its registry
	digest=$$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' $(firstword $(subst @, ,$(BASE)))) \
	  && sed -i -E "s,^(ARG BASE|KINEMA_BASE)=.*,\1=$(firstword $(subst @, ,$(BASE)))@$$digest," Dockerfile .env

CONTAINERS ?= containers
containers: export KINEMA_BASE = $(BASE)
containers: .venv/.ready controlplane ## build the images and run what is tested in containers; needs an engine and Compose
	docker compose --profile demo build
	.venv/bin/python -m pytest -q -m "$(CONTAINERS)"

release: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct)
release: .venv/.ready ## wheels, charts, images, SBOM, plugin for kubectl and checksums in out/release; see docs/release.md
	.venv/bin/python tools/release.py --check
	rm -rf out/release && mkdir -p out/release
	$(UV) build --quiet --all-packages --wheel --out-dir out/release
	$(UV) export --locked --quiet --no-dev --no-emit-workspace --no-hashes --no-header --no-annotate --package kinema-cli > out/release/constraints.txt
	$(UV) export --locked --quiet --no-dev --all-packages --preview-features sbom-export --format cyclonedx1.5 \
	  | sed -E '/"(serialNumber|timestamp)":/d' > out/release/kinema-$(VERSION).cdx.json
	helm=$$(command -v helm || .venv/bin/python -c 'from tests.controlplane.build import VERSIONS, built; print(built(VERSIONS[0])["helm"])'); \
	  for chart in charts/*/; do "$$helm" package --destination out/release "$$chart" || exit 1; done
	.venv/bin/python tools/release.py pack out/release
	if docker info >/dev/null 2>&1; then \
	  $(MAKE) images; \
	  for service in $(IMAGES); do docker save kinema-$$service:$(VERSION) | gzip -n > out/release/kinema-$$service-$(VERSION).image.tar.gz || exit 1; done; \
	else echo "left out: images, because no container engine answers"; fi
	cd out/release && sha256sum -- * > SHA256SUMS

clean: ## remove what the verbs made
	rm -rf .venv .tools .cache out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
