"""What several tests share: the tiny stand-in model, built once per checkout, and a web server."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import settings

from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import ModelRef
from jobkit.planning import models
from jobkit.worker.workloads.stanza_ner import SLEEP_WHILE_WAITING
from tests.fakes.fixtures import fake_slurm
from tests.support.packages import need

__all__ = ["fake_slurm"]  # for all tests: see tests/fakes/README.md

settings.register_profile("jobkit", deadline=None, max_examples=25)  # a busy machine is no fault
settings.load_profile("jobkit")
os.environ.setdefault(*SLEEP_WHILE_WAITING)  # it is read when torch is imported, by whichever test is first
os.environ.setdefault("NODE_PATH", os.environ["PATH"])  # of the jobs of the fakes
os.environ.setdefault("PIP_NO_COMPILE", "0")  # that is, none (pip's manual): half of the time
os.fsync = lambda fd: None  # noqa: ARG005 - no power fails in a test; thousands of calls wait for the disk
gc.disable()  # until the tests are collected: nothing of them is garbage
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
os.environ["JOBKIT_RUNS"] = os.devnull  # as below
os.environ["JOBKIT_LEDGER"] = os.devnull  # the user's own is left alone; tests of it name a file
os.environ["JOBKIT_CONFIG"] = os.devnull  # the user's site file would decide
TESTS = Path(__file__).parent
KEPT = TESTS.parent / ".cache" / "jobkit"


SLOW_FOLDERS = {"cluster", "fakes", "whole"}
SLOW_FIXTURES = {"fake_slurm", "tiny_model"}
STARTS = {"subprocess.Popen", "os.fork", "os.posix_spawn"}
"""What Python reports (sys.addaudithook) when a process starts."""
HEAVY = {"torch", "stanza", "spacy", "transformers"}
GROUP = re.compile(r"@[^@\]]*$")
"""What pytest-xdist appends to the id of a test that has a group."""


class Watch:
    """Notices that a test which is not marked as slow starts a process, or is the first to load torch.

    Nothing is broken off: a test that ends in the middle of a start leaves open files behind.
    """

    def __init__(self) -> None:
        self.active, self.seen = False, ""

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        """Take note of an event; called by Python."""
        if self.active and event in STARTS:
            self.seen = "starts a process"
        elif self.active and event == "import" and arguments[0] in HEAVY:
            self.seen = f"imports {arguments[0]}"


WATCH = Watch()
sys.addaudithook(WATCH)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Cut the text of a case that would be a name of kilobytes."""
    return f"{val[:60]}..." if isinstance(val, str) and len(val) > 60 else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the tests that are marked as slow")
    parser.addoption("--skipped", type=Path, help="write to this file the ids of the tests that are skipped")
    parser.addoption("--failed", type=Path, help="write to this file the ids of the tests that fail")


def pytest_configure() -> None:
    if os.statvfs(folder := tempfile.gettempdir()).f_flag & os.ST_NOEXEC:
        raise pytest.UsageError(f"no program of a test may run in {folder} (noexec): set TMPDIR")


def pytest_collection_finish() -> None:
    """Keep what the collection made out of each later look for garbage, and look seldom: it takes a tenth."""
    gc.freeze()
    gc.set_threshold(20_000, 20)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write which tests were skipped, and which failed: they run again elsewhere, or alone.

    ``--last-failed`` does not find a test of a group: what it keeps ends with the name of the group.
    """
    for option, kinds in (("skipped", ("skipped",)), ("failed", ("failed", "error"))):
        if file := config.getoption(option):
            reports = (report for kind in kinds for report in terminalreporter.stats.get(kind, ()))
            names = {GROUP.sub("", report.nodeid) for report in reports}
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{name}\n" for name in sorted(names)), encoding="utf-8")


@cache
def folders(path: Path) -> frozenset[str]:
    """Return the folders of a test's file, and the file."""
    return frozenset(path.relative_to(TESTS).parts)


def shares(item: pytest.Item) -> bool:
    """Tell whether a test shares what a fixture of its module makes."""
    info = getattr(item, "_fixtureinfo", None)
    found = info.name2fixturedefs.values() if info else ()
    return any(one.scope == "module" for fixtures in found for one in fixtures)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the programs that a test needs and README.md does not name, or skip the test."""
    for mark in item.iter_markers("program"):
        need(*mark.args)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let slow tests begin first, or leave them out; keep on one worker the tests that share a fixture."""
    for item in items:
        if SLOW_FOLDERS.intersection(folders(item.path)) or SLOW_FIXTURES.intersection(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker("slow")
        if "cluster" in folders(item.path):
            item.add_marker("cluster")
        if shares(item) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(TESTS))))
    slow = [item for item in items if item.get_closest_marker("slow")]
    slow.sort(key=lambda item: item.get_closest_marker("long") is None)  # at the end a core would be idle
    quick = [item for item in items if not item.get_closest_marker("slow")]
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=slow)
        slow = []
    items[:] = [*slow, *quick]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watch a test that is not marked as slow."""
    WATCH.active, WATCH.seen = item.get_closest_marker("slow") is None, ""
    try:
        return (yield)
    finally:
        WATCH.active = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test fail that should have the mark: `make check` would not be quick, or not alone."""
    report = yield
    if WATCH.seen and report.when == "teardown" and report.passed:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} {WATCH.seen}: give it the mark slow"
    return report


@pytest.fixture(scope="session")
def kept_cache() -> Path:
    """Return a cache folder that outlives the tests: the user's, or the checkout's own."""
    return Path(os.environ.get(CACHE_VARIABLE) or KEPT).absolute()


@pytest.fixture(scope="session")
def tiny_model(kept_cache: Path) -> ModelRef:
    """Return the tiny stand-in, built where the cache does not have it (under a minute)."""
    described = models.stand_in("stanza-ner", "tiny", kept_cache)
    return models.build("stanza-ner", described, kept_cache, say=print)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory: the test's own, where configuration and cache would be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture(scope="session")
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


@pytest.fixture
def mirror(tmp_path: Path, tiny_model: ModelRef, serve: Callable[[Path], str]) -> tuple[Path, str]:
    """Serve the tiny stand-in as Stanza's server serves its models; return folder and address."""
    import stanza

    folder = tmp_path / "mirror"
    shutil.copytree(tiny_model.path, folder)
    address = serve(folder)
    resources = json.loads((folder / "resources.json").read_text())
    resources["url"] = f"{address}/{{lang}}/{{filename}}"
    (folder / f"resources_{stanza.__resources_version__}.json").write_text(json.dumps(resources))
    return folder, address
