#!/usr/bin/env bash
# A second try with `--last-failed` leaves out failed tests of an xdist group, and is green (pytest 9.1.1, xdist 3.8.0).
#
# One expects of `pytest -n 2 --dist loadgroup || pytest --last-failed` that all that failed runs once more: a job of CI
#   that forgives a test which fails at random, and no other.
# What happens: with `--dist loadgroup` the id of a test of a group ends with its name, `test_a.py::test_x@group`, and so
#   pytest keeps it. `--last-failed` knows no such test. If a test without a group failed too, that one alone runs: it
#   passes the second time, the exit status is 0, and the test of the group, which always fails, is forgotten.
#   (https://github.com/pytest-dev/pytest/issues/11299 has the ids, not this end.)
# What it means: keep the failed ids yourself, without "@group", and name them to the second run.
#
# Usage: bash xdist-group-last-failed.sh   (Python 3.11 with venv; half a minute)
# It installs the pinned packages with pip into a temporary folder, runs two tests twice, and removes the folder.
# Exit status: 0 it is as described, 1 it differs, 2 it could not be asked.
set -euo pipefail; umask 022
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 2' ERR INT TERM
cd "$dir"; python3 -m venv venv
venv/bin/python -m pip install -q --disable-pip-version-check pytest==9.1.1 pytest-xdist==3.8.0
cat >test_two.py <<'PY'
from pathlib import Path

import pytest


@pytest.mark.xdist_group("database")
def test_always_fails():
    assert False


def test_fails_once():
    seen = Path("seen")
    before = seen.exists()
    seen.touch()
    assert before
PY
trap - ERR
first=0 second=0
venv/bin/python -m pytest -q -n 2 --dist loadgroup >first || first=$?
venv/bin/python -m pytest -q -n 2 --dist loadgroup --last-failed >second || second=$?
echo "first try: exit status $first, $(tail -n 1 first)"
cat .pytest_cache/v/cache/lastfailed 2>/dev/null || true
echo
echo "second try: exit status $second, $(tail -n 1 second)"
[[ $first == 1 && $(tail -n 1 first) == "2 failed"* && $second == 0 && $(tail -n 1 second) == "1 passed"* ]]
