"""What `jobkit sweep` checks and says, and how it submits: the schedulers are programs on PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.commands.sweep import sweep as sweep_command
from jobkit.core.errors import JobkitError
from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE, SPEC_FILE
from jobkit.core.records import Outcome
from jobkit.launch import launch, submission
from jobkit.launch.scheduler_calls import SubmissionUnconfirmed
from jobkit.launch.submission import Round, ask_limits, plan_arrays, round_jobs, submit_jobs, write_round
from jobkit.planning.points import PointGroup
from jobkit.planning.prepare import Options, Prepared, prepare
from jobkit.runs.journal import read_journal
from jobkit.schedulers import local, sge, slurm
from jobkit.schedulers.survey import PRACTICE_ENV
from jobkit.schedulers.types import Array, JobId
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import Resources
from jobkit.spec.yaml_files import as_yaml, read_document
from tests.support.builders import events, grid, record, write_record, write_records, write_submitted
from tests.support.commands import JOBKIT, called, jobkit
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.surveys import REQUEST

SPEC = """\
name: t
workload: count
text: text.txt
sweep: {batch_size: [10, 20, 30, 40, 50]}
repeats: 3
resources: {gpus: 0, cpus: 2, memory: 1GiB}
"""


@pytest.fixture(autouse=True)
def home(here: Path) -> Path:
    (here / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    (here / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return here


def ready(*overrides: str, scheduler: str = "slurm") -> Prepared:
    return prepare("spec.yaml", Options(overrides=overrides, scheduler=scheduler), build=True)


GPU = ("resources.gpus=1", "resources.gpu_type=v100")


@pytest.mark.parametrize(
    ("overrides", "phrases"),
    [
        ((), ("2 CPUs, 1GiB of memory and 00:10:00 a point, 4 at", "5.0 CPU-hours, 75.0 with all retries")),
        (GPU, ("1 v100 GPU, 2 CPUs, ", "at most 2.5 GPU-hours")),
        (("resources.gpus=2", "max_parallel=null"), ("2 GPUs, 4 CPUs, ", "00:10:00 a point: ", "5.0 GPU-")),
        ((*GPU, "pack=4", "max_parallel=2"), ("4 points a job, 2 jobs at a time", "2.5 GPU-hours")),
        ((*GPU, "find_max={}", "policy.follow_up=false"), ("2.7 GPU-hours, the largest batch included",)),
    ],
)
def test_what_is_requested_and_what_it_comes_to(overrides: tuple[str, ...], phrases: tuple[str, ...]) -> None:
    line = launch.request_line(ready(*overrides))
    assert [phrase for phrase in phrases if phrase not in line] == []
    assert ("with all retries" in line) == ("policy.follow_up=false" not in overrides)
    counted = launch.headline(ready("repeats=auto"))
    assert counted.startswith("50 points (5 settings x at most 10) of count on slurm (from --sch")


@pytest.fixture
def cluster(queue: Programs) -> Programs:
    """Return a Slurm that takes arrays."""
    queue.add("scontrol", "echo MaxArraySize = 1001")
    queue.add("sinfo", "exit 1")
    return queue


@pytest.mark.slow
def test_it_is_said_before_anything_is_submitted(
    cluster: Programs, capfd: pytest.CaptureFixture[str]
) -> None:
    start = "sbatch: Job 5 to start at 2026-01-02T03:04:05 using 1 processors on nodes n1 in partition cpu"
    tested = f"*--test-only*) echo '{start}' >&2;;"
    cluster.add("sbatch", f'case "$*" in {tested} *) echo THE SUBMISSION >&2; exit 1;; esac')
    with pytest.raises(JobkitError) as refused:
        called(sweep_command, "spec.yaml", "--scheduler", "slurm", "--set", "policy.follow_up=false")
    assert "THE SUBMISSION" in refused.value.message
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("15 points")
    assert lines[1].startswith("requesting 2 CPUs")
    assert lines[2].startswith("Slurm estimates a start at 2026-01-02 03:04:05: ")


@pytest.mark.slow
@pytest.mark.usefixtures("queue")
def test_of_a_corpus_that_is_planned_already_every_shard_is_awaited(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_records(home / "run", map(record, grid([1], 2)))
    write_submitted(run, "slurm", "77", first=1, last=2)
    submission.wait_for_points(run, (), Policy())
    assert "2/2 points" in capsys.readouterr().err


@pytest.mark.slow
def test_a_dry_run_is_a_plan_on_a_terminal_and_before_the_script_in_a_pipe(cluster: Programs) -> None:
    cluster.add("sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1")
    words = ("sweep", "spec.yaml", "--scheduler", "slurm")
    page, script = jobkit(*words, "--dry-run"), jobkit(*words, "--script")
    assert (page.returncode, script.returncode) == (3, 0)
    assert "slurm would refuse this sweep; nothing was submitted" in page.stderr
    assert page.stdout.startswith("# Dry run")
    assert page.stdout.splitlines()[-1] == script.stdout.splitlines()[-1]
    master, slave = os.openpty()
    refused = pytest.raises(JobkitError, match="would refuse this sweep")
    with os.fdopen(slave, "w") as terminal, redirect_stdout(terminal), refused:
        called(sweep_command, *words[1:], "--dry-run")
    lines = os.read(master, 10_000).decode().splitlines()
    os.close(master)
    assert lines[1].startswith("15 points (5 settings x 3) of count on slurm (")
    assert lines[-2].startswith("  sbatch --parsable --array=1-15%4 ")
    assert f"# {lines[1]}\n# {lines[2]}\n" in page.stdout
    assert not Path("runs").exists()


ONE_POINT = SPEC.replace("10, 20, 30, 40, 50", "1").replace("repeats: 3", "repeats: 1") + "scheduler: local\n"


def small() -> Prepared:
    return ready("sweep.batch_size=[1,2,3]", "repeats=1", scheduler="local")


def written() -> Prepared:
    """Return a run whose folder is written, and nothing submitted."""
    prepared = small()
    submission.write_run(prepared)
    return prepared


@pytest.mark.slow
def test_twice_the_same_command_is_one_run(home: Path) -> None:
    def sweep(*words: str) -> subprocess.CompletedProcess[str]:
        return jobkit("sweep", "spec.yaml", *words)

    (home / "spec.yaml").write_text(ONE_POINT, encoding="utf-8")
    assert "has a run already" not in sweep("--dry-run").stderr
    assert sweep().returncode == 0
    (run,) = (home / "runs").iterdir()
    again = sweep()
    assert again.returncode == 2
    assert f"has a run already: runs/{run.name}, 1 point: 1 done; nothing was submitted" in again.stderr
    assert f"hint: jobkit collect runs/{run.name} prints its table; --new starts another run" in again.stderr
    for option in ("--wait", "--print-jobs"):  # a pipeline types them again
        assert sweep(option).returncode == 0
    assert "--new submits it again" in sweep("--dry-run").stderr
    assert list((home / "runs").iterdir()) == [run]
    assert sweep("--new").returncode == 0
    assert len(list((home / "runs").iterdir())) == 2
    shutil.rmtree(home / "runs")
    argv = [str(JOBKIT), "sweep", "spec.yaml"]
    both = [
        subprocess.Popen(argv, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate(timeout=60)[1] for one in both]  # at the same moment
    assert sorted(one.returncode for one in both) == [0, 2], said
    assert sum("this sweep has a run already" in words for words in said) == 1
    assert len(list((home / "runs").iterdir())) == 1


def test_how_far_it_is_and_what_to_type(home: Path) -> None:
    def refused() -> str:
        with pytest.raises(JobkitError) as caught:
            launch.refuse_duplicate(again)
        assert caught.value.exit_code == 2
        return f"{caught.value.message}\n{caught.value.hint}"

    again = small()
    assert launch.find_duplicate(again) is None, "there is no folder of runs yet"
    run = written()
    assert f"jobkit resume runs/{run.run_dir.name} runs what failed or is missing" in refused()
    write_submitted(run.run_dir, "slurm", "77", first=1, last=3)
    assert f"jobkit status runs/{run.run_dir.name} shows its progress" in refused()
    for point, outcome in zip(run.points, (Outcome.OK, Outcome.CANCELLED, Outcome.TIMEOUT), strict=True):
        found = record(replace(point, params={"batch_size": 1}))
        write_record(run.run_dir, replace(found, point=point, outcome=outcome))
    assert "3 points: 1 cancelled, 1 done, 1 failed (1 timeout);" in refused()
    newer = home / "runs" / "t-20990103-101530-0000"
    shutil.copytree(run.run_dir, newer)
    assert launch.find_duplicate(again) == newer
    renamed = newer.rename(newer.with_name(f"best-{newer.name}"))
    assert launch.find_duplicate(again) == renamed


def test_what_differs_in_its_inputs_is_another_sweep(home: Path) -> None:
    run = written()
    (home / "runs" / "notes.txt").write_text("mine", encoding="utf-8")
    (home / "runs" / "empty").mkdir()
    path = run.run_dir / POINTS_FILE
    text = path.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    tiny = {"path": "/m", "name": "en", "size": "tiny", "stand_in": True, "fingerprint": "1", "size_bytes": 1}
    trial = to_json(replace(run.points[2], index=4, point_id="batch_size-9-verify"))
    for points, same in (
        (text, True),
        (f"{text}{trial}\n", True),
        (text.replace(str(home), "/elsewhere"), True),  # its cache has moved
        ("".join(f"{json.dumps(row)}\n" for row in [rows[0] | {"model": tiny}, *rows[1:]]), False),
        ("".join(f"{json.dumps(row)}\n" for row in rows[:2]), False),
    ):
        path.write_text(points, encoding="utf-8")
        assert launch.find_duplicate(small()) == (run.run_dir if same else None), points
    path.write_text(text, encoding="utf-8")
    (home / "text.txt").write_text("One two.\n\nThrew.\n", encoding="utf-8")
    assert launch.find_duplicate(small()) is None
    path.unlink()
    assert launch.find_duplicate(small()) is None


def test_a_run_of_a_version_that_lacked_a_key_is_found_again(home: Path) -> None:
    """Each key that the spec leaves out may be one of a later version, decided (``site``) or not."""
    run, again = written(), small()
    path, lines = run.run_dir / SPEC_FILE, run.run_dir / POINTS_FILE
    whole, points = read_document(path).data, lines.read_text(encoding="utf-8")
    spec = read_document(home / "spec.yaml").data | {"scheduler": "local"}
    keys: set[tuple[str, ...]] = {(key,) for key in whole if key not in spec}
    nested = {(key, name) for key, part in whole.items() if isinstance(part, dict) for name in part}
    keys |= nested - {(key, name) for key, part in spec.items() if isinstance(part, dict) for name in part}
    assert {("site",), ("hang_s",), ("device",), ("resources", "walltime"), ("policy", "timeout")} < keys
    missed = []
    for key, *names in sorted(keys):
        part = {name: value for name, value in whole[key].items() if name not in names} if names else None
        others = {other: value for other, value in whole.items() if other != key}
        path.write_text(as_yaml(others | ({key: part} if names else {})), encoding="utf-8")
        missed += [(key, *names)] if launch.find_duplicate(again) != run.run_dir else []
    assert missed == []
    rows = [json.loads(line) for line in points.splitlines()]
    for name in ("hang_s", "fork", "command", "gpus", "mps"):
        old = [{key: value for key, value in row.items() if key != name} for row in rows]
        lines.write_text("".join(f"{json.dumps(row)}\n" for row in old), encoding="utf-8")
        assert launch.find_duplicate(again) == run.run_dir, name
    lines.write_text(points, encoding="utf-8")
    del whole["hang_s"], whole["site"]
    for change in ({"fork": False}, {"hang_s": 61}, {"later": 1}, {"sweep": {"batch_size": [1, 2, 3, 4]}}):
        path.write_text(as_yaml(whole | change), encoding="utf-8")
        assert launch.find_duplicate(again) is None, change
    path.write_text(as_yaml(whole), encoding="utf-8")
    another = ready("sweep.batch_size=[1,2,3]", "repeats=1", "hang_s=61", scheduler="local")
    assert launch.find_duplicate(another) is None, "a new key that a person writes makes another sweep"


def a_round(points: Sequence[int], *, pack: int = 1, number: int = 2) -> Round:
    group = PointGroup(points=tuple(points), resources=Resources(), request=REQUEST)
    return Round(number=number, script="#!/bin/bash\n", groups=[group], pack=pack, max_parallel=4)


@settings(deadline=None, max_examples=50)  # it writes files
@given(
    st.lists(st.integers(1, 10**5), min_size=1, max_size=60, unique=True) | st.just(list(range(1, 30))),
    st.integers(1, 9),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 50),
)
def test_what_the_journal_makes_of_the_arrays_is_every_point_once(
    points: list[int], pack: int, limit: int | None, parallel: int | None
) -> None:
    one = replace(a_round(points, pack=pack), max_parallel=parallel)
    arrays = plan_arrays(slurm, one, f"MaxArraySize = {limit + 1}" if limit else "")
    assert all(array.first == 1 and array.last <= (limit or len(points)) for array in arrays)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        write_round(run, one)
        for job, array in enumerate(arrays):
            listed = {"list": array.listed} if array.listed else {}
            write_submitted(run, "slurm", str(job), first=1, last=array.last, offset=array.offset, **listed)
        tasks = [task for taken in read_journal(run).submissions for _, task in taken.tasks()]
    assert [index for task in tasks for index in task] == points
    assert all(len(task) == pack for task in tasks[:-1])
    throttles = [array.throttle or 0 for array in arrays]
    assert all(throttles) if parallel else not any(throttles)
    assert sum(throttles) <= max(parallel or 0, len(arrays))


@pytest.fixture
def controller(queue: Programs) -> Programs:
    """Return a Slurm whose array limit is 2, and where the second array gets the answer in a file."""
    queue.add("scontrol", "echo MaxArraySize = 3")
    second = f'*"tasks-2.txt 2") cat {queue.folder}/second >&2; exit 1'
    queue.add("sbatch", f'case "$*" in {second};; esac; echo 7')
    return queue


def test_each_request_is_an_array_and_the_throttle_holds_for_all_together() -> None:
    plain = PointGroup(points=(1, 3, 4), resources=Resources(), request=REQUEST)
    more = replace(plain, points=(2, 5), options=("-c 2",))
    groups = [plain, more, replace(plain, points=(6,), options=("-c 4 --gres gpu:2",))]
    one = Round(number=1, script="", groups=groups, pack=1, max_parallel=2)
    arrays = plan_arrays(slurm, one, "MaxArraySize = 3")
    assert [(a.last, a.offset) for a in arrays] == [(2, 0), (1, 2), (2, 3), (1, 5)]
    options = [" ".join(a.option_words) for a in arrays]
    assert options == ["", "", "-c 2", "-c 4 --gres gpu:2"]
    assert [line for tasks in one.tasks for line in tasks] == [(1,), (3,), (4,), (2,), (5,), (6,)]
    jobs = round_jobs(one, arrays)
    ids = [JobId(str(number)) for number in range(1, 5)]
    waits = [[job.id for job in planned.waits_for(ids[:place])] for place, planned in enumerate(jobs)]
    assert waits == [[], [], ["1"], ["2"]], "two arrays at a time, a task of each"
    assert {array.throttle for array in arrays} == {1}
    free = replace(one, max_parallel=None)
    assert {job.behind for job in round_jobs(free, plan_arrays(slurm, free, ""))} == {0}
    assert {job.journalled("slurm")["walltime_s"] for job in jobs} == {REQUEST.walltime_s}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("second", "found", "cancelled"),
    [
        ("sbatch: error: Job limit reached", ["refused", "cancelled"], ["scancel 7"]),
        ("sbatch: error: Socket timed out on send/recv operation", [], []),
    ],
)
def test_a_refused_array_takes_the_earlier_ones_with_it_and_a_lost_answer_does_not(
    tmp_path: Path, controller: Programs, second: str, found: list[str], cancelled: list[str]
) -> None:
    (controller.folder / "second").write_text(f"{second}\n", encoding="utf-8")
    one, listed = a_round([3, 5, 7]), "tasks-2.txt"
    arrays = plan_arrays(slurm, one)
    first = Array(first=1, last=2, offset=0, throttle=2, listed=listed)
    assert arrays == (first, replace(first, last=1, offset=2, throttle=1))
    with pytest.raises(JobkitError) as caught:
        submit_jobs(slurm, tmp_path, round_jobs(one, arrays))
    assert (caught.value.exit_code, isinstance(caught.value, SubmissionUnconfirmed)) == (3, not found)
    told = [event["event"] for event in events(tmp_path)]
    assert told == ["submitting", "submitted", "submitting", *found]
    assert controller.called("scancel") == cancelled


LIMITS = "MaxArraySize = 11\nMaxJobCount = 100\n"


def test_within_the_limits_that_the_controller_reported() -> None:
    def planned(points: int, limits: str) -> list[tuple[int, int]]:
        return [(a.last, a.offset) for a in plan_arrays(slurm, a_round(range(points)), limits)]

    assert planned(25, LIMITS) == [(10, 0), (10, 10), (5, 20)]
    assert planned(25, "") == [(25, 0)]
    with pytest.raises(JobkitError, match=r"101 points.*at most 100 jobs.*nothing was submitted") as caught:
        planned(101, LIMITS)
    assert (caught.value.exit_code, "`pack`" in caught.value.hint) == (3, True)
    with pytest.raises(JobkitError, match="accepts no array jobs here") as caught:
        planned(5, "MaxArraySize = 1\n")
    assert caught.value.exit_code == 3


def go(run: Prepared) -> None:
    assert launch.go(run, partial(submission.write_run, run)) == 0


@pytest.fixture
def followed(queue: Programs) -> Prepared:
    """Return a run with a job that follows; the array limit makes it two arrays."""
    for name, body in (("sinfo", "exit 1"), ("sacctmgr", "exit 1"), ("scontrol", "echo MaxArraySize = 4")):
        queue.add(name, body)
    run = ready("sweep.batch_size=[1,2,3]", "repeats=2")
    return replace(run, follow_script=None, find_script="#!/bin/bash\n")


NUMBERED = 'case "$*" in *--test-only*) exit 0;; *find.sh*) {last};; *--offset*) echo 8;; *) echo 7;; esac'


@pytest.mark.slow
def test_a_job_follows_all_arrays_and_intent_stands_in_the_journal_before_each_act(
    followed: Prepared, tmp_path: Path, queue: Programs
) -> None:
    note = f"wc -l <{followed.run_dir}/journal.jsonl >>{tmp_path}/seen"
    queue.add("sbatch", f"{note}; {NUMBERED.format(last='echo 9')}")
    go(followed)
    assert (tmp_path / "seen").read_text().split() == ["1", "3", "5"], "the check comes before the folder"
    assert events(followed.run_dir)[0]["throttle"] == 2
    taken = read_journal(followed.run_dir).submissions
    assert [(str(one.job), one.role) for one in taken] == [("7", "points"), ("8", "points"), ("9", "find")]
    script = followed.run_dir / "find.sh"
    waits = f"sbatch --parsable --dependency=afterany:7:8 --array=1-1 {script} --offset 6"
    assert queue.called()[-1] == waits
    assert script.read_text(encoding="utf-8") == "#!/bin/bash\n"
    submitted = [event for event in events(followed.run_dir) if event["event"] == "submitted"]
    assert [(event["job_id"], event["offset"]) for event in submitted] == [("7", 0), ("8", 3), ("9", 6)]
    assert " ".join([*launch.submit_commands(followed)][-1]) == waits.replace(":7:8", ":JOB1:JOB2")


@pytest.mark.slow
def test_a_refused_check_leaves_no_folder_and_a_refused_follower_cancels_the_sweep(
    followed: Prepared, queue: Programs
) -> None:
    refusal = "allocation failure: Requested node configuration is not available"
    queue.add("sbatch", f"echo '{refusal}' >&2; exit 1")
    with pytest.raises(JobkitError, match="nothing was submitted") as caught:
        go(followed)
    assert (caught.value.exit_code, followed.run_dir.exists()) == (3, False)
    queue.add("sbatch", NUMBERED.format(last='echo "Job dependency problem" >&2; exit 1'))
    with pytest.raises(JobkitError, match="Job dependency problem") as caught:
        go(followed)
    assert caught.value.exit_code == 3
    last = [(event["event"], event.get("job_id")) for event in events(followed.run_dir)][-3:]
    assert last == [("refused", None), ("cancelled", "7"), ("cancelled", "8")]


@pytest.mark.slow
def test_the_limits_are_asked_for_or_there_are_none(queue: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobkit.launch.scheduler_calls.PAUSES_S", (0.0,))
    monkeypatch.setenv("SBATCH_ACCOUNT", "of the shell")
    queue.add("scontrol", 'echo "$* ${SBATCH_ACCOUNT:-}"')
    assert ask_limits(slurm) == "show config \n"
    assert ask_limits(local) == ""
    queue.add("qconf", "exit 1")
    with pytest.raises(JobkitError, match="the scheduler does not answer") as caught:
        ask_limits(sge)
    assert caught.value.exit_code == 3
    assert caught.value.hint.endswith(PRACTICE_ENV)
    queue.add("scontrol", "echo Rate limit exceeded >&2; exit 1")
    for once, calls in (True, 1), (False, 2):  # a preview does not wait for a busy controller
        queue.calls()
        with pytest.raises(JobkitError, match="the scheduler does not answer"):
            ask_limits(slurm, once=once)
        assert len(queue.called()) == calls
