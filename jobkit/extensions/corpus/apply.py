"""What `jobkit apply` does: read the corpus, plan it here or in a job, write the folder, run or submit it.

`jobkit resume` goes on with it: a job plans it, its shards run again, or are planned again. Until a job has
planned a corpus, its run folder has an order (``apply.json``), a journal, and no points.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jobkit.core import files, terminal
from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.core.frozen import keyed
from jobkit.core.json_codec import to_json
from jobkit.core.knobs import OFFERED, TIMING
from jobkit.core.layout import (
    JOB_SCRIPT,
    ORDER_FILE,
    PLAN_SCRIPT,
    POINTS_FILE,
    PROMISE_FILE,
    SPEC_FILE,
    WINNERS_FOLDER,
    make_run_folder,
    read_points,
)
from jobkit.core.paths import cache_dir, ledger_path
from jobkit.core.records import MODEL_OPTIONS, ModelRef, Outcome, Point
from jobkit.core.terminal import note, relative_path, shell_path
from jobkit.core.units import GIB, MIB, first_lines, format_count, format_list, format_setting
from jobkit.extensions.corpus import ledger
from jobkit.extensions.corpus.formats import DEFAULT_FORMAT, check_format
from jobkit.extensions.corpus.plan import (
    Corpus,
    Piece,
    Source,
    is_corpus_folder,
    is_planned,
    is_unplanned,
    write_plan,
)
from jobkit.extensions.corpus.provenance import closing_line
from jobkit.extensions.corpus.replan import grow, measured, replan
from jobkit.extensions.corpus.scan import CorpusFiles, find_sources, scan
from jobkit.extensions.corpus.setting import AppliedSetting, asked_scheduler, find_setting, without
from jobkit.extensions.corpus.shards import (
    CorpusSummary,
    ShardOptions,
    covered,
    find_heavy,
    format_bytes,
    labelled,
    low_memory,
    plan_lines,
    plan_shards,
    points_of,
    refuse_too_large,
    table_bytes,
    unread_words,
)
from jobkit.extensions.corpus.standing import CorpusState, finish, gone_words, measures
from jobkit.extensions.corpus.tables import FILE_ROW
from jobkit.extensions.corpus.winners import retire
from jobkit.launch import launch, resume, submission
from jobkit.launch.job import begin_after, plan_job
from jobkit.launch.launch import Preview
from jobkit.launch.resume import (
    Asked,
    Resumption,
    prepare_resume,
    read_settled,
    refuse_moved_run,
    run_lock,
    spec_of_run,
)
from jobkit.planning.job_script import job_python, little, render_resume
from jobkit.planning.points import request as request_of
from jobkit.planning.prepare import NamedSpec, Options, Prepared, run_id, run_of, shared_by, warn_again
from jobkit.planning.texts import is_sample_file
from jobkit.planning.workload_traits import traits
from jobkit.report.recommend.material import VALUES_OF
from jobkit.runs import journal
from jobkit.runs.journal import STILL_AT_IT, Role, read_journal
from jobkit.runs.on_end import tell
from jobkit.runs.reader import read_status
from jobkit.runs.request import MINUTES, WORDS, RetryGroup, enough
from jobkit.runs.status import ENDINGS, RunStatus, first_task, point_named, run_id_of
from jobkit.runs.status_text import render as render_status
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.spec.site import queue_of
from jobkit.spec.sweep_spec import Resources, SweepSpec, load_spec


@keyed
class ApplyRequest:
    """What a person asks of `jobkit apply`, and, with what a job needs to plan it, ``apply.json``."""

    word: str  # the run, or the spec
    paths: tuple[str, ...]  # the corpus, as typed
    overrides: tuple[str, ...] = ()  # as in `Options`, as are the scheduler and the site
    scheduler: str | None = None  # in a job never ``auto``: a node may lack the commands that it looks for
    site: str | None = None
    minutes: float = MINUTES  # as in `ShardOptions`
    number: int | None = None
    text_field: str = ""  # names of the key or column of the text, one a line; empty for the usual ones
    id_field: str = ""
    encoding: str = ""  # of text files; empty for UTF-8
    split_long: bool = False  # whether a paragraph that no measured batch covers is cut
    skip_bad: bool = False  # whether what cannot be read is left out
    fmt: str = DEFAULT_FORMAT  # the format in which the results are wanted
    cpus: int | None = None  # how many processes read the corpus; ``None`` for one for each core
    # whether a person permits a stand-in model; ``None`` of an earlier version, which did not ask
    stand_in: bool | None = None
    run_id: str = ""  # of a job: of the run, and the name of its jobs
    folder: str = ""  # of a job: in which the command was typed; its paths begin there
    caveat: str = ""  # of a job: the label of the stand-in model; empty for a real one

    @property
    def options(self) -> Options:
        return Options(
            overrides=self.overrides,
            scheduler=self.scheduler,
            site=self.site,
            stand_in=bool(self.stand_in),
        )


class How(NamedTuple):
    """How a command goes on once the plan is made."""

    preview: Preview | None = None
    wait: bool = False
    detach: bool = False  # on this machine a process of its own works, and the command returns at once


# -- what both ways share


def apply(
    out: Path,
    request: ApplyRequest,
    *,
    as_job: bool = False,
    how: How = How(),  # noqa: B008 - it is immutable
) -> int | None:
    """Work through a corpus, or go on with it; return an exit code, or ``None`` if all shards have ended.

    ``as_job``: a job reads and plans it. Then it is not read here, and if the folder is planned already, its
    files are compared by name and size.
    """
    out = out.expanduser().absolute()
    refuse_other_folder(out)
    unplanned = is_unplanned(out)
    if unplanned and not as_job:
        _refuse_planning_job(out)
    setting = find_permitted(out, request, build=how.preview is None)
    point = setting.point
    staged = str(Path(point.files[0].path).parent) if point.files else None
    python = job_python(setting.spec.environment, setting.site)
    check_format(request.fmt, traits(point.workload, point.workload_folder, staged, python).columns)
    before = CorpusState(out).corpus if is_corpus_folder(out) and not unplanned else None
    if as_job:
        found = find_sources(request.paths)
        if before is None:
            return _submit(out, request, setting, found, how)
        corpus = _as_planned(before, found.files)
        return _go_on(out, request, setting, before, corpus, None, how)
    corpus, pieces, read_s = read(request, _split(request, setting, before), before)
    if before:
        return _go_on(out, request, setting, before, corpus, pieces, how)
    prepared, prospect = prepare(out, request, setting, corpus, pieces, read_s)
    lines = plan_lines(prospect)
    first = prepared
    if prospect.plan.measures:
        one = shared_by(prepared.spec, 1)
        first = replace(prepared, points=prepared.points[:1], needs={}, spec=one)
    if how.preview is not None:
        script, commands = (out / JOB_SCRIPT, prepared.script), launch.submit_commands(first)
        return launch.dry_run(how.preview, setting.spec, Path(request.word), lines, script, commands)
    note("\n".join(lines))
    if not (is_unplanned(out) or prospect.plan.measures):
        return launch.go(
            prepared, partial(write_planned, prepared, prospect), wait=how.wait, detach=how.detach
        )
    [*launch.submit_commands(first)]  # what the scheduler refuses leaves no folder
    write_planned(prepared, prospect)
    code = _go(out, setting.spec, (), how)
    here = code is None and runs_here(setting.spec.scheduler)
    return (resume.run_follow_up(out) or None) if here else code


def find_permitted(out: Path, request: ApplyRequest, *, build: bool) -> AppliedSetting:
    """Return the setting that a person asks for; refuse a stand-in for a corpus that is not the sample."""

    def refuse(workload: str, model: ModelRef | None, ways: tuple[str, ...]) -> None:
        if model is None or not model.stand_in or request.stand_in is not False or is_planned(out):
            return
        paths = [Path(found.path) for found in find_sources(request.paths).files]
        if not all(is_sample_file(path, cache_dir()) for path in paths):
            from jobkit.planning.models import refuse_stand_in  # only for a stand-in

            refuse_stand_in(workload, model, "jobkit apply", *ways)

    return find_setting(Path(request.word), request.options, build=build, say=note, refuse=refuse)


def _split(request: ApplyRequest, setting: AppliedSetting, before: Corpus | None = None) -> int:
    return ((before and before.split) or covered(setting)) if request.split_long else 0


def read(
    request: ApplyRequest, split: int = 0, before: Corpus | None = None
) -> tuple[Corpus, Sequence[Piece], float]:
    """Read a corpus once, first the files ``before``; return it, its pieces, and how long that took."""
    start, found = time.monotonic(), find_sources(request.paths)
    places = {source.name: place for place, source in enumerate(before.sources if before else ())}
    found.files.sort(key=lambda source: places.get(source.name, len(places)))
    done = scan(
        found,
        text_field=request.text_field,
        id_field=request.id_field,
        encoding=request.encoding,
        split=split,
        skip_bad=request.skip_bad,
        processes=request.cpus,
        before=before,
    )
    return replace(done.corpus, format=request.fmt), done.pieces, time.monotonic() - start


def prepare(
    out: Path,
    request: ApplyRequest,
    setting: AppliedSetting,
    corpus: Corpus,
    pieces: Sequence[Piece],
    read_s: float,
) -> tuple[Prepared, CorpusSummary]:
    """Return the run that works through a corpus, as it could be submitted now."""
    heavy = find_heavy(corpus, pieces, setting)
    refuse_too_large(heavy, setting)
    plan = plan_shards(
        pieces,
        setting,
        ShardOptions(minutes=request.minutes, number=request.number, limit_s=setting.longest_walltime()),
        tables=table_bytes(corpus),
        heavy=heavy,
    )
    spec = setting.spec.model_copy(update={"resources": plan.resources})
    spec = spec if plan.measures else shared_by(spec, len(plan.shards))
    setting = replace(setting, spec=spec, minutes=request.minutes if plan.measures else None)
    name = run_id_of(out) or run_id(spec.name)
    points = points_of(plan.shards, setting.point, out, name, corpus)
    inputs = replace(setting.inputs, run_id=points[0].run_id, text=points[0].text)
    named = NamedSpec(spec=spec, written=spec, site=setting.site, why=setting.why, inputs=inputs)
    prepared = run_of(named, points, out, places=corpus.folders(), needs=plan.needs)
    prepared = replace(prepared, spec=spec) if plan.measures else prepared  # the rest may share jobs
    warn_again(note, spec, points[:1])
    model = setting.point.model.fingerprint if setting.point.model else None
    return prepared, CorpusSummary(
        corpus=corpus,
        setting=setting,
        plan=plan,
        read_s=read_s,
        now=datetime.now(UTC),
        before=ledger.corpus_summary(ledger.corpora(ledger_path()), setting.point.workload, model) or "",
    )


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


# -- the folder


def refuse_other_folder(run_dir: Path) -> None:
    """Refuse a place that holds something else than the folder of a corpus."""
    if is_corpus_folder(run_dir):
        return
    try:
        empty = not run_dir.exists() or not any(run_dir.iterdir())
    except OSError:
        empty = False
    if not empty:
        what = "a folder that jobkit apply did not make" if run_dir.is_dir() else "a file"
        raise JobkitError(
            f"--out {run_dir}: exists already, {what}", hint="name a folder that does not exist"
        )


def _create(run_dir: Path, fill: Callable[[Path], None]) -> None:
    def check() -> bool:
        refuse_other_folder(run_dir)
        if is_planned(run_dir):
            raise JobkitError(
                f"{run_dir}: another command has just made it", hint="type the same command again"
            )
        return is_unplanned(run_dir)

    submission.create_run_folder(run_dir, check, fill, option="--out")


def write_planned(prepared: Prepared, prospect: CorpusSummary) -> None:
    """Write the run folder; one that is not planned yet gets the missing files."""

    def fill(part: Path) -> None:
        submission.write_files(prepared, part)
        (part / WINNERS_FOLDER).mkdir()
        files.write_atomically(part / PROMISE_FILE, to_json(prospect.setting.promise) + "\n")
        write_plan(part, prospect.corpus, prospect.plan.shards)
        for index, words in prepared.needs.items():
            journal.note(part, "needs", points=[index], given=list(words))

    _create(prepared.run_dir, fill)


# -- go on


def _go_on(
    out: Path,
    request: ApplyRequest,
    setting: AppliedSetting,
    before: Corpus,
    corpus: Corpus,
    pieces: Sequence[Piece] | None,
    how: How,
) -> int | None:
    """Go on with a folder that is of this corpus and this setting, also with new files; refuse any other.

    Without ``pieces`` the corpus was not read, and new files are refused too.
    """
    points, _ = read_points(out)
    known = {source.name for source in before.sources}
    new = [source for source in corpus.sources if source.name not in known]
    names = format_list([source.name for source in new])
    found = [*_corpus_differences(before, corpus), *_setting_differences(points[0], setting.point)]
    if found or (new and pieces is None):
        raise _refusal(out, found, names)
    so = f"adds {format_count(len(new), 'new file')}: {names}" if new else "goes on with that plan"
    note(f"{relative_path(out)}: the corpus is planned already: jobkit {so}")
    if request.fmt not in {DEFAULT_FORMAT, before.format}:
        other = f"jobkit merge {shell_path(out)} --format {request.fmt}"
        note(f"the format of this run is {before.format}; for {request.fmt}: {other}")
    refuse_moved_run(out)
    given = _changes(out, request)
    if pieces is not None and (new or not {*corpus.skipped} <= {*before.skipped}):
        corpus = replace(corpus, sources=(*before.sources, *new))
        wishes = ShardOptions(minutes=request.minutes, number=request.number)
        grow(out, corpus, pieces, setting, wishes, given, dry=how.preview is not None)
    if how.preview is not None:
        note(f"dry run: nothing was submitted; {shell_path(out / JOB_SCRIPT)} is the job script")
        return 0
    return _go(out, setting.spec, given, how)


def _go(run_dir: Path, spec: SweepSpec, given: tuple[str, ...], how: How) -> int | None:
    """Submit or run shards, or leave them to a process of its own."""
    if how.detach and runs_here(spec.scheduler):
        return launch.in_background(run_dir, [word for value in given for word in ("--set", value)])
    run = partial(resume.run_again, run_dir, (), given, wait=how.wait)
    return _cut_once_measured(run_dir, run, given, wait=how.wait)


def _cut_once_measured(
    run_dir: Path, run: Callable[[], int | None], given: tuple[str, ...] = (), *, wait: bool = False
) -> int | None:
    """Run shards, as `resume.run_again`; once the first has measured the speed, cut the rest by it."""
    code = None if measured(run_dir) else run()
    if code is None and measured(run_dir):
        return replan(run_dir, ShardOptions(minutes=measures(run_dir) or MINUTES), given, wait=wait)
    return code


def _refusal(out: Path, found: Sequence[str], new: str) -> JobkitError:
    """Return why a folder is not gone on with: what differs, if anything, and the names of new files."""
    lines = [*first_lines(found), *([f"new: {new}"] if new else [])]
    way = "restore the others, and name all files" if found else "leave out --plan-as-job"
    return JobkitError(
        "\n  ".join([f"{out}: is of another corpus or setting:", *lines]),
        hint=f"{f'to add new files {way}; or ' if new else ''}name another folder with --out; or go on with "
        f"what was planned: jobkit resume {shell_path(out)}",
    )


def _corpus_differences(before: Corpus, now: Corpus) -> Iterator[str]:
    """Yield how a corpus differs, new files aside."""
    for what in ("text_field", "id_field"):
        if getattr(before, what) != getattr(now, what):
            yield f"{what}: {getattr(before, what) or FILE_ROW} there, {getattr(now, what) or FILE_ROW} now"
    found = {source.name: source for source in now.sources}
    for was in before.sources:
        source = found.get(was.name)
        if source is None:
            yield f"{was.name}: there, and not in the corpus now"
        elif was.path != source.path:
            yield f"{source.name}: was {was.path}, is {source.path}"
        elif was.size_bytes != source.size_bytes:
            sizes = f"{was.size_bytes:,} bytes there, {source.size_bytes:,} now"
            yield f"{source.name}: has changed: {sizes}"
        elif was.sha256 != source.sha256:
            yield f"{source.name}: has changed: its content has another SHA-256"
        elif (was.encoding, was.columns) != (source.encoding, source.columns):
            yield f"{source.name}: is read with another encoding or other columns"
    known = {source.name for source in before.sources}
    skipped = ({bad for bad in corpus.skipped if bad.source in known} for corpus in (before, now))
    if len({*map(frozenset, skipped)}) > 1:
        yield "other places cannot be read"
    if bool(before.split) != bool(now.split):
        yield f"--split-long: {'yes' if before.split else 'no'} there"


def _setting_differences(before: Point, now: Point) -> Iterator[str]:
    """Yield how a setting differs, the identity of a shard aside."""
    if before.params != now.params:
        yield f"setting: {format_setting(before.params)} there, {format_setting(now.params)} now"
    was, is_ = (point.model.fingerprint if point.model else "none" for point in (before, now))
    if was != is_:
        yield f"model: {was[:12]} there, {is_[:12]} now"
    for name in MODEL_OPTIONS:
        both = (point.model.options if point.model else {} for point in (before, now))
        there, here = (repr(options[name]) if name in options else "none" for options in both)
        if there != here:
            yield f"{name}: {there} there, {here} now"
    digests = {file.name: file.sha256 for file in before.files}
    for file in now.files:
        if (there := digests.get(file.name, file.sha256)) != file.sha256:
            yield f"{file.name}: SHA-256 {there[:12]} there, {file.sha256[:12]} now"
    for name in ("workload", *TIMING, *OFFERED, "trim", "nan", "allocator", "workload_folder"):
        values = getattr(before, name), getattr(now, name)
        if values[0] != values[1] and name not in before.params:
            yield f"{name}: {values[0]} there, {values[1]} now"


def _changes(out: Path, request: ApplyRequest) -> tuple[str, ...]:
    """Return those keys that a person sets whose values are not yet those of the run."""
    before = load_spec(out / SPEC_FILE)
    asked = asked_scheduler(request.overrides, request.scheduler)
    if asked and asked not in {"auto", before.scheduler}:
        raise JobkitError(
            f"{out}: runs with {before.scheduler}",
            hint=f"to move the shards: jobkit resume {shell_path(out)} --replan --set scheduler={asked}",
        )
    words = [word for word in without(request.overrides, "scheduler") if not word.startswith(VALUES_OF)]
    return tuple(word for word in words if load_spec(out / SPEC_FILE, (word,)) != before)


# -- a job that plans

LEAST_S, MINUTE_S = 600, 60
PURPOSE = "reads and plans the corpus, and submits the shards, or records why not."
POLL_S = 1.0


def read_order(run_dir: Path) -> ApplyRequest:
    path = run_dir / ORDER_FILE
    try:
        return files.read_json(ApplyRequest, path)
    except OSError as error:
        raise file_error(error, path) from error


def _refuse_planning_job(run_dir: Path) -> None:
    (run,) = read_status([run_dir])
    if run.planner:
        typed = shell_path(run_dir)
        raise JobkitError(
            f"{run_dir}: job {run.planner.submission.job} reads and plans this corpus",
            hint=f"jobkit status {typed} shows it; to plan the corpus here: jobkit cancel {typed} first",
        )


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


def _submit(
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
    purpose = f"Runs before the shards of {spec.name}: {PURPOSE}"
    named = replace(point, run_id=order.run_id)
    script = render_resume(spec, setting.site, named, run_dir, resources, purpose)
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
        _create(run_dir, fill)
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
        walltime=(LEAST_S + size // (20 * MIB) // MINUTE_S * MINUTE_S) * 2**unfinished,
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


def order_again(run_dir: Path, *, wait: bool = False) -> int | None:
    """Submit the job that plans a corpus again, if none does; return as `apply`."""
    refuse_moved_run(run_dir)
    order = read_order(run_dir)
    with _in_folder(order):
        return apply(
            run_dir, replace(order, run_id="", folder="", caveat=""), as_job=True, how=How(wait=wait)
        )


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
                prepared, prospect = prepare(run_dir, order, setting, *read(order, _split(order, setting)))
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
        time.sleep(POLL_S)
    return _go_in_job(run_dir)


def _go_in_job(run_dir: Path) -> int:
    """Submit shards in a job; the journal records what could not be submitted."""
    try:
        return _cut_once_measured(run_dir, partial(resume.run_again, run_dir, (), ())) or 0
    except JobkitError as error:
        points = [point.index for point in read_points(run_dir)[0]]
        journal.note(run_dir, "left", points=points, why=error.message, role=Role.PLAN)
        note(f"{error}\na person must resume it: jobkit resume {shell_path(run_dir)}")
        return 0


# -- `jobkit resume`


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
            code = order_again(run_dir, wait=asked.wait)
        elif asked.replan:
            wishes = ShardOptions(minutes=asked.shard_minutes or MINUTES, number=asked.shards)
            code = replan(run_dir, wishes, asked.overrides, wait=asked.wait)
        else:
            run = partial(super().resume, run_dir, replace(asked, rows_gone=False, quarantine=False))
            code = _cut_once_measured(run_dir, run, asked.overrides, wait=asked.wait)
        return report_end(run_dir) if code is None else code

    def follow_up(self, run_dir: Path) -> int:
        """Plan the corpus, or the rest of it, and submit its shards, if that is still to be done."""
        if is_open(run_dir):
            return plan_in_job(run_dir)
        code = super().follow_up(run_dir)
        return _go_in_job(run_dir) if measured(run_dir) else code

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


CORPUS = CorpusResumption()
