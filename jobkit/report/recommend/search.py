"""A run of ``jobkit tune`` has one answer: the setting that it found, measured by the finals. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.terminal import shell_path
from jobkit.core.units import format_count
from jobkit.fit.speed import Speed
from jobkit.fit.tune import Tuning
from jobkit.fit.tune_steps import FINAL, Candidate, whole
from jobkit.report.recommend.types import RunData
from jobkit.report.tune import named


def with_answer(material: RunData, search: Tuning) -> RunData:
    """Return the data of a search with the records of its finals, each setting as the answer names it.

    Points of the other phases worked on a part of the text, or ran once: nothing is recommended by them.

    Raises
    ------
    JobkitError
        If the search has not ended, or has found no setting.
    """
    run = shell_path(Path(material.run))
    if isinstance(search.next, Candidate):
        hint = f"jobkit status {run} shows how far it is; jobkit resume {run} goes on"
        raise JobkitError(f"{material.run}: the search has not ended, so it has no setting yet", hint=hint)
    if search.winner is None:
        hint = f"what was tried: jobkit tune {run}"
        raise JobkitError(f"{material.run}: the search found no setting: {search.next.why}", hint=hint)
    records = [
        replace(record, point=replace(record.point, params=named(record, search)))
        for record in search.records(FINAL)
    ]
    return replace(material, records=records, objective=search.goal.objective)


def chosen(settings: tuple[Speed, ...], search: Tuning) -> Speed:
    """Return the speed of the answer."""
    return next(setting for setting in settings if setting.params == search.setting)


def cautions(search: Tuning) -> Iterator[str]:
    """Yield that the finals worked on a part of the text, if they did."""
    every = max((record.point.every for record in search.records_of(search.winner)), default=1)
    if every > 1:
        yield (
            f"the finals worked on one of every {every} paragraphs: "
            "time, energy and request are computed from them for the whole text"
        )


def heading(search: Tuning, points: int) -> str:
    """Return how many settings and points the search has measured."""
    settings = {tuple(sorted(whole(one.params).items())) for one, _ in search.results}
    return f"a search of {format_count(len(settings), 'setting')}, {format_count(points, 'point')} succeeded"
