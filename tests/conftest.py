"""What several tests share: the tiny stand-in model, built once per checkout, and a web server."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import ModelRef
from jobkit.planning.models import find_model
from jobkit.run.workloads.stanza_lengths import SLEEP_WHILE_WAITING
from tests.fakes.fixtures import fake_sge, fake_slurm

__all__ = ["fake_sge", "fake_slurm"]  # for all tests: see tests/fakes/README.md

os.environ.setdefault(*SLEEP_WHILE_WAITING)  # it is read when torch is imported, by whichever test is first
KEPT = Path(__file__).parents[1] / ".cache" / "jobkit"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Have coverage look away from a test that is marked ``untraced``.

    pytest-cov's own mark ``no_cover`` has no effect under pytest-xdist (7.1): its workers measure
    twice, and the mark ends one of the two. Coverage's tracer can be set again:
    the pure modules' 100 % hold with it.
    """
    if not item.get_closest_marker("untraced"):
        yield
        return
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


@pytest.fixture(scope="session")
def kept_cache() -> Path:
    """Return a cache folder that outlives the tests: the user's, or the checkout's own."""
    return Path(os.environ.get(CACHE_VARIABLE) or KEPT).absolute()


@pytest.fixture(scope="session")
def tiny_model(kept_cache: Path) -> ModelRef:
    """Return the tiny stand-in, built where the cache does not have it (under a minute)."""
    return find_model("en", "tiny", fallback="stand-in", cache=kept_cache, say=print)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Return a function that serves a folder on this machine and returns the address."""
    with ExitStack() as running:

        def start(folder: Path) -> str:
            server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
            running.enter_context(server)
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            running.callback(thread.join)
            running.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield start
