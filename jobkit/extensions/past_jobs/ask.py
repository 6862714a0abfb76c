"""Asks an accounting about past jobs, or reads an export of one."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import hmac
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from jobkit.core import shell
from jobkit.core.errors import JobkitError, UnknownError
from jobkit.core.files import write_atomically
from jobkit.core.paths import accounting_folder, is_user, user_name
from jobkit.core.units import format_list
from jobkit.extensions.past_jobs.groups import History
from jobkit.schedulers.protocol import PastJob, PastJobs, Whose, without_impossible
from jobkit.schedulers.registry import SCHEDULERS, choose_scheduler, past_of, query_environment, runs_here

JOB_ID = re.compile(
    r"\d+(?:[_.+]\d+|[_.]?\[[\d,:%-]*\]|[_.]\d+-[\d:-]+)?(?:\.(?:\d+|batch|extern|interactive))?"
)
"""How people type a job: ``4711`` or ``4711_[1-3]``, a task ``4711_3`` or ``4711.3``, a part ``4711+1``, and
a step, ``4711.batch``."""


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
    if file:
        scheduler = _exporter(file)
    else:
        scheduler, why = choose_scheduler(scheduler)
        if runs_here(scheduler):
            message = f"no accounting to ask about jobs: {why}"
            hint = "type it on a login node of the cluster, or read an export: --from FILE"
            raise JobkitError(message, hint=hint)
    found, past = History(scheduler), past_of(scheduler)
    today = date.today()  # noqa: DTZ011 - the cluster's day
    frequency = f"JobAcctGatherFrequency={sampled_s}\n" if sampled_s else ""
    if file:
        found.notes, every = past.how_measured(frequency), _of_file(past, file, since, frequency)
    else:
        every = _asked(found, past, whose, since or today, frequency)
    found.named = name if name != "*" else ""
    ids = tuple(re.split(r"[_.]?\[|[_.]\d+-", id_)[0] for id_ in whose.ids)
    keys = (("user", whose.user), ("account", whose.account), ("queue", whose.queue))
    wanted = [(key, value) for key, value in keys if value and file]
    hashed = hasher() if hide else None
    again: dict[str, list[PastJob]] = {}  # earlier runs of jobs that have not ended so far
    running: dict[str, None] = {}
    for job in _chosen(found, every, ids, name, wanted):
        if hashed:
            job.user = hashed(job.user)
        if not job.ended:
            running |= {} if job.again else {job.job_id: None}
            again.setdefault(job.job_id, []).extend([job] if job.again and job.began else [])
        elif job.began:
            for run in (*again.pop(job.job_id, ()), job):
                found.add(run)
            running.pop(job.job_id, None)
    found.running = list(running)
    if not found.jobs:
        message, hint = _nothing(found, past, replace(whose, ids=ids), None if file else since, name)
        raise JobkitError(message, hint=hint)
    return found


def _chosen(
    found: History, jobs: Iterable[PastJob], ids: Sequence[str], name: str, wanted: Sequence[tuple[str, str]]
) -> Iterator[PastJob]:
    """Yield the jobs that fit: an id may name a job, its array, or its heterogeneous job."""
    seen, named = set[str](), set[str]()
    for job in map(without_impossible, jobs):
        found.saw_gpu(job)
        if ids:
            named = {job.job_id, re.split(r"[_.+]", job.job_id)[0]}
            seen |= named
        if named.isdisjoint(ids) if ids else job.follows:
            continue
        if found.named and name != job.name and not fnmatchcase(job.name, name):
            continue
        if not wanted or all(value in getattr(job, key).split(",") for key, value in wanted):
            yield job
    found.unknown = [id_ for id_ in ids if id_ not in seen]


def hasher() -> Callable[[str], str]:
    """Return what hashes names with a key of this user's own: the same name gives the same hash."""
    folder = accounting_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / "hash-key").exists():
        write_atomically(folder / "hash-key", secrets.token_hex(32))
    key = (folder / "hash-key").read_bytes()
    return lambda name: f"u-{hmac.new(key, name.encode(), hashlib.sha256).hexdigest()[:8]}"


def _exporter(path: Path) -> str:
    """Return the scheduler whose command has written a file; the first line shows it."""
    hint = "on Slurm sacct -P --format=ALL -S now-30days > FILE, on Grid Engine qacct -d 30 -j > FILE"
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            first = next(filter(str.strip, stream), "")
    except OSError as error:
        raise JobkitError(f"{path}: {error.strerror}", hint=hint) from None
    for name in SCHEDULERS:
        if not runs_here(name) and past_of(name).EXPORT.match(first):
            return name
    raise JobkitError(f"{path}: neither the header of sacct nor a record of qacct", hint=hint)


def _of_file(past: PastJobs, path: Path, since: date | None, site: str) -> Iterator[PastJob]:
    low = f"{since}" if since else ""
    with path.open(encoding="utf-8", errors="replace") as stream:
        yield from (job for job in past.read(stream, site) if not job.over or job.over >= low)


def _asked(found: History, past: PastJobs, whose: Whose, since: date, site: str) -> Iterator[PastJob]:
    """Yield the jobs of the accounting, by one command a day where it offers that.

    The answer for a day that is over is kept, so that the accounting need not find it again. A job is in the
    answer for each day on which it was there: the day of its end counts.
    """
    environment = query_environment(SCHEDULERS[found.scheduler])
    site += "".join(shell.run(argv, env=environment).stdout for argv in past.site_argvs(whose))
    found.notes = past.how_measured(site)
    now = datetime.now().astimezone()
    days = [since + timedelta(days=number) for number in range((now.date() - since).days + 1)]
    commands = past.argvs(whose, days, site)
    cluster = " ".join(re.findall(r"^(?:ClusterName|SlurmctldHost\S*)\s*=\s*(\S+)", site, re.MULTILINE))
    for number, argv in enumerate(commands):
        if whose.ids or len(commands) != len(days):
            yield from _read(past, argv, site, environment, None)
            continue
        day, last = str(days[number]), days[number] == now.date()
        low, high = day if number else "", "~" if last else day + "~"
        complete = cluster and days[number] < (now - timedelta(hours=1)).date()
        words = [word for word in argv if not word.startswith("--delimiter")]
        name = hashlib.sha256("\n".join((cluster, *words)).encode()).hexdigest()[:16]
        kept = accounting_folder() / f"{day}-{name}.gz" if complete else None
        for job in _read(past, argv, site, environment, kept):
            if low <= job.over <= high if job.over else last:
                yield job


def _read(
    past: PastJobs, argv: tuple[str, ...], site: str, environment: Mapping[str, str], kept: Path | None
) -> Iterator[PastJob]:
    """Yield the jobs of an answer, which waits in a file: it may be larger than the memory."""
    if kept and kept.exists():
        with gzip.open(kept, "rt", encoding="utf-8") as lines:
            yield from past.read(lines, site)
        return
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stream:
        begun = time.monotonic()
        answer = shell.run_streaming(argv, stream.write, text="", env=environment)
        if kept:  # more calls follow: slurmdbd rests as long as it worked (sacct(1), PERFORMANCE)
            time.sleep(min(5.0, time.monotonic() - begun))
        if refusal := past.refusal(answer):
            message = f"{past.ACCOUNTING} does not answer: {' '.join(refusal.split())}"
            hint = "--days N asks for less, --scheduler NAME another; jobkit waste RUN reads a run's records"
            raise UnknownError(message, hint=hint)
        with contextlib.suppress(OSError):  # a full home keeps no answer
            if kept:
                kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                stream.seek(0)
                with gzip.open(
                    whole := kept.with_suffix(f".{secrets.token_hex(4)}"), "wt", 3, "utf-8"
                ) as zipped:
                    zipped.writelines(stream)
                whole.replace(kept)
        stream.seek(0)
        yield from past.read(stream, site)


def _nothing(found: History, past: PastJobs, whose: Whose, since: date | None, name: str) -> tuple[str, str]:
    if found.running:
        more = f"; not in the accounting: {', '.join(found.unknown)}" if found.unknown else ""
        what = f"{format_list(found.running)}: not ended yet, so what it used is not known{more}"
        return what, "type the command again when the job has ended"
    if whose.ids:
        what, mine = format_list(list(whose.ids)), "jobkit waste --mine --days 30 lists yours"
        if whole := [re.split(r"[_.+]", id_)[0] for id_ in found.unknown if not id_.isdecimal()]:
            hint = f"of the whole job: jobkit waste {' '.join(whole)}"
            return f"{what}: {past.ACCOUNTING} has no job or task of this name", hint
        if found.unknown:
            return f"{what}: {past.ACCOUNTING} has no such job", f"was the job on this cluster? {mine}"
        return f"{what}: it never began, so it used nothing", mine
    whom = "yours" if whose.user == user_name() else whose.user
    which = "" if name == "*" else f" called {name!r}"
    when = f"has ended since {since}" if since else "is in the file"
    wider = "" if "*" in name else f"; what begins so: --name {shlex.quote(name + '*')}"
    hint = f"look further back: --since 90d; upper and lower case differ in a name{wider}"
    if since and not is_user(whose.user or user_name()):
        return f"this system has no user {whose.user}", "--all lists the jobs of all users"
    return f"no job {f'of {whom}' if whose.user else 'that is asked for'}{which} {when}", hint
