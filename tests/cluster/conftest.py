"""Real Slurm and real Grid Engine on this machine, for the tests marked ``slurm`` and ``sge``.

Without ``JOBKIT_CLUSTER=1`` those tests are skipped and no daemon is installed or started. A cluster
that is up already is used and left up, and several workers, or several sessions, may share it.

A test that breaks daemons or queues takes the fixture ``slurm_alone`` or ``sge_alone``: a second cluster,
which no other test uses. With pytest-xdist say ``--dist loadgroup``: the tests on a second cluster, and those
of the login node, then run one after another. All others mostly wait, and run side by side.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO

import pytest

from jobkit.launch import resume
from jobkit.practice import cluster, packages
from jobkit.practice.cluster import Cluster
from jobkit.practice.daemons import end_started
from jobkit.practice.packages import search_path
from jobkit.practice.place import SCHEDULERS
from jobkit.runs import logs, reader, tries, watch
from tests.cluster.daemons import SgeDaemons, SlurmDaemons, Wait, until
from tests.cluster.halted import halted
from tests.cluster.lab import faulty, lab
from tests.cluster.ssh_host import SshHost, login_node

__all__ = ["faulty", "halted", "lab"]  # fixtures
PLACE = Path(tempfile.gettempdir()) / f"jobkit-tests-{os.getuid()}"
"""The folder of the clusters, and of the locks by which sessions share them."""
LOOK_S = 0.5
ACCOUNTING = {"slurm": ("sacct", "--parsable2", "--format=ALL"), "sge": ("qacct", "-j", "*")}
ACCOUNTING_CHARS = 20_000


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests that share a second cluster, and those that share a login node."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "ssh_host" in names:
            item.add_marker(pytest.mark.xdist_group(f"ssh-{item.path.stem}"))
        for name in SCHEDULERS:
            if f"{name}_alone" in names:
                item.add_marker(pytest.mark.xdist_group(f"alone-{name}"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a cluster, by its name, where none is requested."""
    needs = [name for name in SCHEDULERS if item.get_closest_marker(name)]
    needs += ["OpenSSH"] if needs_login_node(item) else []
    if needs and os.environ.get("JOBKIT_CLUSTER") != "1":
        pytest.skip(f"needs real {' and '.join(needs)}: set JOBKIT_CLUSTER=1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the last jobs in the accounting of a failed test's cluster: only it has why a task was killed."""
    report = yield
    for name in SCHEDULERS:
        if report.when == "call" and report.failed and item.get_closest_marker(name):
            told = [one.place.ask(*ACCOUNTING[name]).stdout for one in cluster.found(PLACE, name)]
            report.sections.append((f"accounting of {name}", "".join(told)[-ACCOUNTING_CHARS:]))
    return report


def needs_login_node(item: pytest.Item) -> bool:
    """Tell whether a test uses the fixture ``ssh_host``."""
    return "ssh_host" in getattr(item, "fixturenames", ())


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in SCHEDULERS])
def scheduler(request: pytest.FixtureRequest) -> str:
    """Return the name of each cluster in turn; `turn` brings it up."""
    return str(request.param)


@pytest.fixture
def wait_until() -> Wait:
    """Return ``wait_until(condition, deadline_s)``: ask until it is true, fail at the deadline."""
    return lambda condition, deadline_s: until(condition, "what is waited for", deadline_s)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands of this process look again soon: these jobs take seconds, those of users hours."""
    for module, name in (
        (watch, "FIRST_POLL_S"),
        (watch, "SLOWEST_POLL_S"),
        (logs, "ASK_EVERY_S"),
        (resume, "POLL_S"),
        (reader, "SHUT_AGE_S"),
    ):
        monkeypatch.setattr(module, name, LOOK_S)
    monkeypatch.setattr(tries, "VISIBLE_AFTER", timedelta(seconds=5))  # no file system here is shared


@pytest.fixture(scope="session")
def slurm() -> Iterator[None]:
    """Have a Slurm running, and ``SLURM_CONF`` in the environment."""
    with _shared("slurm"):
        yield


@pytest.fixture(scope="session")
def sge() -> Iterator[None]:
    """Have a Grid Engine running, and the variables by which it is found in the environment."""
    with _shared("sge"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", search_path())  # as in its jobs
        yield


@pytest.fixture(autouse=True)
def turn(request: pytest.FixtureRequest) -> None:
    """Have the clusters that a test is marked for, unless it has a second one alone."""
    for name in SCHEDULERS:
        if request.node.get_closest_marker(name):
            alone = f"{name}_alone"
            request.getfixturevalue(alone if alone in request.fixturenames else name)


@pytest.fixture(scope="session")
def ssh_host() -> Iterator[SshHost]:
    """Have a login node in front of the clusters; see `as_found`."""
    if os.geteuid():
        pytest.skip("a login node needs a user of its own, which root can make")
    with login_node(PLACE) as host:
        yield host


@pytest.fixture(autouse=True)
def as_found(request: pytest.FixtureRequest, turn: None) -> None:
    """Set the login node as each test finds it: its user finds the clusters that the test is marked for."""
    del turn
    if needs_login_node(request.node):
        host: SshHost = request.getfixturevalue("ssh_host")
        names = [name for name in SCHEDULERS if request.node.get_closest_marker(name)]
        host.reset(cluster.variables(one for name in names for one in cluster.found(PLACE, name)))


@pytest.fixture(scope="session")
def second_slurm() -> Iterator[Cluster]:
    with _second("slurm") as one:
        yield one


@pytest.fixture(scope="session")
def second_sge() -> Iterator[Cluster]:
    with _second("sge") as one:
        yield one


@pytest.fixture
def two_clusters(scheduler: str) -> Iterator[tuple[Cluster, Cluster]]:
    """Have two clusters of one scheduler that no other test uses."""
    with _second(scheduler) as first, _second(scheduler) as second:
        yield first, second


@contextmanager
def _second(name: str) -> Iterator[Cluster]:
    """Have a cluster in a folder of its own; afterwards no process of it is left."""
    packages.install(name)
    with tempfile.TemporaryDirectory(prefix="second-") as folder:
        one = cluster.up(Path(folder), name)
        try:
            yield one
        finally:
            end_started(one.place.folder)


@pytest.fixture
def slurm_alone(second_slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmDaemons]:
    """Have a Slurm alone and its daemons to kill; afterwards they run and start jobs."""
    _enter(second_slurm, monkeypatch)
    daemons = SlurmDaemons()
    yield daemons
    daemons.healed()
    # Killed while jobs ran, Slurm 22.05 once answered as if all were well, and started nothing more.
    if not daemons.starts_jobs():
        daemons.restart_controller()
        assert daemons.starts_jobs()


@pytest.fixture
def sge_alone(second_sge: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SgeDaemons]:
    """Have a Grid Engine alone and its daemons to kill; afterwards all of them run."""
    _enter(second_sge, monkeypatch)
    monkeypatch.setenv("PATH", search_path())
    daemons = SgeDaemons()
    yield daemons
    daemons.healed()


def _enter(one: Cluster, patch: pytest.MonkeyPatch) -> None:
    for variable, value in cluster.variables([one]).items():
        patch.setenv(variable, value)


@contextmanager
def _shared(name: str) -> Iterator[None]:
    """Bring a cluster up unless it is up, and down again after its last user, if a test began it.

    Every user holds the lock ``users`` shared; who can have it alone is the last one. It is only
    ever asked for under ``gate``, which nobody holds while tests run: so two workers that use
    both clusters cannot wait for each other. The mark tells that a test began the cluster,
    whichever process that was.
    """
    PLACE.mkdir(exist_ok=True)
    mark = PLACE / f"{name}.began"
    with mark.with_suffix(".gate").open("w") as gate, mark.with_suffix(".users").open("w") as users:
        with _held(gate):
            if not cluster.running(PLACE, name):
                cluster.remove(PLACE, name)  # queues and jobs that a killed session left
                mark.touch()
            if not any(one.is_up() for one in cluster.running(PLACE, name)):
                packages.install(name)
                cluster.up(PLACE, name)
            fcntl.flock(users, fcntl.LOCK_SH)
        with pytest.MonkeyPatch.context() as patch:
            for one in cluster.found(PLACE, name):
                _enter(one, patch)
            yield
        with _held(gate):
            if mark.exists() and _alone(users):
                for one in cluster.found(PLACE, name):
                    end_started(one.place.folder)  # Grid Engine's master takes ten seconds for an orderly end
                mark.unlink()


@contextmanager
def _held(lock: IO[str]) -> Iterator[None]:
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def _alone(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
