"""What `jobkit status` prints: runs or points, as text or as JSON."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobkit.core import blocks, terminal
from jobkit.core.blocks import GAP, Column, fit_columns
from jobkit.core.errors import JobkitError
from jobkit.core.layout import names
from jobkit.core.records import Outcome, described
from jobkit.core.terminal import printable, relative_path, shell_quote
from jobkit.core.units import format_about, format_bytes_gib, format_clock, format_count, format_list, moment
from jobkit.runs import on_end
from jobkit.runs.hints import (
    HARMLESS,
    FixKind,
    Step,
    advice,
    is_idle,
    is_limited,
    needed_by,
    releases,
    remedy,
)
from jobkit.runs.journal import FOLLOWED, PLANNERS, PURPOSES, SEARCHES, JobTask, Role
from jobkit.runs.reader import OpenRun, ask_queue, open_run, status_of
from jobkit.runs.status import (
    ENDED,
    ENDINGS,
    SUSPENDED,
    JobStatus,
    PointStanding,
    PointStatus,
    RunStatus,
    count_by_state,
    explain_wait,
    find_point,
    kind_of,
    overdue,
)
from jobkit.runs.tries import Progress, Try, elapsed_s, log_path, progress_of_try
from jobkit.runs.which_run import find_run, glance, is_run, known_runs, remembered, start
from jobkit.schedulers.registry import by_name, choose_scheduler, runs_here
from jobkit.schedulers.types import JobId, Queued, Remedy

Row = tuple[str, ...]  # a cell for each of `COLUMNS`
COLUMNS = (
    Column("point", (), left=True),
    Column("state", (), left=True),
    Column("elapsed", (), rank=1),
    Column("try", (), rank=4),
    Column("node", (), rank=2, left=True),
    Column("GPU", (), rank=3, left=True),
    Column("", (), left=True),
)


def render(run: RunStatus, folder: str, *, width: int, most: int) -> str:
    """Return how a run stands, in lines that end with a newline.

    ``folder`` is as a person types it; of more than ``most`` points a line for each state is printed.
    """
    notices, steps = advice(run, folder)
    lines = [headline(run), *_about(run)]
    lines += ["", *table(_rows(run, most), _gpu(run), width, run.noun)] if run.points else []
    lines += _notes(run, notices)
    lines += next_line(steps[:1])
    return "".join(f"{line}\n" for line in lines)


def headline(run: RunStatus) -> str:
    return f"{run.title}: {count_by_state(run)}"


def _about(run: RunStatus) -> Iterator[str]:
    """Yield what all points share: where they run, on which GPU, the time to go, what pruning saved."""
    working = [sent for sent in run.submissions if sent.role in FOLLOWED | SEARCHES]
    parts: list[str] = []
    for name in run.schedulers:
        jobs = [str(sent.job) for sent in working if sent.scheduler == name and not runs_here(name)]
        parts.append(f"{name} job {format_list(jobs[::-1], 3)}" if jobs else name)
    parts += filter(None, [_gpu(run)])
    if run.to_go_s is not None:
        number = max(1, run.counts[PointStanding.RUNNING])
        at_a_time = f"{number} run{'s' if number == 1 else ''} at a time"
        parts.append(f"about {format_about(run.to_go_s)} to go if {at_a_time}, as now")
    if parts:
        yield ", ".join(map(plain, parts))
    if late := [run.points[place] for place in overdue([point.pace for point in run.points])]:
        names = format_list([point.point.point_id for point in late], 3)
        yield plain(
            f"the end of the run is not known; running longer than other points, without a report: {names}"
        )
    landed = Counter(queue for point in run.points if (queue := point.verdict.queue))
    if len(landed) > 1:
        counts = ", ".join(f"{number:,} in {queue}" for queue, number in landed.most_common())
        yield plain(f"they landed: {counts}")
    if warning := stand_in_warning(run):
        yield plain(warning)
    yield from run.kind.status_lines(run)
    if told := on_end.states(run.folder):
        yield plain("on_end: " + ", ".join(f"{name} {state}" for name, state in told.items()))
    if run.saved is not None:
        gpus, (points, seconds) = run.requested.gpus, run.saved
        time = f"{format_about(seconds * (gpus or 1))} of {'GPU' if gpus else 'job'} time"
        skipped = f"{format_count(points, 'point')} {'was' if points == 1 else 'were'} skipped"
        yield (
            f"pruning saved about {time}: {skipped}, each counted with the time of the smaller load that ran "
            "out of memory, or of another repeat"
        )


def stand_in_warning(run: RunStatus) -> str:
    """Return in a line that the model of a run is a stand-in; empty if it is not."""
    if not run.points:
        order = run.kind.order(run.folder)
        return f"warning: {order.caveat}" if order and order.caveat else ""
    model = run.points[0].point.model
    return model.warning if model else ""


def _gpu(run: RunStatus) -> str:
    """Return the GPU that all points with a GPU share; else nothing.

    The requested type counts as the GPU of a record if the record's name contains it.
    """
    gpus = {gpu for point in run.points if (gpu := run.gpu_of(point))}
    if len(gpus) > 1 and all(run.requested.gpu_type.casefold() in gpu.casefold() for gpu in gpus):
        gpus.discard(run.requested.gpu_type)
    return gpus.pop() if len(gpus) == 1 else ""


def _rows(run: RunStatus, most: int) -> Iterator[Row]:
    """Yield a row a point; of many points a row for each state, with the first point as an example."""
    # How urgent the states of points are: first those that wait for a person
    order = (
        *(PointStanding.STUCK, PointStanding.FAILED, PointStanding.RUNNING, PointStanding.UNSETTLED),
        *(PointStanding.DONE, PointStanding.WAITING, PointStanding.MISSING),
    )
    if len(run.points) > most:
        alike: dict[str, list[PointStatus]] = {}
        for point in sorted(run.points, key=lambda point: (point.cancelled, order.index(point.standing))):
            alike.setdefault(point.state, []).append(point)
        for word, points in alike.items():
            names = f"{'for instance ' if len(points) > 1 else ''}{points[0].point.point_id}"
            words = "" if points[0].standing is PointStanding.DONE else _words(run, points[0])
            example = f"{names}: {words}" if words else ""
            yield format_count(len(points), run.noun), word, "", "", "", "", example
        return
    for point in run.points:
        tries, elapsed_s = len(point.tries), point.elapsed_s
        yield (
            point.point.point_id,
            point.state,
            "" if elapsed_s is None else format_clock(elapsed_s),
            str(tries) if tries > 1 else "",
            point.node or (point.queued.node if point.queued else ""),
            run.gpu_of(point).removeprefix("NVIDIA "),
            _words(run, point),
        )


def _why(run: RunStatus, point: PointStatus) -> str:
    if run.planner and point.standing is PointStanding.MISSING:
        return f"job {run.planner.submission.job} submits it"
    return point.why


def _words(run: RunStatus, point: PointStatus) -> str:
    if point.standing is not PointStanding.RUNNING:
        return _why(run, point).removeprefix("exit file: ").removeprefix("accounting: ")
    far = far_words(point.progress) if point.progress else "no progress is copied home yet"
    return f"{far}; {point.why}" if point.why else far


def far_words(progress: Progress, *, over: bool = False) -> str:
    """Return how far a try is, or how far it came: ``12/40 batches, 24 min to go``."""
    of = f"/{progress.batches_total:,}" if progress.batches_total else ""
    far = f"{progress.batches:,}{of} batch{'es' if of or progress.batches > 1 else ''}"
    return far if over or progress.left_s is None else f"{far}, {format_about(progress.left_s)} to go"


def table(rows: Iterable[Row], alike: str, width: int, noun: str) -> list[str]:
    """Return rows as lines of at most ``width`` columns; an empty column, or a GPU that all share, is out."""
    cells = zip(*(map(plain, row) for row in rows), strict=True)
    *columns, words = [replace(column, cells=shown) for column, shown in zip(COLUMNS, cells, strict=True)]
    columns[0] = replace(columns[0], head=noun)
    columns = [column for column in columns if any(column.cells) and not (alike and column.head == "GPU")]
    # The least width of the last column; other columns are left out before it is narrower
    room = width - min(32, max(map(len, words.cells), default=0)) - GAP
    return [cut(line, width) for line in blocks.table([*fit_columns(columns, room), words], rule=False)]


def cut(text: str, width: int) -> str:
    """Return a line no longer than ``width``, with a mark if something is left out.

    No word is cut but a long one, such as a path; and no number is left without its unit.
    """
    if len(text) <= width:
        return text
    words, _, part = text[:width].rpartition(" ")
    kept = words if words and len(part) < 16 else text[: width - 1]
    return f"{re.sub(r' [0-9.,]+$', '', kept.rstrip()).rstrip()}…"


def plain(text: str) -> str:
    """Return text as one line that a terminal shows and does not obey."""
    return printable(" ".join(text.split()))


def _notes(run: RunStatus, notices: Sequence[str]) -> list[str]:
    jobs = [line for job in run.jobs if (line := job_line(run, job))]
    notes = list(run.notes[:5])
    more = len(run.notes) - len(notes)
    notes += [f"and {more} more notes"] if more > 0 else []
    # A row cuts the reason why results are not home, and with it the folder that has them.
    failed = [point for point in run.points if point.state == Outcome.STAGE_OUT]
    reasons = dict.fromkeys(point.why.removeprefix("exit file: ") for point in failed)
    kept = [f"{Outcome.STAGE_OUT}: {reason}" for reason in list(reasons)[:5]]
    lines = [plain(line) for line in (*notices, *jobs, *kept, *notes)]
    return ["", *lines] if lines else []


def job_line(run: RunStatus, job: JobStatus) -> str:
    """Return how a job that waits for the points stands; empty if its scheduler does not answer.

    Of several ended jobs of a role, only the last has a line.
    """
    sent, plans, blocked = job.submission, job.submission.role in PLANNERS, any(p.blocked for p in run.points)
    begins, idle = f"begins when the {run.noun}s have ended", is_idle(run, job)
    ended, failed = job.state == ENDED, any(point.failed for point in run.points)
    if plans and run.points and job.state != PointStanding.STUCK:
        return ""
    if sent.role is Role.FOLLOW:  # it needs no person if it waits, runs, or is over
        waits = job.state == PointStanding.WAITING and not blocked and not idle
        if waits or job.state == PointStanding.RUNNING or (ended and not failed):
            return ""
    stands: dict[str, str] = {
        PointStanding.RUNNING: "is running",
        PointStanding.STUCK: f"is stuck: {job.why}",
        PointStanding.UNSETTLED: "has left the queue; how it ended is not known yet",
    }
    if ended:
        last = [other for other in run.jobs if other.submission.role is sent.role][-1]
        words = f"has ended ({job.why})" if job is last else ""
    elif sent.scheduler in run.silent:
        words = ""
    elif job.state in stands:
        words = stands[job.state]
    elif plans:
        words = f"waits: {job.why}" if job.why else "waits"
    elif blocked:
        words = f"{begins}, so a person must release them first"
    else:
        words = f"waits though the {run.noun}s have ended: {job.why}" if idle else begins
    return words and f"job {sent.job}, which {PURPOSES[sent.role]}, {words}"


def next_line(listed: Sequence[Step]) -> list[str]:
    """Return the first of some steps as what to type next; before it what else changes the run."""
    if not listed:
        return []
    first, *others = listed
    changes = [step for step in others if step.kind not in HARMLESS]
    after = [f"{plain(step.does)}: {plain(step.command)}" for step in changes]
    return ["", *after, terminal.next_line(plain(first.command), plain(first.does))]


def render_point(run: RunStatus, point: PointStatus, folder: str) -> str:
    """Return all about a point, in lines that end with a newline; ``folder`` is as a person types it."""
    of, noun = point.point, point.point.kind.noun
    knobs = [f"{name} {value}" for name, value in of.params.items()]
    knobs += [] if of.kind.replanned else [f"repeat {of.repeat}"]
    lines = [
        f"{plain(of.point_id)}: {noun} {of.index} of {len(run.points)} of {plain(run.title)}",
        ", ".join(knobs),
        plain(f"{point.state}: {words}" if (words := _why(run, point)) else point.state),
    ]
    for tried in listed_tries(point):
        lines += ["", *_describe_try(run, point, tried)]
    lines += next_line(next_steps(run, point, folder))
    return "".join(f"{line}\n" for line in lines)


def listed_tries(point: PointStatus) -> tuple[Try, ...]:
    """Return the tries of a point, the latest first, tasks that left none included as number 0."""
    waits = () if point.verdict.number else (point.verdict,)
    begun = sorted((*point.tries, *point.by_hand), key=lambda tried: -tried.number)
    return (*waits, *begun, *reversed(point.vanished))


def log_of(run: RunStatus, point: PointStatus, tried: Try) -> str:
    path = log_path(run.folder, point.point, tried.task)
    return str(path) if path is not None and path.is_file() else ""


def _describe_try(run: RunStatus, point: PointStatus, tried: Try) -> Iterator[str]:
    """Yield what is known of a try, source by source, the most trusted first."""
    title = f"try {tried.number}" if tried.number else "no try"
    if tried.by_hand:
        title += ", by hand (it counts only while no other try has begun)"
    provisional = " (provisional)" if tried.provisional else ""
    decided = point.standing in ENDINGS and tried.outcome is None  # by another try
    yield f"{title}: {tried.outcome or ('no outcome' if decided else point.state)}{provisional}"
    over = point.standing is not PointStanding.RUNNING or tried.outcome is not None
    progress = progress_of_try(tried)
    below = tried.folder.removeprefix(f"{run.folder}/")
    fields = {
        "because": f"another try decided the {point.point.kind.noun}" if decided else tried.evidence,
        "ran": _ran(tried, elapsed_s(tried)),
        "queue": tried.queue if "," in run.requested.queue else "",
        "batches": far_words(progress, over=over) if progress else "",
        **_source(tried),
        "kept in": f"{tried.exit.kept} on that node's scratch" if tried.exit and tried.exit.scratch else "",
        "log": log_of(run, point, tried).removeprefix(f"{run.folder}/"),
        "files": f"{below}/ {' '.join(sorted(names(tried.folder)))}" if below else "",
    }
    yield from (f"  {name.ljust(12)}{plain(text)}" for name, text in fields.items() if text)


def _ran(tried: Try, elapsed_s: float | None) -> str:
    """Return where, as what, when and how long a try ran."""
    task, begin, record = tried.task, tried.begin, tried.record
    parts = [f"{task.scheduler} job {task.job_id}, task {task.task}"] if task else []
    parts += [f"round {begin.round}"] if task and begin and begin.round > 1 else []
    restart = tried.restart
    parts += [f"started again {format_count(restart, 'time')}"] if task and restart else []
    parts += [f"on {tried.node}"] if tried.node else []
    began = moment(record.started_at if record else begin.at if begin else "")
    parts += [f"from {began:%Y-%m-%d %H:%M:%S}"] if began else []
    parts += [f"for {format_clock(elapsed_s)}"] if elapsed_s is not None else []
    return ", ".join(parts)


def _source(tried: Try) -> dict[str, str]:
    """Return what record, exit file and accounting of a try report."""
    record, exit_, account = tried.record, tried.exit, tried.account
    words: dict[str, list[str]] = {"record": [tried.problem or "not in the run folder" * bool(tried.number)]}
    if record is not None:
        words["record"] = [str(record.outcome), record.message]
        words["record"] += [f"signal {record.signal}"] if record.signal else []
        words["record"] += [f"on {record.gpu.name}"] if record.gpu else []
        words["record"] += record.notes
    if exit_ is not None:
        where = f"status {exit_.status} in step {exit_.stage or 'unknown'}"
        words["exit file"] = [where, str(exit_.outcome or ""), exit_.message]
        words["exit file"] += [f"signal {exit_.signal}"] if exit_.signal else []
    if account is not None:
        words["accounting"] = [account.evidence or "no words"]
        words["accounting"] += [] if account.exit_status is None else [f"exit status {account.exit_status}"]
        if account.max_rss_bytes:
            words["accounting"].append(f"at most {format_bytes_gib(account.max_rss_bytes)} resident")
    return {name: "; ".join(filter(None, parts)) for name, parts in words.items()}


def next_steps(run: RunStatus, point: PointStatus, folder: str) -> Sequence[Step]:
    """Return what to type next for a point: what releases it or runs it again, and its log."""
    typed, index = shell_quote(folder), point.point.index
    follow = " -f" * (point.standing is PointStanding.RUNNING)
    log = Step(f"jobkit logs {typed} {index}{follow}", "prints its log", FixKind.LOG)
    found: list[Step] = []
    if point.standing is PointStanding.MISSING and not run.planner:
        found.append(Step(f"jobkit resume {typed} {index}", "runs it"))
    elif point.standing in {PointStanding.STUCK, PointStanding.WAITING}:
        found += releases(run, [point], typed)
    elif point.failed and is_limited(point):
        needs = needed_by(run, [point])
        words = " ".join(need.option for need in needs)
        because = "; ".join(need.because for need in needs)
        found.append(Step(f"jobkit resume {typed} {index} {words}", because, FixKind.FIX))
    elif point.standing in ENDINGS:
        outcome = point.outcome or Outcome.LOST
        found += remedy(outcome, point.verdict.evidence, run=typed, point=point.point, alone=True)
    listed = [step for step in found if point.tries or step.kind is not FixKind.LOG]
    if point.tries and log.command not in {step.command for step in listed}:
        listed.append(log)
    return [step for step in listed if run.mine or step.kind in HARMLESS]


Json = dict[str, object]


def run_json(run: RunStatus, folder: str) -> Json:
    notices, steps = advice(run, folder)
    states = Counter(point.standing for point in run.points)
    return {
        "run": run.name,
        "folder": str(run.folder),
        **described(run.points[0].point.model if run.points else None),
        "schedulers": run.schedulers,
        "silent": list(run.silent),
        "exit_code": run.exit_code,
        "standings": {str(state): states[state] for state in PointStanding},
        "to_go_s": _finite(run.to_go_s),
        "saved_s": _finite(run.saved[1] if run.saved else None),
        "gpus": run.requested.gpus,
        **run.kind.status_data(run),
        "points": [point_json(run, point) for point in run.points],
        "jobs": [
            {
                "role": str(job.submission.role),
                "round": job.submission.round,
                "scheduler": job.submission.scheduler,
                "job": job.submission.job.id,
                "state": job.state,
                "why": job.why,
            }
            for job in run.jobs
        ],
        "on_end": on_end.states(run.folder),
        "notices": notices,
        "next": [{"command": step.command, "does": step.does} for step in steps],
        "notes": list(run.notes),
    }


def point_json(run: RunStatus, point: PointStatus, *, with_tries: bool = False) -> Json:
    fields: Json = {
        "index": point.point.index,
        "point": point.point.point_id,
        "params": dict(point.point.params),
        "repeat": point.point.repeat,
        "state": point.state,
        "standing": str(point.standing),
        "outcome": point.outcome,
        "provisional": point.verdict.provisional,
        "evidence": point.verdict.evidence,
        "why": _why(run, point),
        **_task(point.task),
        "start_at": point.queued.start_at or None if point.queued else None,
        "node": point.node or (point.queued.node if point.queued else "") or None,
        "gpu": run.gpu_of(point) or None,
        "tries": len(point.tries),
        "elapsed_s": _finite(point.elapsed_s),
        **_progress(point.progress),
    }
    tries = listed_tries(point) if with_tries else ()
    return {**fields, "all_tries": [_try(run, point, tried) for tried in tries]} if tries else fields


def _task(task: JobTask | None) -> Json:
    fields = {"scheduler": "scheduler", "job": "job_id", "task": "task"}
    return {key: getattr(task, name, None) for key, name in fields.items()}


def _progress(progress: Progress | None) -> Json:
    fields = ("batches", "batches_total", "characters", "characters_total")
    far = {name: getattr(progress, name, None) for name in fields}
    return {**far, "left_s": _finite(progress.left_s) if progress else None}


def _try(run: RunStatus, point: PointStatus, tried: Try) -> Json:
    return {
        "try": tried.number,
        "outcome": tried.outcome,
        "provisional": tried.provisional,
        "evidence": tried.evidence,
        **_task(tried.task),
        "node": tried.node or None,
        "elapsed_s": _finite(elapsed_s(tried)),
        **_progress(progress_of_try(tried)),
        "exit_status": tried.exit.status if tried.exit else None,
        "stage": tried.exit.stage if tried.exit else None,
        "message": tried.exit.message if tried.exit else None,
        "scratch": tried.exit.scratch or None if tried.exit else None,
        "accounting": tried.account.evidence if tried.account else None,
        "log": log_of(run, point, tried) or None,
        "folder": tried.folder or None,
        "files": sorted(names(tried.folder)) if tried.folder else [],
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


SCHEMA = 1


def text(
    statuses: Sequence[RunStatus], runs: Sequence[Path], points: Sequence[str], *, width: int, most: int
) -> str:
    """Return runs, or points of one by number or id, as printed.

    The folders are as a person types them; of more than ``most`` points a line for each state is printed.
    """
    if points:
        (run,), (folder,) = statuses, runs
        named = [find_point(run.points, word) for word in points]
        return "\n".join(render_point(run, point, str(folder)) for point in named)
    heads = "".join(f"{headline(run)}\n" for run in statuses) + "\n" if len(statuses) > 1 else ""
    pairs = zip(statuses, runs, strict=True)
    return heads + "\n".join(render(run, str(folder), width=width, most=most) for run, folder in pairs)


def others(runs: Sequence[Path]) -> str:
    """Return the other runs of a folder, a line each, the latest first; empty if there are none."""
    if not runs:
        return ""
    longest = max(len(str(run)) for run in runs[:10])
    lines = []
    for run in runs[:10]:
        points, begun = glance(run)
        words = "all begun" if begun == points > 1 else f"{begun:,} begun"
        counted = format_count(points, kind_of(run).noun)
        lines.append(f"  {plain(str(run)).ljust(longest)}  {counted}, {words}")
    older = len(runs) - len(lines)
    lines += [f"  and {older:,} older runs"] if older else []
    return "".join(f"{line}\n" for line in ["", "other runs", *lines])


def as_json(
    statuses: Sequence[RunStatus],
    runs: Sequence[Path],
    points: Sequence[str],
    others: Sequence[Path] = (),
) -> str:
    """Return runs or points as JSON on one line; docs/commands.md lists the keys."""
    data: dict[str, object] = {"schema": SCHEMA, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    if points:
        (run,) = statuses
        named = [find_point(run.points, word) for word in points]
        data |= {"run": run.name, "points": [point_json(run, point, with_tries=True) for point in named]}
    else:
        data["runs"] = [run_json(run, str(folder)) for run, folder in zip(statuses, runs, strict=True)]
        data["others"] = [
            {"run": run.name, "folder": str(run), "points": points, "begun": begun}
            for run, (points, begun) in zip(others, map(glance, others), strict=True)
        ]
    return terminal.as_json(data)


def read_list(most: int) -> dict[str, Any]:
    """Return the latest runs, as JSON: those that jobkit remembers, and those in the folder for runs."""
    opened: list[OpenRun] = []
    notes = [_left_out(run, "no longer exists, or cannot be read") for run in remembered() if not is_run(run)]
    latest = [run.absolute() for run in known_runs()]
    for folder in latest[:most]:
        try:
            opened.append(open_run(folder))
        except (OSError, JobkitError) as error:
            notes.append(_left_out(folder, getattr(error, "message", str(error))))
    return {
        "schema": SCHEMA,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": [
            {
                "run": _listed_name(run.folder),
                "folder": str(run.folder),
                "state": count_by_state(run),
                "exit_code": run.exit_code,
                "age_s": max(0.0, (run.now - start(run.folder)).total_seconds()),
            }
            for run in status_of(opened)
        ],
        "older": max(0, len(latest) - most),
        "notes": notes,
    }


def _listed_name(folder: Path) -> str:
    """Return the name of a run as every command takes it, else its path."""
    try:
        found = find_run(folder.name)
    except JobkitError:  # several runs have this name
        found = None
    return folder.name if found and found.absolute() == folder else str(folder)


def _left_out(folder: Path, reason: str) -> str:
    return f"left out: {relative_path(folder)}: {reason.removeprefix(f'{folder}: ')}"


def list_text(listed: Mapping[str, Any], width: int) -> str:
    """Return the list as printed: a line for each run, then what is not in it."""
    runs, notes = listed["runs"], listed["notes"]
    columns = [
        Column("run", [run["run"] for run in runs], left=True),
        Column("age", [format_about(run["age_s"]) for run in runs]),
        Column("state", [run["state"] for run in runs], left=True),
    ]
    lines = [cut(line, width) for line in blocks.table(columns, rule=False)] if runs else ["no runs yet"]
    lines += [f"and {listed['older']:,} older runs: --all lists them"] if listed["older"] else []
    lines += notes[:3]
    more = len(notes) - 3
    lines += [f"left out: {format_count(more, 'more folder')}"] if more > 0 else []
    return "".join(f"{line}\n" for line in lines)


def job_text(number: str) -> str | None:
    """Return the state of a job and why it waits; empty if it is in no queue, ``None`` without an answer."""
    scheduler = by_name(choose_scheduler("auto")[0])
    queue = None if scheduler.RUNS_HERE else ask_queue(scheduler, (JobId(number),), ())
    if queue is None:
        return None
    alike: dict[tuple[str, str], list[Queued]] = {}
    for task in queue:
        alike.setdefault((task.state, task.reason), []).append(task)
    lines = []
    for tasks in alike.values():
        array = tuple(task.task for task in tasks if task.task)
        way_out = scheduler.remedy(JobId(number), array, tasks[0]) or Remedy()
        what = f"job {number}" if len(tasks) == 1 else f"{len(tasks):,} tasks of job {number}"
        why = f": {words}" if (words := explain_wait(scheduler.NAME, tasks[0], datetime.now(UTC))) else ""
        state = SUSPENDED if tasks[0].suspended else tasks[0].state
        key = f"; it needs another {way_out.key.removeprefix('resources.')}" if way_out.key else ""
        lines.append(f"{scheduler.NAME} {what} ({tasks[0].name}): {state}{why}{key}")
        lines += [terminal.next_line(shlex.join(way_out.argv))] if way_out.argv else []
        lines += [f"an administrator types: {shlex.join(way_out.admin_argv)}"] if way_out.admin_argv else []
    return "\n".join(lines)
