"""What a recommendation needs of a run folder and the site files. Submits nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from jobkit.answers import ledger
from jobkit.answers.loads import read_lengths
from jobkit.answers.objective import Objective
from jobkit.answers.search_answer import read_search
from jobkit.core.errors import JobkitError
from jobkit.core.layout import SPEC_FILE, is_run_folder
from jobkit.core.paths import ledger_path
from jobkit.core.records import RESULTS, Outcome
from jobkit.core.terminal import shell_quote
from jobkit.report.recommend.types import RunData
from jobkit.report.sources import never_began
from jobkit.runs.results import agreements, batches_of, read_run
from jobkit.runs.trials import describe_trials, settled_trials, trials
from jobkit.runs.tries import task_s, timed
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.spec.site import Site, load_site
from jobkit.spec.sweep_spec import SweepSpec, load_spec


def read_material(folder: Path, overrides: Sequence[str] = ()) -> RunData:
    """Return the data of a run folder.

    ``folder``: of one run.
    ``overrides``: ``key=value`` that replace keys of ``objective`` and ``constraints`` in its spec.
    """
    for override in overrides:
        if re.match(r"(objective|constraints)\b", override) is None:
            message = f"--set {override}: recommend takes only objective and constraints"
            raise JobkitError(message, hint="--set objective.metric=NAME, --set constraints.NAME.min=NUMBER")
    if not is_run_folder(folder):
        raise JobkitError(
            f"{folder}: not a run folder, and a recommendation rests on records that a log does not have",
            hint=f"name one folder below runs/; to read an old log: jobkit collect {shell_quote(folder)}",
        )
    run = read_run(folder)
    spec, notes = spec_of(folder, overrides)
    site, more = site_of(spec)
    objective = Objective()
    if spec:
        direction = spec.objective.chosen_direction
        objective = Objective.of(spec.objective.metric, direction, spec.constraints.bounds)
    sweep = [point for point in run.points if point.point.kind.swept]
    records = [record for point in sweep if (record := timed(point.counts))]
    first = next((record for record in records if record.outcome is Outcome.OK), None)
    tried = settled_trials(
        trials(folder),
        {point.point.index: point.outcome for point in run.points},
        never_began(folder, [point.point for point in run.points if point.point.trial and not point.tries]),
    )
    return RunData(
        run=str(folder),
        records=records,
        batches=batches_of(sweep),
        lengths=read_lengths(folder),
        seconds=tuple(
            task_s(tried) if tried.record else None
            for result in sweep
            for tried in reversed(result.tries)
            if tried.outcome is not Outcome.PRUNED
        ),
        resources=spec.resources if spec else None,
        site=site,
        plain_sites=[load_site(f"{name}-default", name) for name in SCHEDULERS if not runs_here(name)],
        to_come=sum(point.outcome is None for point in sweep),
        failed=sum(bool(point.outcome) and point.outcome not in RESULTS for point in sweep),
        notes=(*run.notes, *notes, *more),
        trials=describe_trials(tried),
        tried=tuple(tried),
        asked_bytes=spec.asked_bytes if spec else None,
        ledger=ledger.summary(ledger.entries(ledger_path()), first) if first else None,
        agreements=agreements(sweep),
        objective=objective,
        search=read_search(folder, objective if overrides else None),
    )


def spec_of(folder: Path, overrides: Sequence[str] = ()) -> tuple[SweepSpec | None, list[str]]:
    """Return the spec of a run, or why it cannot be read; with ``overrides`` that is an error."""
    try:
        return load_spec(folder / SPEC_FILE, overrides), []
    except JobkitError as error:
        if overrides:
            raise
        first, *_ = error.message.splitlines()
        return None, [f"jobkit cannot compute a request without the spec: {first}"]


def site_of(spec: SweepSpec | None) -> tuple[Site | None, list[str]]:
    """Return the site of a run, and why it is not its own; ``None`` if it ran without a scheduler."""
    if spec is None or spec.scheduler == "auto" or runs_here(spec.scheduler):
        return None, []
    try:
        return load_site(spec.site, spec.scheduler), []
    except JobkitError as error:
        return None, [f"{error.message}: the lines are a plain {spec.scheduler}'s"]
