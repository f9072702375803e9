# Two commands: `make demo` runs the main job, `make test` passes the tests. Both do all the set-up.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# Nothing here phones home.
export MLFLOW_DISABLE_TELEMETRY = true
export PREFECT_SERVER_ANALYTICS_ENABLED = false
export DO_NOT_TRACK = 1
export RAY_USAGE_STATS_ENABLED = 0
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: chromium screenshots setup demo demo-s3 test test-all lint docs faults audit accuracy clean-demo help

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## make .venv with everything the other targets need

# One resolve for everything: a second step could lift a package past what another accepts.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -c constraints.txt -e '.[dev,dask,postgres]'
	touch $(STAMP)

demo: setup ## make a fleet, train, register, score three nights and compare with the planted faults
	$(VENV)/bin/paano demo

demo-s3: setup ## the same on a real S3 server, Prefect server and MLflow server, started and stopped here
	$(VENV)/bin/paano demo --s3

# Every worker starts the servers it needs for itself: about 2 GB of memory each.
TEST_WORKERS ?= 2

test: setup lint ## everything that runs within minutes
	$(PY) -m pytest -m "not slow" --cov -n $(TEST_WORKERS) --dist loadfile

test-all: setup lint chromium ## also Ray, PostgreSQL and the long runs
	$(PY) -m pip install -q -c constraints.txt -e '.[dev,dask,ray,postgres]'
	$(PY) -m pytest

lint: setup ## style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: setup ## write the pages that are made from the code
	$(PY) -m flows.settings.reference > docs/settings.md

# The browser that the pages are tested in; without the rights to install it these tests are skipped.
chromium: ## install Debian's Chromium and its driver, where they are missing
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	  || { apt-get update -q && apt-get install -y -q --no-install-recommends chromium chromium-driver fonts-dejavu-core; } \
	  || echo "Chromium could not be installed; the tests in a browser will be skipped"

screenshots: setup chromium ## the pictures that README and docs show, from the demo (made first if it is not there)
	@test -f demo/fleet.toml || $(VENV)/bin/paano demo
	$(PY) -m benchmarks.screenshots demo/fleet.toml docs

faults: setup ## everything that is tried to break it: the table of docs/faults.md, about a quarter of an hour
	$(PY) -m tests.faults

# Apart from .venv: the scanner's own packages must not move ours. --strict: what could not be looked up is an error.
audit: ## look for known weaknesses of the pinned packages; it asks pypi.org
	$(PYTHON) -m venv .audit
	.audit/bin/python -m pip install -q pip-audit
	.audit/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

accuracy: setup ## VUS-PR per file on the TSB-AD tuning split, for untrained, light and paper
	$(PY) -m benchmarks.accuracy

clean-demo: ## remove what the demos made
	rm -rf demo demo-s3
