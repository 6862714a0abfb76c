"""A corpus through the real daemons, whatever is killed: each paragraph once, as if nothing had happened."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import soak_apply
from jobkit.core.errors import ExitCode
from jobkit.core.layout import read_begin
from jobkit.extensions.corpus.winners import read_winners
from jobkit.runs.journal import read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding
from tests.cluster.daemons import BUSY, until, wait_for
from tests.cluster.lab import SGE, SLURM, ClusterLab, on
from tests.cluster.test_client import dies
from tests.support import commands

SLOW = """\
import time
from pathlib import Path
from jobkit.worker.workloads.count import Count

class Slow(Count):
    def process(self, paragraphs):
        time.sleep(%s)
        return super().process(paragraphs)
"""
SPEC = """\
name: corpus
workload: slow:Slow
sweep: {batch_size: [10]}
resources: {gpus: 0, cpus: 1, memory: 400MiB, walltime: "00:05:00"}
max_parallel: 2
"""
PARAGRAPHS = 200
SHARDS, RESUME_S = 8, 8.0
"""Of a soak."""
Answer = subprocess.CompletedProcess[str]


class Applied:
    """A corpus in a user's folder on a cluster."""

    def __init__(self, lab: ClusterLab) -> None:
        self.lab, self.out = lab, lab.home / "tagged"
        self.spec = lab.spec(SPEC)
        self.texts = dict[str, list[str]]()
        self.add("letters.txt")
        self.takes(0.02)

    def add(self, name: str, paragraphs: int = PARAGRAPHS) -> None:
        """Add a file to the corpus."""
        self.texts[name] = [f"{'word ' * (number % 7 + 1)}{number}.\n" for number in range(paragraphs)]
        (self.lab.home / name).write_text("\n".join(self.texts[name]), encoding="utf-8")

    def takes(self, seconds: float | str) -> None:
        """Let a call of ten paragraphs take so long."""
        (self.lab.home / "slow.py").write_text(SLOW % seconds, encoding="utf-8")

    def apply(self, *more: str, how: Callable[..., Answer] = commands.jobkit, shards: int = 4) -> Answer:
        return how(*self.words(shards), *more, cwd=self.lab.home)

    def words(self, shards: int) -> list[str]:
        """Return what a person types."""
        words = ("apply", self.spec, "--corpus", *self.texts, "--out", self.out, "--shards", shards)
        return [str(word) for word in (*words, *self.lab.place)]

    def merged(self) -> list[dict[str, object]]:
        commands.ended_well(self.lab.jobkit("merge", self.out))
        return [json.loads(line) for line in (self.out / "merged.jsonl").read_text().splitlines()]

    @property
    def rows(self) -> list[dict[str, object]]:
        """What one process that nothing disturbs would write."""
        return [
            {"document": name, "paragraph": number, "words": len(re.findall(r"\w+", text))}
            for name, paragraphs in self.texts.items()
            for number, text in enumerate(paragraphs)
        ]

    def done(self) -> int:
        return len(read_winners(self.out))


@pytest.fixture
def applied(lab: ClusterLab) -> Applied:
    return Applied(lab)


def test_a_shard_runs_again_while_the_others_go_on(applied: Applied) -> None:
    """At most two at a time: the resumed shard takes a slot of the array, which gets it back."""
    (fault := applied.lab.home / "fault").touch()
    has = f"Path({str(fault)!r}).exists() and 'word 0.' in map(str.strip, paragraphs)"
    applied.takes(f"1 if not ({has}) else open('/no such file')")  # which is no fault of the paragraph
    assert applied.apply(shards=8).returncode == 0
    until(lambda: read_status([applied.out])[0].points[0].standing is PointStanding.FAILED, "a shard fails")
    fault.unlink()
    assert "1 shard may begin next to job" in applied.lab.jobkit("resume", applied.out).stderr
    wait_for(lambda: applied.done() == 8, 180)
    tries = sorted((path.parent.name, read_begin(path).at) for path in applied.out.glob("results/*/*/begin"))
    assert [name for name, _ in tries] == ["try-1"] * 8 + ["try-2"], "no shard ran twice"
    assert tries[8][1] < tries[7][1], "it did not wait for the end of the array"
    events = map(json.loads, (applied.out / "journal.jsonl").read_text().splitlines())
    assert [event["throttle"] for event in events if event["event"] == "throttled"] == [1, 1, 2]
    assert applied.merged() == applied.rows


POISON = """\
import ctypes
from jobkit.worker.workloads.count import Count

class Slow(Count):
    def process(self, paragraphs):
        for text in map(str.strip, paragraphs):
            if text.endswith(" 13."):
                ctypes.string_at(0)
            if text.endswith(" 57."):
                raise ValueError(text)
        return super().process(paragraphs)
"""


@SGE
def test_bad_paragraphs_cost_themselves_alone(applied: Applied) -> None:
    """FAULT: one paragraph crashes the process, another raises an error.

    HOW: real: a null pointer is read, Grid Engine.
    REPORTED: by status and quarantine.jsonl, with offsets and cause; merge ends with 5.
    LOST: the rows of these two paragraphs.
    """
    (applied.lab.home / "slow.py").write_text(POISON, encoding="utf-8")
    commands.ended_well(applied.apply("--wait", shards=2))
    assert "in quarantine: 2 paragraphs" in applied.lab.jobkit("status", applied.out).stdout
    assert applied.lab.jobkit("merge", applied.out).returncode == ExitCode.TO_COME
    commands.ended_well(applied.lab.jobkit("merge", applied.out, "--allow-quarantine"))
    read = [(applied.out / f"merged.{name}jsonl").read_text() for name in ("", "quarantine.")]
    rows, bad = ([json.loads(line) for line in text.splitlines()] for text in read)
    assert rows == [row for row in applied.rows if row["paragraph"] not in {13, 57}]
    assert [(one["paragraph"], one["message"].split()[-1]) for one in bad] == [(13, "SIGSEGV"), (57, "...")]
    assert len(list(applied.out.glob("results/*/try-*"))) == 2


TAGGER = """\
import re
COLUMNS = ["word", "start", "end"]

def tag(paragraphs):
    return [[(word[0], *word.span()) for word in re.finditer(r"\\w+", text)] for text in paragraphs]
"""
LATIN = "Le café était fermé, et la forêt n'avait pas été protégée. Les élèves ont mangé à la cantine."
LONG = f"Wo{'o' * 57}rd. " * 50_000


@SLURM
def test_files_of_several_kinds_encodings_and_lengths(lab: ClusterLab) -> None:
    folder, out = lab.home / "in", lab.home / "tagged"
    folder.mkdir()
    note = "A note; of\r\ntwo lines"
    (folder / "a.txt").write_bytes(LATIN.encode("latin-1"))
    (folder / "b.csv").write_text(f'n;id;content\n1;row;"{note}"\n', newline="")
    (folder / "c.ndjson.gz").write_bytes(gzip.compress(json.dumps({"id": "long", "text": LONG}).encode()))
    (folder / "notes.md").touch()
    (lab.home / "words.py").write_text(TAGGER, encoding="utf-8")
    spec = lab.spec(SPEC.replace("slow:Slow", "./words.py:tag").replace("400MiB", "1GiB"))
    words = ("apply", spec, "--corpus", "in", "--out", out, "--shards", "3", *lab.place)
    refused = commands.jobkit(*words, cwd=lab.home)
    assert (refused.returncode, out.exists()) == (2, False)
    assert "in/a.txt:1: not UTF-8 at byte 6, it seems to be cp1252" in refused.stderr
    done = commands.ran(*words, "--encoding", "auto", "--split-long", "--wait", cwd=lab.home)
    assert "encoding   in/a.txt cp1252 (café)" in done.stderr
    assert "text 'content', id 'id' (in/b.csv)" in done.stderr
    assert "not read   1 file: in/notes.md" in done.stderr
    assert lab.jobkit("merge", out).returncode == 0
    tagged = [json.loads(line) for line in (out / "merged.jsonl").read_text().splitlines()]
    texts = {"in/a.txt": LATIN, "row": note, "long": LONG}
    assert [(row["document"], row["word"], row["start"], row["end"]) for row in tagged] == [
        (name, word[0], *word.span()) for name, text in texts.items() for word in re.finditer(r"\w+", text)
    ]


@SLURM
def test_a_job_plans_the_corpus_and_submits_the_shards(applied: Applied) -> None:
    applied.takes(0)
    preview = commands.ended_well(applied.apply("--plan-as-job", "--dry-run"))
    assert "1 file, " in preview.stdout
    assert not applied.out.exists()
    done = commands.ended_well(applied.apply("--plan-as-job", "--wait"))
    assert "4 of 4 shards" in done.stdout
    assert [job.role for job in read_journal(applied.out).submissions] == ["plan", "points", "follow"]
    assert applied.merged() == applied.rows
    jobs = json.loads((applied.out / "provenance.json").read_text())["jobs"]
    assert {job["scheduler"] for job in jobs} == {applied.lab.scheduler}
    again = applied.apply("--plan-as-job")
    assert (again.returncode, "nothing to run again" in again.stderr) == (0, True), again.stderr


@on("scheduler when", "slurm before", "sge after")
def test_a_corpus_grows(applied: Applied, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a client that is killed as it submits, while earlier shards run; and once all are merged."""
    applied.takes(0.3)
    assert applied.apply().returncode == 0
    applied.add("more.txt", 60)
    with monkeypatch.context() as patch:
        dies(applied.lab, patch, after=when == "after")
        killed = applied.apply(how=commands.jobkit_process)
        assert killed.returncode == -9, killed.stderr
    assert "jobkit adds 1 new file: more.txt\ncorpus     1 file, " in killed.stderr
    *earlier, event = (applied.out / "journal.jsonl").read_text().splitlines()
    old = event.replace(json.loads(event)["at"][:10], "2020-01-01")
    (applied.out / "journal.jsonl").write_text("\n".join([*earlier, old, ""]))
    done = commands.ended_well(applied.apply("--wait"))
    assert "100.0 % of the characters, 260 of 260 paragraphs, 8 of 8 shards" in done.stdout
    assert applied.merged() == applied.rows
    applied.add("late.txt", 30)
    assert applied.apply("--wait", shards=1).returncode == 0
    assert applied.merged() == applied.rows
    tries = [path.name for path in applied.out.glob("results/*/try-*")]
    assert tries == ["try-1"] * 9, "none ran twice"
    files = json.loads((applied.out / "provenance.json").read_text())["corpus"]["files"]
    assert [one["name"] for one in files] == [*applied.texts]


@pytest.mark.slurm
@pytest.mark.usefixtures("slurm_alone")
def test_a_soak_on_slurm(tmp_path: Path) -> None:
    soaked("slurm", tmp_path)


@pytest.mark.sge
@pytest.mark.usefixtures("sge_alone")
def test_a_soak(tmp_path: Path) -> None:
    """FAULT: everything fails during `jobkit apply`, at random moments.

    HOW: real, Slurm and Grid Engine: kill -9 of workers, job scripts, nodes, slurmdbd and the client; the
    disk of the run folder is full for some seconds; the rest is planned again, then moved to this machine.
    REPORTED: each try by its outcome; `jobkit resume` goes on; `jobkit merge` refuses a gap
    LOST: nothing: the merged rows are byte for byte those of one process that nothing disturbed.
    """
    soaked("sge", tmp_path)


class Impatient(soak_apply.Soak):
    """A soak that runs again after some seconds what failed: that of a benchmark waits for a minute."""

    def wait_for(self, number: int) -> None:
        for _ in range(60):
            with contextlib.suppress(TimeoutError):
                wait_for(lambda: self.winners() >= number, RESUME_S / BUSY)
                return
            self.command(["resume", self.out])
        pytest.fail(f"{self.winners()} of {number} shards")


def soaked(scheduler: str, home: Path) -> None:
    """Soak a corpus of some shards; a failure has the seed, and SOAK_SEED gives it."""
    seed = int(os.environ.get("SOAK_SEED", random.SystemRandom().randrange(1000)))
    report = soak_apply.Report(scheduler, seed, shards=SHARDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soak_apply, "Soak", Impatient)
        soak_apply.soak_corpus(report, home, nodes=True)
    assert report.byte_equal, report
    assert (report.lost, report.doubled) == (0, 0), report
    assert sum(report.kills.values()) >= 1, report
