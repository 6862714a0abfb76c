"""Plan a corpus in a job: submit it, go on with it, and what it does on the node.

Until the job has planned, the run folder has an order (``apply.json``), a journal, and no points.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobkit.core import files
from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.core.files import folder_lock, read_text
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import (
    ACCOUNTING_FILE,
    JOURNAL_FILE,
    LOGS_FOLDER,
    ORDER_FILE,
    PLAN_SCRIPT,
    POINTS_FILE,
    SPEC_FILE,
    read_points,
)
from jobkit.core.terminal import note, shell_path
from jobkit.core.units import GIB, MIB, format_count
from jobkit.extensions.corpus import start
from jobkit.extensions.corpus.formats import check_format
from jobkit.extensions.corpus.plan import Corpus, Source, is_corpus_folder, is_unplanned, read_corpus
from jobkit.extensions.corpus.plan_text import LABEL, format_bytes, low_memory, unread_words
from jobkit.extensions.corpus.setting import AppliedSetting
from jobkit.extensions.corpus.shards import ShardOptions
from jobkit.extensions.corpus.sources import CorpusFiles, find_sources
from jobkit.launch import job, launch, resume, scheduler_calls, submission
from jobkit.launch.guards import refuse_moved_run
from jobkit.launch.resubmit import read_settled, run_lock
from jobkit.planning.job_script import little, render_resume
from jobkit.planning.points import request as request_of
from jobkit.planning.prepare import run_id
from jobkit.planning.resolve import Options
from jobkit.runs import journal
from jobkit.runs.journal import STILL_AT_IT, Role, read_journal
from jobkit.runs.request import enough
from jobkit.runs.status import first_task, run_id_of
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.schedulers.types import ONE_TASK
from jobkit.spec.site import queue_of
from jobkit.spec.sweep_spec import Resources

LEAST_S, MINUTE_S = 600, 60
PURPOSE = "reads and plans the corpus, and submits the shards, or records why not."
BYTES_PER_S = 20 * MIB
"""Slower than one core reads JSONL (docs/measurements.md), because others use the file server too."""
LEAST_BYTES = 2 * GIB
CORPUS_SHARE = 64
"""Planning holds 2.5 MiB for each GiB of text (docs/measurements.md), several times that for archives."""
POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusJobSpec:
    """What a job is to plan: ``apply.json``."""

    run_id: str  # of the run, and the name of its jobs
    folder: str  # in which the command was typed: its paths begin there
    # as in `jobkit.extensions.corpus.start.ApplyRequest`
    word: str
    paths: tuple[str, ...]
    overrides: tuple[str, ...]
    scheduler: str  # decided, never ``auto``: a node may lack the commands that ``auto`` looks for
    site: str
    minutes: float  # as in `jobkit.extensions.corpus.shards.ShardOptions`
    number: int | None
    text_field: str  # from here on as in `ApplyRequest`
    id_field: str
    skip_bad: bool
    fmt: str
    cpus: int  # how many processes may read the corpus
    # whether a person permits a stand-in model; ``None`` of an earlier version, which did not ask
    stand_in: bool | None = None
    caveat: str = ""  # the label of the stand-in model; empty for a real one

    def request(self, run_dir: Path) -> start.ApplyRequest:
        """Return the request of `jobkit apply`; its paths hold in `folder`."""
        return start.ApplyRequest(
            word=Path(self.word),
            paths=self.paths,
            out=run_dir,
            options=Options(
                overrides=self.overrides,
                scheduler=self.scheduler,
                site=self.site,
                stand_in=bool(self.stand_in),
            ),
            earlier=self.stand_in is None,
            wishes=ShardOptions(minutes=self.minutes, number=self.number),
            text_field=self.text_field,
            id_field=self.id_field,
            skip_bad=self.skip_bad,
            fmt=self.fmt,
            processes=self.cpus,
        )


def read_order(run_dir: Path) -> CorpusJobSpec:
    path = run_dir / ORDER_FILE
    try:
        return from_json(CorpusJobSpec, read_text(path), where=str(path))
    except OSError as error:
        raise file_error(error, path) from error


def _order(request: start.ApplyRequest, setting: AppliedSetting) -> CorpusJobSpec:
    # A node does not have the variables of the shell (see `asked_by_shell`).
    keys = by_name(setting.spec.scheduler).ASKING_VARIABLES.values()
    asked = {key: value for key in keys if (value := getattr(setting.spec.resources, key))}
    return CorpusJobSpec(
        run_id=run_id_of(request.out) or run_id(setting.spec.name),
        folder=str(Path.cwd()),
        word=str(request.word),
        paths=request.paths,
        overrides=(
            *request.options.overrides,
            *(f"resources.{key}={json.dumps(value)}" for key, value in asked.items()),
        ),
        scheduler=setting.spec.scheduler,
        site=setting.spec.site,
        minutes=request.wishes.minutes,
        number=request.wishes.number,
        text_field=request.text_field,
        id_field=request.id_field,
        skip_bad=request.skip_bad,
        fmt=request.fmt,
        cpus=setting.spec.resources.of(setting.point).cpus,
        stand_in=request.options.stand_in,
        caveat=setting.point.model.label if setting.point.model else "",
    )


def apply(request: start.ApplyRequest, *, dry_run: bool = False, wait: bool = False) -> int | None:
    """Submit the job that plans a corpus, or go on; return as `jobkit.extensions.corpus.start.apply`.

    The corpus is not read here: if the folder is planned already, files are compared by name and size.
    """
    start.refuse_other_folder(request.out)
    setting = start.find_permitted(request, build=not dry_run)
    check_format(request.fmt, start.columns(setting.point))
    found = find_sources(request.paths)
    if is_corpus_folder(request.out) and not is_unplanned(request.out):
        corpus = _as_planned(read_corpus(request.out), found.files)
        return start.go_on(request, setting, corpus, dry_run=dry_run, wait=wait)
    if runs_here(setting.spec.scheduler):
        raise JobkitError(
            "--plan-as-job: there is no scheduler here to submit the job to",
            hint="leave it out: then jobkit reads and plans the corpus now",
        )
    return _submit(request, setting, found, dry_run=dry_run, wait=wait)


def _as_planned(before: Corpus, found: Sequence[Source]) -> Corpus:
    """Return a corpus as it was planned, with the names and sizes of its files now."""
    digests = {source.path: source.sha256 for source in before.sources}
    sources = (replace(one, sha256=digests.get(one.path, "")) for one in found)
    left_out = {bad.source for bad in before.skipped if not bad.line}
    return replace(before, sources=tuple(source for source in sources if source.name not in left_out))


def _submit(
    request: start.ApplyRequest,
    setting: AppliedSetting,
    found: CorpusFiles,
    *,
    dry_run: bool,
    wait: bool,
) -> int | None:
    order, run_dir, spec = _order(request, setting), request.out, setting.spec
    resources = _resources(setting, found.files, _unfinished(run_dir))
    point = replace(setting.point, run_id=order.run_id)
    purpose = f"Runs before the shards of {spec.name}: {PURPOSE}"
    script = render_resume(spec, setting.site, point, run_dir, resources, purpose)
    plan = "\n".join(_lines(setting, found, resources))
    if dry_run:
        planner, path = job.plan_job(), run_dir / PLAN_SCRIPT
        script = script if request.show_environment else spec.hidden_in(script, request.word)
        command = by_name(spec.scheduler).submit_argv(str(path), planner.array, ())
        launch.preview(plan.splitlines(), script, path, [command], only_script=request.script)
        return 0
    note(plan)
    _check(order, setting, resources, script)
    texts = {SPEC_FILE: spec.as_yaml(), ORDER_FILE: to_json(order) + "\n", PLAN_SCRIPT: script}
    if not is_unplanned(run_dir):
        _make_folder(run_dir, texts, group=setting.site.group_can_read)
    with run_lock(run_dir, note):
        if _is_under_way(run_dir, order):
            return ExitCode.TO_COME
        for name, text in texts.items():
            files.write_atomically(run_dir / name, text)
        jobs = submission.submit_jobs(by_name(spec.scheduler), run_dir, [job.plan_job()])
    job.announce(spec.scheduler, jobs, ", then submits the shards")
    if wait:
        return launch.wait_for_points(run_dir, (), spec.policy)
    launch.note_follow(run_dir)
    return 0


def _unfinished(run_dir: Path) -> int:
    """Return how many jobs were to plan a corpus, and were not cancelled."""
    if not is_unplanned(run_dir):
        return 0
    before = read_journal(run_dir)
    jobs = [job for job in before.submissions if job.role is Role.PLAN]
    return sum(first_task(job) not in before.cancelled for job in jobs)


def _resources(setting: AppliedSetting, found: Sequence[Source], unfinished: int) -> Resources:
    """Return what the job requests, with twice the walltime for each job that did not finish."""
    size = sum(one.size_bytes for one in found)
    return little(
        setting.spec,
        setting.site,
        cpus=setting.spec.resources.of(setting.point).cpus,
        memory=LEAST_BYTES + size // CORPUS_SHARE // GIB * GIB,
        walltime=(LEAST_S + size // BYTES_PER_S // MINUTE_S * MINUTE_S) * 2**unfinished,
    )


def _lines(setting: AppliedSetting, found: CorpusFiles, resources: Resources) -> Iterator[str]:
    size = format_bytes(sum(one.size_bytes for one in found.files))
    by_measure = enough(setting.spec.resources, held_bytes=setting.peak_bytes)
    queue = queue_of(resources, setting.site)
    rows = {
        "corpus": f"{format_count(len(found.files), 'file')}, {size}: to be read and planned by a job",
        "not read": unread_words(found.unread),
        "setting": f"{setting.words} ({setting.source})",
        "model": setting.point.model.label if setting.point.model else "",
        "request": f"for this job: {launch.request_words([resources])}{f', queue {queue}' if queue else ''}",
        "warning": "\n".join(low_memory(setting, by_measure.memory)),
    }
    yield from (f"{label.ljust(LABEL)}{words}" for label, words in rows.items() if words)


def _check(order: CorpusJobSpec, setting: AppliedSetting, resources: Resources, script: str) -> None:
    """Ask the scheduler whether it would accept the job, before anything is written."""
    spec = setting.spec.model_copy(update={"pack": 1})
    asked = request_of(order.run_id, spec, setting.site, resources)
    with tempfile.TemporaryDirectory(prefix="jobkit-") as place:
        path = Path(place) / PLAN_SCRIPT
        path.write_text(script, encoding="utf-8")
        scheduler = by_name(spec.scheduler)
        for line in scheduler_calls.check_submission(scheduler, asked, str(path), ONE_TASK):
            note(line)


def _make_folder(run_dir: Path, texts: Mapping[str, str], *, group: bool) -> None:
    """Write a run folder without points under another name, and rename it once it is whole."""
    part = run_dir.with_name(f".{run_dir.name}.part")
    try:
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(run_dir.parent):
            start.refuse_other_folder(run_dir)
            if is_corpus_folder(run_dir):
                raise JobkitError(
                    f"{run_dir}: another command has just made it", hint="type the same command again"
                )
            shutil.rmtree(part, ignore_errors=True)  # of a command that was killed
            files.make_run_folder(part, group=group)
            (part / LOGS_FOLDER).mkdir()
            for name in (POINTS_FILE, JOURNAL_FILE, ACCOUNTING_FILE):
                (part / name).touch()
            for name, text in texts.items():
                files.write_atomically(part / name, text)
            part.replace(run_dir)
            files.sync_folder(run_dir.parent)
    except OSError as error:
        raise file_error(error, run_dir, hint="choose another place with --out") from error


def _is_under_way(run_dir: Path, order: CorpusJobSpec) -> bool:
    run = read_settled(run_dir, by_name(order.scheduler), note)
    if run.planner is None:
        return False
    job, typed = run.planner.submission.job, shell_path(run_dir)
    if replace(read_order(run_dir), stand_in=order.stand_in, caveat=order.caveat) != order:
        raise JobkitError(
            f"{run_dir}: job {job} plans another corpus there, or with other options",
            hint=f"jobkit cancel {typed} ends that job; then type this command again",
        )
    note(f"job {job} reads and plans the corpus: jobkit status {typed} shows it")
    return True


def go_on(run_dir: Path, *, wait: bool = False) -> int | None:
    """Submit the job that plans a corpus again, if none does; return as `apply`."""
    refuse_moved_run(run_dir)
    order = read_order(run_dir)
    with _in_folder(order):
        return apply(order.request(run_dir), wait=wait)


@contextlib.contextmanager
def _in_folder(order: CorpusJobSpec) -> Iterator[None]:
    """Work in the folder in which an order was typed."""
    if not Path(order.folder).is_dir():
        hint = "the paths of the corpus begin there; type `jobkit apply` again in another folder"
        raise JobkitError(f"{order.folder}: no such folder", hint=hint)
    with contextlib.chdir(order.folder):
        yield


def is_open(run_dir: Path) -> bool:
    """Return whether a corpus that a job is to plan is not planned yet, or has no submitted shards."""
    return (run_dir / ORDER_FILE).is_file() and all(
        job.role is not Role.POINTS for job in read_journal(run_dir).submissions
    )


def run(run_dir: Path) -> int:
    """Plan a corpus in the job, unless it is planned, and submit its shards; return the exit code.

    The journal records what could not be done: a person does it, on a submit host.
    """
    try:
        if is_unplanned(run_dir):
            _plan(run_dir)
    except JobkitError as error:
        journal.note(run_dir, "left", points=[], why=str(error), role=Role.PLAN)
        note(str(error))
        return error.exit_code
    _await_answer(run_dir)
    try:
        return resume.run_again(run_dir, (), ()) or 0
    except JobkitError as error:
        points = [point.index for point in read_points(run_dir)[0]]
        journal.note(run_dir, "left", points=points, why=error.message, role=Role.PLAN)
        note(f"{error}\na person must resume it: jobkit resume {shell_path(run_dir)}")
        return 0


def _plan(run_dir: Path) -> None:
    order = read_order(run_dir)
    with _in_folder(order):
        request = order.request(run_dir)
        setting = start.find_permitted(request, build=True)
        planned = start.prepare(request, setting, *start.read(request))
    note(planned.lines)
    with run_lock(run_dir, note):
        start.write_planned(planned)


def _await_answer(run_dir: Path) -> None:
    """Wait until the client has journalled this job, which may be a second after it began."""
    deadline = time.monotonic() + STILL_AT_IT.total_seconds()
    while read_journal(run_dir).unanswered is not None and time.monotonic() < deadline:
        time.sleep(POLL_S)
