# ruff: noqa: T201, S603, S607, S101 - it prints what it does, runs git, pip and jobkit, and fails by assertions
"""A run outlives an upgrade: an earlier version submits, this checkout takes over while the jobs run.

``python -m benchmarks.upgrade FOLDER slurm|sge SITE`` builds the wheel of an earlier commit, submits a sweep,
a search and a corpus with it, and replaces it by the wheel of this checkout while jobs of all three run and
wait. Then it asks, cancels, resumes, collects and merges, and compares the merged rows with the corpus. The
programs of the scheduler must be on PATH.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.archives import unpack

ROOT = Path(__file__).parents[1]
EARLIER = "db77705f1bbda0dab477fbb6748463bb16ecfa28"
WITHIN_S = 240.0
TAGGER = """\
import time
from pathlib import Path

HERE = Path({folder!r})
COLUMNS = ["words"]


def load():
    return str.split


def tag(paragraphs, loaded, beam=1):
    while not (HERE / "go").exists():
        time.sleep(0.1)
    if beam == 3 and not (HERE / "fixed").exists():
        raise ValueError("beam 3 is not trained")
    return [{{"words": len(loaded(text))}} for text in paragraphs]
"""
SPEC = """\
name: {name}
workload: ./tagger.py:tag
text: sample:40
{what}
device: cpu
scheduler: {scheduler}
site: {site}
resources: {{gpus: 0, cpus: 1, memory: 300MiB, walltime: "00:05:00"}}
policy: {{follow_up: false, bug: {{stop_after: 0}}}}
"""
SPECS = {
    "first": "sweep: {batch_size: [4]}\nrepeats: 1",
    "many": "sweep: {batch_size: [4, 8], beam: [1, 2, 3]}\nrepeats: 1\nmax_parallel: 2",
    "search": "tune: {workers: 2, repeats: 1, budget: 3m}",
}


class User:
    """A user's folder and environment, in which jobkit is replaced while jobs run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.environment = folder, folder / "env"
        self.site = self.environment / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)

    def has(self, wheel: Path) -> None:
        """Install a wheel of jobkit in place of the one before."""
        if not self.environment.exists():
            subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(self.environment)), check=True)
            (self.site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        python = str(self.environment / "bin" / "python")
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps")
        subprocess.run((*pip, "--force-reinstall", str(wheel)), check=True)

    def jobkit(self, *words: str, status: int | None = 0) -> str:
        """Run a command; return its standard output."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        argv = (str(self.environment / "bin" / "jobkit"), *words)
        done = subprocess.run(
            argv, cwd=self.folder, env=variables, capture_output=True, text=True, check=False
        )
        print(f"$ jobkit {' '.join(words)}   # status {done.returncode}")
        assert status in {None, done.returncode}, f"{words}: {done.stdout}{done.stderr}"
        return str(done.stdout)

    def states(self, run: str) -> list[str]:
        """Return the outcome of each point, or where it stands."""
        (seen,) = json.loads(self.jobkit("status", run, "--json", status=None))["runs"]
        return [str(point["outcome"] or point["standing"]) for point in seen["points"]]


def wheel(folder: Path, commit: str) -> Path:
    """Build the wheel of a commit, or without one of the files of this checkout, in a folder."""
    source = folder / (commit or "checkout")
    source.mkdir(parents=True)
    if commit:
        packed = subprocess.run(("git", "archive", commit), cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            unpack(archive, source)
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", source / "wheels")
    subprocess.run(build, cwd=source if commit else ROOT, check=True, capture_output=True)
    (built,) = (source / "wheels").glob("*.whl")
    return built


def until(condition: Callable[[], bool], what: str) -> None:
    """Ask until it is true."""
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end, f"not within {WITHIN_S:.0f} s: {what}"
        time.sleep(0.5)


def upgrade(folder: Path, scheduler: str, site: str) -> None:
    """Submit with the earlier version, replace it, and end everything with this checkout."""
    user, go = User(folder), folder / "go"
    user.has(wheel(folder / "earlier", EARLIER))
    (folder / "tagger.py").write_text(TAGGER.format(folder=str(folder)), encoding="utf-8")
    for name, what in SPECS.items():
        spec = SPEC.format(name=name, what=what, scheduler=scheduler, site=site)
        (folder / f"{name}.yaml").write_text(spec, encoding="utf-8")
    paragraphs = [" ".join(["word"] * (1 + number % 7)) for number in range(200)]
    (folder / "corpus.txt").write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")

    go.touch()
    user.jobkit("sweep", "first.yaml", "--wait")
    go.unlink()
    user.jobkit("sweep", "many.yaml")
    user.jobkit("tune", "search.yaml")
    first, many, search = (f"runs/{path.name}" for path in sorted((folder / "runs").iterdir()))
    user.jobkit("apply", first, "--corpus", "corpus.txt", "--out", "tagged", "--shards", "4")
    for run in (many, search, "tagged"):
        until(lambda run=run: "running" in user.states(run), f"{run} runs")  # type: ignore[misc]

    user.has(wheel(folder / "later", ""))
    assert {"running", "waiting"} <= set(user.states(many)), "tasks wait, which the later version runs"
    user.jobkit("cancel", "tagged")
    until(lambda: set(user.states("tagged")) == {"cancelled"}, "every shard is cancelled")
    user.jobkit("resume", "tagged")
    go.touch()
    until(lambda: not {"running", "waiting"} & set(user.states(many)), f"{many} ends")
    assert sorted(found := user.states(many)) == ["bug", "bug", "ok", "ok", "ok", "ok"], found
    (folder / "fixed").touch()
    user.jobkit("resume", many)
    for run in (many, "tagged"):
        until(lambda run=run: set(user.states(run)) <= {"ok", "pruned"}, f"{run} is done")  # type: ignore[misc]
    until(lambda: "The setting: " in user.jobkit("tune", search, status=None), "the search ends")
    table = json.loads(user.jobkit("collect", many, "--json"))["points"]
    assert [point["outcome"] for point in table] == ["ok"] * 6
    user.jobkit("merge", "tagged")
    merged = (folder / "tagged" / "merged.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["words"] for row in merged] == [len(text.split()) for text in paragraphs]


if __name__ == "__main__":
    place, name, file = sys.argv[1:]
    upgrade(Path(place).absolute(), name, str(Path(file).absolute()))
    print("every point ran, every paragraph is there once")
