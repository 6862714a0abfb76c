"""How a corpus goes on without `jobkit apply`: the job that plans it, and `jobkit resume`.

Until a job has planned it, the run folder has an order (``apply.json``), a journal, and no points.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jobkit.core import files, terminal
from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.core.json_codec import to_json
from jobkit.core.layout import (
    ORDER_FILE,
    PLAN_SCRIPT,
    POINTS_FILE,
    SPEC_FILE,
    make_run_folder,
    read_points,
)
from jobkit.core.records import Outcome
from jobkit.core.terminal import note, relative_path, shell_path
from jobkit.core.units import GIB, MIB, format_count, format_list
from jobkit.extensions.corpus.apply import (
    ApplyRequest,
    How,
    checked_setting,
    create,
    find_permitted,
    go_on,
    prepare,
    read,
    refuse_other_folder,
    write_planned,
)
from jobkit.extensions.corpus.plan import (
    Corpus,
    Source,
    is_planned,
    is_unplanned,
)
from jobkit.extensions.corpus.provenance import closing_line
from jobkit.extensions.corpus.replan import cut_once_measured, measured, replan
from jobkit.extensions.corpus.scan import CorpusFiles, find_sources
from jobkit.extensions.corpus.setting import AppliedSetting
from jobkit.extensions.corpus.shards import (
    ShardOptions,
    format_bytes,
    labelled,
    low_memory,
    plan_lines,
    unread_words,
)
from jobkit.extensions.corpus.standing import CorpusState, finish, gone_words, measures
from jobkit.extensions.corpus.winners import retire
from jobkit.launch import launch, resume, submission
from jobkit.launch.job import begin_after, plan_job
from jobkit.launch.resume import (
    Asked,
    Resumption,
    prepare_resume,
    read_settled,
    refuse_moved_run,
    run_lock,
    spec_of_run,
)
from jobkit.planning.job_script import little, render_resume
from jobkit.planning.points import request as request_of
from jobkit.planning.prepare import run_id
from jobkit.runs import journal
from jobkit.runs.journal import STILL_AT_IT, Role, read_journal
from jobkit.runs.on_end import tell
from jobkit.runs.reader import read_status
from jobkit.runs.request import MINUTES, WORDS, RetryGroup, enough
from jobkit.runs.status import ENDINGS, RunStatus, first_task, point_named, run_id_of
from jobkit.runs.status_text import render as render_status
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.spec.site import queue_of
from jobkit.spec.sweep_spec import Resources, SweepSpec

# -- a job that plans: `jobkit apply --plan-as-job`


def apply_as_job(out: Path, request: ApplyRequest, *, how: How = How()) -> int | None:  # noqa: B008 - it is immutable
    """Let a job read and plan a corpus, or go on with it by the names and sizes of its files; as `apply`."""
    out = out.expanduser().absolute()
    refuse_other_folder(out)
    setting = checked_setting(out, request, build=how.preview is None)
    found = find_sources(request.paths)
    if not is_planned(out):
        return _submit_job(out, request, setting, found, how)
    before = CorpusState(out).corpus
    return go_on(out, request, setting, before, _as_planned(before, found.files), None, how)


def read_order(run_dir: Path) -> ApplyRequest:
    path = run_dir / ORDER_FILE
    try:
        return files.read_json(ApplyRequest, path)
    except OSError as error:
        raise file_error(error, path) from error


def _as_planned(before: Corpus, found: Sequence[Source]) -> Corpus:
    """Return a corpus as it was planned, with the names and sizes of its files now."""
    known = {source.path: source for source in before.sources}
    left_out = {bad.source for bad in before.skipped if not bad.line}
    sources = (
        replace(known.get(one.path, one), name=one.name, size_bytes=one.size_bytes)
        for one in found
        if one.name not in left_out
    )
    return replace(before, sources=tuple(sources))


def _submit_job(
    run_dir: Path,
    request: ApplyRequest,
    setting: AppliedSetting,
    found: CorpusFiles,
    how: How,
) -> int | None:
    spec, point = setting.spec, setting.point
    if runs_here(spec.scheduler):
        raise JobkitError(
            "--plan-as-job: there is no scheduler here to submit the job to",
            hint="leave it out: then jobkit reads and plans the corpus now",
        )
    scheduler = by_name(spec.scheduler)
    # A node does not have the variables of the shell (see `asked_by_shell`).
    keys = scheduler.ASKING_VARIABLES.values()
    asked = {key: value for key in keys if (value := getattr(spec.resources, key))}
    given = (f"resources.{key}={json.dumps(value)}" for key, value in asked.items())
    order = replace(
        request,
        overrides=tuple(dict.fromkeys((*request.overrides, *given))),  # an order that is given again has them
        scheduler=spec.scheduler,
        site=spec.site,
        cpus=spec.resources.of(point).cpus,
        run_id=run_id_of(run_dir) or run_id(spec.name),
        folder=str(Path.cwd()),
        caveat=point.model.label if point.model else "",
    )
    resources = _resources(run_dir, setting, found.files)
    does = "reads and plans the corpus, and submits the shards, or records why not."
    named = replace(point, run_id=order.run_id)
    script = render_resume(
        spec, setting.site, named, run_dir, resources, f"Runs before the shards of {spec.name}: {does}"
    )
    plan = _plan_of_job(setting, found, resources)
    wanted = request_of(order.run_id, spec.model_copy(update={"pack": 1}), setting.site, resources)
    planner = plan_job(wanted)
    if how.preview is not None:
        path, source = run_dir / PLAN_SCRIPT, Path(request.word)
        jobs = begin_after([planner], spec, setting.site)
        commands = launch.commands_of(scheduler, run_dir, script, lambda _: jobs)
        return launch.dry_run(how.preview, spec, source, plan, (path, script), commands)
    note("\n".join(plan))
    [planner] = begin_after([planner], spec, setting.site)
    for line in submission.would_accept(scheduler, script, [planner]):
        note(line)
    texts = {SPEC_FILE: spec.as_yaml(), ORDER_FILE: to_json(order) + "\n", PLAN_SCRIPT: script}

    def fill(part: Path) -> None:
        make_run_folder(part, group=setting.site.group_can_read)
        (part / POINTS_FILE).touch()
        write(part)

    def write(folder: Path) -> None:
        for name, text in texts.items():
            files.write_atomically(folder / name, text)

    if not is_unplanned(run_dir):
        create(run_dir, fill)
    with run_lock(run_dir):
        if _is_under_way(run_dir, order):
            return ExitCode.TO_COME
        write(run_dir)
        submission.submit(run_dir, spec, [planner], ", then submits the shards")
    return submission.follow(run_dir, (), spec.policy, wait=how.wait)


def _resources(run_dir: Path, setting: AppliedSetting, found: Sequence[Source]) -> Resources:
    """Return what the job requests; each job that ended unplanned and uncancelled doubles its walltime."""
    size, unfinished = sum(one.size_bytes for one in found), 0
    if is_unplanned(run_dir):
        before = read_journal(run_dir)
        jobs = [job for job in before.submissions if job.role is Role.PLAN]
        unfinished = sum(first_task(job) not in before.cancelled for job in jobs)
    # 20 MiB/s is slower than one core reads JSONL (docs/measurements.md), because others use the file server
    # too; planning holds 2.5 MiB for each GiB of text (docs/measurements.md), several times that for archives
    return little(
        setting.spec,
        setting.site,
        cpus=setting.spec.resources.of(setting.point).cpus,
        memory=2 * GIB + size // 64 // GIB * GIB,
        walltime=(600 + size // (20 * MIB) // 60 * 60) * 2**unfinished,
    )


def _plan_of_job(setting: AppliedSetting, found: CorpusFiles, resources: Resources) -> list[str]:
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
    return labelled(rows)


def _is_under_way(run_dir: Path, order: ApplyRequest) -> bool:
    run = read_settled(run_dir, by_name(str(order.scheduler)))
    if run.planner is None:
        return False
    planner, typed = run.planner.submission.job, shell_path(run_dir)
    if replace(read_order(run_dir), stand_in=order.stand_in, caveat=order.caveat) != order:
        raise JobkitError(
            f"{run_dir}: job {planner} plans another corpus there, or with other options",
            hint=f"jobkit cancel {typed} ends that job; then type this command again",
        )
    note(f"job {planner} reads and plans the corpus: jobkit status {typed} shows it")
    return True


@contextlib.contextmanager
def _in_folder(order: ApplyRequest) -> Iterator[None]:
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


def plan_in_job(run_dir: Path) -> int:
    """Plan a corpus in the job, unless it is planned, and submit its shards; return the exit code.

    The journal records what could not be done: a person does it, on a submit host.
    """
    try:
        if is_unplanned(run_dir):
            order = read_order(run_dir)
            with _in_folder(order):
                setting = find_permitted(run_dir, order, build=True)
                prepared, prospect = prepare(run_dir, order, setting, *read(order, setting))
            note("\n".join(plan_lines(prospect)))
            with run_lock(run_dir):
                write_planned(prepared, prospect)
    except JobkitError as error:
        journal.note(run_dir, "left", points=[], why=str(error), role=Role.PLAN)
        note(str(error))
        return error.exit_code
    # The client may journal this job a second after it has begun.
    deadline = time.monotonic() + STILL_AT_IT.total_seconds()
    while read_journal(run_dir).unanswered is not None and time.monotonic() < deadline:
        time.sleep(1.0)
    return go_in_job(run_dir)


def go_in_job(run_dir: Path) -> int:
    """Submit shards in a job; the journal records what could not be submitted."""
    try:
        return cut_once_measured(run_dir, partial(resume.run_again, run_dir, (), ())) or 0
    except JobkitError as error:
        points = [point.index for point in read_points(run_dir)[0]]
        journal.note(run_dir, "left", points=points, why=error.message, role=Role.PLAN)
        note(f"{error}\na person must resume it: jobkit resume {shell_path(run_dir)}")
        return 0


# -- `jobkit resume`


def report_end(run_dir: Path) -> int:
    """Print how an ended corpus stands, and what to type next; return the exit code."""
    run_dir = run_dir.absolute()
    data = finish(run_dir)
    tell(run_dir)
    (run,) = read_status([run_dir])
    terminal.say(
        # shards that are listed one by one at the end
        render_status(run, relative_path(run_dir), width=terminal.page_width(), most=10),
        nl=False,
    )
    if data:
        terminal.say(f"\n{closing_line(data)}")
    return run.exit_code


def find_gone(run_dir: Path, asked: Asked) -> None:
    """Say which rows are gone; if asked, those of the shards in question never count again.

    So it is with the rows of shards that have paragraphs in quarantine.
    """
    refuse_moved_run(run_dir)
    again, named = asked.rows_gone or asked.quarantine, set[int]()
    if again:  # a word that is refused changes nothing
        (spec_of_run if asked.replan else prepare_resume)(run_dir, asked.overrides)
        points = read_points(run_dir)[0]
        words = (word for word in asked.only if word not in {*WORDS, *Outcome})
        named = {point_named(points, word).index for word in words}
    with run_lock(run_dir) if again else contextlib.nullcontext():
        standing = CorpusState(run_dir)
        bad = [one for one in standing.winners.values() if one.quarantined] if asked.quarantine else []
        gone = [] if asked.quarantine else standing.gone(read=again)
        found = [one for one in [*bad, *gone] if not named or one.index in named]
        for winner in found if again else ():
            retire(run_dir, winner)
    names = [winner.point_id for winner in found]
    if asked.quarantine:
        number = format_count(sum(one.quarantined for one in found), "paragraph")
        note(f"out of quarantine: {number} of {format_list(names) or 'no shard'}")
    elif found:
        way = "" if again else f"; to run these shards again: jobkit resume {shell_path(run_dir)} --rows-gone"
        note(f"{gone_words(names)}{way}")
    elif again:
        note("no rows are gone")


class CorpusResumption(Resumption):
    def resume(self, run_dir: Path, asked: Asked) -> int | None:
        """Go on, and print how the corpus stands once its shards have ended."""
        if not is_unplanned(run_dir):
            find_gone(run_dir, asked)
        if is_unplanned(run_dir):
            refuse_moved_run(run_dir)
            before = read_order(run_dir)
            order = replace(before, run_id="", folder="", caveat="")
            with _in_folder(before):  # the job that plans the corpus is submitted again, if none does
                code = apply_as_job(run_dir, order, how=How(wait=asked.wait))
        elif asked.replan:
            wishes = ShardOptions(minutes=asked.shard_minutes or MINUTES, number=asked.shards)
            code = replan(run_dir, wishes, asked.overrides, wait=asked.wait)
        else:
            run = partial(super().resume, run_dir, replace(asked, rows_gone=False, quarantine=False))
            code = cut_once_measured(run_dir, run, asked.overrides, wait=asked.wait)
        return report_end(run_dir) if code is None else code

    def follow_up(self, run_dir: Path) -> int:
        """Plan the corpus, or the rest of it, and submit its shards, if that is still to be done."""
        if is_open(run_dir):
            return plan_in_job(run_dir)
        code = super().follow_up(run_dir)
        return go_in_job(run_dir) if measured(run_dir) else code

    def decide(self, run: RunStatus, *rest: Any, **more: Any) -> list[RetryGroup]:  # noqa: ANN401 - as there
        """Leave the rest alone until the first shard has measured the speed."""
        points = run.points[:1] if measures(run.folder) else run.points
        return super().decide(replace(run, points=points), *rest, **more)

    def nothing(
        self, run: RunStatus, spec: SweepSpec, *, by_itself: bool = False, wait: bool = False
    ) -> int | None:
        """Return ``None`` if all shards have ended: the exit code is that of their state."""
        code = super().nothing(run, spec, by_itself=by_itself, wait=wait)
        if code or by_itself:
            return code
        if all(point.standing in ENDINGS for point in run.points):
            return None
        points = [point.point for point in run.points]
        return submission.wait_for_points(run.folder, points, spec.policy, run) if wait else 0


RESUMPTION = CorpusResumption()
