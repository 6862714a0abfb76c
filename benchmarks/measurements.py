"""The tables of docs/measurements.md, made from benchmarks/records.

``python -m benchmarks.measurements`` writes each table into the page: between a line that names it,
``<!-- table: NAME -->``, and the next ``<!-- to here -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import (
    edge_page,
    encoders_page,
    gpu_page,
    grid,
    page,
    past_jobs_public,
    shortcuts_page,
    soak_page,
    tune_page,
    workers_page,
)
from benchmarks.archives import RECORDS
from benchmarks.markdown import table
from benchmarks.workloads_table import workloads
from jobkit.core.knobs import EXACT
from jobkit.core.units import GIB
from jobkit.runs.results import read_run
from jobkit.runs.trials import Trial, trials

PAGE = Path(__file__).parents[1] / "docs" / "measurements.md"
PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- to here -->\n)", re.DOTALL)


def searches() -> str:
    """Return the table of all searches, without shortcuts and with them."""
    return table(tune_page.SEARCH_HEADS, (*tune_page.searches(), *shortcuts_page.searches()))


def corpora() -> str:
    """Return the table of all corpora: the time that was predicted, and the time that it took."""
    first = tune_page.corpus_row("16 workers", tune_page.CORPUS)
    return table(tune_page.CORPUS_HEADS, (first, *shortcuts_page.corpora()))


def largest() -> str:
    """Return a line for each batch that was predicted and tried."""
    runs = (*sorted((RECORDS / "find-max").iterdir()), *shortcuts_page.LARGEST)
    return "\n".join(
        f"- {trial.capacity_bytes / GIB:g} GiB: {trial.size:,}, {_end(trial)}{_condition(run)}"
        for run in runs
        for trial in trials(run)
    )


def _end(trial: Trial) -> str:
    if trial.measured_bytes is None or trial.error is None:
        return "out of memory"
    needed, expected = trial.measured_bytes / GIB, trial.expected_bytes / GIB
    return f"needed {needed:.2f}, predicted {expected:.2f} ({100 * trial.error:+.1f} %)"


def _condition(run: Path) -> str:
    """Return what a reader must know of a run besides: workers and shortcuts, if it had them."""
    point = read_run(run).points[0].point
    workers = f", each of {point.workers} workers" if point.workers > 1 else ""
    return workers + (", with shortcuts" if point.shortcuts == EXACT else "")


TABLES: Mapping[str, Callable[[], str]] = {
    "searches": searches,
    "short-searches": lambda: table(tune_page.SHORT_HEADS, tune_page.short_searches()),
    "corpora": corpora,
    "grid": grid.settings,
    "two-gpus": workers_page.two_gpus,
    "cpu": grid.cpu,
    "where": shortcuts_page.where,
    "sides": shortcuts_page.sides,
    "embedders": encoders_page.embedders,
    "garbage": shortcuts_page.garbage,
    "encoders": encoders_page.encoders,
    "precision": tune_page.precision,
    "memory": gpu_page.memory_parts,
    "largest": largest,
    "answers": edge_page.answers,
    "cost": edge_page.cost,
    "caps": tune_page.caps,
    "workloads": workloads,
    "soaks": soak_page.soaks,
    "past-jobs": lambda: table(past_jobs_public.HEADS, past_jobs_public.rows()),
    "speeds": page.speeds,
}


def written(text: str) -> str:
    """Return the page with all tables as the records have them now."""
    return PLACE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)


def main() -> None:
    """Write the tables into the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
