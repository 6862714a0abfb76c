"""squeue: what the controller holds, in the columns that jobkit asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.model import ENDING, PENDING, RUNNING, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import clock_words, iso
from tests.fakes.slurm.options import Options, parse_anywhere, table
from tests.fakes.slurm.rows import Row, clusters, queue_id, rows
from tests.fakes.slurm.sbatch import limit_min

SHORT = table("h:noheader r:array o:format j:jobs u:user n:name t:states M:clusters a:all")
FLAGS = ("noheader", "array", "all")
VALUES = ("format", "jobs", "job", "user", "name", "states", "clusters", "cluster")
DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
CODES = table(
    "PENDING:PD RUNNING:R COMPLETING:CG COMPLETED:CD FAILED:F TIMEOUT:TO CANCELLED:CA NODE_FAIL:NF "
    "PREEMPTED:PR OUT_OF_MEMORY:OOM"
)


class Seen(NamedTuple):
    """A row, and what its fields are read from."""

    store: Store
    row: Row
    each: bool

    @property
    def job(self) -> Job:
        return self.row.job

    @property
    def task(self) -> Task:
        return self.row.task

    @property
    def word(self) -> str:
        """The state, in squeue's words."""
        ended = self.task.word.partition(" ")[0]
        return {PENDING: "PENDING", RUNNING: "RUNNING", ENDING: "COMPLETING"}.get(self.task.state, ended)

    @property
    def elapsed_s(self) -> float:
        """How long it has run, or ran."""
        if self.task.state == PENDING or not self.task.runs:
            return 0.0
        run = self.task.runs[-1]
        return (run.end or self.store.clock()) - run.start

    @property
    def start(self) -> float:
        """When it began; of one that waits for a time or for room, when it may begin; else 0."""
        if self.task.state != PENDING:
            return self.task.runs[-1].start if self.task.runs else 0.0
        if self.task.reason == "Resources":
            return self.store.clock() + 60 * limit_min(self.job)
        return self.task.begin


def _where(seen: Seen) -> str:
    return f"({seen.task.reason})" if seen.task.state == PENDING else seen.task.node


FIELDS: Mapping[str, tuple[str, Callable[[Seen], object]]] = {
    "D": ("NODES", lambda _: 1),
    "i": ("JOBID", lambda seen: queue_id(seen.row, each=seen.each)),
    "j": ("NAME", lambda seen: seen.job.name),
    "M": ("TIME", lambda seen: clock_words(seen.elapsed_s)),
    "N": ("NODELIST", lambda seen: seen.task.node),
    "P": ("PARTITION", lambda seen: seen.job.options.get("partition", "cpu")),
    "R": ("NODELIST(REASON)", _where),
    "r": ("REASON", lambda seen: seen.task.reason),
    "S": ("START_TIME", lambda seen: iso(seen.start, "N/A")),
    "T": ("STATE", lambda seen: seen.word),
    "t": ("ST", lambda seen: CODES.get(seen.word, seen.word)),
    "u": ("USER", lambda seen: seen.job.user),
}


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of squeue."""
    asked = parse_anywhere("squeue", arguments, VALUES, FLAGS, SHORT)
    layout = _layout(asked)
    names = clusters(store, "squeue", asked.get("clusters", asked.get("cluster", "")))
    if store.use("queue_empty"):
        return Answer()
    out = ""
    for name in names:
        if (asked.get("clusters") or asked.get("cluster")) and "noheader" not in asked:
            out += f"CLUSTER: {name or store.settings['cluster']}\n"
        out += "" if "noheader" in asked else _printed(layout, None)
        out += "".join(_printed(layout, seen) for seen in _chosen(store, asked, name))
    unknown = [text[-1] for text, letter, _, _ in layout[:-1] if not letter]
    return Answer(
        out, "".join(f"squeue: error: Invalid job format specification: {one}\n" for one in unknown)
    )


def _layout(asked: Options) -> list[tuple[str, str, int | None, bool]]:
    """Return text and fields: ``(text before, letter, width, right)``."""
    text = asked.get("format", DEFAULT)
    parts = re.split(r"%(\.?)(\d*)(.)", text)
    found: list[tuple[str, str, int | None, bool]] = []
    for before, dot, width, letter in zip(*(parts[index::4] for index in range(4)), strict=False):
        if letter in FIELDS:
            found.append((before, letter, int(width) if width else None, bool(dot)))
        else:  # printed as it stands, with a word on stderr, and status 0 (seen)
            found.append((f"{before}%{dot}{width}{letter}", "", None, False))
    return [*found, (parts[-1], "", None, False)]


def _printed(layout: list[tuple[str, str, int | None, bool]], seen: Seen | None) -> str:
    line = ""
    for before, letter, width, right in layout:
        line += before
        if letter:
            heading, read = FIELDS[letter]
            text = str(read(seen)) if seen else heading
            line += text if width is None else (text.rjust if right else text.ljust)(width)[:width]
    return line + "\n"


def _chosen(store: Store, asked: Options, cluster: str) -> list[Seen]:
    each = "array" in asked
    jobs = [job for job in store.state.jobs if job.cluster == cluster and not job.replaced]
    ids = asked.get("jobs", asked.get("job", ""))
    if ids:
        jobs = _by_id(store, jobs, ids.split(","))
    user = asked.get("user", "")
    found = [Seen(store, row, each) for job in jobs for row in rows(job, each=each)]
    chosen = [
        seen
        for seen in found
        if _remembered(store, seen)
        and _in_state(asked.get("states", ""), seen)
        and (not user or seen.job.user in user.split(","))
        and ("name" not in asked or seen.job.name in asked["name"].split(","))
        and _asked_task(ids, seen)
    ]
    return sorted(chosen, key=lambda seen: seen.task.state != PENDING)


def _by_id(store: Store, jobs: list[Job], ids: list[str]) -> list[Job]:
    """Return the jobs of these ids; one alone that the controller does not know is an error."""
    found = [job for job in jobs if str(job.id) in {identifier.partition("_")[0] for identifier in ids}]
    alive = any(
        _remembered(store, Seen(store, Row(job, [task]), each=True)) for job in found for task in job.tasks
    )
    if len(ids) == 1 and not alive:
        raise Refused("slurm_load_jobs error: Invalid job id specified\n")
    return found


def _remembered(store: Store, seen: Seen) -> bool:
    if not seen.task.over:
        return True
    age_s = 0 if store.fault("queue_purged") else store.settings["min_job_age_s"]
    ended = seen.task.runs[-1].end if seen.task.runs else seen.task.cause_at
    return store.clock() - max(ended, seen.task.cause_at) < age_s


def _in_state(states: str, seen: Seen) -> bool:
    if not states:
        return not seen.task.over
    asked = states.upper().split(",")
    return "ALL" in asked or seen.word in asked or CODES.get(seen.word) in asked


def _asked_task(ids: str, seen: Seen) -> bool:
    mine = [one.partition("_")[2] for one in ids.split(",") if one.partition("_")[0] == str(seen.job.id)]
    return not ids or "" in mine or str(seen.task.number) in mine
