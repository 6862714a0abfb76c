"""A run of `jobkit tune`: what the commands of the kernel say of a search for the fastest setting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jobkit.core.layout import SETTING_FILE
from jobkit.runs.journal import Role
from jobkit.runs.status import NextStep, RunKind, RunStatus


class TuneRun(RunKind):
    """A run whose points are chosen by the results of earlier points."""

    command = "tune"

    def looks(self, run: RunStatus, typed: str) -> Iterator[NextStep]:
        yield f"jobkit tune {typed}", "the answer, or how far the search is"
        yield from super().looks(run, typed)

    def finished(self, folder: Path) -> bool:
        return (folder / SETTING_FILE).is_file()

    def awaited(self, folder: Path) -> Role | None:
        return None if self.finished(folder) else Role.TUNE


TUNE = TuneRun()
