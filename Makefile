# Needs Python 3.11 and make; each target sets up .venv by itself, once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.set-up
# Bytecode is written as modules are first imported, of all that is installed a small part. Where a
# machine forbids it, each of the thousand processes that tests start would compile jobkit again.
export PYTHONDONTWRITEBYTECODE :=
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: help setup demo check test test-faults lint docs bench constraints clean

help:                 ## what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(STAMP)       ## the virtual environment, with all that tests need
$(STAMP): pyproject.toml constraints.txt
	@test -d .venv || $(PYTHON) -m venv .venv || { echo "on Debian: apt install python3-venv"; exit 1; }
	@echo "installing into .venv what jobkit and its tests need, 5.7 GB with torch: some minutes, once"
	$(PIP_INSTALL) torch
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

demo: setup           ## the main job, small, on this machine: prints the scaling table, and writes report.html
	$(BIN)/jobkit sweep sweeps/demo.yaml --new
	$(BIN)/jobkit report

check: lint quick     ## while you work, within a minute: lint, and the tests that start no process

.PHONY: quick
quick: setup
	$(BIN)/python -m pytest tests -n 2 --dist loadgroup --quick

# Tests on real schedulers mostly wait, the others compute: side by side they take the time of one.
test: setup           ## before you push: all that CI checks but coverage, CI_ALONE, and clusters (JOBKIT_CLUSTER=1 adds them)
	$(MAKE) --jobs=3 --output-sync=target cluster lint unit

.PHONY: model
TEST_CACHE = $${JOBKIT_CACHE:-$(CURDIR)/.cache/jobkit}
model: setup          ## the stand-in model that tests tag with, and its lengths of the sample: both once a checkout
	@mkdir -p "$(TEST_CACHE)/models" && cd "$(TEST_CACHE)/models" && \
	for made in "$$($(CURDIR)/$(BIN)/python -c 'from jobkit.core import paths; print(paths.cache_dir())')"/models/stand-in-tiny-*; do \
		name=$$(basename "$$made"); \
		test -e "$$name" || test ! -d "$$made" || { cp -r "$$made" "$$name.$$$$" && mv "$$name.$$$$" "$$name"; }; \
	done
	JOBKIT_CACHE="$(TEST_CACHE)" $(BIN)/jobkit models build --size tiny
	JOBKIT_CACHE="$(TEST_CACHE)" JOBKIT_CONFIG=/dev/null $(BIN)/jobkit preflight sweeps/demo.yaml --set text=sample >/dev/null

lint: setup           ## style, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck .ci/run tests/support/bare_machine.sh tests/data/capture.sh tests/data/other-site.sh tests/fakes/conda

# Four workers on two cores, for many tests wait for a process. Tests that lack a program, a user or a kernel
# feature are skipped, by name: with JOBKIT_CLUSTER=1 missing programs are installed, and CI (ALSO) runs the others.
# pytest compiles each changed file of tests, with what explains a failed assert: once here, while the model
# is built, for each worker would do it again, 10 s of CPU for all files.
COLLECTED := .cache/collected
$(COLLECTED): $(STAMP) $(wildcard tests/*.py tests/*/*.py tests/*/*/*.py tests/*/*/*/*.py)
	@mkdir -p $(@D)
	@$(BIN)/python -m pytest tests -qq --collect-only >$@ || { cat $@; rm $@; exit 1; }

.PHONY: unit cluster coverage installs fresh
CI_ALONE = installs or rare or (fault and slow)
unit: model $(COLLECTED)
	$(BIN)/python -m pytest tests -n 4 --dist loadgroup --ignore tests/cluster -m 'not ($(CI_ALONE))' --skipped .cache/skipped/unit

coverage: setup       ## what the tests that start no process cover of jobkit; pyproject.toml has the least that it may be
	$(BIN)/python -m pytest tests -n 2 --dist loadgroup --quick --cov --cov-report= --skipped .cache/skipped/quick
	$(BIN)/coverage report --format=total

installs: model       ## what CI alone runs: tests that install packages, break something, or rarely fail
	$(BIN)/python -m pytest $$(grep -rlE 'mark[.](installs|rare|fault)' tests --include='test_*.py' --exclude-dir=cluster) -n 2 \
		--dist loadgroup -m '$(CI_ALONE)' --skipped .cache/skipped/installs

# Next to five others on two cores a test of daemons can miss its deadline. What failed runs once more, alone;
# the first failure stays in the output, and a test that fails alone too fails.
ALSO =
cluster: setup
ifeq ($(JOBKIT_CLUSTER),1)
	$(BIN)/python -m pytest tests/cluster $(ALSO) -n 6 --dist loadgroup --skipped .cache/skipped/cluster \
		--failed .cache/failed || { test $$? = 1 && $(BIN)/python -m pytest @.cache/failed -n 1 --dist loadgroup; }
else
	$(BIN)/python -m pytest tests/cluster -q
	@echo "skipped: they need real Slurm and Grid Engine, which JOBKIT_CLUSTER=1 installs"
endif

BARE = tests/support/bare_machine.sh .cache/bare
fresh:                ## README's two commands on a bare Debian 12, as a new user; root alone can make one, in ten minutes
	$(BARE) ada 'make demo && make test'

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
