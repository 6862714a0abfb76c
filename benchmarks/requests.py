"""Run ten workloads under what `jobkit recommend` requests, and ten corpora under what `jobkit apply` does.

``python -m benchmarks.requests [--only NAME...] [--out FILE]`` on a Slurm of ``jobkit practice``, which kills
a job that holds more memory than it has requested. It measures each workload with plenty, runs it three
times under the lines that `recommend` prints, and a corpus of three shards under what `apply` requests. A
workload that gets half of its peak shows that the limit is enforced. FILE gets what every job requested, held
and ended as; benchmarks/records/requests.json is the run that docs/measurements.md quotes.
"""

# ruff: noqa: T201, S603 - it prints what it found, and runs its own commands
from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.archives import RECORDS
from benchmarks.raw import Row
from benchmarks.soak import JOBKIT, SITE
from jobkit.core.records import Outcome
from jobkit.core.units import MIB, format_size
from jobkit.planning.sample import sample_text
from jobkit.report.recommend.material import read_use
from jobkit.runs.results import read_run

RAW = RECORDS / "requests.json"
CORPUS, SHARDS, REPEATS, SIDE_BY_SIDE = 240, 3, 3, 3
TAGGER = """\
import random, subprocess, sys, time
from pathlib import Path

COLUMNS = ["characters"]
HOLD = "import time; block = bytearray({size}); block[::4096] = block[::4096]; time.sleep(6)"


def hold(mib):
    block = bytearray(int(mib * 2**20))
    block[::4096] = b"x" * len(block[::4096])
    return block


def load():
    %s


def tag(paragraphs, loaded, batch_size=10):
    time.sleep(0.04 * len(paragraphs))
    %s
    return [[len(paragraph)] for paragraph in paragraphs]
"""
SPEC = """\
name: w-{name}
workload: {workload}
text: sample:80
sweep: {{batch_size: [5, 20]}}
repeats: 2
device: cpu
model: {{size: tiny, fallback: stand-in}}
resources: {{gpus: 0, cpus: 1, memory: 3GiB, walltime: "00:10:00"}}
policy: {{follow_up: false, ram_oom: {{tries: 0}}, timeout: {{tries: 0}}}}
"""
FIRST = """\
mark = Path({mark!r})
    first, _ = not mark.exists(), mark.touch()
    block = hold(640 if first else 380)
    time.sleep(3 if first else 0)
    return hold(380)"""
CHILD = """\
child = subprocess.Popen([sys.executable, "-c", HOLD.format(size=200 * 2**20)])
    return child"""
TAGGERS: Mapping[str, tuple[str, str]] = {
    "40 MiB": ("return hold(40)", "pass"),
    "300 MiB": ("return hold(300)", "pass"),
    "750 MiB": ("return hold(750)", "pass"),
    "by the batch": ("return hold(20)", "block = hold(12 * len(paragraphs))"),
    "by chance": ("return hold(random.uniform(250, 350))", "pass"),
    "more at first": (FIRST, "pass"),
    "with a child": (CHILD, "pass"),
    "numpy": ("import numpy; return numpy.ones((30, 2**20))", "block = loaded + 1"),
}
"""What each holds: when it is loaded, and for a batch."""
KINDS = ("300 MiB", *sorted({*TAGGERS} - {"300 MiB"}), "two workers", "stanza-ner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job under a request: what it requested, held at most by Slurm's accounting, and ended as."""

    memory_bytes: int
    walltime_s: int
    held_bytes: int | None
    seconds: float | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A workload in a folder of its own."""

    name: str
    home: Path

    def jobkit(self, *words: object) -> str:
        """Run a command, and return what it prints; a job that failed is no error."""
        done = subprocess.run(
            [*JOBKIT, *map(str, words)], cwd=self.home, capture_output=True, text=True, check=False
        )
        if done.returncode not in {0, 4}:
            raise RuntimeError(f"{self.name}: {words}: {done.stderr}")
        return done.stdout

    def prepare(self) -> None:
        """Write the spec, the site and the corpus."""
        self.home.mkdir()
        workload = "stanza-ner" if self.name == "stanza-ner" else "./tagger.py:tag"
        text = SPEC.format(name=self.name.replace(" ", "-"), workload=workload)
        text += "workers: 2\n" if self.name == "two workers" else ""
        (self.home / "spec.yaml").write_text(text, encoding="utf-8")
        (self.home / "site.yaml").write_text(SITE["slurm"] + "sync_interval_s: 1\n", encoding="utf-8")
        load, batch = TAGGERS.get(self.name, TAGGERS["300 MiB"])
        code = TAGGER % (load.replace("{mark!r}", repr(str(self.mark))), batch)
        (self.home / "tagger.py").write_text(code, encoding="utf-8")
        (self.home / "corpus.txt").write_text(sample_text(CORPUS), encoding="utf-8")

    @property
    def mark(self) -> Path:
        """The file without which a load is the first."""
        return self.home / "loaded"

    def sweep(self, **keys: object) -> Path:
        """Run a sweep to its end, the first load on the node included."""
        self.mark.unlink(missing_ok=True)
        words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        before = set(self.home.glob("runs/*"))
        site = ("--scheduler", "slurm", "--site", self.home / "site.yaml")
        self.jobkit("sweep", "spec.yaml", *site, "--wait", "--new", "--stand-in", *words)
        (run,) = set(self.home.glob("runs/*")) - before
        return run

    def jobs(self, run: Path) -> list[Job]:
        """Return what became of the jobs of a run."""
        uses = {use.point.index: use for use in read_use(run).points}
        return [
            Job(
                memory_bytes=uses[result.point.index].asked.memory,
                walltime_s=uses[result.point.index].asked.walltime,
                held_bytes=uses[result.point.index].ram_bytes,
                seconds=uses[result.point.index].seconds,
                outcome=str(result.outcome),
            )
            for result in read_run(run).points
        ]

    def report(self) -> dict[str, list[dict[str, Any]]]:
        """Measure, run under what is recommended, and a corpus under what apply requests."""
        self.prepare()
        measured = self.sweep()
        advice = json.loads(self.jobkit("recommend", measured, "--json"))
        batch, request = advice["batch"]["recommended"]["params"]["batch_size"], advice["request"]
        keys = {
            "sweep.batch_size": f"[{batch}]",
            "resources.memory": format_size(request["memory_bytes"]),
            "resources.walltime": f"{request['walltime_s']}s",
        }
        recommended = self.sweep(repeats=REPEATS, **keys)
        header = (recommended / "job.sh").read_text(encoding="utf-8").splitlines()
        if missing := {*request["lines"][0]["lines"]} - {*header}:
            raise RuntimeError(f"{self.name}: the job has no {missing}")
        self.mark.unlink(missing_ok=True)
        words = ("--corpus", "corpus.txt", "--out", "tagged", "--shards", SHARDS, "--wait", "--stand-in")
        self.jobkit("apply", measured, *words, "--scheduler", "slurm", "--site", self.home / "site.yaml")
        return {
            "measured": [asdict(job) for job in self.jobs(measured)],
            "recommend": [asdict(job) for job in self.jobs(recommended)],
            "apply": [asdict(job) for job in self.jobs(self.home / "tagged")],
        }

    def control(self, peak_bytes: int) -> list[dict[str, Any]]:
        """Run under half of the peak: the limit must end it."""
        run = self.sweep(**{"repeats": 1, "resources.memory": f"{peak_bytes // 2 // MIB}MiB"})
        return [asdict(job) for job in self.jobs(run)]


def row(what: str, reports: Mapping[str, Any], *, killed: bool = False) -> Row:
    """Return a line of the table: how jobs of some workloads ended, and how much of a request they held."""
    jobs = [job for one in reports.values() for by in one if by != "measured" for job in one[by]]
    shares = [100 * (job["held_bytes"] or 0) / job["memory_bytes"] for job in jobs]
    well = sum(job["outcome"] == Outcome.OK for job in jobs)
    shown = f"{len(jobs) - well} of {len(jobs)} killed; {min(shares):.0f} to {max(shares):.0f} % held"
    met = well == (0 if killed else len(jobs))
    return Row(what=what, shown=shown, target="all" if killed else "none", met=met, raw=dict(reports))


def main() -> None:
    """Run the experiment on the cluster of the environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--out", type=Path, default=RAW)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="requests-") as home, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        trials = [Trial(name, Path(home, name.replace(" ", "-"))) for name in options.only]
        reports = dict(zip(options.only, pool.map(Trial.report, trials), strict=True))
        measured = reports[trials[0].name]["measured"]
        control = trials[0].control(min(job["held_bytes"] for job in measured))
    rows = [
        row("ten workloads and ten corpora, as requested", reports),
        row("a workload with half of its peak", {trials[0].name: {"half": control}}, killed=True),
    ]
    data = {"command": "python -m benchmarks.requests", "rows": [asdict(one) for one in rows]}
    options.out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(*(f"{one.what}: {one.shown}" for one in rows), sep="\n")


if __name__ == "__main__":
    main()
