"""What the tests of the schedulers share: the answers that real daemons gave."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.schedulers.base import Array, Request
from jobkit.shell import Completed

DATA = Path(__file__).parents[1] / "data"
_FORM = re.compile(r"\$ (.*)\nstatus (\d+)\n--- stdout\n(.*)--- stderr\n(.*)", re.DOTALL)


@pytest.fixture
def captured() -> Callable[[str], Completed]:
    """Return a reader of tests/data/, ``slurm/sinfo`` for example (capture.sh wrote the files)."""

    def read(name: str) -> Completed:
        found = _FORM.fullmatch((DATA / f"{name}.txt").read_text(encoding="utf-8"))
        assert found is not None, f"{name}.txt is not what capture.sh writes"
        argv, status, stdout, stderr = found.groups()
        return Completed(tuple(shlex.split(argv)), int(status), stdout, stderr)

    return read


@pytest.fixture
def array() -> Array:
    return Array(first=1, last=3, offset=0, throttle=2)


@pytest.fixture
def request_of() -> Callable[..., Request]:
    """Return a maker of requests that any cluster grants, but for what is given."""

    def make(**changes: object) -> Request:
        plain: dict[str, object] = {
            "name": "demo",
            "queue": None,
            "gpus": 0,
            "gpu_type": None,
            "cpus": 1,
            "memory_bytes": 50 * 2**20,
            "walltime_s": 60,
            "account": None,
            "qos": None,
        }
        return Request(**(plain | changes))  # type: ignore[arg-type]  # a test names the fields it changes

    return make
