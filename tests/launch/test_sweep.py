"""Submission against fake controllers: small programs on PATH that say what real ones said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.launch import launch, submission, sweep
from jobkit.planning.prepare import Options, Prepared, prepare
from tests.support.builders import events
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here

SPEC = """\
name: t
workload: count
text: text.txt
sweep: {batch_size: [1, 2, 3]}
repeats: 2
resources: {gpus: 0, memory: 1GiB}
"""


@given(st.integers(1, 5000), st.none() | st.integers(1, 1000), st.none() | st.integers(1, 50))
def test_arrays_cover_every_point_once_and_stay_below_the_limit(
    points: int, limit: int | None, parallel: int | None
) -> None:
    cut = submission.cut_into_arrays([points], limit, parallel)
    covered = [task + array.offset for array in cut for task in range(array.first, array.last + 1)]
    assert covered == list(range(1, points + 1))
    assert all(array.first == 1 and array.last <= (limit or points) for array in cut)
    throttles = [array.throttle or 0 for array in cut]
    if parallel is None:
        assert set(throttles) == {0}
    else:
        assert all(throttle >= 1 for throttle in throttles)
        assert sum(throttles) <= max(parallel, len(cut))


@pytest.fixture
def prepared(tmp_path: Path, queue: Programs) -> Prepared:
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    for name in ("sinfo", "sacctmgr"):
        queue.add(name, "exit 1")
    ready = prepare(spec, Options(scheduler="slurm", runs_dir=tmp_path / "runs"), build=True, say=print)
    return replace(ready, follow_script=None)


def test_intent_stands_in_the_journal_before_the_act(
    prepared: Prepared, tmp_path: Path, queue: Programs
) -> None:
    queue.add("scontrol", "echo MaxArraySize = 1001")
    queue.add("sbatch", f"wc -l <{prepared.run_dir}/journal.jsonl >>{tmp_path}/seen; echo 7")
    (one,) = sweep.submit(prepared)
    assert (tmp_path / "seen").read_text().split() == ["0", "1"]
    assert [event["event"] for event in events(prepared.run_dir)] == ["submitting", "submitted"]
    assert one.array.throttle == 4


@pytest.fixture
def followed(prepared: Prepared, queue: Programs) -> Prepared:
    """Return the same with a job that follows; the array limit makes it two arrays."""
    queue.add("scontrol", "echo MaxArraySize = 4")
    return replace(prepared, find_script="#!/bin/bash\n")


NUMBERED = 'case "$*" in *--test-only*) exit 0;; *find.sh*) {last};; *--offset*) echo 8;; *) echo 7;; esac'


def test_a_job_follows_all_arrays(followed: Prepared, queue: Programs) -> None:
    queue.add("sbatch", NUMBERED.format(last="echo 9"))
    taken = sweep.submit(followed)
    assert [(str(one.id), one.role) for one in taken] == [
        ("7", "points"),
        ("8", "points"),
        ("9", "find"),
    ]
    script = followed.run_dir / "find.sh"
    waits = f"sbatch --parsable --dependency=afterany:7:8 --array=1-1 {script} --offset 6"
    assert queue.called()[-1] == waits
    assert script.read_text(encoding="utf-8") == "#!/bin/bash\n"
    submitted = [event for event in events(followed.run_dir) if event["event"] == "submitted"]
    assert [(event["job_id"], event["offset"]) for event in submitted] == [("7", 0), ("8", 3), ("9", 6)]
    assert launch.submit_commands(followed)[-1] == (
        "sbatch",
        "--parsable",
        "--dependency=afterany:JOB1:JOB2",
        "--array=1-1",
        str(script),
        "--offset",
        "6",
    )


def test_a_refused_follower_cancels_the_sweep(followed: Prepared, queue: Programs) -> None:
    queue.add("sbatch", NUMBERED.format(last='echo "Job dependency problem" >&2; exit 1'))
    with pytest.raises(JobkitError, match="Job dependency problem") as caught:
        sweep.submit(followed)
    assert caught.value.exit_code == 3
    assert [(event["event"], event.get("job_id")) for event in events(followed.run_dir)][-3:] == [
        ("refused", None),
        ("cancelled", "7"),
        ("cancelled", "8"),
    ]


def test_a_refused_check_leaves_no_run_folder(prepared: Prepared, queue: Programs) -> None:
    queue.add("scontrol", "echo MaxArraySize = 1001")
    queue.add(
        "sbatch",
        'echo "allocation failure: Requested node configuration is not available" >&2; exit 1',
    )
    with pytest.raises(JobkitError, match="nothing was submitted") as caught:
        sweep.submit(prepared)
    assert caught.value.exit_code == 3
    assert not prepared.run_dir.exists()


def test_a_place_that_cannot_be_written_is_named(prepared: Prepared, tmp_path: Path, queue: Programs) -> None:
    (tmp_path / "runs").write_text("a file is in the way", encoding="utf-8")
    queue.add("scontrol", "echo MaxArraySize = 1001")
    with pytest.raises(JobkitError, match=r"/runs: File exists"):
        sweep.submit(prepared)
