# Installs everything that Muster needs, pinned, inside this folder.
# A machine needs only Python >= 3.11, node >= 20, make and git.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The compiled kernel of this machine, if it has a compiler.
KERNEL := build/.ready-kernel
SETUP := $(VENV)/.ready $(VENV)/.ready-bytecode node_modules/.ready build/.ready $(KERNEL)
# uv with pip's settings of this machine (index, certificates, proxy), which uv itself does not read.
UV_PIP := $(BIN)/python -m muster.infra.packages
# What targets need of the system beside Python, node, npm and git. It is looked at before anything is installed or run.
SYSTEM.unit := cc
SYSTEM.test := chromium tmux cc
SYSTEM.bench := chromium
SYSTEM.screenshots := chromium
SYSTEM.test-release := $(SYSTEM.test) qemu
SYSTEM.release := $(SYSTEM.test-release)
# What only tests, checks, benchmarks and documentation need: a demo does without it.
DEV := $(VENV)/.ready-dev
# PyTorch is large: only the targets that need it install it.
TORCH := $(VENV)/.ready-torch
# So are the frameworks whose examples the tests run.
FRAMEWORKS := $(VENV)/.ready-frameworks
TORCHX := build/torchx/stable/.ready
TORCHX_NIGHTLY := build/torchx/nightly/.ready
# What AWS's own SDK makes of recipes: the tests compare ours with it.
SAGEMAKER := build/sagemaker/.ready
KUBERNETES := build/kubernetes/.ready
# The builder of the documentation's site pins packages of its own.
SITE := build/zensical/.ready
# What the benchmarks compare Muster with. botocore uses awscrt wherever it is installed.
PEERS := build/peers/.ready
# The compiler of the kernel for all machines, which distributions carry.
ZIG := build/zig/.ready
# The tests check the bundle for AWS, too: its packages are downloaded before they start.
AWS_BUNDLE := build/.ready-aws-bundle
BUNDLE_SOURCES := infra/deploy/bundle.py infra/deploy/function_dependencies.py
# Four workers, each with an embedded cloud and a stack of its own, keep two cores busy, beside the session with PyTorch.
WORKERS ?= 4

# Bytecode is written whatever the shell says: without it each synthesis compiles the CDK for 3 s, and each process of a
# test our own packages.
export PYTHONDONTWRITEBYTECODE :=

# npm's packages come while Python's do, and bytecode is compiled beside the first synthesis.
MAKEFLAGS += --jobs=3

# What an interrupted recipe has left of its target is no target.
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-hyperpod demo-elastic demo-places demo-gpt unit test test-release check check-types check-gate check-style upgrade-test soak explore explore-rendezvous bench docs site screenshots deploy lock job-schema release clean

GOALS := $(filter-out help clean,$(or $(MAKECMDGOALS),help))
ifneq ($(GOALS),)
ifneq ($(shell PYTHON=$(PYTHON) sh infra/machine.sh $(foreach goal,$(GOALS),$(SYSTEM.$(goal))) && echo complete),complete)
$(error the machine lacks what is named above)
endif
endif

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SETUP) ## Install what is pinned (a second call installs nothing)

# The wheel of pip that Python brings installs uv and pip itself. ensurepip would first compile all of pip, of which few
# modules are ever imported. A distribution may keep its wheels in a folder of its own; where there is none, venv says
# what to install.
BUNDLED_PIP = $(PYTHON) -c 'import ensurepip, pathlib, sysconfig; \
  places = sysconfig.get_config_var("WHEEL_PKG_DIR"), pathlib.Path(ensurepip.__file__).parent / "_bundled"; \
  print(*[wheel for place in places if place for wheel in pathlib.Path(place).glob("pip-*.whl")][:1])' 2>/dev/null

# The pin of uv is in requirements.txt like all others. An interrupted pip may leave half of it, which counts as installed.
$(VENV)/.ready-uv:
	@test -x $(BIN)/python || $(PYTHON) -m venv $$($(BUNDLED_PIP) | grep -q . && echo --without-pip) $(VENV)
	@PYTHONPATH="$$($(BUNDLED_PIP))" $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile \
	  --force-reinstall $$($(BUNDLED_PIP)) "$$(grep '^uv==' requirements.txt)"
	@touch $@

# What is pinned in a file, with options of uv, into $(VENV). An installation that was cut off (an interrupt, a full disk) may
# have left half a package, which counts as installed: the next one installs all of the file again.
define install
@again=$$(test ! -e $@.begun || echo --reinstall); touch $@.begun; $(UV_PIP) install --quiet $$again $(1) && rm $@.begun
endef

$(VENV)/.ready: requirements.txt pyproject.toml | $(VENV)/.ready-uv
	@echo "Installing the pinned Python packages into $(VENV) (once)"
	@rm $(VENV)/.ready-uv # it is one of them
	$(call install,--no-deps -r requirements.txt)
	@touch $(VENV)/.ready-uv
	@$(UV_PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Jobs on the embedded cloud write no bytecode, so each would compile again what it imports. What no job imports stays
# out: it is most of what is installed, and its bytecode is written when something imports it. Some packages ship files
# for other versions of Python, which do not compile: that is not an error.
compile = $(BIN)/python -m compileall -qq -j 0 -x '/($(1))/' $(VENV)/lib || true

$(VENV)/.ready-bytecode: $(VENV)/.ready
	@$(call compile,aws_cdk|pip|pygments|setuptools|sklearn|tests)
	@touch $@

$(DEV): requirements-dev.txt $(VENV)/.ready $(VENV)/.ready-bytecode node_modules/.ready-dev
	@echo "Installing the packages of the tests into $(VENV) (once)"
	$(call install,--no-deps -r requirements-dev.txt)
	@$(call compile,aws_cdk|cfnlint|moto|networkx|playwright|sympy|tests)
	@touch $@

$(TORCH): requirements-torch.txt $(VENV)/.ready $(VENV)/.ready-bytecode
	@echo "Installing PyTorch and what goes with it into $(VENV) (once)"
	$(call install,-r requirements-torch.txt)
	@$(call compile,aws_cdk|cfnlint|moto|playwright|tests)
	@touch $@

$(FRAMEWORKS): requirements-frameworks.txt $(DEV) $(TORCH)
	@echo "Installing the frameworks of the examples into $(VENV) (once)"
	$(call install,--no-deps -r requirements-frameworks.txt)
	@touch $@

# The environment in the target's folder, with what is pinned for it; $(1): options of uv.
define own_environment
@$(BIN)/python -m venv --clear --without-pip $(@D)
@$(UV_PIP) install --quiet $(1) --python $(@D)/bin/python -r $<
endef

# .venv's packages behind those of such an environment.
define packages_behind
@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
  > $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/muster.pth
endef

# TorchX pins an urllib3 of its own: each version has its own environment, with .venv's packages behind its own.
build/torchx/%/.ready: requirements-torchx-%.txt $(VENV)/.ready
	@echo "Installing TorchX ($*) into build/torchx/$* (once)"
	$(call own_environment)
	$(packages_behind)
	@touch $@

# The SageMaker SDK, without what it needs for things that have nothing to do with recipes; .venv's packages behind it.
$(SAGEMAKER): requirements-sagemaker.txt $(DEV)
	@echo "Installing the SageMaker SDK into build/sagemaker (once)"
	$(call own_environment,--no-deps)
	$(packages_behind)
	@touch $@

# The public client of Kubernetes and AWS's command line for HyperPod, without what that needs for other things.
$(KUBERNETES): requirements-kubernetes.txt $(DEV)
	@echo "Installing the clients of Kubernetes into build/kubernetes (once)"
	$(call own_environment,--no-deps)
	$(packages_behind)
	@touch $@

# The S3 clients of others, with .venv's packages behind them.
$(PEERS): requirements-peers.txt $(DEV)
	@echo "Installing what the benchmarks compare with into build/peers (once)"
	$(call own_environment,--no-deps)
	$(packages_behind)
	@touch $@

$(KERNEL): muster/replica/kernel/kernel.c infra/release/kernels.py $(VENV)/.ready
	@mkdir -p build
	@$(BIN)/python -m muster.infra.release.kernels
	@touch $@

$(ZIG): requirements-zig.txt $(VENV)/.ready
	@echo "Installing the compiler of the kernels into build/zig (once)"
	$(call own_environment)
	@touch $@

$(SITE): requirements-site.txt $(VENV)/.ready
	@echo "Installing the builder of the documentation's site into build/zensical (once)"
	$(call own_environment)
	@touch $@

node_modules/.ready: package.json package-lock.json
	@echo "Installing the pinned npm packages (once)"
	@npm ci --omit=dev --silent --no-fund --no-audit
	@touch $@

# The others are npm's checkers and the sources of the page's parts. npm replaces the whole folder.
node_modules/.ready-dev: package-lock.json node_modules/.ready
	@echo "Installing the npm packages of the checks (once)"
	@npm ci --silent --no-fund --no-audit
	@touch node_modules/.ready
	@touch $@

# A first synthesis installs the functions' packages and unpacks the CDK: later ones take seconds and no network. It needs
# node, and no package of npm's. With the settings of the demo: the demo takes what is written here.
build/.ready: $(VENV)/.ready lambdas/requirements.txt $(BUNDLE_SOURCES)
	@echo "Preparing the functions' packages (once)"
	@rm -rf build/setup && mkdir -p build/setup && printf '[replicas]\nimage = "muster-local/python"\n' > build/setup/muster.toml
	@CDK_OUTDIR=build/setup/cdk.out CDK_VALIDATION=false CDK_DISABLE_CLI_TELEMETRY=true \
	  CDK_CONTEXT_JSON='{"settings": "build/setup/muster.toml", "target": "local"}' $(BIN)/python app.py
	@touch $@

$(AWS_BUNDLE): $(VENV)/.ready lambdas/requirements.txt $(BUNDLE_SOURCES)
	@echo "Preparing the functions' packages for AWS (once)"
	@$(BIN)/python -c 'import muster.infra.deploy.bundle as b, muster.infra.settings.stack_settings as s; b.build_bundle(s.Platform.AWS)'
	@touch $@

demo: setup ## A real run on this machine: deploy, train with 4 replicas, lose one, finish
	@$(BIN)/python -m examples.digits.demo

demo-hyperpod: setup ## The same on an embedded HyperPod cluster: a node is lost, a replica grows to two instances
	@$(BIN)/python -m examples.digits.hyperpod_demo

demo-elastic: setup ## Replicas that come and go: two, then six, then three, with a shortage and a lost instance
	@$(BIN)/python -m examples.digits.seats_demo

demo-places: setup ## Three regions of two accounts: one goes dark, its replicas go elsewhere
	@$(BIN)/python -m examples.digits.places_demo

demo-gpt: setup $(TORCH) ## A GPT in PyTorch, 4 replicas against data parallel (3 minutes); PROCESSES=2 shards each (FSDP2)
	@$(BIN)/python -m examples.char_gpt.demo $(addprefix --spec ,$(SPEC))

unit: setup $(DEV) ## The unit tests alone: no cloud, no browser, no PyTorch (a minute and a half)
	@$(BIN)/python -m pytest -n 2 --dist worksteal tests/unit

explore: setup $(DEV) ## Explore schedules of the control plane under faults (N=100000 SEED=0 KIND=elastic)
	@$(BIN)/python -m tests.simulation explore $(addprefix --schedules ,$(N)) $(addprefix --seed ,$(SEED)) $(addprefix --kind ,$(KIND))

upgrade-test: setup $(DEV) ## Upgrade a stack under runs, and roll it back; BASE=REVISION begins with a commit
	@BASE=$(BASE) $(BIN)/python -m pytest -n 0 tests/release/upgrade

soak: setup $(DEV) ## A night in ten minutes: 50 runs under random faults, every verdict checked; SEED=7 repeats one
	@$(BIN)/python -m tests.soak $(addprefix --seed ,$(SEED))

test: setup $(DEV) $(TORCH) $(TORCHX) $(AWS_BUNDLE) ## What a change must pass, in ten minutes on two cores
	@$(BIN)/python -m tests.suite --workers $(WORKERS) merge

test-release: setup $(DEV) $(TORCH) $(FRAMEWORKS) $(TORCHX) $(TORCHX_NIGHTLY) $(SAGEMAKER) $(KUBERNETES) $(PEERS) $(ZIG) $(AWS_BUNDLE) ## All tests, up to two hours; goes on where it was interrupted (GROUP=oracle: one group)
	@$(BIN)/python -m tests.suite --workers $(WORKERS) release $(GROUP)

explore-rendezvous: setup $(DEV) $(TORCH) ## Random schedules of the rendezvous under faults (SCHEDULES=100000 SEED=0 KIND=elastic)
	@$(BIN)/python -m tests.exploration $(or $(SCHEDULES),100000) --seed $(or $(SEED),0) $(addprefix --front-end ,$(KIND))

check: setup $(DEV) $(TORCH) $(SITE) ## Lint, types, import rules, the static gate, the documentation's links
	@$(MAKE) --no-print-directory --output-sync check-types check-gate check-style

# Its parts, side by side; each alone needs what `make check` has installed.
check-types:
	$(BIN)/mypy
	node node_modules/pyright/index.js -p tests/unit/client --pythonpath $(BIN)/python

check-gate:
	$(BIN)/vulture
	node node_modules/.bin/asl-validator --json-path statemachine/run.asl.json
	@mkdir -p build
	$(BIN)/python -m muster.infra.gate 2> build/gate.log || { tail -n 20 build/gate.log; exit 1; }
	$(BIN)/cfn-lint

check-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m docs.build_site build/zensical/bin/zensical

bench: setup $(DEV) $(TORCH) $(PEERS) ## Measure, as one table; rows in build/bench/<name>.json
	@$(BIN)/python -m bench

docs: setup $(DEV) ## Write the parts of docs/ that follow from the code
	@$(BIN)/python -m docs.generate

site: setup $(SITE) ## Build the documentation as a site into build/site/html, with every link checked
	@$(BIN)/python -m docs.build_site build/zensical/bin/zensical

screenshots: setup $(DEV) ## Pictures of the demo's page for docs/, at three widths
	@test -e build/demo/report.html || $(MAKE) --no-print-directory demo
	@$(BIN)/python -m docs.screenshots build/demo/report.html

deploy: setup ## Deploy to the AWS account of this shell as muster.toml says (SETTINGS=other.toml), or TARGET=local
	@$(BIN)/muster deploy $(addprefix --target ,$(TARGET)) $(addprefix --settings ,$(SETTINGS)) $(if $(YES),--yes)

# Without this machine's own builds (pip's find-links): every user must be able to install what is locked.
# The digits are a file of scikit-learn's: nothing imports it, nor what it needs.
UNUSED := joblib narwhals scipy threadpoolctl
LOCK := UV_FIND_LINKS= $(UV_PIP) compile --python-version 3.11 --universal --quiet --no-header --no-annotate pyproject.toml

lock: | $(VENV)/.ready-uv ## Resolve pyproject.toml into the files of requirements again
	@$(LOCK) --extra deploy --group build --group functions --group examples $(addprefix --no-emit-package ,$(UNUSED)) -o requirements.txt
	@mkdir -p build
	@# Installed beside the others: what they pin is left out.
	@$(LOCK) --group dev -c requirements.txt | grep -v -x -F -f requirements.txt > build/requirements-dev.txt
	@mv build/requirements-dev.txt requirements-dev.txt
	@# PyTorch pins what its builds for GPUs need by itself; a build for the CPU needs none of it.
	@$(LOCK) --extra torch --group torch -c requirements.txt -c requirements-dev.txt \
	  | grep -v -E '^(nvidia-|cuda-|triton)' > build/requirements-torch.txt
	@mv build/requirements-torch.txt requirements-torch.txt
	@$(LOCK) --group frameworks -c requirements.txt -c requirements-dev.txt -c requirements-torch.txt \
	  | grep -v -E '^(nvidia-|cuda-|triton|torch==)' \
	  | grep -v -x -F -f requirements.txt -f requirements-dev.txt -f requirements-torch.txt \
	  > build/requirements-frameworks.txt
	@mv build/requirements-frameworks.txt requirements-frameworks.txt
	@UV_FIND_LINKS= $(UV_PIP) compile --python-version 3.11 --universal --quiet --no-header --no-annotate \
	  --group site -o requirements-site.txt
	@UV_FIND_LINKS= $(UV_PIP) compile --python-version 3.11 --universal --quiet --no-header --no-annotate \
	  --group peers -o requirements-peers.txt
	@UV_FIND_LINKS= $(UV_PIP) compile --python-version 3.11 --universal --quiet --no-header --no-annotate \
	  --group zig -o requirements-zig.txt

# The models of AWS's SDK for HyperPod as a JSON schema; `make test-release` compares it with the SDK that is pinned.
job-schema: | $(KUBERNETES) ## Derive the schema of HyperPodPyTorchJob from AWS's SDK again
	@build/kubernetes/bin/python tests/release/oracle/hyperpod_side/job_schema.py > build/job_schema.json
	@mv build/job_schema.json muster/options/hyperpod/contract/job_schema.json

release: check test-release ## Build the release of this commit and verify it: sdist, wheel, template (publishes nothing)
	@$(BIN)/python -m muster.infra.release

clean: ## Remove what was made (the virtual environment and npm packages too)
	rm -rf build cdk.out .muster $(VENV) node_modules *.egg-info
