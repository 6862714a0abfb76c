"""What a run begins after: jobs and other runs, how each stands, and what follows from that.

``python -m jobkit.runs.after RUN ROUND SCHEDULER WORD...`` is the first step of a task. It asks whether all
that its round begins after has ended well, and leaves the answer in the run folder for the other tasks: a
scheduler knows no run and forgets jobs, and Grid Engine waits for an end of any kind.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from jobkit.core import shell
from jobkit.core.errors import ExitCode, JobkitError, NotFoundError, RefusedError
from jobkit.core.files import exclusive_lock, write_atomically
from jobkit.core.frozen import keyed
from jobkit.core.layout import SPEC_FILE, after_file
from jobkit.core.terminal import note, relative_path, shell_path
from jobkit.core.units import format_list, pauses
from jobkit.runs import journal
from jobkit.runs.reader import TIMEOUT_S, read_status
from jobkit.runs.status import count_by_state
from jobkit.runs.which_run import find_run, refuse_copy
from jobkit.schedulers.protocol import PastJob, Scheduler, Whose
from jobkit.schedulers.registry import by_name, choose_scheduler, past_of, query_environment
from jobkit.schedulers.types import JobId, Queued, State
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import load_spec

ANY, OK = "any:", "ok"
SUBMIT_S, SETTLE_S, SILENT_S = 20.0, 60.0, 240.0
"""How long to ask again: before a submission about a job without a trace, since qacct is up to 15 s late; on
a node about one that lives or has no trace, and about one of which no one reports the end."""


class Stands(StrEnum):
    WELL = "has ended well"
    BADLY = "did not end well"
    LIVES = "has not ended"
    STUCK = "cannot end before a person acts"
    UNHEARD = "how it ended is not known"
    UNKNOWN = "neither the queue nor the accounting knows it"


@keyed
class Parent:
    """A job or a run after which another begins, and how it stands."""

    word: str  # the number of a job or the path of a run, perhaps after `ANY`: then any end will do
    stands: Stands = Stands.UNKNOWN
    why: str = ""  # what shows it
    typed: str = ""  # what changes it, as a person types it; empty if nothing does
    jobs: tuple[JobId, ...] = ()  # what the queue holds of it

    @property
    def any(self) -> bool:
        return self.word.startswith(ANY)

    @property
    def name(self) -> str:
        return self.word.removeprefix(ANY)

    @property
    def is_run(self) -> bool:
        return not self.name.isdecimal()

    @property
    def is_over(self) -> bool:
        """Whether what begins after it need not wait any more."""
        return self.stands is Stands.WELL or (self.any and self.stands in {Stands.BADLY, Stands.UNHEARD})

    def __str__(self) -> str:
        named = relative_path(Path(self.name)) if self.is_run else f"job {self.name}"
        return f"after {named}: {self.stands}{f' ({self.why})' if self.why else ''}"


def resolved(word: str) -> str:
    """Return a word with the whole path of the run that it names; a number is a job."""
    before, name = (ANY if word.startswith(ANY) else ""), word.removeprefix(ANY).removeprefix(f"{OK}:")
    if name.isdecimal():
        return before + name
    if not (run := find_run(name)):
        hint = "name a job by its number alone; jobkit status --list lists all your runs"
        raise NotFoundError(f"after: {name} is neither the number of a job nor a run", hint=hint)
    return f"{before}{run.absolute()}"


def judged(
    parent: Parent, queued: Sequence[Queued] | None, past: Sequence[PastJob] | None, scheduler: Scheduler
) -> Parent:
    """Return how a job stands by what queue and accounting answered; ``None`` if they did not."""
    job = JobId(parent.name)
    held = [task for task in queued or () if task.job_id == job.id]
    last = {one.job_id: one for one in past or () if re.split(r"\D", one.job_id)[0] == job.id}
    bad = [f"{one.state}, job {one.job_id}" for one in last.values() if not one.well]
    if stuck := next((task for task in held if task.state is State.ERROR), None):
        way_out = scheduler.remedy(job, (), stuck)
        typed = shlex.join((way_out and way_out.argv) or scheduler.cancel_argv(job))
        return replace(parent, stands=Stands.STUCK, why=scheduler.explain(stuck), typed=typed)
    if held or not all(one.ended for one in last.values()):
        return replace(parent, stands=Stands.LIVES, jobs=(job,))
    if queued is None or past is None:
        why = "the queue does not answer" if queued is None else "no accounting answers"
        return replace(parent, stands=Stands.UNHEARD, why=why)
    stands = (Stands.BADLY if bad else Stands.WELL) if last else Stands.UNKNOWN
    return replace(parent, stands=stands, why=format_list(bad, 2) if bad else "")


def _run(parent: Parent, scheduler: Scheduler) -> Parent:
    """Return how a run stands, with the points that its policy runs again."""
    from jobkit.runs.watch import is_over  # brings rich: few commands need it

    folder = Path(parent.name)
    refuse_copy(folder, "status")
    (run,) = read_status([folder])
    here, name = scheduler.RUNS_HERE, scheduler.NAME
    jobs = tuple(sent.job for sent, _ in run.by_job(run.queued) if here or sent.scheduler == name)
    over = is_over(run, load_spec(folder / SPEC_FILE).policy)
    stands = Stands.LIVES if jobs else Stands.UNHEARD
    if run.exit_code == ExitCode.DONE:
        stands = Stands.WELL
    elif over and not run.silent:
        stands = Stands.BADLY
    typed = f"jobkit status {shell_path(folder)}{'' if over else ' --watch'}"
    return replace(parent, stands=stands, why=count_by_state(run), typed=typed, jobs=jobs)


def look(words: Iterable[str], scheduler: Scheduler) -> list[Parent]:
    """Ask once how jobs and runs stand."""
    parents = [Parent(word=resolved(word)) for word in words]
    jobs = tuple(JobId(parent.name) for parent in parents if not parent.is_run)
    queue = by_name(choose_scheduler("auto")[0]) if jobs and scheduler.RUNS_HERE else scheduler
    if jobs and queue.RUNS_HERE:
        raise JobkitError(f"after job {jobs[0]}: there is no scheduler here", hint="name the folder of a run")
    queued: Sequence[Queued] | None = ()
    if jobs:
        argv = queue.queue_argv(jobs, ("*",))
        queued = queue.parse_queue(shell.run(argv, env=query_environment(queue), timeout_s=TIMEOUT_S))
    gone = {job.id for job in jobs} - {task.job_id for task in queued or ()}
    past = _past(queue, tuple(gone)) if gone else ()
    return [_run(one, scheduler) if one.is_run else judged(one, queued, past, queue) for one in parents]


def _past(scheduler: Scheduler, jobs: tuple[str, ...]) -> list[PastJob] | None:
    """Return what the accounting knows of jobs; ``None`` if it does not answer, or jobkit cannot read it."""
    try:
        past = past_of(scheduler.NAME)
    except JobkitError:
        return None
    found: list[PastJob] = []
    for argv in past.argvs(Whose(ids=jobs), (), ""):
        answer = shell.run(argv, env=query_environment(scheduler), timeout_s=TIMEOUT_S)
        if past.refusal(answer):
            return None  # the next would be silent as long
        found += past.read(answer.stdout.splitlines(), "")
    return found


def settled(words: Sequence[str], scheduler: Scheduler, patience_s: Mapping[Stands, float]) -> list[Parent]:
    """Return how jobs and runs stand, asked again for a while if one stands so that it may soon change."""
    begin = time.monotonic()
    for pause_s in pauses(1.0, 15.0):
        parents = look(words, scheduler)
        waited_s, left = time.monotonic() - begin, [one.stands for one in parents if not one.is_over]
        if Stands.BADLY in left or all(waited_s >= patience_s.get(stands, 0.0) for stands in left):
            break
        time.sleep(pause_s)
    return parents


# -- before a submission


def refuse(parent: Parent) -> None:
    """Refuse what has not ended well, what may never end, and what never was."""
    if parent.stands is Stands.LIVES or parent.is_over:
        return
    hints = [f"{parent.typed}, then this command again"] if parent.typed else []
    if parent.stands is Stands.UNKNOWN:
        hints = ["name the number that the scheduler gave, or the folder of a run"]
    elif parent.stands in {Stands.BADLY, Stands.UNHEARD}:
        hints += [f"any:{parent.name} waits for the end alone, however it is"]
    raise RefusedError(f"{parent}; nothing was submitted", hint="; or ".join(hints))


def first_look(words: Sequence[str], scheduler: Scheduler, site: Site) -> tuple[Parent, ...]:
    """Return what a submission must wait for, and print how all stands; refuse what can never be."""
    parents = settled(words, scheduler, dict.fromkeys((Stands.UNKNOWN, Stands.UNHEARD), SUBMIT_S))
    waits: list[Parent] = []
    for parent in parents:
        refuse(parent)
        unasked = parent.stands is Stands.LIVES and not (site.nodes_ask or parent.any or parent.is_run)
        note(f"{parent}{'; no node asks how it ends (nodes_ask in the site file)' if unasked else ''}")
        jobs = tuple(replace(job, well=unasked) for job in parent.jobs)
        waits += [replace(parent, jobs=jobs)] if parent.stands is Stands.LIVES else []
    return tuple(waits)


def prepare_round(run_dir: Path, round_: int, parents: Sequence[Parent], scheduler: str) -> None:
    """Write what the first step of each task of a round asks, and let the other runs know that it waits."""
    question, answer = (run_dir / after_file(round_, ending) for ending in ("sh", "txt"))
    for path in (question, answer):  # of a search that is submitted again
        path.unlink(missing_ok=True)
    for parent in parents:
        with contextlib.suppress(OSError):  # of another user: the first step finds out
            if parent.is_run:
                journal.note(Path(parent.name), "awaited", by=str(run_dir))
    asked = [one.word for one in parents if one.is_run or not (one.any or any(job.well for job in one.jobs))]
    if asked:
        module = [sys.executable, "-m", "jobkit.runs.after", str(run_dir), str(round_), scheduler]
        file = shlex.quote(str(answer))
        ask_once = f"[[ -s {file} ]] || {shlex.join([*module, *asked])} >&2"
        write_atomically(question, f"{ask_once}\ncat {file}\n")


# -- before the work


def ask(words: Sequence[str], scheduler: Scheduler, *, living_s: float = SETTLE_S) -> str:
    """Return `OK` once all have ended well, else why not; ask again for a while if that is open."""
    patience_s = dict.fromkeys((Stands.LIVES, Stands.STUCK), living_s)
    patience_s |= {Stands.UNKNOWN: SETTLE_S, Stands.UNHEARD: SILENT_S}
    known = (one for one in settled(words, scheduler, patience_s) if not one.is_over)
    left = [one for one in known if not (one.any and one.stands is Stands.UNKNOWN)]  # it has left the queue
    left.sort(key=lambda parent: parent.stands is not Stands.BADLY)
    return " ".join(str(left[0]).split()) if left else OK


def main() -> int:
    folder, round_, name, *words = sys.argv[1:]
    question, answer = (Path(folder, after_file(int(round_), ending)) for ending in ("sh", "txt"))
    with exclusive_lock(question, lambda: None):
        if not answer.is_file():
            write_atomically(answer, ask(words, by_name(name)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
