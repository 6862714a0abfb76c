"""What the tests of the schedulers share: the answers that real daemons gave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobkit.core.shell import Completed
from jobkit.schedulers.types import Array, Request
from tests.support import surveys


@pytest.fixture
def captured() -> Callable[[str], Completed]:
    """Return a reader of tests/data/, ``slurm/sinfo`` for example (capture.sh wrote the files)."""
    return surveys.captured


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
