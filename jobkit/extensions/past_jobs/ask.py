"""Asks an accounting about past jobs, or reads an export of one."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import IO

from jobkit.core import shell
from jobkit.core.errors import JobkitError, UnknownError
from jobkit.core.files import write_atomically
from jobkit.core.frozen import frozen
from jobkit.core.paths import accounting_folder, is_user, user_name
from jobkit.core.units import format_list
from jobkit.extensions.past_jobs.groups import History
from jobkit.schedulers.protocol import PastJob, PastJobs, Whose, without_impossible
from jobkit.schedulers.registry import SCHEDULERS, choose_scheduler, past_of, query_environment, runs_here

JOB_ID = re.compile(
    r"""
    \d+                             # 4711
    (?:
        [_.+] \d+                   # a task, 4711_3 or 4711.3, or a part, 4711+1
        | [_.]? \[ [\d,:%-]* \]     # tasks, 4711_[1-3]
        | [_.] \d+ - [\d:-]+        # tasks, 4711.1-3:1
    )?
    (?: \. (?: \d+ | batch | extern | interactive ) )?  # a step, 4711.batch
    """,
    re.VERBOSE,
)
"""How people type a job."""


def whole_job(id_: str) -> str:
    """Return the job to which a task, tasks, a part or a step belongs."""
    return re.split(r"[_.+\[]", id_)[0]


def _sought(id_: str) -> str:
    """Return the id to look for: of tasks that of their job, for which the accounting returns only them."""
    return whole_job(id_) if re.search(r"[\[-]", id_) else id_


def ask(
    whose: Whose,
    *,
    since: date | None = None,
    name: str = "*",
    scheduler: str = "auto",
    file: Path | None = None,
    hide: bool = False,
    sampled_s: int | None = None,
) -> History:
    """Return past jobs: those of the ids as a person types them, else those that fit the rest.

    ``since``: the first day; without ids and a file it is needed.
    ``name``: A pattern that their names match.
    ``scheduler``: whose accounting; ``auto`` for the first that is here.
    ``file``: what ``sacct --parsable2`` or ``qacct`` have printed, to read in place of an accounting.
    ``hide``: have a hash in place of the name of each user.
    ``sampled_s``: how often the site samples memory, if its configuration is not there to say so.
    """
    export = _export(file) if file else None
    scheduler = export.scheduler if export else _with_accounting(scheduler)
    past = past_of(scheduler)
    today = date.today()  # noqa: DTZ011 - the cluster's day
    if since and since > today and not export and not whose.ids:
        hint = f"today is {today}; --since 30d goes back from it"
        raise JobkitError(f"since {since}: no job has ended on a day to come", hint=hint)
    frequency = f"JobAcctGatherFrequency={sampled_s}\n" if sampled_s else ""
    ids = tuple(map(_sought, whose.ids))
    hashed = hasher() if hide else None
    found = History(scheduler)
    found.named = name if name != "*" else ""
    keys = (("user", whose.user), ("account", whose.account), ("queue", whose.queue))
    if export:
        wanted = _Wanted(ids, found.named, tuple((key, value) for key, value in keys if value))
        found.notes, jobs = past.how_measured(frequency), _of_file(past, export.lines, since, frequency)
    else:
        wanted = _Wanted(ids, found.named)
        found.notes, jobs = _asked(past, scheduler, whose, since or today, frequency)
    _take(found, jobs, wanted, hashed)
    if not found.jobs:
        message, hint = _nothing(found, past, replace(whose, ids=ids), None if export else since, name)
        raise JobkitError(message, hint=hint)
    return found


def _with_accounting(scheduler: str) -> str:
    """Return the scheduler whose accounting is asked."""
    scheduler, why = choose_scheduler(scheduler)
    if runs_here(scheduler):
        message = f"no accounting to ask about jobs: {why}"
        hint = "type it on a login node of the cluster, or read an export: --from FILE"
        raise JobkitError(message, hint=hint)
    return scheduler


@frozen
class _Wanted:
    """Which jobs of an answer are wanted."""

    ids: tuple[str, ...]
    name: str  # the pattern; empty for any
    values: tuple[tuple[str, str], ...] = ()  # by field of `PastJob`; an accounting has chosen by them

    def named(self, job: PastJob) -> set[str]:
        """Return the ids that name the job, its array, or its heterogeneous job."""
        return {job.job_id, whole_job(job.job_id)}.intersection(self.ids) if self.ids else set()

    def has(self, job: PastJob, named: set[str]) -> bool:
        chosen = bool(named) if self.ids else not job.follows
        if not chosen:
            return False
        if self.name and self.name != job.name and not fnmatchcase(job.name, self.name):
            return False
        return all(value in getattr(job, key).split(",") for key, value in self.values)


class _Unended:
    """The jobs that have not ended so far, and their earlier runs."""

    def __init__(self) -> None:
        self.running: dict[str, None] = {}
        self._earlier: dict[str, list[PastJob]] = {}

    def ended_runs(self, job: PastJob) -> list[PastJob]:
        """Return all runs of a job if this is its last; if not, remember this."""
        if job.ended:
            self.running.pop(job.job_id, None)
            earlier = self._earlier.pop(job.job_id, [])
            return [*earlier, job] if job.began else earlier  # a requeued job may be cancelled as it waits
        if not job.again:
            self.running[job.job_id] = None
        elif job.began:
            self._earlier.setdefault(job.job_id, []).append(job)
        return []


def _take(
    found: History, jobs: Iterable[PastJob], wanted: _Wanted, hashed: Callable[[str], str] | None
) -> None:
    """Add the wanted jobs that have ended, one by one, and note which have not and which are not there."""
    seen, unended = set[str](), _Unended()
    for job in map(without_impossible, jobs):
        found.saw_gpu(job)
        named = wanted.named(job)
        seen |= named
        if not wanted.has(job, named):
            continue
        if hashed:
            job.user = hashed(job.user)
        for run in unended.ended_runs(job):
            found.add(run)
    found.running = list(unended.running)
    found.unknown = [id_ for id_ in wanted.ids if id_ not in seen]


def hasher() -> Callable[[str], str]:
    """Return what hashes names with a key of this user's own: the same name gives the same hash."""
    folder = accounting_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / "hash-key").exists():
        write_atomically(folder / "hash-key", secrets.token_hex(32))
    key = (folder / "hash-key").read_bytes()
    return lambda name: f"u-{hmac.new(key, name.encode(), hashlib.sha256).hexdigest()[:8]}"


@frozen
class _Export:
    """What the command of a scheduler has written."""

    scheduler: str
    lines: Iterator[str]


def _export(path: Path) -> _Export:
    """Open a file, once, as a pipe needs it; the first line shows whose command has written it."""
    hint = "on Slurm sacct -P --format=ALL -S now-30days > FILE, on Grid Engine qacct -d 30 -j > FILE"
    lines = _lines(path)
    try:
        first = next(filter(str.strip, lines), "")
    except OSError as error:
        raise JobkitError(f"{path}: {error.strerror}", hint=hint) from None
    for name in SCHEDULERS:
        if not runs_here(name) and past_of(name).EXPORT.match(first):
            return _Export(name, chain((first,), lines))
    raise JobkitError(f"{path}: neither the header of sacct nor a record of qacct", hint=hint)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as stream:
        yield from stream


def _of_file(past: PastJobs, lines: Iterable[str], since: date | None, site: str) -> Iterator[PastJob]:
    low = f"{since}" if since else ""
    return (job for job in past.read(lines, site) if not job.over or job.over >= low)


def _asked(
    past: PastJobs, scheduler: str, whose: Whose, since: date, site: str
) -> tuple[tuple[str, ...], Iterator[PastJob]]:
    """Return how the site measures memory, and the jobs, by one command a day where that is offered."""
    environment = query_environment(SCHEDULERS[scheduler])
    site += "".join(shell.run(argv, env=environment).stdout for argv in past.site_argvs(whose))
    now = datetime.now().astimezone()
    days = [since + timedelta(days=number) for number in range((now.date() - since).days + 1)]
    commands = past.argvs(whose, days, site)
    accounting = _Accounting(past, environment, site)
    if whose.ids or len(commands) != len(days):
        return past.how_measured(site), chain.from_iterable(map(accounting.jobs, commands))
    return past.how_measured(site), accounting.jobs_by_day(days, commands, now)


_LATER = "~"
"""Sorts behind each time: when a job ends that has not ended."""


@frozen
class _Day:
    """A day: its answer has each job that was there on it, of which those count that ended on it."""

    low: str
    high: str  # `low`, `high`: the jobs that ended between these times count
    complete: bool  # whether the answer will stay the same

    def has(self, job: PastJob) -> bool:
        return self.low <= (job.over or _LATER) <= self.high


def _days(days: Sequence[date], now: datetime) -> Iterator[_Day]:
    """Yield the days; the first has also what ended before, the last what has not ended."""
    over = (now - timedelta(hours=1)).date()
    for day in days:
        low = "" if day == days[0] else str(day)
        yield _Day(low, _LATER if day == now.date() else f"{day}{_LATER}", complete=day < over)


@frozen
class _Accounting:
    """An accounting that answers commands."""

    past: PastJobs
    environment: Mapping[str, str]
    site: str

    def jobs(self, argv: tuple[str, ...], kept: Path | None = None) -> Iterator[PastJob]:
        """Yield the jobs of an answer, which may be kept in a file."""
        with _kept(kept) if kept and kept.exists() else self._fresh(argv, kept) as lines:
            yield from self.past.read(lines, self.site)

    def jobs_by_day(
        self, days: Sequence[date], commands: Sequence[tuple[str, ...]], now: datetime
    ) -> Iterator[PastJob]:
        """Yield the jobs of each day; the answer for one that is over is kept, not to be found again."""
        names = re.findall(r"^(?:ClusterName|SlurmctldHost\S*)\s*=\s*(\S+)", self.site, re.MULTILINE)
        cluster = " ".join(names)
        for first, day, argv in zip(days, _days(days, now), commands, strict=True):
            kept = _place(cluster, first, argv) if cluster and day.complete else None
            yield from filter(day.has, self.jobs(argv, kept))

    @contextmanager
    def _fresh(self, argv: tuple[str, ...], kept: Path | None) -> Iterator[IO[str]]:
        """Yield the lines of a new answer, which waits in a file: it may be larger than the memory."""
        with tempfile.TemporaryFile("w+", encoding="utf-8") as stream:
            begun = time.monotonic()
            answer = shell.run_streaming(argv, stream.write, text="", env=self.environment)
            if kept:  # more calls follow: slurmdbd rests as long as it worked (sacct(1), PERFORMANCE)
                time.sleep(min(5.0, time.monotonic() - begun))
            if refusal := self.past.refusal(answer):
                message = f"{self.past.ACCOUNTING} does not answer: {' '.join(refusal.split())}"
                other = "--scheduler NAME another; jobkit waste RUN reads a run's records"
                raise UnknownError(message, hint=f"--days N asks for less, {other}")
            if kept:
                _keep(stream, kept)
            stream.seek(0)
            yield stream


def _place(cluster: str, day: date, argv: tuple[str, ...]) -> Path:
    """Return the file for the answer to a command; the delimiter differs from call to call."""
    words = [word for word in argv if not word.startswith("--delimiter")]
    name = hashlib.sha256("\n".join((cluster, *words)).encode()).hexdigest()[:16]
    return accounting_folder() / f"{day}-{name}.gz"


def _kept(path: Path) -> AbstractContextManager[IO[str]]:
    return gzip.open(path, "rt", encoding="utf-8")


def _keep(stream: IO[str], path: Path) -> None:
    """Keep an answer; a full home keeps none."""
    whole = path.with_suffix(f".{secrets.token_hex(4)}")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        stream.seek(0)
        try:
            with gzip.open(whole, "wt", 3, "utf-8") as zipped:
                zipped.writelines(stream)
            whole.replace(path)
        finally:
            whole.unlink(missing_ok=True)


def _nothing(found: History, past: PastJobs, whose: Whose, since: date | None, name: str) -> tuple[str, str]:
    """Return why no job can be judged, and what to type."""
    if found.running:
        return _not_ended(found)
    if whose.ids:
        return _none_of(whose.ids, found.unknown, past.ACCOUNTING)
    if since and not is_user(whose.user or user_name()):
        return f"this system has no user {whose.user}", "--all lists the jobs of all users"
    return _none_fits(whose.user, since, name)


def _not_ended(found: History) -> tuple[str, str]:
    more = f"; not in the accounting: {', '.join(found.unknown)}" if found.unknown else ""
    what = f"{format_list(found.running)}: not ended yet, so what it used is not known{more}"
    return what, "type the command again when the job has ended"


def _none_of(ids: Sequence[str], unknown: Sequence[str], accounting: str) -> tuple[str, str]:
    what, mine = format_list(ids), "jobkit waste --mine --days 30 lists yours"
    if parts := [id_ for id_ in unknown if not id_.isdecimal()]:
        hint = f"of the whole job: jobkit waste {' '.join(map(whole_job, parts))}"
        return f"{what}: {accounting} has no job or task of this name", hint
    if unknown:
        return f"{what}: {accounting} has no such job", f"was the job on this cluster? {mine}"
    return f"{what}: it never began, so it used nothing", mine


def _none_fits(user: str, since: date | None, name: str) -> tuple[str, str]:
    of_user = f"of {'yours' if user == user_name() else user}" if user else "that is asked for"
    which = "" if name == "*" else f" called {name!r}"
    when = f"has ended since {since}" if since else "is in the file"
    wider = "" if "*" in name else f"; what begins so: --name {shlex.quote(name + '*')}"
    hint = f"look further back: --since 90d; upper and lower case differ in a name{wider}"
    return f"no job {of_user}{which} {when}", hint
