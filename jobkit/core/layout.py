"""The run folder: the names of its files, and the readers of points, batches, ``begin`` and ``exit``.

"The run folder" in docs/contracts.md describes each. Standard library only: the node imports this.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.extensions import extension_of
from jobkit.core.files import read_lines, read_text, read_tolerantly
from jobkit.core.frozen import keyed
from jobkit.core.json_codec import from_json
from jobkit.core.knobs import Value
from jobkit.core.records import Batch, Outcome, Point

SPEC_FILE = "sweep.yaml"
POINTS_FILE = "points.jsonl"
COPY_FILE = ".fetched"
"""Marks a run folder as a copy of one on a cluster: the host, as `jobkit --on` names it."""
LENGTHS_FILE = "lengths.json"
JOB_SCRIPT = "job.sh"
JOURNAL_FILE = "journal.jsonl"
ACCOUNTING_FILE = "accounting.jsonl"
SEARCH_GOAL_FILE = "find_max.json"
TRIALS_FILE = "trials.jsonl"
TUNE_GOAL_FILE = "tune.json"
SETTING_FILE = "setting.yaml"
CORPUS_FILE = "corpus.json"
ORDER_FILE = "apply.json"
PLAN_FILE = "plan.jsonl"
PROMISE_FILE = "promise.json"
PROVENANCE_FILE = "provenance.json"
FIND_SCRIPT = "find.sh"
"""Script of the job that follows a sweep and runs the batch that was predicted."""
TUNE_SCRIPT = "tune.sh"
"""Script of the job that searches for the fastest setting."""
FOLLOW_SCRIPT = "follow.sh"
"""Script of the job that follows a sweep and runs points again as the policy says."""
PLAN_SCRIPT = "plan.sh"
"""Script of the job that reads and plans a corpus, and submits its shards."""
WINNERS_FOLDER = "winners"
ON_END = "on_end.{}.{}"
"""Of an outlet: that it is called (``begun``), that it took the message (``sent``), or why not (``kept``)."""
RUN_LOCK = ".lock"
SEARCH_LOCK = ".find.lock"
DRIVER_LOCK = ".driver.lock"
FLAGS_FOLDER = "flags"
BASELINES_FOLDER = "gpus"
CHECKS_FOLDER = "checks"
LOGS_FOLDER = "logs"
PID_FILE = "logs/running.pid"

FILES_FOLDER = "files"
"""The user's files that the workload consists of, in the run folder and next to the text on the node."""
RESULTS_FOLDER = "results"
TRY_PREFIX = "try-"
BEGIN_FILE = "begin"
BATCHES_FILE = "batches.jsonl"
RECORD_FILE = "record.json"
ENTITIES_FILE = "entities.tsv"
BAD_ROWS = "rows.bad"
"""Rows that do not match their manifest; the shard runs again."""
GONE_ROWS = "rows.gone"
"""The claim of a try whose rows were gone: they never count again, also if they come back."""
EXIT_FILE = "exit"
PROFILE_FILES = {"torch": "trace.json.gz", "python": "profile.pstats"}
EARLIER_PROFILERS = {"scalene": "python"}
"""Profilers of earlier versions, and which has its points that still wait."""
PROFILE_TEXT = "profile.txt"


def after_file(round_: int, ending: str) -> str:
    """Return the name of the question what a round begins after (``sh``), or of its answer (``txt``)."""
    return f"after-{round_}.{ending}"


def refuse_contract_file(path: Path, option: str) -> None:
    """Refuse an output file, given by ``option``, that would replace a file that a run folder must have."""
    place = path.parent.resolve() / path.name
    contract_files = (
        *(SPEC_FILE, POINTS_FILE, LENGTHS_FILE, JOB_SCRIPT, JOURNAL_FILE, ACCOUNTING_FILE, SEARCH_GOAL_FILE),
        *(TRIALS_FILE, TUNE_GOAL_FILE, SETTING_FILE, CORPUS_FILE, ORDER_FILE, PLAN_FILE, PROMISE_FILE),
        *(PROVENANCE_FILE, FIND_SCRIPT, TUNE_SCRIPT, FOLLOW_SCRIPT, PLAN_SCRIPT),
        *(RUN_LOCK, SEARCH_LOCK, DRIVER_LOCK, COPY_FILE, "job-*.sh", "tasks-*.txt", "after-*", "on_end.*"),
    )
    contract_folders = (
        *(FLAGS_FOLDER, BASELINES_FOLDER, CHECKS_FOLDER, LOGS_FOLDER),
        *(FILES_FOLDER, RESULTS_FOLDER, WINNERS_FOLDER),
    )
    for run in place.parents:
        name, *below = place.relative_to(run).parts
        read = name in contract_folders if below else any(fnmatchcase(name, one) for one in contract_files)
        if read and is_run_folder(run):
            raise JobkitError(
                f"{option} {path}: jobkit itself reads this file of run {run.name}, and does not replace it",
                hint=f"name another file: {option} {shlex.quote(f'my-{path.name}')}",
            )


def point_folder(run: Path | str, point_id: str) -> str:
    return f"{run}/{RESULTS_FOLDER}/{point_id}"


def try_folder(run: Path | str, point_id: str, number: int) -> str:
    return f"{run}/{RESULTS_FOLDER}/{point_id}/{TRY_PREFIX}{number}"


def repeat_id(point_id: str, repeat: int) -> str:
    return re.sub(r"r[0-9]+$", f"r{repeat}", point_id)


def make_run_folder(folder: Path, *, group: bool) -> None:
    """Make a run folder that only its owner can enter, and, if ``group``, the group of the folder too."""
    folder.mkdir(mode=0o700)
    if group:
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IRGRP | stat.S_IXGRP)
    (folder / LOGS_FOLDER).mkdir()
    for name in (JOURNAL_FILE, ACCOUNTING_FILE):
        (folder / name).touch()


def is_run_folder(path: Path) -> bool:
    """Return whether a folder is a run folder: it lists its points, or is made for them."""
    listed = path / POINTS_FILE
    if not listed.is_file():
        return False
    return listed.stat().st_size > 0 or (path / JOB_SCRIPT).is_file() or bool(extension_of(path))


def names(folder: Path | str) -> set[str]:
    """Return the names in a folder; empty if it cannot be read."""
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - names only: 10,000 Path objects cost time
    except OSError:
        return set()


def try_numbers(home: Path | str) -> list[int]:
    """Return the numbers of a point's tries, latest first."""
    numbers = (name.removeprefix(TRY_PREFIX) for name in names(home) if name.startswith(TRY_PREFIX))
    return sorted((int(number) for number in numbers if number.isdecimal()), reverse=True)


def read_batches(folder: Path | str) -> tuple[list[Batch], tuple[str, ...]]:
    """Return the batches in the folder of a try, and notes on lines that cannot be read."""
    return read_tolerantly(
        Path(folder, BATCHES_FILE), lambda line, where: from_json(Batch, line, where=where)
    )


def read_points(run: Path) -> tuple[list[Point], tuple[str, ...]]:
    return read_tolerantly(run / POINTS_FILE, _point, growing=False)


TRIAL_SUFFIX = "-verify"
"""Ends the id of a point that tests a prediction; a number follows if the batch is tested again."""


def _point(line: str, where: str) -> Point:
    point = from_json(Point, line, where=where)
    if not all(isinstance(value, Value) for value in point.params.values()):
        raise JobkitError(f"{where}: params are neither whole numbers nor words")
    # Older runs mark a trial in the point's id alone.
    if not point.trial and TRIAL_SUFFIX in point.point_id:
        return replace(point, trial=bool(re.fullmatch(rf".*{TRIAL_SUFFIX}(-[0-9]+)?", point.point_id)))
    return point


def read_point(path: Path, index: int) -> Point:
    """Return the point on line ``index`` of a ``points.jsonl``."""
    for number, line in read_lines(path):
        if number == index:
            return from_json(Point, line, where=f"{path}:{number}")
    raise JobkitError(f"{path}: no line {index}", hint="points count from 1")


BY_HAND = "hand"


@keyed
class Begin:
    scheduler: str  # ``slurm``, ``sge``, ``local``, or ``hand`` if a person typed ``bash job.sh K``
    job: str  # the scheduler's ids of the job and the task; empty by hand
    task: int | None
    restart: int  # how often the scheduler had started this task before
    round: int  # the submission that the try belongs to: 1 is the sweep, later numbers are ``jobkit resume``
    host: str = ""  # host and process id of the job script
    pid: int | None = None
    at: str = ""  # UTC by the clock of the node, ISO 8601
    queue: str = ""  # the queue that the job got; empty without one


def read_begin(path: Path | str) -> Begin:
    pairs = _read_pairs(path, Begin)
    try:
        numbers = {name: int(pairs[name]) for name in ("restart", "round")}
        optional = {name: int(pairs[name]) if pairs.get(name) else None for name in ("task", "pid")}
        return Begin(**pairs | numbers | optional)
    except (KeyError, TypeError, ValueError) as error:
        raise JobkitError(f"{path}: not a begin file: {error!r}") from error


def _read_pairs(path: Path | str, kind: type[Begin | Exit]) -> dict[str, Any]:
    pairs = (line.partition("=") for line in read_text(path).split("\n"))
    known = {field.name for field in fields(kind)}
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip() in known}


@keyed
class Exit:
    """How the job script ended a try: the file ``exit``, lines of ``key=value``."""

    status: int  # exit status of the worker, or of the step that failed
    # the last step of the script: ``scratch``, ``environment``, ``gate``, ``stage_in``, ``run``,
    # ``done``
    stage: str
    # known only if the script itself found it, before or instead of a record
    outcome: Outcome | None = None
    signal: str | None = None  # the signal that the script received, else ``None``
    message: str = ""
    # why a point was skipped: if ``pruned``, the id of the point that ran out of memory; if ``stopped``, the
    # outcome of the points that failed. Empty in files of earlier versions.
    because: str = ""
    scratch: str = ""  # the scratch folder, as long as it keeps results that could not be copied home
    host: str = ""

    @property
    def kept(self) -> str:
        """The scratch folder that was kept, after its node."""
        return f"{self.host}:{self.scratch}" if self.host else self.scratch


def read_exit(path: Path | str) -> Exit:
    pairs = _read_pairs(path, Exit)
    try:
        outcome = Outcome(pairs["outcome"]) if pairs.get("outcome") else None
        status, signal = int(pairs["status"]), pairs.get("signal") or None
        return Exit(**{"stage": ""} | pairs | {"status": status, "outcome": outcome, "signal": signal})
    except (KeyError, ValueError) as error:
        raise JobkitError(f"{path}: not an exit file: {error}") from error
