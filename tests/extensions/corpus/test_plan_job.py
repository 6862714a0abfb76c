"""The job that plans a corpus: submitted, shown, cancelled, and what it does on the node."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import ORDER_FILE, POINTS_FILE, is_run_folder, read_points
from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import ModelRef
from jobkit.core.units import GIB
from jobkit.extensions.corpus import plan_job, start
from jobkit.extensions.corpus.plan import is_corpus_folder, is_unplanned, read_plan
from jobkit.extensions.corpus.provenance import finish
from jobkit.launch import resume
from jobkit.launch.cancel import cancel
from jobkit.planning.resolve import Options
from jobkit.runs.journal import read_journal
from jobkit.runs.reader import read_standings
from jobkit.runs.status_text import render
from tests.support.applied import measured_run, request, write_corpus
from tests.support.builders import events
from tests.support.commands import jobkit
from tests.support.swept import Sweep
from tests.support.swept import clock as clock  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - the same


@pytest.fixture
def asked(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> start.ApplyRequest:
    """Return what a person asks for on a cluster whose controller takes jobs of any name."""
    monkeypatch.chdir(tmp_path)
    sweep._programs("")
    measured_run(tmp_path / "run")
    write_corpus(tmp_path / "letters.txt")
    made = request(Path("run"), ["letters.txt"], tmp_path / "tagged")
    return replace(made, options=Options(scheduler="slurm"))


def roles(run: Path) -> list[str]:
    return [str(job.role) for job in read_journal(run).submissions]


def shown(run: Path) -> tuple[int, str]:
    (standing,) = read_standings([run])
    return standing.exit_code, render(standing, "tagged", width=200, most=10)


def test_the_folder_of_an_order_is_a_run_without_points(
    asked: start.ApplyRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan_job.apply(asked, dry_run=True) == 0
    assert (asked.out.exists(), "tagged/plan.sh" in capsys.readouterr().out) == (False, True)
    assert plan_job.apply(asked) == 0
    assert "job 101 reads and plans the corpus, then submits the shards" in capsys.readouterr().err
    assert (is_run_folder(asked.out), is_corpus_folder(asked.out), is_unplanned(asked.out)) == (True,) * 3
    code, text = shown(asked.out)
    assert (code, "demo-" in text, "the corpus is not planned yet" in text) == (ExitCode.TO_COME, True, True)
    assert "job 101, which reads and plans the corpus, waits: " in text
    assert "jobkit status tagged --watch" in text
    assert finish(asked.out) == ""
    listed = jobkit("status", ".")
    assert (listed.returncode, "demo-" in listed.stdout) == (ExitCode.TO_COME, True), listed.stderr
    for words, code in ((["merge"], 5), (["logs"], 2), (["collect"], 2), (["resume", "--replan"], 2)):
        refused = jobkit(words[0], "tagged", *words[1:], *(["1"] if words == ["logs"] else []))
        assert (refused.returncode, "Traceback" in refused.stderr) == (code, False), refused.stderr


def test_one_job_plans_at_a_time(asked: start.ApplyRequest, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_job.apply(asked) == 0
    assert plan_job.apply(asked) == ExitCode.TO_COME
    assert plan_job.go_on(asked.out) == ExitCode.TO_COME
    assert "job 101 reads and plans the corpus: jobkit status" in capsys.readouterr().err
    with pytest.raises(JobkitError, match="plans another corpus there, or with other options"):
        plan_job.apply(replace(asked, skip_bad=True))
    with pytest.raises(JobkitError, match="job 101 reads and plans this corpus"):
        start.apply(asked)
    assert roles(asked.out) == ["plan"]


@pytest.mark.usefixtures("clock")
def test_what_was_cancelled_is_submitted_again_also_with_other_options(
    asked: start.ApplyRequest, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan_job.apply(asked) == 0
    assert cancel(asked.out, (), ()) == 0
    assert "cancelled: job 101, which reads and plans the corpus" in capsys.readouterr().err
    sweep.queue()
    code, text = shown(asked.out)
    assert (code, "has ended (cancelled at " in text) == (ExitCode.FAILED, True)
    assert "jobkit resume tagged   # submits the job that plans the corpus again" in text
    assert plan_job.apply(replace(asked, skip_bad=True)) == 0
    assert plan_job.read_order(asked.out).skip_bad
    assert roles(asked.out) == ["plan", "plan"]


def test_the_job_plans_and_submits_and_is_gone_on_with_by_names_and_sizes(
    asked: start.ApplyRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path.cwd()
    assert plan_job.apply(asked) == 0
    name = plan_job.read_order(asked.out).run_id
    monkeypatch.chdir("/")
    assert plan_job.run(asked.out) == 0
    points, _ = read_points(asked.out)
    assert [point.run_id for point in points] == [name] * 3
    assert [shard.index for shard in read_plan(asked.out)] == [1, 2, 3]
    assert roles(asked.out) == ["plan", "points", "follow"]
    assert not [path.name for path in asked.out.parent.iterdir() if path.name.endswith(".part")]
    code, text = shown(asked.out)
    assert (code, "3 waiting" in text, "plans the corpus" in text) == (ExitCode.TO_COME, True, False)
    assert not plan_job.is_open(asked.out)
    monkeypatch.chdir(place)
    assert plan_job.apply(asked) == 0
    assert "is planned already: going on with it" in capsys.readouterr().err
    Path("more.txt").write_text("More.\n", encoding="utf-8")
    with pytest.raises(JobkitError, match=r"more\.txt: new"):
        plan_job.apply(replace(asked, paths=("letters.txt", "more.txt")))
    Path("letters.txt").write_text("Another.\n", encoding="utf-8")
    with pytest.raises(JobkitError, match=r"letters\.txt: has changed"):
        plan_job.apply(asked)


def test_what_the_job_cannot_read_is_shown_and_nothing_is_submitted(
    asked: start.ApplyRequest, tmp_path: Path
) -> None:
    assert plan_job.apply(asked) == 0
    (tmp_path / "letters.txt").write_bytes(b"caf\xe9\n")
    assert plan_job.run(asked.out) == ExitCode.USAGE
    assert (is_unplanned(asked.out), roles(asked.out)) == (True, ["plan"])
    _, text = shown(asked.out)
    assert "the corpus could not be planned: " in text
    assert "letters.txt" in text
    write_corpus(tmp_path / "letters.txt")
    assert plan_job.run(asked.out) == 0
    assert "could not be planned" not in shown(asked.out)[1]


def test_shards_that_the_node_may_not_submit_are_left_to_a_person(
    asked: start.ApplyRequest, sweep: Sweep
) -> None:
    assert plan_job.apply(asked) == 0
    sweep.refuse("job-")
    assert plan_job.run(asked.out) == 0
    (left,) = [event for event in events(asked.out) if event["event"] == "left"]
    assert left["points"] == [1, 2, 3]
    assert "the job that planned the corpus could not submit 3 shards: " in shown(asked.out)[1]


@pytest.mark.parametrize("moved", [0, 3])
def test_a_job_that_was_killed_as_it_wrote_is_done_again(
    asked: start.ApplyRequest, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    assert plan_job.apply(asked) == 0
    real, calls = Path.replace, []

    def killed(path: Path, target: Path) -> Path:
        if path.parent.name == ".tagged.part":
            calls.append(path.name)
            if len(calls) > moved or path.name == POINTS_FILE:
                raise KeyboardInterrupt
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            plan_job.run(asked.out)
    assert is_unplanned(asked.out)
    assert shown(asked.out)[0] == ExitCode.TO_COME
    assert plan_job.run(asked.out) == 0
    assert len(read_points(asked.out)[0]) == 3


def test_a_job_that_was_killed_before_it_submitted_submits_when_it_runs_again(
    asked: start.ApplyRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plan_job.apply(asked) == 0

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resume, "run_again", killed)
        with pytest.raises(KeyboardInterrupt):
            plan_job.run(asked.out)
    points, _ = read_points(asked.out)
    assert (len(points), plan_job.is_open(asked.out)) == (3, True)
    done = jobkit("resume", asked.out, "--follow-up")
    assert done.returncode == 0, done.stderr
    assert roles(asked.out) == ["plan", "points", "follow"]
    assert read_points(asked.out)[0] == points


def test_the_request_follows_the_size_and_doubles_its_walltime(
    asked: start.ApplyRequest, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan_job.apply(asked) == 0
    assert "1 CPU, 2GiB of memory, walltime 00:10:00" in capsys.readouterr().err
    sweep.queue()
    os.truncate("letters.txt", 100 * GIB)
    assert plan_job.apply(asked, dry_run=True) == 0
    assert "1 CPU, 3GiB of memory, walltime 03:10:00" in capsys.readouterr().out


def test_without_a_scheduler_and_without_the_folder_it_is_refused(
    asked: start.ApplyRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JobkitError, match="no scheduler here"):
        plan_job.apply(replace(asked, options=Options(scheduler="local")))
    place = tmp_path / "place"
    place.mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(place)
        paths = (str(tmp_path / "letters.txt"),)
        assert plan_job.apply(replace(asked, word=tmp_path / "run", paths=paths)) == 0
    place.rmdir()
    with pytest.raises(JobkitError, match="no such folder"):
        plan_job.go_on(asked.out)


STAND_IN = """\
name: first
workload: stanza-ner
model: {size: tiny, fallback: stand-in}
sweep: {batch_size: [5]}
device: cpu
resources: {gpus: 0, cpus: 1, memory: 4GiB, walltime: "00:05:00"}
"""


@pytest.fixture
def tagged(
    asked: start.ApplyRequest, tmp_path: Path, tiny_model: ModelRef, monkeypatch: pytest.MonkeyPatch
) -> start.ApplyRequest:
    """Return what a person asks for who has only the stand-in."""
    models = tmp_path / "cache" / "models"
    models.mkdir(parents=True)
    (models / Path(tiny_model.path).name).symlink_to(tiny_model.path)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "first.yaml").write_text(STAND_IN, encoding="utf-8")
    return replace(asked, word=Path("first.yaml"))


def test_a_job_plans_with_a_stand_in_that_a_person_permits(
    tagged: start.ApplyRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(JobkitError, match="needs the real en") as caught:
        plan_job.apply(tagged)
    assert (caught.value.exit_code, tagged.out.exists()) == (2, False)
    permitted = replace(tagged, options=replace(tagged.options, stand_in=True))
    assert plan_job.apply(permitted) == 0
    assert "model      STAND-IN model, in place of en tiny\n" in capsys.readouterr().err
    assert "warning: STAND-IN model, in place of en tiny" in shown(tagged.out)[1].splitlines()
    assert plan_job.run(tagged.out) == 0
    assert "STAND-IN model, in place of en tiny: its results" in shown(tagged.out)[1]


def test_an_order_of_an_earlier_version_is_planned(tagged: start.ApplyRequest) -> None:
    assert plan_job.apply(replace(tagged, options=replace(tagged.options, stand_in=True))) == 0
    path = tagged.out / ORDER_FILE
    order = json.loads(path.read_text())
    earlier = {key: value for key, value in order.items() if key not in {"stand_in", "caveat"}}
    path.write_text(json.dumps(earlier), encoding="utf-8")
    assert "STAND-IN" not in shown(tagged.out)[1]
    assert plan_job.go_on(tagged.out) == ExitCode.TO_COME  # the job is in the queue, with the same order
    assert plan_job.run(tagged.out) == 0
    assert "warning: STAND-IN model" in shown(tagged.out)[1]
