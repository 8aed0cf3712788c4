# All targets work from a fresh clone; what they install goes to a virtual environment per Python version.
#   make test PYTHON=python3.13 ARGS='-k sandbox'

PYTHON ?= python3
ARGS ?=
SEEDS ?= 18

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifeq ($(VERSION),)
$(error $(PYTHON) does not run: set PYTHON to an interpreter of version 3.11 or newer)
endif

VENV := .venv-$(VERSION)
BIN := $(VENV)/bin

KUBERNETES_VERSION := 1.35.4
REFERENCE_VERSION := 1.45.2
TOOLS_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kopf-tests
TOOLS_SOURCE := tests/controlplane
KUBECTL_BUILD := $(TOOLS_CACHE)/kubectl-$(KUBERNETES_VERSION)/kubectl
CONTROLPLANE_BUILD := $(TOOLS_CACHE)/controlplane-$(KUBERNETES_VERSION)
GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w \
    -X k8s.io/component-base/version.gitVersion=v$(KUBERNETES_VERSION) \
    -X k8s.io/component-base/version.gitMajor=$(word 1,$(subst ., ,$(KUBERNETES_VERSION))) \
    -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION)))"

AUDIT := .venv-audit/tool/bin/pip-audit --strict --disable-pip --no-deps --progress-spinner off

.PHONY: help run test test-fast lint audit docs fidelity bench replicas chaos fuzz load soak kubectl controlplane clean

help: ## show these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

run: $(VENV)/.for-run ## run the minimal example on the sandbox: no cluster is needed; ARGS goes to kopf run
	@$(BIN)/kopf run --sandbox --apply examples/crd.yaml --apply examples/obj.yaml $(ARGS) examples/01-minimal/example.py

test: $(VENV)/.for-test ## run all tests: about half an hour on 2 cores; ARGS goes to pytest
	@echo 'All tests take about half an hour on 2 cores. The fast part of them takes about 3 minutes: make test-fast'
	@$(BIN)/python -m pytest $(ARGS)

# The logic of operators, in one process: neither the sandbox itself, nor the command line, nor attacks, nor documents.
SLOW_PARTS := docs endtoend faults fidelity fuzz operators/matrix sandbox security commands test_documents.py
FAST := -m 'not slow and not controlplane' $(addprefix --ignore=tests/,$(SLOW_PARTS))

test-fast: $(VENV)/.for-test ## run the fast part of the tests: about 3 minutes on 2 cores; ARGS goes to pytest
	@$(BIN)/python -m pytest -q $(FAST) $(ARGS)

fidelity: $(VENV)/.for-test controlplane ## hold the sandbox to a real API server: compare their answers
	@KOPF_TESTS_CONTROLPLANE=required $(BIN)/python -m pytest -q -m controlplane tests/fidelity $(ARGS)

replicas: $(VENV)/.for-test ## hand over, kill, and freeze replicas as often as promised: RUNS and FREEZES
	@KOPF_REPLICAS_RUNS=$(or $(RUNS),100) KOPF_REPLICAS_FREEZES=$(or $(FREEZES),1000) KOPF_ELECTION_SEEDS=2000 \
		$(BIN)/python -m pytest -q -s tests/operators/leadership/test_replicas_in_processes.py tests/core/engines/leading $(ARGS)

chaos: $(VENV)/.for-test controlplane ## kill operators and break their clusters in all ways; SEEDS of each way
	@$(BIN)/python tests/faults/chaos_table.py --seeds $(SEEDS)
	@KOPF_TESTS_CONTROLPLANE=required KOPF_TESTS_CHAOS=full $(BIN)/python -m pytest -q tests/faults/test_faults_of_clusters.py $(ARGS)

load: $(VENV)/.for-test controlplane ## start and kill an operator among 20,000 objects, and edit them meanwhile; ARGS for options
	@$(BIN)/python benchmarks/load/run.py $(ARGS)

soak: MINUTES ?= 20
soak: $(VENV)/.for-test ## let an operator live in churn and faults for some MINUTES, and check that it does not grow
	@$(BIN)/python benchmarks/soak/soak.py --minutes $(MINUTES) $(ARGS)

fuzz: MINUTES ?= 5
fuzz: $(VENV)/.for-fuzz ## feed garbage to all that reads the data of others, for some MINUTES; ARGS='--target sandbox'
	@$(BIN)/python tests/fuzz/fuzz_runs.py --minutes $(MINUTES) $(ARGS)

lint: $(VENV)/.for-lint ## check the style, the sizes, the types, and the layers
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check
	$(BIN)/ruff check --preview --select E3
	$(BIN)/ruff check --config lint.pycodestyle.max-line-length=100 --select E501 kopf
	$(BIN)/python tools/count_branches.py kopf
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: .venv-audit/tool ## look for known vulnerabilities in all that is installed with kopf; needs their database
	@echo 'pyyaml==5.3' > .venv-audit/vulnerable.txt
	@rm -f .venv-audit/reached
	@timeout 30 $(AUDIT) -r .venv-audit/vulnerable.txt 2>&1 | grep -qE '(PYSEC|CVE|GHSA)-' || { echo "NOT AUDITED: the database of \
	vulnerabilities cannot be reached, or it does not know of those that are there for sure." >&2; exit 1; }
	@echo yes > .venv-audit/reached
	@$(MAKE) --no-print-directory .venv-audit/audited
	@.venv-audit/audited/bin/python -m pip freeze --exclude-editable > .venv-audit/audited.txt
	$(AUDIT) -r .venv-audit/audited.txt $(ARGS)

docs: $(VENV)/.for-docs ## build the documentation, and check the links inside of it; ARGS='-D repository=ADDRESS'
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d docs/_build/doctrees $(ARGS) docs docs/_build/html
	@$(BIN)/python docs/tools/links.py docs/_build/html

bench: $(VENV)/.for-test .venv-bench/kopf .venv-bench/plain .venv-bench/reference .venv-bench/go controlplane ## compare with the reference and with Go, refresh docs/performance; ARGS='--quick --only A,B'
	@.venv-bench/kopf/bin/python -m compileall -q kopf  # as others are when they are installed
	@$(BIN)/python benchmarks/arena/run.py --python .venv-bench/kopf/bin/python --plain .venv-bench/plain/bin/python \
	    --reference .venv-bench/reference/bin/python --go .venv-bench/go/operator $(ARGS)

kubectl: $(KUBECTL_BUILD) ## build the kubectl that the tests use, once, and show where it is
	@echo $<

controlplane: $(CONTROLPLANE_BUILD) ## build the control plane that the tests use, once, and show where it is
	@echo $<

clean: ## remove all that was built or installed here
	rm -rf .venv-* .fuzz build dist docs/_build docs/_generated .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find kopf tests examples benchmarks docs -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

$(VENV)/.for-run: EXTRAS := dev
$(VENV)/.for-test: EXTRAS := dev,speed,test
$(VENV)/.for-fuzz: EXTRAS := dev,speed,test,fuzz
$(VENV)/.for-lint: EXTRAS := dev,speed,test,lint
$(VENV)/.for-docs: EXTRAS := dev,docs
$(VENV)/.for-%: SHELL := bash
$(VENV)/.for-%: $(BIN)/python pyproject.toml
	@echo 'Installing the package with the extras $(EXTRAS) into $(VENV), once. It takes about a minute:'
	@set -o pipefail; $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --editable '.[$(EXTRAS)]' \
	    | sed -u -nE 's/^Collecting ([^ <>=!~;(]+).*/  \1/p; s/^(Successfully installed) .*/\1./p'
	@touch $@

.venv-bench/kopf: PACKAGES := --editable '.[speed]'
.venv-bench/plain: PACKAGES := --editable .
.venv-bench/reference: PACKAGES := 'kopf==$(REFERENCE_VERSION)' uvloop
.venv-bench/kopf .venv-bench/plain .venv-bench/reference: pyproject.toml
	$(PYTHON) -m venv --clear $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check $(PACKAGES)
	@touch $@

.venv-audit/tool: PACKAGES := pip-audit
.venv-audit/audited: PACKAGES := --editable '.[full-auth,uvloop,dev,speed,tunnels,typed]'
.PHONY: .venv-audit/audited  # always made again, with the versions that are current now
.venv-audit/tool .venv-audit/audited:
	$(PYTHON) -m venv --clear $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check $(PACKAGES)

.venv-bench/go: $(wildcard benchmarks/go/*.go benchmarks/go/*/*.go) benchmarks/go/go.mod benchmarks/go/go.sum
	@mkdir -p $@
	cd benchmarks/go && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $(CURDIR)/$@/operator .
	cd benchmarks/go && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $(CURDIR)/$@/reconciling ./reconciling
	@touch $@

$(KUBECTL_BUILD):
	@test ! -f $(@D) || rm $(@D)
	@mkdir -p $(@D)
	cd $(TOOLS_SOURCE) && $(GO_BUILD) -o $@.new ./kubectl
	@mv $@.new $@

$(CONTROLPLANE_BUILD):
	@rm -rf $@.new
	@mkdir -p $@.new
	cd $(TOOLS_SOURCE) && $(GO_BUILD) -o $@.new/ ./etcd ./kube-apiserver ./kube-controller-manager
	@mv $@.new $@
