"""Submission against fake controllers: small programs on PATH that say what real ones said."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.planning.prepare import Options, Prepared, prepare
from jobkit.spec.sweep_spec import FindMax
from jobkit.submit import launch, rounds, sweep

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
    cut = rounds.cut_into_arrays(points, limit, parallel)
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
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in ("sinfo", "sacctmgr"):
        program(tmp_path, name, "exit 1")
    ready = prepare(spec, Options(scheduler="slurm", runs_dir=tmp_path / "runs"), build=True, say=print)
    return replace(ready, follow_script=None)


def program(folder: Path, name: str, body: str) -> None:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/bash\necho {name} "$@" >>{folder}/calls\n{body}\n', encoding="utf-8")
    path.chmod(0o755)


def events(prepared: Prepared) -> list[dict[str, object]]:
    return [json.loads(line) for line in (prepared.run_dir / "journal.jsonl").read_text().splitlines()]


def test_intent_stands_in_the_journal_before_the_act(prepared: Prepared, tmp_path: Path) -> None:
    program(tmp_path, "scontrol", "echo MaxArraySize = 1001")
    program(tmp_path, "sbatch", f"wc -l <{prepared.run_dir}/journal.jsonl >>{tmp_path}/seen; echo 7")
    (one,) = sweep.submit(prepared).jobs
    assert (tmp_path / "seen").read_text().split() == ["0", "1"]
    assert [event["event"] for event in events(prepared)] == ["submitting", "submitted"]
    assert one.array.throttle == 4


@pytest.fixture
def followed(prepared: Prepared, tmp_path: Path) -> Prepared:
    """Return the same with a job that follows; the array limit makes it two arrays."""
    program(tmp_path, "scontrol", "echo MaxArraySize = 4")
    program(tmp_path, "scancel", "exit 0")
    return replace(prepared, find_script="#!/bin/bash\n")


NUMBERED = 'case "$*" in *--test-only*) exit 0;; *find.sh*) {last};; *--offset*) echo 8;; *) echo 7;; esac'


def test_a_job_follows_all_arrays(followed: Prepared, tmp_path: Path) -> None:
    program(tmp_path, "sbatch", NUMBERED.format(last="echo 9"))
    taken = sweep.submit(followed).jobs
    assert [(one.job.id, one.role) for one in taken] == [("7", "points"), ("8", "points"), ("9", "find")]
    script = followed.run_dir / "find.sh"
    waits = f"sbatch --parsable --dependency=afterany:7:8 --array=1-1 {script} --offset 6"
    assert (tmp_path / "calls").read_text().splitlines()[-1] == waits
    assert script.read_text(encoding="utf-8") == "#!/bin/bash\n"
    submitted = [event for event in events(followed) if event["event"] == "submitted"]
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


def test_a_refused_follower_cancels_the_sweep(followed: Prepared, tmp_path: Path) -> None:
    program(tmp_path, "sbatch", NUMBERED.format(last='echo "Job dependency problem" >&2; exit 1'))
    with pytest.raises(JobkitError, match="Job dependency problem") as caught:
        sweep.submit(followed)
    assert caught.value.exit_code == 3
    assert [(event["event"], event.get("job_id")) for event in events(followed)][-3:] == [
        ("refused", None),
        ("cancelled", "7"),
        ("cancelled", "8"),
    ]


@pytest.mark.parametrize(
    ("asked", "wanted"), [({}, None), ({"memory": "device"}, None), ({"memory": "1.5GiB"}, 3 * 2**29)]
)
def test_what_is_wanted_stands_in_the_run_folder(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: object, wanted: int | None
) -> None:
    monkeypatch.setenv("JOBKIT_LEDGER", str(tmp_path / "mine.jsonl"))
    spec = prepared.spec.model_copy(update={"find_max": FindMax.model_validate(asked)})
    sweep.write_run(replace(prepared, spec=spec, find_script="x"))
    told = json.loads((prepared.run_dir / "find_max.json").read_text(encoding="utf-8"))
    assert told == {
        "memory_bytes": wanted,
        "ram_bytes": 2**30,
        "ledger": str(tmp_path / "mine.jsonl"),
        "after": 0,
    }


def test_a_refused_check_leaves_no_run_folder(prepared: Prepared, tmp_path: Path) -> None:
    program(tmp_path, "scontrol", "echo MaxArraySize = 1001")
    program(
        tmp_path,
        "sbatch",
        'echo "allocation failure: Requested node configuration is not available" >&2; exit 1',
    )
    with pytest.raises(JobkitError, match="nothing was submitted") as caught:
        sweep.submit(prepared)
    assert caught.value.exit_code == 3
    assert not prepared.run_dir.exists()


def test_more_points_than_the_controller_holds_are_refused_before_anything(
    prepared: Prepared, tmp_path: Path
) -> None:
    program(tmp_path, "scontrol", "echo MaxArraySize = 1001; echo MaxJobCount = 5")
    program(tmp_path, "sbatch", "exit 0")
    with pytest.raises(
        JobkitError, match=r"6 points, but .* at most 5 jobs .*nothing was submitted"
    ) as caught:
        sweep.submit(prepared)
    assert caught.value.exit_code == 3
    assert not prepared.run_dir.exists()
    assert (tmp_path / "calls").read_text() == "scontrol show config\n"
    with pytest.raises(JobkitError, match="at most 5 jobs"):
        launch.preview(prepared)


def test_a_place_that_cannot_be_written_is_named(prepared: Prepared, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file is in the way", encoding="utf-8")
    program(tmp_path, "scontrol", "echo MaxArraySize = 1001")
    with pytest.raises(JobkitError, match=r"/runs: File exists"):
        sweep.submit(prepared)
