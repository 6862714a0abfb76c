"""Asks an accounting about past jobs, or reads an export of one."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import hmac
import importlib
import math
import re
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast

from jobkit.core import shell
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.files import write_atomically
from jobkit.core.paths import accounting_folder, is_user, user_name
from jobkit.core.units import MOST_NAMED, format_count, format_list
from jobkit.extensions.past_jobs.groups import HOUR_S, Groups, barely_sampled, few_hours
from jobkit.schedulers.protocol import PAGE_CACHE, PastJob, PastJobs, Whose, without_impossible
from jobkit.schedulers.registry import SCHEDULERS, by_name, choose_scheduler, query_environment, runs_here

JOB_ID = re.compile(
    r"\d+(?:[_.+]\d+|[_.]?\[[\d,:%-]*\]|[_.]\d+-[\d:-]+)?(?:\.(?:\d+|batch|extern|interactive))?"
)
"""How people type a job: ``4711`` or ``4711_[1-3]``, a task ``4711_3`` or ``4711.3``, a part ``4711+1``, and
a step, ``4711.batch``."""
_EXPORTS = "on Slurm sacct -P --format=ALL -S now-30days > FILE, on Grid Engine qacct -d 30 -j > FILE"
_TASKS = re.compile(r"[_.]?\[|[_.]\d+-")
MOST_REST_S = 5.0


@dataclass(kw_only=True)
class History:
    """What the accounting answered."""

    scheduler: str  # its name
    found: Groups  # the jobs that have ended
    running: list[str] = field(default_factory=list)  # the ids of those that have not
    unknown: list[str] = field(default_factory=list)  # the ids that were asked for and that it does not know
    doubted: list[str] = field(default_factory=list)  # the first jobs with figures that cannot be
    unjudged: Counter[str] = field(default_factory=Counter)  # jobs by the reason
    unjudged_s: float = 0.0  # how long these ran
    named: bool = False  # whether they were asked for by name
    notes: tuple[str, ...] = ()  # how the site measures memory

    def add(self, job: PastJob) -> None:
        """Take a job that has ended."""
        self.found.add(job)
        reason = ""
        if PAGE_CACHE in job.doubts:
            reason = PAGE_CACHE
        elif job.doubts:
            reason = "figures that cannot be"
            if len(self.doubted) <= MOST_NAMED:
                self.doubted.append(f"{job.job_id}: {', '.join(job.doubts)}")
        elif job.well and job.held_bytes is None:
            reason = "no MaxRSS"
        elif job.gpus and job.gpu_percent is None:
            reason = "no figure of the GPU"
        if reason:
            self.unjudged[reason] += 1
            self.unjudged_s += job.elapsed_s

    @property
    def jobs(self) -> list[PastJob]:
        return [job for group in self.found.found.values() for job in group.jobs]

    def not_judged(self) -> str:
        """Return a line on the jobs whose figures say nothing; empty if there are none."""
        reasons, seconds = Counter(self.unjudged), self.unjudged_s
        for group in self.found.found.values():
            zeros = group.jobs[0].gpus and group.idle and self.found.idle(group) is None
            same = "the same MaxRSS in each" if group.constant else ""
            short = "ran for too few samples of their memory" if barely_sampled(group.jobs) else ""
            for reason in filter(None, (same, short, "0 for each GPU of the type" if zeros else "")):
                reasons[reason] += group.number
                seconds += math.fsum(job.elapsed_s for job in group.jobs)
        if not reasons:
            return ""
        why = ", ".join(f"{reason} ({number:,})" for reason, number in reasons.most_common())
        jobs = format_count(reasons.total(), "job")
        return f"{jobs}, {few_hours(seconds / HOUR_S)} hours could not be judged: {why}."


def ask(
    whose: Whose,
    *,
    since: date | None = None,
    name: str = "*",
    scheduler: str = "auto",
    file: Path | None = None,
    hide: bool = False,
) -> History:
    """Return past jobs: those of the ids as a person types them, else those that fit the rest.

    ``since``: the first day; without ids and a file it is needed.
    ``name``: A pattern that their names match.
    ``scheduler``: whose accounting; ``auto`` for the first that is here.
    ``file``: what ``sacct --parsable2`` or ``qacct`` have printed, to read in place of an accounting.
    ``hide``: have a hash in place of the name of each user.
    """
    if file:
        found, past, every = _of_file(file, since)
    else:
        scheduler, why = choose_scheduler(scheduler)
        if runs_here(by_name(scheduler).NAME):
            message = f"no accounting to ask about jobs: {why}"
            hint = "type it on a login node of the cluster, or read an export: --from FILE"
            raise JobkitError(message, hint=hint)
        found, past = History(scheduler=scheduler, found=Groups()), past_of(scheduler)
        every = _asked(found, past, whose, since or date.today())  # noqa: DTZ011 - the cluster's day
    found.named = name != "*"
    ids = tuple(_TASKS.split(id_)[0] for id_ in whose.ids)
    seen, hashed = set[str](), hasher() if hide else None
    wanted = {"user": whose.user, "account": whose.account, "queue": whose.queue} if file else {}
    again: dict[str, list[PastJob]] = {}  # earlier runs of jobs that have not ended so far
    running: dict[str, None] = {}
    for each in every:
        job = without_impossible(each)
        if ids:
            seen.update((job.job_id, re.split(r"[_.+]", job.job_id)[0]))
        if (job.gpu_percent or 0) > 0 or job.gpu_bytes:
            found.found.measured.add(job.gpu_type)
        if not _is_asked_for(job, ids, name, wanted):
            continue
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
    found.unknown = [id_ for id_ in ids if id_ not in seen]
    if not found.found.found:
        message, hint = _nothing(found, past, replace(whose, ids=ids), None if file else since, name)
        raise JobkitError(message, hint=hint)
    return found


def _is_asked_for(job: PastJob, ids: tuple[str, ...], name: str, wanted: Mapping[str, str]) -> bool:
    """Return whether an id names a job, or the array or the heterogeneous job of it, and the rest fits."""
    chosen = {job.job_id, re.split(r"[_.+]", job.job_id)[0]}.intersection(ids) if ids else not job.follows
    named = name in {"*", job.name} or fnmatchcase(job.name, name)
    return (
        bool(chosen)
        and named
        and all(not value or value in getattr(job, key).split(",") for key, value in wanted.items())
    )


def hasher() -> Callable[[str], str]:
    """Return what hashes names with a key of this user's own: the same name gives the same hash."""
    folder = accounting_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / "hash-key").exists():
        write_atomically(folder / "hash-key", secrets.token_hex(32))
    key = (folder / "hash-key").read_bytes()
    return lambda name: f"u-{hmac.new(key, name.encode(), hashlib.sha256).hexdigest()[:8]}"


def _of_file(path: Path, since: date | None) -> tuple[History, PastJobs, Iterator[PastJob]]:
    """Return a history to fill, and the jobs of an export; the first line shows of which command."""
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            first = next(filter(str.strip, stream), "")
    except OSError as error:
        raise JobkitError(f"{path}: {error.strerror}", hint=_EXPORTS) from None
    names = (name for name in SCHEDULERS if not runs_here(name))
    scheduler = next((name for name in names if past_of(name).EXPORT.match(first)), "")
    if not scheduler:
        raise JobkitError(f"{path}: neither the header of sacct nor a record of qacct", hint=_EXPORTS)
    past = past_of(scheduler)

    def jobs() -> Iterator[PastJob]:
        with path.open(encoding="utf-8", errors="replace") as stream:
            low = f"{since}" if since else ""
            yield from (job for job in past.read(stream, "") if not job.over or job.over >= low)

    return History(scheduler=scheduler, found=Groups()), past, jobs()


def past_of(scheduler: str) -> PastJobs:
    """Return how the accounting of a scheduler is asked."""
    try:
        asked = by_name(scheduler)
        return cast("PastJobs", importlib.import_module(f"{asked.__name__}_past"))  # type: ignore[attr-defined]
    except ModuleNotFoundError:
        title = asked.TITLE
        message = f"jobkit reads past jobs in the accounting of Slurm and Grid Engine, not of {title}"
        raise JobkitError(message, hint="a run of jobkit has records of its own: jobkit waste RUN") from None


def _asked(found: History, past: PastJobs, whose: Whose, since: date) -> Iterator[PastJob]:
    """Yield the jobs of the accounting, by one command a day where it offers that.

    The answer for a day that is over is kept, so that the accounting need not find it again. A job is in the
    answer for each day on which it was there: the day of its end counts.
    """
    environment = query_environment(by_name(found.scheduler))
    site = "".join(shell.run(argv, env=environment).stdout for argv in past.site_argvs(whose))
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
            time.sleep(min(MOST_REST_S, time.monotonic() - begun))
        if refusal := past.refusal(answer):
            message = f"{past.ACCOUNTING} does not answer: {' '.join(refusal.split())}"
            hint = "--days N asks for less, --scheduler NAME another; jobkit waste RUN reads a run's records"
            raise JobkitError(message, hint=hint, exit_code=ExitCode.REFUSED)
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
    hint = "look further back: --since 90d; upper and lower case differ in a name"
    if since and not is_user(whose.user or user_name()):
        return f"this system has no user {whose.user}", "--all lists the jobs of all users"
    return f"no job {f'of {whom}' if whose.user else 'that is asked for'}{which} {when}", hint
