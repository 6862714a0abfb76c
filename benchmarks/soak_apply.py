"""A soak of ``jobkit apply``: hundreds of shards through a real scheduler while everything is killed.

``python -m benchmarks.soak_apply slurm 500 [--seed N] [--nodes]`` on a cluster that tests/cluster brought
up and that nobody else uses. It works through a corpus with the workload ``count``. Meanwhile it kills
workers, job scripts and the client, fills the disk of the run folder for a while, and with ``--nodes``
breaks nodes and (Slurm) slurmdbd. It adds half of the files later, then plans the rest again, and moves it to
this machine. It checks that the merged rows are byte for byte those of one process that nothing disturbed. It
prints a report as JSON; benchmarks/records/soak-apply.json has the runs that docs/measurements.md quotes.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import soak
from benchmarks.soak import SITE, Tally, client
from jobkit.core.layout import read_points
from jobkit.core.paragraphs import split_paragraphs
from jobkit.planning.sample import sample_text
from jobkit.runs.journal import read_journal
from tests.cluster.daemons import SlurmDaemons

PARAGRAPHS_OF_A_SHARD = 8
DISK = "size=512m"
SPEC = """\
name: soak
workload: count
sweep: {batch_size: [4]}
resources: {gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
max_parallel: 8
policy: {bug: {stop_after: 0}}
"""
MOVE = 0.7
"""The share of shards done after which the rest moves to this machine."""
GROW, REPLAN = 0.15, 0.35
"""The shares after which half of the files are added, and the rest is planned again."""


@dataclass
class Report(Tally):
    """The result of a soak."""

    shards: int = 0
    planned: int = 0
    superseded: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    byte_equal: bool = False


class Chaos(soak.Chaos):
    """Also fills the disk of the run folder twice."""

    filled = broken = 0

    def break_more(self) -> None:
        """Fill the disk, break a node, or on Slurm in turn the daemon of the accounting."""
        if self.filled < 2 and self.dice.random() < 0.1:
            self.filled += 1
            self._fill()
        if self.nodes and self.dice.random() < 0.05:
            scheduler, self.broken = self.report.scheduler, self.broken + 1
            slurmdbd = scheduler == "slurm" and self.broken % 2
            self.report.kill(break_slurmdbd() if slurmdbd else soak.break_node(scheduler, self.dice))

    def _fill(self) -> None:
        """Fill the disk of the run folder to the last byte for some seconds."""
        ballast = self.home / "disk" / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
            while True:
                stream.write(b"\0" * 2**20)
        self.report.kill("disk filled")
        self.over.wait(self.dice.uniform(2, 6))
        ballast.unlink()


def break_slurmdbd() -> str:
    """Kill the accounting daemon, and start it again some seconds later; return what was done."""
    daemons = SlurmDaemons()
    daemons.kill("slurmdbd")
    time.sleep(3)
    daemons.start("slurmdbd")
    return "slurmdbd"


def write_corpus(folder: Path, paragraphs: int) -> list[Path]:
    """Write a corpus of four kinds of file, and return them in corpus order."""
    text = split_paragraphs(sample_text(paragraphs))
    parts = [text[start::4] for start in range(4)]
    folder.mkdir()
    plain, zipped, lines, more = (folder / name for name in ("a.txt", "b.txt.gz", "c.jsonl", "d.jsonl.gz"))
    plain.write_text("\n".join(parts[0]), encoding="utf-8")
    zipped.write_bytes(gzip.compress("\n".join(parts[1]).encode()))
    lines.write_text(_documents(parts[2], "c"), encoding="utf-8")
    more.write_bytes(gzip.compress(_documents(parts[3], "d").encode()))
    return [plain, zipped, lines, more]


def _documents(paragraphs: Sequence[str], name: str) -> str:
    """Return JSONL documents of ten paragraphs each."""
    cuts = [paragraphs[start : start + 10] for start in range(0, len(paragraphs), 10)]
    return "".join(
        json.dumps({"id": f"{name}-{number}", "text": "\n".join(cut)}) + "\n"
        for number, cut in enumerate(cuts)
    )


@dataclass(frozen=True, slots=True)
class Soak:
    """One soak: where it works, and the command that begins it."""

    home: Path
    report: Report
    dice: random.Random

    @property
    def out(self) -> Path:
        """The run folder, on a disk of its own."""
        return self.home / "disk" / "out"

    def command(self, words: Sequence[object], *, most_s: float = 0) -> int | None:
        """Run a command; with ``most_s``, kill it first at a random moment up to then, until one survives."""
        if most_s:
            for _ in range(3):
                status = client(self.home, words, self.dice.uniform(0.2, most_s))
                if status is not None:
                    return status
                self.report.kill("client")
        return client(self.home, words)

    def insist(self, words: Sequence[object], *, most_s: float = 0) -> None:
        """Run a command until it succeeds: meanwhile its disk may be full."""
        for _ in range(10):
            if self.command(words, most_s=most_s) == 0:
                return
            most_s = 0
            time.sleep(3)
        raise RuntimeError(f"{words} does not succeed")

    def winners(self) -> int:
        """Return how many shards have their rows."""
        folder = self.out / "winners"
        return len(list(folder.glob("*.json"))) if folder.is_dir() else 0

    def wait_for(self, number: int) -> None:
        """Wait until so many shards have their rows; run again what failed."""
        deadline = time.monotonic() + 1800
        resume_at = time.monotonic() + 60
        while self.winners() < number:
            if time.monotonic() > deadline:
                message = f"{self.winners()} of {number} shards after half an hour"
                raise TimeoutError(message)
            if time.monotonic() > resume_at:
                self.command(["resume", self.out])
                resume_at = time.monotonic() + 60
            time.sleep(1)


def soak_corpus(report: Report, home: Path, *, nodes: bool) -> None:
    """Apply, kill, add files, plan again, move here, merge, and compare."""
    dice = random.Random(report.seed)  # noqa: S311 - not for secrets
    run = Soak(home, report, dice)
    corpus = write_corpus(home / "corpus", report.shards * PARAGRAPHS_OF_A_SHARD)
    (home / "soak.yaml").write_text(SITE[report.scheduler] + "sync_interval_s: 1\n", encoding="utf-8")
    (home / "spec.yaml").write_text(SPEC, encoding="utf-8")
    words, half = ["apply", "spec.yaml", "--corpus"], report.shards // 2
    if client(home, [*words, *corpus, "--out", "calm", "--shards", 1, "--scheduler", "local"]):
        raise RuntimeError((home / "client.log").read_text(encoding="utf-8"))
    client(home, ["merge", "calm", "--output", home / "calm.jsonl"])
    begin = time.monotonic()
    with disk(home):
        chaos = Chaos(home, dice, report, nodes=nodes)
        chaos.start()
        site = ["--scheduler", report.scheduler, "--site", home / "soak.yaml"]
        to = ["--out", run.out, "--shards", half, *site]
        run.command([*words, *corpus[:2], *to], most_s=2)
        run.wait_for(int(GROW * report.shards))
        run.insist([*words, *corpus, *to], most_s=6)
        run.wait_for(int(REPLAN * report.shards))
        run.insist(["resume", run.out, "--replan", "--shards", half], most_s=6)
        run.wait_for(int(MOVE * _planned(run.out)))
        run.insist(["resume", run.out, "--replan", "--set", "scheduler=local"], most_s=8)
        chaos.stop()
        run.insist(["resume", run.out])
        run.command(["merge", run.out, "--output", home / "merged.jsonl"])
        finish(report, run.out)
    report.seconds = round(time.monotonic() - begin, 1)
    compare(report, home)


def _planned(out: Path) -> int:
    """Return how many shards there are, without those that were replaced."""
    return len(read_points(out)[0]) - len(read_journal(out).replaced)


def finish(report: Report, out: Path) -> None:
    """Count shards, tries and outcomes."""
    report.planned, report.superseded = _planned(out), len(read_journal(out).replaced)
    exits = list(out.glob("results/*/try-*"))
    report.tries = len(exits)
    records = [folder / "record.json" for folder in exits if (folder / "record.json").is_file()]
    found = Counter(json.loads(path.read_text(encoding="utf-8"))["outcome"] for path in records)
    found["no record"] = len(exits) - len(records)
    report.outcomes = dict(found)


def compare(report: Report, home: Path) -> None:
    """Compare the merged rows with those of one undisturbed process."""
    merged, calm = ((home / name).read_bytes() for name in ("merged.jsonl", "calm.jsonl"))
    keys = [Counter(_keys(rows)) for rows in (merged, calm)]
    report.rows = sum(keys[1].values())
    report.lost, report.doubled = (keys[1] - keys[0]).total(), (keys[0] - keys[1]).total()
    report.byte_equal = merged == calm


def _keys(rows: bytes) -> Iterator[tuple[str, int]]:
    for line in rows.splitlines():
        row = json.loads(line)
        yield row["document"], row["paragraph"]


@contextlib.contextmanager
def disk(home: Path) -> Iterator[None]:
    """Mount a small file system for the run folder."""
    place = home / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", place], check=True)  # noqa: S603, S607
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)  # noqa: S603, S607


def main() -> int:
    """Run one soak and print its report."""
    report = soak.asked("soak_apply", "shards", Report, soak_corpus)
    return 0 if report.byte_equal and not report.lost and not report.doubled else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
