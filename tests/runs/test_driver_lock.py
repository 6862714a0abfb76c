"""Drivers of local runs: which process is the driver, and whether it is alive."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import DRIVER_LOCK
from jobkit.launch.scheduler_calls import declare_machine_gone
from jobkit.runs import driver_lock
from jobkit.runs.driver_lock import Life, driving, is_held, last_driver, life
from jobkit.schedulers.types import JobId
from tests.support.builders import grid, write_event, write_points

HOLDS = """\
import sys, time
from pathlib import Path
from jobkit.runs.driver_lock import driving
with driving(Path(sys.argv[1])) as job:
    print(job, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another(run: Path, *before: str) -> Iterator[tuple[subprocess.Popen[str], JobId]]:
    """Have another process drive a run, until it is killed."""
    argv = [*before, sys.executable, "-c", HOLDS, str(run)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process, JobId(process.stdout.readline().strip(), os.uname().nodename)
        process.kill()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_points(tmp_path / "run", grid([1, 2]))


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this file system have no locks, as Lustre has none that is mounted without ``flock``."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)


def change(run: Path, **fields: object) -> None:
    driver = last_driver(run)
    assert driver is not None
    (run / DRIVER_LOCK).write_text(json.dumps(asdict(replace(driver, **fields))))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_driver_lives_as_long_as_it_holds_its_lock_and_no_second_one_begins(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_lock, "_own_disk", lambda _: True)
    monkeypatch.setattr(driver_lock, "PATIENCE_S", 0.1)
    with another(run) as (process, job):
        assert (life(run, job), is_held(run)) == (Life.ALIVE, True)
        assert life(run, JobId(f"{process.pid}-000000", job.cluster)) is Life.DEAD, "its number alone"
        change(run, boot="of another machine", host="elsewhere")
        assert life(run, job) is Life.ALIVE, "a lock is a lock wherever it is held"
        change(run, boot=driver_lock._boot(), host=os.uname().nodename)
        with (
            pytest.raises(JobkitError, match=rf"process {process.pid} on .* works on this run") as refused,
            driving(run),
        ):
            pass
        assert f"jobkit status {run} --watch" in refused.value.hint
        assert "cancel" not in refused.value.hint
        write_event(run, "submitted", scheduler="local", job_id=job.id, cluster="node07", first=1, last=2)
        with pytest.raises(JobkitError, match="a process there still works"):
            declare_machine_gone(run, "node07")
        process.kill()
        process.wait()
        assert life(run, job) is Life.DEAD
    with driving(run) as mine:
        assert life(run, JobId(mine)) is Life.ALIVE
        assert life(run, job) is Life.DEAD
    assert life(run, JobId(mine)) is Life.DEAD, "this process lives, and drives no more"


@pytest.mark.parametrize(
    ("known", "own_disk", "expected"),
    [
        ({"host": "old-name"}, False, Life.DEAD),
        ({"boot": "an earlier one"}, False, Life.DEAD),
        ({"boot": "another", "host": "node07"}, True, Life.DEAD),
        ({"boot": "another", "host": "node07"}, False, Life.UNKNOWN),
    ],
    ids=["renamed", "booted", "own disk", "another machine, shared disk"],
)
def test_a_free_lock_is_proof_where_the_lock_is_seen_from_here(
    run: Path, monkeypatch: pytest.MonkeyPatch, known: dict[str, str], *, own_disk: bool, expected: Life
) -> None:
    monkeypatch.setattr(driver_lock, "_own_disk", lambda _: own_disk)
    with driving(run) as job:
        pass
    change(run, **known)
    assert life(run, JobId(job, "node07")) is expected


@pytest.mark.usefixtures("no_locks")
def test_without_locks_the_start_of_the_process_tells(run: Path) -> None:
    with driving(run) as job:
        assert life(run, JobId(job)) is Life.ALIVE
        with pytest.raises(JobkitError, match="works on this run"), driving(run):
            pass
        change(run, start="1")
        assert life(run, JobId(job)) is Life.DEAD, "its number came again"
        change(run, boot="an earlier one")
        assert life(run, JobId(job)) is Life.DEAD
        change(run, host="node07")
        assert life(run, JobId(job)) is Life.UNKNOWN
        change(run, boot=driver_lock._boot(), space="pid:[1]")
        assert life(run, JobId(job)) is Life.UNKNOWN, "in another container of this machine"


@pytest.mark.slow
@pytest.mark.parametrize("spoilt", ["{", '{"pid": 1}'])
def test_a_lock_file_without_its_words_is_no_driver_and_no_proof(run: Path, spoilt: str) -> None:
    with another(run) as (process, job):
        (run / DRIVER_LOCK).write_text(spoilt)
        assert last_driver(run) is None
        assert life(run, job) is Life.ALIVE
        process.kill()
        process.wait()
        assert life(run, job) is Life.UNKNOWN
