"""The plan of a corpus and its folder, made here or by a job; going on, and what is refused."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE, SPEC_FILE, is_run_folder, read_points
from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import ModelRef
from jobkit.core.units import GIB, MIB
from jobkit.extensions.corpus import apply, ledger, resumption
from jobkit.extensions.corpus.apply import ApplyRequest
from jobkit.extensions.corpus.plan import is_corpus_folder, is_unplanned, read_plan
from jobkit.extensions.corpus.shards import ShardOptions, plan_lines, plan_shards
from jobkit.extensions.corpus.standing import CorpusState, finish
from jobkit.launch import resume
from jobkit.launch.cancel import cancel
from jobkit.launch.launch import Preview
from jobkit.runs.journal import Role, read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.status_text import render
from jobkit.runs.watch import is_over
from jobkit.schedulers.types import State
from jobkit.spec.policy import Policy
from tests.support.applied import (
    CHARACTERS,
    OUT,
    expected_rows,
    measured_run,
    merged,
    plan,
    request,
    win,
    write_corpus,
    write_planned,
)
from tests.support.builders import events
from tests.support.commands import jobkit
from tests.support.statuses import with_job
from tests.support.swept import Sweep
from tests.support.swept import clock as clock  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - the same


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBKIT_LEDGER", str(tmp_path / "ledger.jsonl"))
    measured_run(tmp_path / "run")
    write_corpus(tmp_path / "letters.txt")
    return tmp_path


@pytest.fixture
def asked(home: Path) -> ApplyRequest:
    return request(home / "run", ["letters.txt"])


@pytest.mark.slow
def test_a_corpus_is_worked_through_here_and_merged(home: Path) -> None:
    words = ("apply", "run", "--corpus", "letters.txt", "--out", "tagged")
    preview = jobkit(*words, "--shards", "2", "--dry-run")
    assert preview.returncode == 0, preview.stderr
    assert "; a blank line ends a paragraph, also in a table" in preview.stdout.replace("\n#           ", " ")
    assert re.search(
        r"^# setting +batch_size 50 \(from run\)\n# shards +2 of about ", preview.stdout, re.MULTILINE
    )
    assert "# Dry run" not in jobkit(*words, "--shards", "2", "--script").stdout
    assert sorted(path.name for path in home.iterdir()) == ["letters.txt", "run"]
    done = jobkit(*words, "--shards", "2")
    assert done.returncode == 0, done.stderr
    assert "60 of 60 paragraphs, 2 of 2 shards" in done.stdout
    assert jobkit("merge", "tagged").returncode == 0
    assert merged(home / "tagged" / "merged.jsonl") == expected_rows(
        "letters.txt", (home / "letters.txt").read_text().split("\n\n")
    )
    again = jobkit(*words)
    assert again.returncode == 0, again.stderr
    another = jobkit(*words[:-1], "again", "--dry-run")
    assert "earlier    1 corpus with this model, " in another.stdout
    assert "is planned already" in again.stderr
    assert "nothing to run again\n" in again.stderr
    changed = jobkit("resume", "tagged", "--set", "max_parallel=3")
    assert "nothing to run again, so --set changed nothing" in changed.stderr
    for command in (["collect"], ["recommend"], ["verify"], ["profile"], ["tune"]):
        refused = jobkit(*command, "tagged", *(["1"] if command == ["profile"] else []))
        assert (refused.returncode, "jobkit merge tagged" in refused.stderr) == (2, True), refused.stderr
    assert "skipped" in jobkit("collect", ".").stdout + jobkit("collect", ".").stderr


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("given", "figures"),
    [
        ("memory=500MiB", ("500MiB", "600.0 MiB", "resources.memory=900MiB")),
        ("memory=600MiB", ()),
        ("walltime=00:00:09", ("00:00:09", "about 9 s", "resources.walltime=00:05:00")),
        ("walltime=00:00:12", ()),
    ],
)
def test_a_request_below_what_was_measured_is_a_warning(
    given: str, figures: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    asked = request(Path("run"), ["letters.txt"], f"resources.{given}", shards=1)
    _, prospect = plan(asked)
    piece = prospect.plan.shards[0].pieces[0]
    pieces = [replace(piece, characters=CHARACTERS)]
    setting = replace(prospect.setting, peak_bytes=600 * MIB)
    again = replace(prospect, setting=setting, plan=plan_shards(pieces, setting, ShardOptions()))
    _, warned, said = " ".join(plan_lines(again)).partition("warning")
    assert bool(warned) == bool(figures)
    assert all(figure in " ".join(said.split()) for figure in figures)
    assert max(map(len, plan_lines(again))) <= 100


def test_what_the_job_that_follows_submits_is_not_for_a_person(asked: ApplyRequest) -> None:
    write_planned(asked)
    (OUT / "promise.json").write_text(
        '{"minutes": 30}', encoding="utf-8"
    )  # the first shard measures the speed
    (run,) = read_status([OUT.absolute()], ask=False)
    waits = with_job(run, Role.FOLLOW, State.PENDING, "Dependency")
    said = render(waits, "tagged", width=100, most=24)
    assert ("job 79 submits it" in said, "jobkit resume" in said) == (True, False)
    assert "jobkit status tagged --watch" in said
    assert (is_over(waits, Policy()), is_over(waits, Policy(), submits=True)) == (False, True)
    ended = with_job(run, Role.FOLLOW, end="COMPLETED")
    assert "jobkit resume tagged" in render(ended, "tagged", width=100, most=24)


def test_the_folder_is_whole_or_not_there_and_takes_no_place_of_another(
    asked: ApplyRequest, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = OUT.with_name(".tagged.part")
    for out in (home / "run", home / "letters.txt"):
        with pytest.raises(JobkitError, match="exists already"):
            apply.apply(out, asked)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write_planned(asked)
    assert (part.exists(), OUT.exists()) == (False, False)
    (part / "results").mkdir(parents=True)  # of a command that was killed outright
    OUT.mkdir()
    prepared = write_planned(asked)
    assert (part.exists(), is_corpus_folder(OUT)) == (False, True)
    points, _ = read_points(OUT)
    assert points == list(prepared.points)
    assert [shard.index for shard in read_plan(OUT)] == [1, 2, 3]
    assert {point.run_id for point in points} == {prepared.inputs.run_id}
    assert points[0].run_id.startswith("demo-"), "and not the folder's name"


def test_what_differs_is_named_and_nothing_runs(asked: ApplyRequest, home: Path) -> None:
    write_planned(asked)
    other_run = measured_run(home / "other", sizes=(10,))
    pooled = measured_run(home / "pooled")
    model = ModelRef(path=str(home), name="m", size="full", stand_in=False, fingerprint="f", size_bytes=1)
    for path in (pooled / POINTS_FILE, *pooled.rglob("record.json")):
        text = re.sub('"model": ?null', f'"model":{to_json(replace(model, pooling="cls"))}', path.read_text())
        path.write_text(text)
    cases = {
        "text_field: text there, body now": replace(asked, text_field="body"),
        "setting: batch_size 50 there, batch_size 10 now": replace(asked, word=str(other_run)),
        "pooling: none there, 'cls' now": replace(asked, word=str(pooled)),
    }
    for words, other in cases.items():
        with pytest.raises(JobkitError, match="is of another corpus or setting") as refused:
            apply.apply(OUT, other)
        assert words in refused.value.message
    (home / "more.txt").write_text("More.\n", encoding="utf-8")
    with pytest.raises(
        JobkitError, match=r"letters\.txt: there, and not in the corpus now\n  new: more\.txt"
    ):
        apply.apply(OUT, replace(asked, paths=("more.txt",)))
    text = (home / "letters.txt").read_text()
    (home / "letters.txt").write_text(text.replace("word", "wort"), encoding="utf-8")
    with pytest.raises(JobkitError, match=r"another SHA-256\n  new: more\.txt") as refused:
        apply.apply(OUT, replace(asked, paths=("more.txt", "letters.txt")))
    assert "to add new files restore the others, and name all files" in refused.value.hint
    (home / "letters.txt").write_text(text, encoding="utf-8")
    with pytest.raises(JobkitError, match="runs with local") as refused:
        apply.apply(OUT, replace(asked, scheduler="slurm"))
    assert "--replan --set scheduler=slurm" in refused.value.hint


def test_a_finished_corpus_grows_by_new_files_alone(home: Path) -> None:
    write_planned(request(home / "run", ["letters.txt"], shards=1))
    win(OUT, 1)
    assert jobkit("merge", OUT).returncode == 0
    first = merged(OUT / "merged.jsonl")
    (home / "a").mkdir()
    (home / "a/1.txt").write_text("One.\n\nAnd two.\n", encoding="utf-8")
    (home / "a/2.txt").touch()
    before = {path: path.read_bytes() for path in OUT.rglob("*") if path.is_file() and path.name != ".lock"}
    words = ("apply", "run", "--corpus", "a", "letters.txt", "--out", OUT, "--shards", "1")
    dry = jobkit(*words, "--dry-run")
    assert "jobkit adds 2 new files: a/1.txt, a/2.txt\ncorpus     2 files, 15 bytes, 2 para" in dry.stderr
    assert before == {path: path.read_bytes() for path in before}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "run_again", lambda *_, **__: 0)
        assert jobkit(*words).returncode == 0
    assert [(point.index, point.repeat) for point in CorpusState(OUT.absolute()).points] == [(1, 1), (2, 2)]
    assert jobkit("merge", OUT).returncode == ExitCode.TO_COME
    win(OUT, 2)
    assert "jobkit merge" in jobkit("report", OUT).stderr
    assert jobkit("merge", OUT).returncode == 0
    assert "jobkit merge" not in jobkit("report", OUT).stderr
    rows = merged(OUT / "merged.jsonl")
    assert [row["document"] for row in rows[len(first) :]] == ["a/1.txt"] * 3
    assert rows[: len(first)] == first
    files = json.loads((OUT / "provenance.json").read_text())["corpus"]["files"]
    assert [one["name"] for one in files] == ["letters.txt", "a/1.txt", "a/2.txt"]
    assert len(ledger.corpora(home / "ledger.jsonl")) == 1


@pytest.mark.usefixtures("asked")
def test_a_new_file_shares_no_id_with_an_old_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "run_again", lambda *_, **__: 0)
    (home / "b.jsonl").write_text('{"id": "x", "text": "Old."}\n', encoding="utf-8")
    write_planned(request(home / "run", ["b.jsonl"]))
    (home / "a.jsonl").write_text('{"id": "x", "text": "New."}\n', encoding="utf-8")
    both = request(home / "run", ["a.jsonl", "b.jsonl"])
    with pytest.raises(JobkitError, match=r"a\.jsonl:1: the id 'x' \(id\) is also that of b\.jsonl:1"):
        apply.apply(OUT, both)
    assert apply.apply(OUT, replace(both, skip_bad=True)) == 0
    corpus = CorpusState(OUT.absolute()).corpus
    assert ([one.name for one in corpus.sources], len(corpus.skipped)) == (["b.jsonl", "a.jsonl"], 1)
    assert len(list(read_plan(OUT))) == 1, "there is nothing to tag"


def test_only_changed_keys_are_given_and_the_format_stays(
    asked: ApplyRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[tuple[str, ...]] = []
    monkeypatch.setattr(resume, "run_again", lambda *words, **_: given.append(words[2]))
    write_planned(replace(asked, overrides=("resources.memory=3GiB",)))
    words = ("resources.memory=3GiB", "resources.cpus=2")
    apply.apply(OUT, replace(asked, overrides=words, fmt="tsv"))
    assert given == [("resources.cpus=2",)]
    assert "jobkit merge tagged --format tsv" in capsys.readouterr().err


def test_a_corpus_takes_every_path_up_to_the_next_option(home: Path) -> None:
    (home / "more.txt").write_text("More.\n", encoding="utf-8")
    tail = ("--out", "tagged", "--dry-run")
    for words in (
        ("apply", "run", "--corpus", "letters.txt", "more.txt"),
        ("apply", "--corpus", "letters.txt", "--corpus", "more.txt", "run"),
        ("apply", "--corpus", "letters.txt", "more.txt", "run"),
    ):
        done = jobkit(*words, *tail)
        assert "corpus     2 files" in done.stdout, done.stderr
    refused = jobkit("apply", "run", "--corpus", "-", *tail)
    assert (refused.returncode, "standard input" in refused.stderr) == (2, True)
    assert jobkit("apply", "run", *tail).returncode == 2
    assert jobkit("recommend", "run", "--corpus", "letters.txt", "more.txt").returncode == 0
    assert not os.path.lexists("tagged")


@pytest.fixture
def ordered(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApplyRequest:
    """Return what a person asks for on a cluster whose controller takes jobs of any name."""
    monkeypatch.chdir(tmp_path)
    sweep._programs("")
    measured_run(tmp_path / "run")
    write_corpus(tmp_path / "letters.txt")
    made = request(Path("run"), ["letters.txt"])
    return replace(made, scheduler="slurm")


@pytest.mark.slow
@pytest.mark.usefixtures("ordered")
def test_apply_prints_the_jobs_that_it_submits_and_none_of_before() -> None:
    words = ("apply", "run", "--scheduler", "slurm", "--out", "tagged", "--corpus", "letters.txt")
    first = jobkit(*words, "--print-jobs")
    submitted = [job.job.id for job in read_journal(OUT).submissions]
    assert (first.stdout.split(), len(submitted)) == (submitted, 2), first.stderr
    write_corpus(Path("more.txt"))
    again = jobkit(*words, "more.txt", "--print-jobs")
    assert again.stdout.split() == [job.job.id for job in read_journal(OUT).submissions][2:], again.stderr
    assert jobkit(*words, "--print-jobs", "--json").returncode == 2


@pytest.fixture
def out(ordered: ApplyRequest) -> Path:
    """Return the folder of a corpus that a job is to plan."""
    assert resumption.apply_as_job(OUT, ordered) == 0
    return OUT.absolute()


def roles(run: Path) -> list[str]:
    return [str(job.role) for job in read_journal(run).submissions]


def shown(run: Path) -> tuple[int, str]:
    (standing,) = read_status([run])
    return standing.exit_code, render(standing, "tagged", width=200, most=10)


@pytest.mark.slow
def test_the_folder_of_an_order_is_a_run_without_points_and_one_job_plans_at_a_time(
    ordered: ApplyRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resumption.apply_as_job(OUT, ordered, how=apply.How(Preview())) == 0
    assert (OUT.exists(), "tagged/plan.sh" in capsys.readouterr().out) == (False, True)
    assert resumption.apply_as_job(OUT, ordered) == 0
    assert "job 101 reads and plans the corpus, then submits the shards" in capsys.readouterr().err
    assert all(kind(OUT) for kind in (is_run_folder, is_corpus_folder, is_unplanned))
    code, text = shown(OUT)
    assert (code, "demo-" in text, "the corpus is not planned yet" in text) == (ExitCode.TO_COME, True, True)
    assert "job 101, which reads and plans the corpus, waits: " in text
    assert "jobkit status tagged --watch" in text
    assert not finish(OUT)
    listed = jobkit("status", ".")
    assert (listed.returncode, "demo-" in listed.stdout) == (ExitCode.TO_COME, True), listed.stderr
    for words, code in ("merge RUN", 5), ("logs RUN 1", 2), ("collect RUN", 2), ("resume RUN --replan", 2):
        refused = jobkit(*words.replace("RUN", "tagged").split())
        assert (refused.returncode, "Traceback" in refused.stderr) == (code, False), refused.stderr
    assert resumption.apply_as_job(OUT, ordered) == ExitCode.TO_COME
    assert resumption.RESUMPTION.resume(OUT, resume.Asked()) == ExitCode.TO_COME
    assert "job 101 reads and plans the corpus: jobkit status" in capsys.readouterr().err
    with pytest.raises(JobkitError, match="plans another corpus there, or with other options"):
        resumption.apply_as_job(OUT, replace(ordered, skip_bad=True))
    with pytest.raises(JobkitError, match="job 101 reads and plans this corpus"):
        apply.apply(OUT, ordered)
    assert roles(OUT) == ["plan"]


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
def test_what_was_cancelled_is_submitted_again_also_with_other_options(
    out: Path, ordered: ApplyRequest, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cancel(out, (), ()) == 0
    assert "cancelled: job 101, which reads and plans the corpus" in capsys.readouterr().err
    sweep.queue()
    code, text = shown(out)
    assert (code, "has ended (cancelled at " in text) == (ExitCode.FAILED, True)
    assert "jobkit resume tagged   # submits the job that plans the corpus again" in text
    assert resumption.apply_as_job(OUT, replace(ordered, skip_bad=True)) == 0
    assert resumption.read_order(out).skip_bad
    assert roles(out) == ["plan", "plan"]


@pytest.mark.slow
def test_the_job_plans_and_submits_and_is_gone_on_with_by_names_and_sizes(
    out: Path, ordered: ApplyRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path.cwd()
    name = resumption.read_order(out).run_id
    monkeypatch.chdir("/")
    assert resumption.plan_in_job(out) == 0
    points, _ = read_points(out)
    assert [point.run_id for point in points] == [name] * 3
    assert [shard.index for shard in read_plan(out)] == [1, 2, 3]
    assert roles(out) == ["plan", "points", "follow"]
    assert not [path.name for path in out.parent.iterdir() if path.name.endswith(".part")]
    code, text = shown(out)
    assert (code, "3 waiting" in text, "plans the corpus" in text) == (ExitCode.TO_COME, True, False)
    assert not resumption.is_open(out)
    monkeypatch.chdir(place)
    assert resumption.apply_as_job(OUT, ordered) == 0
    assert "the corpus is planned already: jobkit goes on with that plan" in capsys.readouterr().err
    Path("more.txt").write_text("More.\n", encoding="utf-8")
    with pytest.raises(JobkitError, match=r"new: more\.txt") as refused:
        resumption.apply_as_job(OUT, replace(ordered, paths=("letters.txt", "more.txt")))
    assert "to add new files leave out --plan-as-job" in refused.value.hint
    Path("letters.txt").write_text("Another.\n", encoding="utf-8")
    with pytest.raises(JobkitError, match=r"letters\.txt: has changed"):
        resumption.apply_as_job(OUT, ordered)


@pytest.mark.slow
def test_what_the_job_cannot_read_or_may_not_submit_is_left_to_a_person(out: Path, sweep: Sweep) -> None:
    Path("letters.txt").write_bytes(b"caf\xe9\n")
    assert resumption.plan_in_job(out) == ExitCode.USAGE
    assert (is_unplanned(out), roles(out)) == (True, ["plan"])
    _, text = shown(out)
    assert "the corpus could not be planned: " in text
    assert "letters.txt" in text
    write_corpus(Path("letters.txt"))
    sweep.refuse("job-")
    assert resumption.plan_in_job(out) == 0
    assert "could not be planned" not in shown(out)[1]
    *_, left = (event for event in events(out) if event["event"] == "left")
    assert left["points"] == [1, 2, 3]
    assert "the job that planned the corpus could not submit 3 shards: " in shown(out)[1]


@pytest.mark.slow
@pytest.mark.parametrize("moved", [0, 3])
def test_a_job_that_was_killed_as_it_wrote_or_before_it_submitted_goes_on(
    out: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    real, calls = Path.replace, []

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    def write(path: Path, target: Path) -> Path:
        if path.parent.name == ".tagged.part":
            calls.append(path.name)
            if len(calls) > moved or path.name == POINTS_FILE:
                killed()
        return real(path, target)

    for owner, name, act, unplanned in (Path, "replace", write, True), (resume, "run_again", killed, False):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, act)
            with pytest.raises(KeyboardInterrupt):
                resumption.plan_in_job(out)
        assert (is_unplanned(out), shown(out)[0]) == (unplanned, ExitCode.TO_COME)
    points, _ = read_points(out)
    assert (len(points), resumption.is_open(out)) == (3, True)
    done = jobkit("resume", out, "--follow-up")
    assert done.returncode == 0, done.stderr
    assert roles(out) == ["plan", "points", "follow"]
    assert read_points(out)[0] == points


@pytest.mark.slow
def test_the_request_follows_the_size_and_doubles_its_walltime(
    ordered: ApplyRequest, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resumption.apply_as_job(OUT, ordered) == 0
    assert "1 CPU, 2GiB of memory and 00:10:00" in capsys.readouterr().err
    sweep.queue()
    os.truncate("letters.txt", 100 * GIB)
    assert resumption.apply_as_job(OUT, ordered, how=apply.How(Preview())) == 0
    assert "1 CPU, 3GiB of memory and 03:10:00" in capsys.readouterr().out


@pytest.mark.slow
def test_without_a_scheduler_and_without_the_folder_it_is_refused(
    ordered: ApplyRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JobkitError, match="no scheduler here"):
        resumption.apply_as_job(OUT, replace(ordered, scheduler="local"))
    out, place = OUT.absolute(), tmp_path / "place"
    place.mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(place)
        paths = (str(tmp_path / "letters.txt"),)
        other = replace(ordered, word=str(tmp_path / "run"), paths=paths)
        assert resumption.apply_as_job(out, other) == 0
    place.rmdir()
    with pytest.raises(JobkitError, match="no such folder"):
        resumption.RESUMPTION.resume(out, resume.Asked())


STAND_IN = """\
name: first
workload: stanza-ner
model: {size: tiny, fallback: stand-in}
sweep: {batch_size: [5]}
device: cpu
resources: {gpus: 0, cpus: 1, memory: 4GiB, walltime: "00:05:00"}
"""


def test_a_job_plans_with_a_stand_in_that_a_person_permits(
    ordered: ApplyRequest, tiny_model: ModelRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Path("cache/models").absolute()
    models.mkdir(parents=True)
    (models / Path(tiny_model.path).name).symlink_to(tiny_model.path)
    monkeypatch.setenv(CACHE_VARIABLE, str(models.parent))
    Path("first.yaml").write_text(STAND_IN, encoding="utf-8")
    assert resumption.apply_as_job(OUT, replace(ordered, word="first.yaml", stand_in=True)) == 0
    assert "warning: STAND-IN model, in place of en tiny" in shown(OUT)[1].splitlines()
    assert resumption.plan_in_job(OUT) == 0
    assert "STAND-IN model, in place of en tiny: its results" in shown(OUT)[1]


@pytest.mark.slow
def test_a_spec_without_a_speed_measures_it_and_cuts_the_rest_by_it(home: Path) -> None:
    (home / "run" / "text.txt").write_text("One.\n", encoding="utf-8")
    spec = (home / "run" / SPEC_FILE).read_text(encoding="utf-8").replace("[10, 50]", "[50]")
    (home / "first.yaml").write_text(spec, encoding="utf-8")
    book = "\n\n".join(f"Paragraph {number} of a book." for number in range(12_000))
    (home / "book.jsonl").write_text(json.dumps({"id": "book", "text": book}) + "\n", encoding="utf-8")
    words = ("apply", "first.yaml", "--corpus", "book.jsonl", "--out", "tagged")
    assert "measures the speed" in jobkit(*words, "--dry-run").stdout
    done = jobkit(*words)
    assert (done.returncode, "measures the speed" in done.stderr) == (0, True), done.stderr
    first, rest = CorpusState(home / "tagged").shards.values()
    assert (first.index, rest.index, first.expected_s, bool(rest.expected_s)) == (1, 3, None, True)
    assert first.paragraphs + rest.paragraphs == 12_000
    assert "12,000 rows of 12,000 paragraphs and 2 shards" in jobkit("merge", "tagged").stdout
