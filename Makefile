# Needs make and Python >= 3.11; everything else is installed into .tools and .venv.

SHELL := /bin/sh
.DEFAULT_GOAL := help
# Where it is set, every start of every part would compile everything anew: 8 s instead of 2.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help get up sync test check bench chaos chart images sample-site clean

# Each of these is asked whether it really runs and is new enough: a shim on PATH may do neither.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; exit; }; done)

TOOLS := .tools
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.synced
UV = "$$(command -v uv || echo '$(CURDIR)/$(TOOLS)/bin/uv')"
MEMBERS := $(wildcard libs/*/pyproject.toml services/*/pyproject.toml cli/pyproject.toml)
SOURCES := $(wildcard libs/*/src services/*/src cli/src)
# Passed on to `sluice get` and to pytest: make get ARGS="--preset 720p", make test ARGS="-k outbox".
ARGS ?=
# What `make chaos` breaks, and when.
SEED ?= 1
# Test processes; `auto`, with few cores, are more than there are cores: see conftest.py.
JOBS ?= auto

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

get: $(STAMP) ## Fetch URL=<link> (or a bundled sample) into ./downloads and print the path
	@exec $(BIN)/sluice get $(ARGS) -- $(if $(value URL),'$(subst ','\'',$(value URL))')

up: $(STAMP) ## Run the whole system at http://127.0.0.1:8080 until Ctrl-C
	@exec $(BIN)/sluice up $(ARGS)

sample-site: $(STAMP) ## Run the bundled sample site and print its links
	@exec $(BIN)/sluice sample-site $(ARGS)

sync: $(STAMP) ## Install everything that the commands need
	@:

test: $(STAMP) ## Run every test that this machine allows
	@$(BIN)/pytest -n $(JOBS) --dist worksteal $(ARGS)

check: $(STAMP) ## Format, lint, types, imports, Dockerfiles, dashboards, alert rules, chart, lock file
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports
	$(BIN)/hadolint services/*/Dockerfile libs/testing/Dockerfile
	$(BIN)/python -m tests.ops.monitoring
	$(BIN)/pytest -q tests/chart/test_render.py
	$(UV) lock --check

bench: $(STAMP) ## Print the benchmark table and write bench/results.json
	@$(BIN)/python -m tests.bench $(ARGS)

chaos: $(STAMP) ## Break the running system for 6 minutes on each set of stores, then count (SEED=, ARGS=)
	@status=0; for stores in 'sqlite --storage folder' 'postgresql --storage s3'; do \
		$(BIN)/python -m tests.chaos --database $$stores --seed $(SEED) $(ARGS) || status=1; \
	done; exit $$status

chart: $(STAMP) ## Render the chart's goldens and the names in its schema anew
	@$(BIN)/python -m tests.chart.render

images: ## Build the container images with docker, podman or buildah (NAMES="api parser", TAG=)
	@images/make.sh $(NAMES)

clean: ## Remove what the commands installed; data and downloads stay
	rm -rf $(VENV) $(TOOLS)

$(STAMP): uv.lock pyproject.toml $(MEMBERS)
	@$(if $(strip $(PYTHON)),:,echo "Sluice needs Python 3.11 or newer; install it, or name it: make PYTHON=/path/to/python3." >&2; exit 2)
	@command -v uv >/dev/null || test -x $(TOOLS)/bin/uv || { $(get-uv) }
	@echo "Installing packages into $(VENV) …" >&2
	@$(UV) sync --quiet --frozen --all-packages --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@touch $@

# Debian's Python comes without venv, some others without pip: one of both is enough.
define get-uv
echo "Installing uv into $(TOOLS) …" >&2; \
	export PIP_ROOT_USER_ACTION=ignore; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade --target $(TOOLS) uv \
	|| { $(PYTHON) -m venv $(TOOLS)/venv && $(TOOLS)/venv/bin/pip install --quiet --disable-pip-version-check uv \
	     && mkdir -p $(TOOLS)/bin && ln -sf ../venv/bin/uv $(TOOLS)/bin/uv; } \
	|| { echo "uv could not be installed: this Python needs pip or venv (on Debian: apt-get install python3-venv)." >&2; exit 2; };
endef
