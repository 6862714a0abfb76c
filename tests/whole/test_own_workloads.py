"""Workloads of one's own: a command, killed and hostile, a function in a file, a class; by what is typed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.layout import read_points
from jobkit.core.measurements import Metric
from jobkit.core.paragraphs import split_paragraphs
from jobkit.core.records import Outcome, Record
from jobkit.runs.results import read_run
from jobkit.worker.process import started_at
from tests.support.commands import JOBKIT, jobkit, ran
from tests.support.disks import restricted
from tests.support.processes import parent_of, with_words
from tests.whole.specs import TEXT, write_spec
from tests.whole.test_job_script import wait_until


def run_of(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    return run


def record(folder: Path, point: int = 0) -> Record:
    found = read_run(run_of(folder)).points[point].record
    assert found
    return found


def shell(folder: Path, command: str, **keys: Any) -> Path:
    """Write the spec of a command for a shell."""
    workload = {"shell": True, "command": command, "metrics": {"accuracy": "accuracy: ([0-9.]+)"}}
    return write_spec(folder, workload=workload, **{"sweep": None, **keys})


CASES: dict[str, tuple[Outcome, str]] = {
    "kill -SEGV $$": (Outcome.BUG, "SIGSEGV"),
    "no-such-program {text}": (Outcome.ENVIRONMENT, "no-such-program"),
    "echo 'torch.cuda.OutOfMemoryError: CUDA out of memory.'; exit 1": (
        Outcome.GPU_OOM,
        "CUDA out of memory",
    ),
    "echo 'MemoryError: no'; exit 1": (Outcome.RAM_OOM, "MemoryError"),
    "false | true": (Outcome.BUG, "exit status 1"),
    "rm $JOBKIT_METRICS; mkdir $JOBKIT_METRICS": (Outcome.BUG, "$JOBKIT_METRICS cannot be read: Is a"),
    'cmp {text} "$JOBKIT_TEXT" && cp {text} {output}/copy && touch {scratch}/x && [[ {point} == *-r1 ]] &&'
    ' [[ "$JOBKIT_THREADS {threads}" == "1 1" ]] && ls -A && sleep 0.3 && echo {{}}': (Outcome.OK, ""),
}
"""What ends each of these commands, and the message."""


def test_outcomes_places_and_variables(tmp_path: Path) -> None:
    cases = " ".join(f"{number}) {command};;" for number, command in enumerate(CASES, 1))
    numbers = {"n": [*range(1, len(CASES) + 1)]}
    spec = shell(tmp_path, f"case {{n}} in {cases} esac", sweep=numbers, policy={"follow_up": False})
    jobkit("sweep", spec, cwd=tmp_path)
    found = [record(tmp_path, point) for point in range(len(CASES))]
    assert [one.outcome for one in found] == [outcome for outcome, _ in CASES.values()]
    for one, (_, message) in zip(found, CASES.values(), strict=True):
        assert message in one.message
    (copy,) = tmp_path.glob("runs/*/results/*/try-1/output/copy")
    assert copy.read_text() == TEXT
    last = found[-1]
    assert (last.message, last.point.point_id) == ("", copy.parents[2].name)
    assert last.summary
    assert last.summary.items_per_s is None, "without items the time is that of the command"
    assert 0.3 <= last.summary.work_s < 3


HOSTILE = r"""
for line in garbage '{"items": 1, "seconds": NaN}' '{"items": -5, "seconds": 1}' \
    '{"items": 1, "items": 2, "seconds": 1}' '{"metric": "f1", "value": 0.5, "unit": "1"}' \
    '{"items": 10, "seconds": 0.001, "load": 70}' '{"items": 10, "sec'; do
    echo "$line" >>"$JOBKIT_METRICS"
done
head -c 100000 /dev/zero >>"$JOBKIT_METRICS"
(sleep 30; echo '{"metric": "late", "value": 1}' >>"$JOBKIT_METRICS") &
echo "accuracy: 0.875"
exit 7
"""


def test_a_scratch_on_which_no_program_may_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    (tmp_path / "tool").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "tool").chmod(0o755)
    spec = "name: t\nscheduler: local\ntext: text.txt\nrepeats: 1\nsweep: {n: [1]}\n"
    spec += 'workload: {command: "./tool {n}", files: [tool]}\n'
    (tmp_path / "spec.yaml").write_text(spec, encoding="utf-8")
    (scratch := tmp_path / "scratch").mkdir()
    with restricted(scratch, "noexec"):
        done = jobkit("sweep", "spec.yaml", cwd=tmp_path, env={"TMPDIR": str(scratch)})
    assert "no program may run on that disk (noexec): name another scratch" in " ".join(done.stdout.split())


def test_figures_are_kept_hostile_ones_counted_and_nothing_outlives_the_command(tmp_path: Path) -> None:
    spec = shell(tmp_path, HOSTILE.replace("{", "{{").replace("}", "}}"))
    assert jobkit("sweep", spec, cwd=tmp_path).returncode == 4
    found = record(tmp_path)
    assert (found.outcome, found.message) == (Outcome.BUG, "exit status 7: accuracy: 0.875")
    assert found.metrics == {"f1": Metric(value=0.5, unit="1"), "accuracy": Metric(value=0.875)}
    assert found.metrics_bad_lines == 6
    assert found.summary
    assert (found.summary.items, found.summary.batches, found.summary.load_max) == (10, 1, 70)
    assert found.summary.items_per_s == pytest.approx(10_000)
    log = jobkit("logs", run_of(tmp_path), "1").stdout
    assert "behind, which jobkit ended" in log
    assert "accuracy: 0.875" in log
    assert "Traceback" not in jobkit("collect", "runs", cwd=tmp_path).stdout


LONG = 'sleep 300 & echo $! $$ >"$PIDS"; echo started >>"$JOBKIT_METRICS"; wait'


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes], list[int]]]:
    """Yield a sweep whose command runs, with the process ids of the command and its child."""
    pids = tmp_path / "pids"
    variables = {"variables": {"PIDS": str(pids)}}
    shell(tmp_path, LONG, environment=variables, policy={"timeout": {"tries": 0}})
    with subprocess.Popen([JOBKIT, "sweep", "spec.yaml"], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: pids.is_file() and len(pids.read_text().split()) == 2)
        yield tmp_path, process, [int(pid) for pid in pids.read_text().split()]
        process.kill()


@pytest.mark.parametrize("how", ["kill the worker", "kill the command", "end the walltime"])
def test_a_kill_leaves_no_process(started: tuple[Path, subprocess.Popen[bytes], list[int]], how: str) -> None:
    folder, process, pids = started
    worker = parent_of(parent_of(pids[1]))
    if how == "end the walltime":
        (timeout,) = with_words("timeout", f"{run_of(folder).name}/job.sh")
        os.kill(timeout, signal.SIGUSR1)  # it does what it does at the time
    else:
        os.kill(worker if how == "kill the worker" else pids[1], signal.SIGKILL)
    wait_until(lambda: all(started_at(pid) is None for pid in pids))
    process.wait(60)
    if how == "kill the command":
        found = record(folder)
        assert (found.outcome, found.metrics_bad_lines) == (Outcome.LOST, 1)
    if how == "end the walltime":
        found = record(folder)
        assert (found.outcome, "SIGUSR1" in found.message) == (Outcome.TIMEOUT, True)


TAGGER = """\
COLUMNS = ["words", "beam"]


def load():
    return str.split


def tag(paragraphs, loaded, beam=5):
    if beam == 13:
        raise ValueError("unlucky")
    return [{"words": len(loaded(text)), "beam": beam} for text in paragraphs]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with a point that succeeds and one whose function fails."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "tagger.py").write_text(TAGGER, encoding="utf-8")
    sizes = {"batch_size": [2], "beam": [5, 13]}
    spec = write_spec(folder, workload="./tagger.py:tag", sweep=sizes, workers=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobkit.planning.prepare.usable_cpus", lambda: 2)
        done = jobkit("sweep", spec, cwd=folder)
    assert done.returncode == 4, done.stderr
    (found,) = (folder / "runs").iterdir()
    return found


def test_the_record_has_the_digest_and_the_log_the_users_lines_alone(run: Path) -> None:
    good, bad = read_run(run).points
    assert good.record
    assert bad.record
    (file,) = good.record.point.files
    assert (run / "files" / "tagger.py").read_text() == TAGGER
    assert file.sha256 == hashlib.sha256(TAGGER.encode()).hexdigest()
    assert good.record.effective == {"batch_size": 2, "beam": 5}
    assert good.record.versions["tagger.py"] == file.sha256[:12]
    assert bad.record.outcome is Outcome.BUG
    assert bad.record.message.endswith(f"{run.parents[1]}/tagger.py:10: ValueError: unlucky")
    (log,) = (path.read_text() for path in (run / "logs").glob("*_2.out"))
    assert 'raise ValueError("unlucky")' in log
    assert "jobkit/worker/" not in log


def test_several_workers_apply_the_copy_of_the_run_to_a_corpus(run: Path) -> None:
    folder = run.parents[1]
    (folder / "tagger.py").write_text("def tag(paragraphs): return None\n", encoding="utf-8")
    words = ("--corpus", "text.txt", "--out", "done")
    applied = ran("apply", run, *words, cwd=folder)
    assert "tagger.py has changed" in applied.stderr
    assert jobkit("merge", "done", "--output", "rows.jsonl", cwd=folder).returncode == 0
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    found = [(row["paragraph"], row["words"], row["beam"]) for row in rows]
    assert found == [(0, 2, 5), (1, 1, 5), (2, 3, 5)]
    (point,), _ = read_points(folder / "done")
    assert point.files[0].sha256 == hashlib.sha256(TAGGER.encode()).hexdigest()


def test_what_is_staged_must_be_what_was_planned(run: Path) -> None:
    (run / "files" / "tagger.py").write_text("raise SystemExit\n", encoding="utf-8")
    again = jobkit("resume", run, "2", cwd=run.parents[1])
    assert "the run goes on with its own copy" in again.stderr
    bad = read_run(run).points[1]
    assert bad.record
    assert bad.record.outcome is Outcome.STAGE_IN
    assert "tagger.py is not the file that was planned" in bad.record.message


def test_queries_travel_and_their_rows_are_applied_and_merged(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(
        "def score(pairs):\n    return [len({*query} & {*text}) for query, text in pairs]\n"
    )
    (tmp_path / "questions.txt").write_text("Who?\nWhat was it?\n", encoding="utf-8")
    write_spec(tmp_path, workload="./score.py:score", sweep={"batch_size": [1, 4]})
    done = jobkit("sweep", "spec.yaml", cwd=tmp_path)
    assert "so the spec needs `queries: FILE`" in done.stderr
    done = jobkit(
        "sweep", "spec.yaml", "--set", "workload=count", "--set", "queries=questions.txt", cwd=tmp_path
    )
    assert "only a function whose first parameter is `pairs` takes queries" in done.stderr
    jobkit("sweep", "spec.yaml", "--set", "queries=questions.txt", cwd=tmp_path)
    (tmp_path / "questions.txt").unlink()
    corpus = ["--corpus", "text.txt", "--out", "out", "--set", "sweep.batch_size=4"]
    assert jobkit("apply", run_of(tmp_path), *corpus, cwd=tmp_path).returncode == 0
    assert jobkit("merge", "out", cwd=tmp_path).returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "out" / "merged.jsonl").read_text().splitlines()]
    paragraphs = split_paragraphs(TEXT)
    asked = [(text, query) for text in paragraphs for query in ("Who?", "What was it?")]
    assert [row["query"] for row in rows] == [query for _, query in asked]
    assert [row["result"] for row in rows] == [len({*query} & {*text}) for text, query in asked]
