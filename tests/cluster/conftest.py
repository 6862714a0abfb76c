"""Real Slurm and real Grid Engine on this machine, for the tests marked ``slurm`` and ``sge``.

Without ``JOBKIT_CLUSTER=1`` those tests are skipped and no daemon is installed or started. A cluster
that is up already is used and left up. Several workers, or several sessions, may share it. With pytest-xdist
say ``--dist loadgroup``: the tests of a file on one cluster then run one after another, files side by
side, for they mostly wait.

A test that kills daemons takes the fixture ``slurm_alone`` or ``sge_alone``: it waits until no other
test uses that cluster, of this session or another, and the others wait until it has ended.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from jobkit.practice import cluster
from jobkit.practice.packages import search_path
from jobkit.practice.place import SCHEDULERS
from tests.cluster.daemons import SgeDaemons, SlurmDaemons, Wait, until
from tests.cluster.halted import halted
from tests.cluster.lab import faulty, lab
from tests.cluster.ssh_host import SshHost, login_node

__all__ = ["faulty", "halted", "lab"]  # fixtures
PLACE = Path(tempfile.gettempdir()) / f"jobkit-tests-{os.getuid()}"
"""The folder of the clusters, and of the locks by which sessions share them."""
UP_TIMEOUT_S = 600
"""With the packages still to install."""


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group what needs a cluster by the cluster and the file, and what needs the login node by the file."""
    for item in items:
        if needs_login_node(item):
            item.add_marker(pytest.mark.xdist_group(f"ssh-{item.path.stem}"))
        elif needs := [name for name in SCHEDULERS if item.get_closest_marker(name)]:
            item.add_marker(pytest.mark.xdist_group(f"{'-'.join(needs)}-{item.path.stem}"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a cluster, by its name, where none is requested."""
    needs = [name for name in SCHEDULERS if item.get_closest_marker(name)]
    needs += ["OpenSSH"] if needs_login_node(item) else []
    if needs and os.environ.get("JOBKIT_CLUSTER") != "1":
        pytest.skip(f"{item.name} needs real {' and '.join(needs)}: set JOBKIT_CLUSTER=1")


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


@pytest.fixture(scope="session")
def slurm() -> Iterator[None]:
    """Have a Slurm running, and ``SLURM_CONF`` in the environment."""
    with _cluster("slurm"):
        yield


@pytest.fixture(scope="session")
def sge() -> Iterator[None]:
    """Have a Grid Engine running, and the variables by which it is found in the environment."""
    with _cluster("sge"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", search_path())  # as in its jobs
        yield


@pytest.fixture(autouse=True)
def turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Share the clusters that a test is marked for with others, or have one alone, as long as it runs."""
    with ExitStack() as stack:
        for name in SCHEDULERS:
            if request.node.get_closest_marker(name):
                request.getfixturevalue(name)  # first: who waits for his turn must not hold another's up
                stack.enter_context(_turn(name, alone=f"{name}_alone" in request.fixturenames))
        yield


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


@pytest.fixture
def slurm_alone(turn: None) -> Iterator[SlurmDaemons]:
    """Have Slurm alone and its daemons to kill; afterwards they run and start jobs, with the old settings."""
    del turn
    daemons = SlurmDaemons()
    before = daemons.conf.read_text()
    daemons.healed()
    yield daemons
    daemons.conf.write_text(before)
    daemons.healed()
    subprocess.run(("scontrol", "reconfigure"), check=True, timeout=60)
    daemons.healed()
    # Killed while jobs ran, Slurm 22.05 once answered as if all were well, and started nothing more.
    if not daemons.starts_jobs():
        daemons.restart_controller()
        assert daemons.starts_jobs()


@pytest.fixture
def sge_alone(turn: None) -> Iterator[SgeDaemons]:
    """Have Grid Engine alone and its daemons to kill; afterwards all of them run."""
    del turn
    daemons = SgeDaemons()
    daemons.healed()
    yield daemons
    daemons.healed()


@contextmanager
def _turn(name: str, *, alone: bool = False) -> Iterator[None]:
    """Hold the lock ``quiet`` of a cluster, shared or alone.

    It is only ever asked for under ``turn``: so who wants the cluster alone waits for those that
    use it now, and not for those that come later.
    """
    PLACE.mkdir(exist_ok=True)
    place = PLACE / name
    with place.with_suffix(".turn").open("w") as queue, place.with_suffix(".quiet").open("w") as quiet:
        with _held(queue):
            fcntl.flock(quiet, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@contextmanager
def _cluster(name: str) -> Iterator[None]:
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
            with _turn(name):  # a daemon may be dead on purpose
                if not cluster.running(PLACE, name):
                    cluster.remove(PLACE, name)  # queues and jobs that a killed session left
                    mark.touch()
                _practice("up", name, "--install")
            fcntl.flock(users, fcntl.LOCK_SH)
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in cluster.variables(cluster.found(PLACE, name)).items():
                patch.setenv(variable, value)
            yield
        with _held(gate):
            if mark.exists() and _alone(users):
                _practice("down", name)
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


def _practice(*words: str) -> None:
    """Run ``jobkit practice`` as a user does."""
    argv = (sys.executable, "-m", "jobkit", "practice", *words, "--dir", str(PLACE))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=UP_TIMEOUT_S)
    if done.returncode:
        pytest.fail(f"{words} ended with status {done.returncode}: {done.stderr}")
