"""What every reading command answers, kept as text: a change of a word or of a figure shows itself as a diff.

The commands run in this process, in a folder that holds copies of committed runs, at a fixed time, on 80
columns and without a scheduler. Only the ids of new runs, paths of this machine and versions are replaced.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest
import time_machine

from jobkit.cli import app
from jobkit.core.layout import CORPUS_FILE, POINTS_FILE, TUNE_GOAL_FILE
from tests.support.commands import jobkit

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXPECTED, FROZEN, RECORDS = HERE / "expected", HERE / "runs", ROOT / "benchmarks" / "records"
NOW = "2026-11-27T12:00:00+00:00"
WRITTEN_AT = 1_795_600_000  # two days before; a checkout gives its files the time at which it was made
SITES = {"slurm": ("slurm-default",), "sge": ("sge-default", "lancaster-hec"), "local": ("local-default",)}
NEW_ID = re.compile(r"(?<=-)20261127-120000-[0-9a-f]{4}")
OTHERS = re.compile("XDG_|STANZA_|HF_|SBATCH_|SLURM_|SQUEUE_|SGE_|JOBKIT_")
"""Variables of the user's that would change an answer."""
VERSION = re.compile(r"\bjobkit \d+\.\d+\.\d+\S*")
CPU_BUILD = "environment.setup=[':']"  # the nodes have another torch than this machine
BLOCK = {"p", "h1", "h2", "h3", "li", "tr", "caption", "summary", "pre", "text", "title", "figcaption", "div"}


@dataclass(frozen=True)
class Case:
    """A command line, and the file that keeps its answer; of ``report`` also the text of the page."""

    file: str
    words: tuple[str, ...]


def runs() -> dict[str, Path]:
    """Return the frozen runs and the records that are not archived, by name."""
    groups = (group for group in RECORDS.iterdir() if group.is_dir())
    found = [*FROZEN.iterdir(), *(run for group in groups for run in group.iterdir())]
    return {run.name: run for run in sorted(found) if (run / POINTS_FILE).is_file()}


def cases() -> Iterator[Case]:
    """Yield every command line of the record."""
    for words, _ in commands(app):
        yield Case(f"help/{'-'.join(words) or 'jobkit'}.txt", (*words, "--help"))
    for spec in sorted((ROOT / "sweeps").glob("*.yaml")):
        for scheduler, site in ((name, site) for name, sites in SITES.items() for site in sites):
            command = "tune" if spec.stem == "tune" else "sweep"
            words = (command, f"sweeps/{spec.name}", "--dry-run", "--scheduler", scheduler, "--site", site)
            yield Case(f"dry-run/{spec.stem}-{site}.txt", (*words, "--set", CPU_BUILD))
        if spec.stem != "command":
            words = ("preflight", f"sweeps/{spec.name}", "--fast", "--set", "scheduler=slurm")
            yield from both(f"preflight/{spec.stem}", *words)
    for name, run in runs().items():
        at = f"runs/{name}"
        yield from both(f"{name}/status", "status", at)
        yield Case(f"{name}/report.txt", ("report", at))
        if (run / "logs").is_dir():
            yield Case(f"{name}/logs.txt", ("logs", at, "4"))
        yield Case(f"{name}/point.txt", ("status", at, "4"))
        if (run / CORPUS_FILE).is_file():
            yield Case(f"{name}/merge.txt", ("merge", at))
            continue
        if (run / TUNE_GOAL_FILE).is_file():
            yield Case(f"{name}/tune.txt", ("tune", at))
        for command in ("collect", "recommend", "waste"):
            yield from both(f"{name}/{command}", command, at)
        yield Case(f"{name}/corpus.txt", ("recommend", at, "--corpus", "2000000"))
        yield Case(f"{name}/collect.csv", ("collect", at, "--format", "csv"))
    yield Case("several/collect.txt", ("collect", "runs"))
    yield Case("several/list.txt", ("status", "--list"))
    for name, words in PAIRS.items():
        yield from both(f"several/{name}", "compare", *(f"runs/{run}" for run in words))
    yield Case("several/models.txt", ("models",))


PAIRS = {
    "compare-search": ("search-20261126-143018-a0b6", "search-20261126-143018-a0b6"),
    "compare-gpu": ("stanza-20261121-034558-42cc", "stanza-20261121-034922-0192"),
    "compare-limits": ("capped-8GiB-20261121-084121-b249", "capped-16GiB-20261121-084431-ad94"),
}


def both(file: str, *words: str) -> Iterator[Case]:
    """Yield a command line for people, and the same for programs."""
    yield Case(f"{file}.txt", words)
    yield Case(f"{file}.json", (*words, "--json"))


def commands(group: click.Command, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command of a group, with its words."""
    yield above, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command
            yield from commands(command, *above, name)


@contextmanager
def project(folder: Path) -> Iterator[Path]:
    """Prepare a user's folder with the runs and the specs, and a clock that stands still."""
    for name, run in runs().items():
        copied = shutil.copytree(run, folder / "project" / "runs" / name)
        for path in [copied, *copied.rglob("*")]:
            os.utime(path, (WRITTEN_AT, WRITTEN_AT))
    shutil.copytree(ROOT / "sweeps", folder / "project" / "sweeps")
    for _, command in commands(app):
        command._help_option = None  # another test may have called it without the group, and click keeps that
    own = {name: str(folder / name) for name in ("HOME", "JOBKIT_CACHE", "JOBKIT_CONFIG", "JOBKIT_LEDGER")}
    variables = {
        **own,
        "USER": "ada",
        "LOGNAME": "ada",
        "TZ": "UTC",
        "COLUMNS": "80",
        "PATH": str(folder / "bin"),  # empty: no scheduler, no GPU
    }
    with pytest.MonkeyPatch.context() as patch, time_machine.travel(NOW, tick=False):
        for name in filter(OTHERS.match, list(os.environ)):
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)  # tune tries as many workers
        yield folder / "project"


def answer(case: Case, folder: Path) -> str:
    """Return what a command answers: exit status, both streams, and the text of the page that it writes."""
    done = jobkit(*case.words, cwd=folder, env={"COLUMNS": "80"})
    page = folder / "report.html"
    parts = [f"$ jobkit {' '.join(case.words)}", f"exit status {done.returncode}", done.stdout, done.stderr]
    if case.words[0] == "report" and page.is_file():
        parts.append(page_text(page.read_text(encoding="utf-8")))
        page.unlink()
    return neutral("\n".join(part.rstrip("\n") for part in parts if part) + "\n", folder)


def neutral(text: str, folder: Path) -> str:
    """Replace what differs between machines and days."""
    text = NEW_ID.sub("DATE-ID", text)
    for path, name in (
        (folder, "PROJECT"),
        (folder.parent, "HOME"),
        (sys.executable, "PYTHON"),
        (ROOT, "CHECKOUT"),
    ):
        text = text.replace(str(path), name)
    return VERSION.sub("jobkit VERSION", text)


class PageText(HTMLParser):
    """The words of a page, a line for each element that has lines of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.silent = "", 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.silent += tag in {"style", "script"}
        self.words += "\n" if tag in BLOCK else " " if tag in {"td", "th"} else ""

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in {"style", "script"}

    def handle_data(self, data: str) -> None:
        self.words += "" if self.silent else data


def page_text(page: str) -> str:
    """Return the words of an HTML page as lines."""
    parser = PageText()
    parser.feed(page)
    lines = (" ".join(line.split()) for line in parser.words.splitlines())
    return "\n".join(line for line in lines if line)


def difference(file: str, now: str) -> str:
    """Return how an answer differs from the kept one, as a unified diff; nothing if it does not."""
    path = EXPECTED / file
    kept = path.read_text(encoding="utf-8") if path.is_file() else ""
    diff = difflib.unified_diff(
        kept.splitlines(), now.splitlines(), f"kept {file}", f"now {file}", lineterm="", n=1
    )
    return "\n".join(diff)


def update(folder: Path) -> list[str]:
    """Write every answer, and remove the files of cases that are gone; return the files that changed."""
    with project(folder) as here:
        answers = {case.file: answer(case, here) for case in cases()}
    gone = [str(path.relative_to(EXPECTED)) for path in EXPECTED.rglob("*.*") if path.is_file()]
    changed = [file for file, text in answers.items() if difference(file, text)]
    for file in set(gone) - answers.keys():
        (EXPECTED / file).unlink()
        changed.append(file)
    for file in changed:
        if file in answers:
            (EXPECTED / file).parent.mkdir(parents=True, exist_ok=True)
            (EXPECTED / file).write_text(answers[file], encoding="utf-8")
    return sorted(changed)
