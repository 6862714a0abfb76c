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
from tests.support.commands import JOBKIT
from tests.whole.test_job_script import wait_until

WORKLOADS = Path(__file__).parents[1] / "workloads"
HOLDS = """\
import sys, time
from pathlib import Path
from jobkit.runs.driver_lock import driving
with driving(Path(sys.argv[1])) as job:
    print(job, flush=True)
    sys.stdin.read()
"""
IN_A_CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


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
def test_a_driver_lives_as_long_as_it_holds_its_lock(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_lock, "_own_disk", lambda _: True)
    with another(run) as (process, job):
        assert (life(run, job), is_held(run)) == (Life.ALIVE, True)
        assert life(run, JobId(f"{process.pid}-000000", job.cluster)) is Life.DEAD, "its number alone"
        change(run, boot="of another machine", host="elsewhere")
        assert life(run, job) is Life.ALIVE, "a lock is a lock wherever it is held"
        process.kill()
        process.wait()
        assert life(run, job) is Life.DEAD


@pytest.mark.slow
def test_a_second_driver_is_refused_by_name_and_a_dead_one_is_succeeded(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_lock, "PATIENCE_S", 0.1)
    with another(run) as (process, job):
        with (
            pytest.raises(JobkitError, match=rf"process {process.pid} on .* works on this run") as refused,
            driving(run),
        ):
            pass
        assert f"jobkit status {run} --watch" in refused.value.hint
        assert "cancel" not in refused.value.hint
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


@pytest.mark.slow
def test_a_machine_whose_process_still_works_is_not_gone(run: Path) -> None:
    with another(run) as (_, job):
        write_event(run, "submitted", scheduler="local", job_id=job.id, cluster="node07", first=1, last=2)
        with pytest.raises(JobkitError, match="a process there still works"):
            declare_machine_gone(run, "node07")


def in_a_container(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run jobkit as process 1 of a space of its own."""
    argv = [*IN_A_CONTAINER, str(JOBKIT), *words]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run whose driver was process 1 of a container, and was killed with it half-way."""
    if subprocess.run([*IN_A_CONTAINER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a space of process ids of its own can be made by root alone")
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n\nThree.\n", encoding="utf-8")
    told = tmp_path / "told"
    (tmp_path / "spec.yaml").write_text(
        "name: s\nworkload: odd:Slow\ntext: text.txt\nsweep: {batch_size: [1]}\n"
        "repeats: 1\nscheduler: local\n"
        f"environment: {{variables: {{ODD_TOLD: '{told}', PYTHONPATH: '{WORKLOADS}'}}}}\n",
        encoding="utf-8",
    )
    argv = [*IN_A_CONTAINER, str(JOBKIT), "sweep", "spec.yaml"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_until(told.exists)
        process.kill()
    (run,) = (tmp_path / "runs").iterdir()
    return run


@pytest.mark.slow
@pytest.mark.fault
def test_process_1_of_a_container_is_not_the_one_before_it(killed: Path) -> None:
    """FAULT: jobkit is process 1 of a container and is killed while a point runs; another container starts.

    HOW: real: two process id namespaces, made with `unshare --pid`.
    REPORTED: the point is `lost` and `jobkit resume` runs it again: a lock and a random id identify a \
    driver, not its process id; `jobkit cancel` finds no process to end.
    LOST: results that the try had not yet copied to the run folder.
    """
    driver = last_driver(killed)
    assert driver is not None
    assert driver.pid == 1
    folder, run = killed.parents[1], f"runs/{killed.name}"
    wait_until(lambda: is_held(killed) is False)
    cancelled = in_a_container(folder, "cancel", run)
    assert (cancelled.returncode, "nothing to cancel" in cancelled.stderr) == (0, True), cancelled.stderr
    (point,) = json.loads(in_a_container(folder, "status", run, "--json").stdout)["runs"][0]["points"]
    assert point["outcome"] == "lost"
    again = in_a_container(folder, "resume", run, "--set", "resources.walltime=2s")
    assert "again: 1 point" in again.stderr, again.stderr
    ids = [json.loads(line)["job_id"] for line in (killed / "journal.jsonl").read_text().splitlines()]
    assert len(set(ids)) == 2
    assert {identifier.partition("-")[0] for identifier in ids} == {"1"}
