"""From a spec to a search that runs here or as a job, and goes on if it was cut short.

The text alone decides a part of the goal: order, sizes, and the parts of the text.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jobkit.answers.loads import NONE, Lengths, Loads
from jobkit.answers.objective import Objective
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.figures import SPEED
from jobkit.core.frozen import frozen
from jobkit.core.json_codec import to_json
from jobkit.core.knobs import BATCH_SIZE, CPU, CUDA, SORTED, Knob, size_knob
from jobkit.core.layout import SETTING_FILE, TUNE_GOAL_FILE, TUNE_SCRIPT
from jobkit.core.records import Outcome, Point
from jobkit.core.shell import usable_cpus
from jobkit.core.terminal import Say, note, relative_path, shell_path
from jobkit.core.units import format_about, format_count, format_setting
from jobkit.extensions.tune.goal import (
    CALLS_A_WORKER,
    MAX_WORK_UNIT,
    MEASURED_S,
    TuneGoal,
    plain_loop,
    switches_of,
)
from jobkit.extensions.tune.measured import Candidate
from jobkit.extensions.tune.search import Tuning, first_point, propose_point
from jobkit.launch import launch, local
from jobkit.launch.ceiling import at_most, refuse_above
from jobkit.launch.job import Job, begin_after, follow_job
from jobkit.launch.resume import Resumption, has_ended
from jobkit.launch.submission import Check, note_follow, submit, wait_for_points, write_run
from jobkit.planning.batch_sizes import MIN_LOAD
from jobkit.planning.job_script import mailing_once, render_search
from jobkit.planning.points import Inputs, plan, request
from jobkit.planning.prepare import Options, Prepared, begin, lengths_of, read_real
from jobkit.planning.texts import longer_text
from jobkit.runs.journal import Role
from jobkit.runs.request import RetryGroup
from jobkit.runs.results import read_run
from jobkit.runs.status import RunStatus, followers
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.schedulers.survey import Survey, asked_for
from jobkit.schedulers.types import Array, JobRequest
from jobkit.spec.axes import Repeats
from jobkit.spec.site import Site, load_site
from jobkit.spec.sweep_spec import Axes, Resources, SweepSpec

TEXT = "text"
MIN_WORK_UNIT = 10
"""The fewest paragraphs of a call."""
MEMORY_PARAGRAPHS = 600
"""Paragraphs that suffice to measure the memory of one worker."""
LOOP_BATCH = 300
"""The batch size of the plain loop, with which a setting is compared."""
NO_BUDGET = 2**62
"""More padded characters than any batch has."""
LOOKS = 3
"""Repeats end after this many times ``tune.repeats`` at most; the intervals are looked at after each time."""
AGAIN = 12
SHORT_S = 300
"""The budget up to which a search is short: it measures half as many calls a worker."""
MOST_JOBS = 3
"""How often jobkit submits the job of a search by itself: two of these jobs may be killed."""
SIZE_STEPS = (16, 4, 2, 1)
"""The largest size over each size: four sizes make a line of memory."""


@frozen
class Node:
    cpus: int  # the CPUs of the largest node
    where: str  # the place of that node, for a person: ``partition 'cpu'``


def largest_node(survey: Survey, spec: SweepSpec, site: Site) -> Node | None:
    """Return the node with the most CPUs among those with the memory and GPUs that a spec requests.

    ``None`` if the scheduler does not describe its nodes, or none has them: then it refuses the job.
    """
    asked = request(spec.name, spec, site, spec.resources.model_copy(update={"cpus": 1}))
    queues = asked_for(asked.queue, survey.queues or (), survey.queue_noun)
    kinds = (kind for queue in queues.queues for kind in queue.kinds if not kind.lacks(asked))
    cpus = max((kind.cpus or 0 for kind in kinds), default=0)
    return Node(cpus, queues.where) if cpus else None


def tuned(
    spec: SweepSpec,
    knobs: Iterable[Knob],
    lengths: Lengths,
    *,
    pads: bool = True,
    window: int | None = None,
    node: Node | None = None,
) -> tuple[SweepSpec, TuneGoal]:
    """Return the spec of a search, with what its points share, and the goal.

    ``spec``: all but the batch sizes is decided; its ``sweep`` is not used. ``pads``: whether the workload
    says that it pads the items of a batch to the longest. ``window``: its `WINDOW`, if it has one.
    ``node``: the largest node of the queue; ``None`` on this machine, or if the scheduler does not say.
    """
    if spec.every > 1:
        message = f"every: {spec.every}: jobkit tune chooses the part of the text itself"
        raise JobkitError(message, hint="leave it out; a lower tune.budget makes the search shorter")
    workers, limited_by = _most_workers(spec, node)
    paragraphs = len(lengths.paragraphs)
    shared_calls = max(MIN_WORK_UNIT, min(MAX_WORK_UNIT, paragraphs // (CALLS_A_WORKER * workers)))
    work_unit = spec.work_unit or window or shared_calls
    names = {knob.name for knob in knobs}
    knob = BATCH_SIZE if lengths.source == NONE else size_knob(names)
    padding, order, other = _order(lengths, spec.sort_window, work_unit, pads=pads)
    # the largest budget of a workload with a `WINDOW`: a batch of this load keeps an H200 busy
    most = 2**18 if window else NO_BUDGET
    sizes = _sizes(lengths, spec.sort_window, order, work_unit if knob != BATCH_SIZE else None, workers, most)
    short = spec.tune.budget <= SHORT_S
    wanted = spec.tune.repeats
    repeats: dict[str, Any]
    if isinstance(wanted, Repeats):
        repeats = {
            "repeats": wanted.least,
            "most_repeats": wanted.most,
            "share": wanted.share,
            "looks": LOOKS,
        }
    else:  # those of a short search end by time alone, so one look is enough
        repeats = {"repeats": wanted, "most_repeats": LOOKS * wanted, "looks": 1 if short else LOOKS}
    calls = CALLS_A_WORKER // (1 + short)
    search_every = max(1, paragraphs // (workers * calls * work_unit))
    # the least calls of a point that measures the memory of one worker
    # (2 of large windows: in the second one the work has met the tokenizing that runs ahead)
    memory_calls = 2 if window and work_unit >= MEMORY_PARAGRAPHS else 4
    cpus, on_gpu = spec.resources.cpus, spec.device == CUDA
    switches = switches_of(names, on_gpu=on_gpu)
    threads = None if on_gpu and not window else workers * cpus
    # a workload with a `WINDOW` gets the default of ``encode``: in text order more only pads more
    goal = TuneGoal(
        size_knob=knob,
        sizes=tuple(sizes),
        loads=tuple(sizes.values()),
        order=order,
        other_order=other,
        padding=padding,
        loop=plain_loop(min(32 if window else LOOP_BATCH, paragraphs), threads, switches),
        workers=workers,
        cpus=cpus,
        limited_by=limited_by,
        **switches,
        fills_gpu=window is not None,
        short=short,
        memory_every=max(search_every, paragraphs // max(MEMORY_PARAGRAPHS, memory_calls * work_unit)),
        search_every=search_every,
        **repeats,
        again=AGAIN,
        budget_s=spec.tune.budget,
        memory_bytes=spec.constraints.gpu_memory if on_gpu else spec.resources.memory,
        objective=Objective.of(
            spec.objective.metric, spec.objective.chosen_direction, spec.constraints.bounds
        ),
    )
    first = Axes.model_validate({name: [value] for name, value in goal.setting(goal.sizes[0], 1).items()})
    update = {"sweep": first, "repeats": 1, "work_unit": work_unit, "find_max": None, "pack": 1}
    return spec.model_copy(update=update), goal


def _most_workers(spec: SweepSpec, node: Node | None) -> tuple[int, str]:
    """Return the most workers, and the limit that allows no more."""
    if spec.device == CPU and spec.constraints.gpu_memory:
        message = "constraints.gpu_memory means nothing with device: cpu"
        raise JobkitError(message, hint="resources.memory is the limit there")
    gpus = (spec.gpus or spec.resources.gpus) if spec.device == CUDA else 1
    cpus, named = spec.resources.cpus * max(1, gpus), spec.tune.workers
    limits = {f"tune.workers: {named}": named} if named else {}
    if spec.constraints.cpus:
        limits[f"constraints.cpus: {spec.constraints.cpus}"] = spec.constraints.cpus // cpus
    # The most workers on a cluster, if the spec names no other number and its nodes have more CPUs
    cluster_workers = 16
    if runs_here(spec.scheduler):
        here = usable_cpus()
        limits[f"the {format_count(here, 'CPU')} of this machine"] = here // cpus
    elif not limits:
        limits[f"tune.workers: {cluster_workers} (the default)"] = cluster_workers
    of_node = ""
    if node:
        of_node = f"the {format_count(node.cpus, 'CPU')} of the largest node of {node.where}"
        limits[of_node] = node.cpus // cpus
    why = min(limits, key=lambda name: limits[name])
    if named and limits[why] < named and why == of_node:
        message = f"tune.workers: {named} with resources.cpus: {spec.resources.cpus} is more than {why}"
        raise JobkitError(message, hint=f"leave it out, or --set tune.workers={max(1, limits[why])}")
    if not limits[why]:
        message = f"resources.cpus: {spec.resources.cpus} is for each worker, and {why} leaves none"
        raise JobkitError(message, hint="lower resources.cpus: --set resources.cpus=1")
    return limits[why], why


def _order(
    lengths: Lengths, window: int | None, work_unit: int, *, pads: bool
) -> tuple[dict[str, float], str, str]:
    """Return characters over padded characters by order, the order, and the one that is compared with it.

    Only padding makes an order faster by the text alone. A workload that does not say that it pads gets the
    order of the plain loop, and the other order is compared by running it; without lengths there is no other.
    """
    if lengths.source == NONE or not lengths.pads or not pads:
        return {}, TEXT, "" if lengths.source == NONE else SORTED
    padding = {
        name: Loads(lengths, by_length=name == SORTED, window=window).chunks(work_unit).efficiency
        for name in (TEXT, SORTED)
    }
    return padding, SORTED if padding[SORTED] > padding[TEXT] else "load", ""


def _sizes(
    lengths: Lengths, window: int | None, order: str, work_unit: int | None, workers: int, most_load: int
) -> dict[int, int]:
    """Return the sizes to be tried, ascending, each with its largest load.

    ``work_unit``: paragraphs of a call; ``None`` if the size is a batch size and not a budget.
    ``most_load``: the largest budget.
    """
    loads = Loads(lengths, by_length=order == SORTED, window=window)
    if work_unit is None:
        calls = max(1, len(lengths.paragraphs) // (CALLS_A_WORKER * workers))
        most = min(loads.limit, calls, LOOP_BATCH)
        return {size: loads.load(size) for size in sorted({max(1, most // step) for step in SIZE_STEPS})}
    whole = min(most_load, loads.under_budget(NO_BUDGET, work_unit).load)
    longest = max((length for row in lengths.paragraphs for length in row), default=1)
    least = max(longest, MIN_LOAD)
    sizes = set()
    for step in SIZE_STEPS:
        number = max(least, whole // step)
        digits = int(10 ** max(0, len(str(number)) - 2))  # the first two stay
        sizes.add(-(-number // digits) * digits)
    return {size: loads.under_budget(size, work_unit).load for size in sorted(sizes)}


def prepare_search(path: Path | str, options: Options, *, build: bool, say: Say) -> tuple[Prepared, TuneGoal]:
    """Return the search of a spec, with only its first point so far, and its goal."""
    named = read_real(Path(path), options, say, build=build, command="jobkit tune")
    named.spec.refuse_command("jobkit tune")
    node = None
    if not runs_here(named.site.scheduler):
        from jobkit.setup.ask import ask_site  # here: no other step asks a scheduler for its site

        node = largest_node(ask_site(by_name(named.site.scheduler)), named.spec, named.site)
    lengths = lengths_of(named, say)
    known, window = named.traits, named.traits.windows.get(named.spec.device)
    spec, goal = tuned(named.spec, known.knobs, lengths, pads=known.says_padding, window=window, node=node)
    if (number := len(lengths.paragraphs)) < MEMORY_PARAGRAPHS * goal.workers:
        words = ["jobkit", "tune", str(path), *options.words]
        longer = longer_text(named.inputs.text, goal.wanted, number)
        say(
            f"the text has {format_count(number, 'paragraph')}: a setting that does more than "
            f"{number / MEASURED_S:,.0f} a second is measured for less than {MEASURED_S:g} s, and chance may "
            f"decide; a longer text:\n  {shlex.join(words)} {longer}"
        )

    def first(spec: SweepSpec, inputs: Inputs) -> tuple[Point, ...]:
        return (first_point(plan(spec, inputs)[0], goal),)

    run = begin(replace(named, spec=spec), options, say, lengths, first)
    asking = run.spec.model_copy(update={"resources": resources(run.spec, run.points[0], goal)})
    chooses = "chooses a setting, runs it, and chooses the next."
    script = render_search(
        mailing_once(asking, run.site),
        run.site,
        run.points[0],
        run.run_dir,
        "jobkit.extensions.tune.search",
        purpose=f"Searches for the fastest setting of {run.spec.name}: {chooses}",
        limit_s=run.spec.resources.walltime,
    )
    own = {TUNE_GOAL_FILE: to_json(goal) + "\n", TUNE_SCRIPT: script}
    return replace(run, more_files=own), goal


def resources(spec: SweepSpec, point: Point, goal: TuneGoal) -> Resources:
    """Return the resources of the search: CPUs for its most workers, the time of its budget and a point."""
    most = replace(point, workers=goal.workers, threads=goal.cpus)
    walltime_s = round(goal.budget_s) + spec.resources.walltime
    return spec.resources.of(most).model_copy(update={"walltime": walltime_s})


def headline(goal: TuneGoal, spec: SweepSpec) -> str:
    """Return in two lines the limits of a search, and what the text has decided."""
    number, noun = (spec.resources.gpus, "GPU") if goal.on_gpu else (goal.workers * goal.cpus, "CPU")
    settings, points = format_count(goal.most_settings, "setting"), format_count(goal.most_points, "point")
    held = f"{format_about(goal.budget_s)} of {format_count(number, noun)}"
    most = f"at most {settings} in {points}, {held}, up to {format_count(goal.workers, 'worker')}"
    sizes = ", ".join(f"{size:,}" for size in goal.sizes)
    text = f"from the text alone: order {goal.order}, {goal.size_knob} {sizes}"
    if goal.padding:
        shares = ", ".join(f"{share:.0%} in {order} order" for order, share in goal.padding.items())
        text += f" (share of text in the padding: {shares})"
    return f"{most}\n{text}"


def _most(run: Prepared, goal: TuneGoal) -> str:
    """Return what the job of a search asks for at most, in a line; two more may follow it."""
    asked = resources(run.spec, run.points[0], goal)
    number, unit = (asked.gpus, "GPU") if asked.gpus else (asked.cpus, "CPU")
    times = MOST_JOBS if run.follow_script else 1
    return at_most(run.spec, number * asked.walltime, unit, times)


def dry_run(preview: launch.Preview, run: Prepared, goal: TuneGoal, source: Path) -> int:
    """Print what a search takes at most and the submit commands, or its script."""
    scheduler = run.spec.scheduler
    used = f"scheduler {scheduler} ({run.why}), site {run.site.name}"
    submits = () if runs_here(scheduler) else launch.submit_commands(run, _first_jobs(run, goal))
    plan = [
        *headline(goal, run.spec).splitlines(),
        _most(run, goal),
        *filter(None, [launch.model_warning(run)]),
        used,
    ]
    script = (run.run_dir / TUNE_SCRIPT, run.more_files[TUNE_SCRIPT])
    return launch.dry_run(preview, run.spec, source, plan, script, submits)


def _first_jobs(run: Prepared, goal: TuneGoal) -> list[Job]:
    asked = request(run.run_dir.name, run.spec, run.site, resources(run.spec, run.points[0], goal))
    return _jobs(1, follow=run.follow_script is not None, asked=asked)


def _jobs(index: int, *, follow: bool, asked: JobRequest | None = None) -> list[Job]:
    array = Array(first=1, last=1, offset=index - 1, throttle=None)
    search = Job(script=TUNE_SCRIPT, array=array, role=Role.TUNE, request=asked)
    return [search, *([follow_job(1)] if follow else [])]


def tune(
    run: Prepared, goal: TuneGoal, check: Check, *, wait: bool = False, detach: bool = False
) -> int | None:
    """Search here, or submit the search and the job that follows it; return as `launch.go`."""
    run_dir, spec = run.run_dir, run.spec
    note("\n".join(filter(None, (headline(goal, spec), _most(run, goal), launch.model_warning(run)))))
    write = partial(write_run, run, check)
    if runs_here(spec.scheduler):
        write()
        if detach:
            return launch.in_background(run_dir)
        note(f"run folder: {relative_path(run_dir)}")
        _search(run_dir)
        return None
    return launch.go(run, write, _first_jobs(run, goal), wait=wait)


def _search(run_dir: Path) -> None:
    ran: list[Point] = []

    def choose(folder: Path) -> Point | None:
        for before in ran[-1:]:
            note(_ending(folder, before))
        point = propose_point(folder)
        ran.extend([point] if point else [])
        return point

    with local.as_driver(run_dir) as job_id:
        local.search(run_dir, lambda _: None, job_id, choose)


def _ending(run_dir: Path, point: Point) -> str:
    result = next(result for result in read_run(run_dir).points if result.point.index == point.index)
    summary = result.record.summary if result.record else None
    end = f"{result.outcome}: {result.verdict.evidence}"
    if summary and result.outcome is Outcome.OK:
        speed = result.record.value(SPEED) if result.record else None
        end = f"{speed:,.1f} paragraphs/s" if speed else f"{summary.work_s:,.1f} s"
    return f"{point.index:>4}  {point.phase:<6}  {format_setting(point.params)}: {end}"


class TuneResumption(Resumption):
    def decide(self, *_: object, **__: object) -> list[RetryGroup]:
        """Return no point: a search judges a point that failed."""
        return []

    def nothing(
        self, run: RunStatus, spec: SweepSpec, *, by_itself: bool = False, wait: bool = False
    ) -> int | None:
        """Go on with a search that was cut short; return an exit code, or ``None`` if it has ended.

        If no person asked (``by_itself``) at most three jobs are submitted: two may be killed.
        """
        run_dir = run.folder
        if (run_dir / SETTING_FILE).is_file():
            note(f"the search has ended: jobkit tune {shell_path(run_dir)} prints its answer")
            return 0
        if runs_here(spec.scheduler):
            _search(run_dir)
            return None
        searches = followers(run, Role.TUNE)
        # The job that follows starts once the search has ended, often before the accounting knows of that.
        if searches and (searches[-1][1] is not None or not (by_itself or has_ended(run, Role.TUNE))):
            note(f"the search is under way: jobkit status {shell_path(run_dir)} shows its progress")
            return ExitCode.TO_COME
        if by_itself and len(searches) >= MOST_JOBS:
            searched = format_count(len(searches), "job")
            note(f"{searched} of this search ended early: jobkit resume goes on with it")
            return 0
        tuning = Tuning.read(run_dir)
        index = tuning.point(tuning.next).index if isinstance(tuning.next, Candidate) else 1
        asked = resources(spec, run.points[0].point, tuning.goal)
        refuse_above(spec, asked.gpus * asked.walltime, run_dir)
        jobs, site = _jobs(index, follow=spec.policy.follow_up), load_site(spec.site, spec.scheduler)
        submit(run_dir, spec, begin_after(jobs, spec, site))
        if wait:
            return wait_for_points(run_dir, [point.point for point in run.points], spec.policy, run)
        if not by_itself:
            note_follow(run_dir)
        return 0


TUNE = TuneResumption()
