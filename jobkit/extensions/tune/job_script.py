"""From a spec to a search that could be submitted now. It writes only to the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from jobkit.core.json_codec import to_json
from jobkit.core.layout import TUNE_GOAL_FILE, TUNE_SCRIPT
from jobkit.core.records import Point
from jobkit.core.terminal import Say
from jobkit.extensions.tune.goal import Node, tuned
from jobkit.extensions.tune.steps import TuneGoal
from jobkit.extensions.tune.tuning import first_point
from jobkit.planning import prepare
from jobkit.planning.job_script import render_search
from jobkit.planning.points import Inputs, plan
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import Resources, SweepSpec

MODULE = "jobkit.extensions.tune.search"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSearch(prepare.Prepared):
    """A search for the fastest setting that could be submitted now; it has only its first point so far."""

    goal: TuneGoal


def prepare_search(
    path: Path | str,
    options: prepare.Options,
    *,
    build: bool = False,
    say: Say = lambda _: None,
    find_node: Callable[[SweepSpec, Site], Node | None] = lambda *_: None,
) -> PreparedSearch:
    """Return the search of a spec; ``find_node`` asks the scheduler for the largest node that may run it."""
    named = prepare.resolved(path, options, say, build=build, needs_real=lambda _: "jobkit tune")
    named.spec.refuse_command("jobkit tune")
    node, lengths = find_node(named.spec, named.site), prepare.lengths_of(named, say)
    spec, goal = tuned(named.spec, named.knobs, lengths, pads=named.pads, window=named.window, node=node)

    def begin(spec: SweepSpec, inputs: Inputs) -> tuple[Point, ...]:
        return (first_point(plan(spec, inputs)[0], goal),)

    run = prepare.planned(named, options, spec, lengths, say, begin)
    same = {field.name: getattr(run, field.name) for field in fields(run)}
    own = {TUNE_GOAL_FILE: to_json(goal) + "\n", TUNE_SCRIPT: _script(run, goal)}
    return PreparedSearch(**same | {"more_files": own}, goal=goal)


def _script(run: prepare.Prepared, goal: TuneGoal) -> str:
    spec, point = run.spec, run.points[0]
    asking = spec.model_copy(update={"resources": resources(spec, point, goal)})
    chooses = "chooses a setting, runs it, and chooses the next."
    return render_search(
        asking,
        run.site,
        point,
        run.run_dir,
        MODULE,
        purpose=f"Searches for the fastest setting of {spec.name}: {chooses}",
        limit_s=spec.resources.walltime,
    )


def resources(spec: SweepSpec, point: Point, goal: TuneGoal) -> Resources:
    """Return the resources of the search: CPUs for its most workers, the time of its budget and a point."""
    most = replace(point, workers=goal.workers, threads=goal.cpus)
    walltime_s = round(goal.budget_s) + spec.resources.walltime
    return spec.resources.of(most).model_copy(update={"walltime": walltime_s})
