"""One point as text: all its tries, with every source of their outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobkit.core.job_files import Exit
from jobkit.core.layout import names
from jobkit.core.records import Outcome
from jobkit.core.terminal import shell_quote
from jobkit.core.units import format_bytes_gib, format_clock, format_count, moment
from jobkit.outcome.remedies import Kind, Step, remedy
from jobkit.outcome.tries import TryResult, log_path
from jobkit.schedulers.types import Accounted
from jobkit.status.advice import HARMLESS, releases
from jobkit.status.needs import is_limited, needed_by, progress_of_try
from jobkit.status.standing import ENDINGS, PointStanding, RunStanding, Standing
from jobkit.status.table import far_words, next_line, plain

MARGIN = 12


def render_point(run: RunStanding, point: PointStanding, folder: str) -> str:
    """Return all about a point, in lines that end with a newline.

    Parameters
    ----------
    folder
        The run folder as a person types it.
    """
    of, noun = point.point, point.point.noun
    knobs = [f"{name} {value}" for name, value in of.params.items()]
    knobs += [] if of.shard else [f"repeat {of.repeat}"]
    lines = [
        f"{plain(of.point_id)}: {noun} {of.index} of {len(run.points)} of {plain(run.title)}",
        ", ".join(knobs),
        plain(f"{point.state}: {point.why}" if point.why else point.state),
    ]
    for tried in listed_tries(point):
        lines += ["", *_describe_try(run, point, tried)]
    lines += next_line(next_steps(run, point, folder))
    return "".join(f"{line}\n" for line in lines)


def listed_tries(point: PointStanding) -> tuple[TryResult, ...]:
    """Return the tries of a point, the latest first, tasks that left none included as number 0."""
    waits = () if point.counts.files.number else (point.counts,)
    begun = sorted((*point.tries, *point.by_hand), key=lambda tried: -tried.files.number)
    return (*waits, *begun, *reversed(point.vanished))


def log_of(run: RunStanding, point: PointStanding, tried: TryResult) -> str:
    """Return the log of a try; empty if there is none."""
    path = log_path(run.folder, point.point, tried.task)
    return str(path) if path is not None and path.is_file() else ""


def _describe_try(run: RunStanding, point: PointStanding, tried: TryResult) -> Iterator[str]:
    """Yield what is known of a try, source by source, the most trusted first.

    A try without an outcome is the latest: it stands where its point does.
    """
    files, verdict = tried.files, tried.verdict
    title = f"try {files.number}" if files.number else "no try"
    if files.by_hand:
        title += ", by hand (it counts only while no other try has begun)"
    provisional = " (provisional)" if verdict.provisional else ""
    decided = point.standing in ENDINGS and verdict.outcome is None  # by another try
    yield f"{title}: {verdict.outcome or ('no outcome' if decided else point.state)}{provisional}"
    over = point.standing is not Standing.RUNNING or verdict.outcome is not None
    progress = progress_of_try(tried)
    below = files.folder.removeprefix(f"{run.folder}/")
    fields = {
        "because": f"another try decided the {point.point.noun}" if decided else verdict.evidence,
        "ran": _ran(tried, point.elapsed_of(tried)),
        "batches": far_words(progress, over=over) if progress else "",
        "record": _record(tried),
        "exit file": _exit(files.exit) if files.exit else "",
        "accounting": _account(tried.account) if tried.account else "",
        "kept in": f"{files.exit.kept} on that node's scratch" if files.exit and files.exit.scratch else "",
        "log": log_of(run, point, tried).removeprefix(f"{run.folder}/"),
        "files": f"{below}/ {' '.join(sorted(names(files.folder)))}" if below else "",
    }
    yield from (f"  {name.ljust(MARGIN)}{plain(text)}" for name, text in fields.items() if text)


def _ran(tried: TryResult, elapsed_s: float | None) -> str:
    """Return where, as what, when and how long a try ran."""
    task, begin, record = tried.task, tried.files.begin, tried.files.record
    parts = [f"{task.scheduler} job {task.job_id}, task {task.task}"] if task else []
    parts += [f"round {begin.round}"] if task and begin and begin.round > 1 else []
    restart = tried.files.restart
    parts += [f"started again {format_count(restart, 'time')}"] if task and restart else []
    parts += [f"on {tried.node}"] if tried.node else []
    began = moment(record.started_at if record else begin.at if begin else "")
    parts += [f"from {began:%Y-%m-%d %H:%M:%S}"] if began else []
    parts += [f"for {format_clock(elapsed_s)}"] if elapsed_s is not None else []
    return ", ".join(parts)


def _record(tried: TryResult) -> str:
    record = tried.files.record
    if record is None:
        return tried.files.problem or ("not in the run folder" if tried.files.number else "")
    words = [str(record.outcome), record.message, f"signal {record.signal}" if record.signal else ""]
    words += [f"on {record.gpu.name}"] if record.gpu else []
    return "; ".join(filter(None, words))


def _exit(exit_: Exit) -> str:
    where = f"status {exit_.status} in step {exit_.stage or 'unknown'}"
    signal = f"signal {exit_.signal}" if exit_.signal else ""
    return "; ".join(filter(None, [where, str(exit_.outcome or ""), exit_.message, signal]))


def _account(account: Accounted) -> str:
    words = [account.evidence or "no words"]
    words += [] if account.exit_status is None else [f"exit status {account.exit_status}"]
    if account.max_rss_bytes:
        words.append(f"at most {format_bytes_gib(account.max_rss_bytes)} resident")
    return "; ".join(words)


def next_steps(run: RunStanding, point: PointStanding, folder: str) -> Sequence[Step]:
    """Return what to type next for a point: what releases it or runs it again, and its log."""
    typed, index = shell_quote(folder), point.point.index
    follow = " -f" * (point.standing is Standing.RUNNING)
    log = Step(f"jobkit logs {typed} {index}{follow}", "prints its log", Kind.LOG)
    found: list[Step] = []
    if point.standing is Standing.MISSING:
        found.append(Step(f"jobkit resume {typed} {index}", "runs it"))
    elif point.standing in {Standing.STUCK, Standing.WAITING}:
        found += releases(run, [point], typed)
    elif point.standing is Standing.FAILED and is_limited(point):
        does = needed_by(run, [point])
        words = " ".join(need.option for need in does)
        because = "; ".join(need.because for need in does)
        found.append(Step(f"jobkit resume {typed} {index} {words}", because, Kind.FIX))
    elif point.standing in {Standing.FAILED, Standing.DONE}:
        outcome = point.outcome or Outcome.LOST
        found += remedy(outcome, point.verdict.evidence, run=typed, point=index, alone=True)
    listed = [step for step in found if point.tries or step.kind is not Kind.LOG]
    if point.tries and log.command not in {step.command for step in listed}:
        listed.append(log)
    return [step for step in listed if run.mine or step.kind in HARMLESS]
