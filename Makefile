# Needs Python 3.11 and make; each target sets up .venv by itself, once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.set-up
# Bytecode is written as modules are first imported, of all that is installed a small part. Where a
# machine forbids it, each of the thousand processes that tests start would compile jobkit again.
export PYTHONDONTWRITEBYTECODE :=
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: help setup demo check test test-faults lint docs bench constraints clean

help:                 ## what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(STAMP)       ## the virtual environment, with all that tests need
$(STAMP): pyproject.toml constraints.txt
	@test -d .venv || $(PYTHON) -m venv .venv || { echo "on Debian: apt install python3-venv"; exit 1; }
	$(PIP_INSTALL) torch
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

demo: setup           ## the main job, small, on this machine: prints the scaling table, and writes report.html
	$(BIN)/jobkit sweep sweeps/demo.yaml --new
	$(BIN)/jobkit report

check: lint           ## while you work, within a minute: lint, and the tests that start no process
	$(BIN)/python -m pytest tests -n 2 --dist loadgroup --quick $(SLOW:%=--ignore %)

# Tests on real schedulers mostly wait, the others compute: side by side they take the time of one.
test: setup           ## before you push: all that CI checks but the tests on real schedulers (JOBKIT_CLUSTER=1 adds them)
	$(MAKE) --jobs=3 --output-sync=target cluster lint unit

.PHONY: model
model: setup          ## the stand-in model that tests tag with, trained once a checkout
	JOBKIT_CACHE=$${JOBKIT_CACHE:-$(CURDIR)/.cache/jobkit} $(BIN)/jobkit models build --size tiny

lint: setup           ## style, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck .ci/run tests/data/capture.sh tests/data/other-site.sh tests/fakes/conda

# Modules that compute and do no I/O but read a given file: tests take every branch of them. A new
# module of the kind belongs here; where one is renamed, make stops and names it.
PURE := $(wildcard jobkit/schedulers/*.py) $(patsubst %,jobkit/%.py, \
	answers/gpus answers/ledger answers/loads answers/memory answers/memory_line answers/objective \
	answers/observations answers/setting answers/speed answers/stats core/blocks \
	core/figures core/json_codec core/paragraphs core/records core/student core/units extensions/other_logs/dcgm \
	extensions/other_logs/tagger_log extensions/tune/steps planning/batch_sizes planning/points planning/sample report/columns \
	report/energy report/recommend/energy \
	report/recommend/objective report/recommend/output report/recommend/types report/recommend/waste \
	report/rows runs/accounting runs/conditions runs/logs runs/overlaps runs/progress \
	runs/retry runs/retry_rule runs/trials runs/tries setup/findings spec/axes spec/fields spec/policy spec/site \
	spec/sweep_spec spec/yaml_files)

# Folders of which every test starts processes.
SLOW := tests/cluster tests/fakes tests/whole

# On the PATH of a bare machine: no test needs a program that README.md does not name. Those that are marked
# with one (program) are skipped there, by its name, and run with the clusters.
# Three workers on two cores, for many tests wait for a process. Coverage measures what tests without
# processes cover: tests/conftest.py ends its tracing in the others.
.PHONY: unit cluster
unit: model $(PURE)
	path=$$($(BIN)/python -m tests.support.bare_path .cache/bare-path) && \
	env -u JOBKIT_CLUSTER PATH="$$path" $(BIN)/python -m pytest tests -n 3 --dist loadgroup --ignore tests/cluster --cov --cov-report=
	$(BIN)/coverage report --include=$$(echo $(PURE) | tr ' ' ,) --fail-under=100

OTHER_PROGRAMS = $(shell grep -rl 'mark\.program' tests --include='test_*.py')
cluster: setup
ifeq ($(JOBKIT_CLUSTER),1)
	$(BIN)/python -m pytest tests/cluster $(OTHER_PROGRAMS) -m 'cluster or program' -n 6 --dist loadgroup -rs
else
	$(BIN)/python -m pytest tests/cluster -q
	@echo "skipped: they need real Slurm and Grid Engine, which JOBKIT_CLUSTER=1 installs"
endif

docs: setup           ## the pages of docs/ as a site in build/site; without network, and no warning is allowed
	$(PIP_INSTALL) -e '.[docs]'
	$(BIN)/sphinx-build -q -E -a -n -W --keep-going -b html -c docs . build/site
	@echo "build/site/index.html"

test-faults: setup    ## the tests that break something on purpose (JOBKIT_CLUSTER=1 for those on real schedulers)
	$(BIN)/python -m pytest tests -m fault -n 2 --dist loadgroup -rs

bench: setup          ## measure jobkit itself, ten minutes; see docs/measurements.md
	$(PIP_INSTALL) -e '.[bench]'
	$(BIN)/python -m benchmarks

constraints: setup    ## write the versions in .venv to constraints.txt
	{ grep '^#' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | grep -v '^pip=' | sed 's/^torch==.*/torch==2.13.0/'; } > constraints.new
	mv constraints.new constraints.txt

clean:                ## the virtual environment and all caches of this checkout
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* build dist
