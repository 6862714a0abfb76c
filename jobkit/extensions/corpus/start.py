"""What `jobkit apply` does: read the corpus, plan it, show the plan, write the folder, run or submit it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from jobkit.answers import ledger
from jobkit.core import files, terminal
from jobkit.core.errors import JobkitError, file_error
from jobkit.core.files import folder_lock
from jobkit.core.knobs import OFFERED
from jobkit.core.layout import (
    ACCOUNTING_FILE,
    JOB_SCRIPT,
    JOURNAL_FILE,
    LOGS_FOLDER,
    POINTS_FILE,
    SPEC_FILE,
    WINNERS_FOLDER,
    read_points,
)
from jobkit.core.paths import cache_dir, ledger_path
from jobkit.core.records import ModelRef, Point
from jobkit.core.terminal import note, relative_path, shell_path
from jobkit.core.units import format_setting
from jobkit.extensions.corpus.formats import DEFAULT_FORMAT, check_format
from jobkit.extensions.corpus.oversized import find_heavy, refuse_too_large
from jobkit.extensions.corpus.plan import (
    Corpus,
    Piece,
    Shard,
    Source,
    is_corpus_folder,
    is_unplanned,
    read_corpus,
    write_plan,
)
from jobkit.extensions.corpus.plan_text import CorpusSummary, plan_lines
from jobkit.extensions.corpus.provenance import Promise, finish, write_promise
from jobkit.extensions.corpus.scan import find_sources, scan
from jobkit.extensions.corpus.setting import AppliedSetting, asked_scheduler, find_setting
from jobkit.extensions.corpus.shards import ShardOptions, plan_shards, points_of
from jobkit.launch import launch, local, resume, sweep
from jobkit.launch.job import announce
from jobkit.planning.job_script import render, render_follow
from jobkit.planning.prepare import Prepared, refuse_too_many_threads, run_id
from jobkit.planning.resolve import Options, warn_again
from jobkit.planning.texts import is_sample_file
from jobkit.planning.workload_traits import traits
from jobkit.runs import journal
from jobkit.runs.kinds import run_id_of
from jobkit.runs.reader import read_standings
from jobkit.runs.status_text import render as render_status
from jobkit.schedulers.registry import runs_here
from jobkit.spec.sweep_spec import load_spec

MOST_NAMED = 5


def write_folder(prepared: Prepared, corpus: Corpus, shards: Sequence[Shard], promise: Promise) -> None:
    """Write the run folder under another name, and rename it once it is whole.

    An existing folder that is not planned yet gets the missing files, the points last.
    """
    run_dir = prepared.run_dir
    part = run_dir.with_name(f".{run_dir.name}.part")
    try:
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(run_dir.parent):
            refuse_other_folder(run_dir)
            filled = is_unplanned(run_dir)
            if is_corpus_folder(run_dir) and not filled:
                raise JobkitError(
                    f"{run_dir}: another command has just made it", hint="type the same command again"
                )
            shutil.rmtree(part, ignore_errors=True)  # of a command that was killed
            sweep.write_files(prepared, part)
            (part / WINNERS_FOLDER).mkdir()
            write_promise(part, promise)
            write_plan(part, corpus, shards)
            if filled:
                _move_into(part, run_dir)
            for index, words in prepared.needs.items():
                journal.note(run_dir if filled else part, "needs", points=[index], given=list(words))
            (part / POINTS_FILE).replace(run_dir / POINTS_FILE) if filled else part.replace(run_dir)
            files.sync_folder(run_dir if filled else run_dir.parent)
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise file_error(error, run_dir, hint="choose another place with --out") from error


def _move_into(part: Path, run_dir: Path) -> None:
    """Move the missing files into a folder without plan, but not the points, which put it into force."""
    for entry in part.iterdir():
        target = run_dir / entry.name
        if entry.name == POINTS_FILE or entry.name in {JOURNAL_FILE, ACCOUNTING_FILE, LOGS_FOLDER}:
            continue
        if target.is_dir():  # of a command that was killed here
            shutil.rmtree(target)
        entry.replace(target)


def refuse_planning_job(run_dir: Path) -> None:
    (run,) = read_standings([run_dir])
    if run.planner:
        typed = shell_path(run_dir)
        raise JobkitError(
            f"{run_dir}: job {run.planner.submission.job} reads and plans this corpus",
            hint=f"jobkit status {typed} shows it; to plan the corpus here: jobkit cancel {typed} first",
        )


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


def refuse_differences(run_dir: Path, corpus: Corpus, point: Point) -> None:
    """Refuse to go on with a folder if another corpus or another setting is asked for."""
    points, _ = read_points(run_dir)
    found = [*corpus_differences(read_corpus(run_dir), corpus), *_setting_differences(points[0], point)]
    if found:
        more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
        lines = "".join(f"\n  {line}" for line in [*found[:MOST_NAMED], *more])
        raise JobkitError(
            f"{run_dir}: is of another corpus or setting:{lines}",
            hint=f"name another folder with --out; or go on with what was planned: jobkit resume "
            f"{shell_path(run_dir)}",
        )


def corpus_differences(before: Corpus, now: Corpus) -> Iterator[str]:
    for what in ("text_field", "id_field"):
        if getattr(before, what) != getattr(now, what):
            yield f"{what}: {getattr(before, what)} there, {getattr(now, what)} now"
    names = [[source.name for source in corpus.sources] for corpus in (before, now)]
    for name in (name for name in names[0] if name not in set(names[1])):
        yield f"{name}: there, and not in the corpus now"
    known = {source.name: source for source in before.sources}
    for source in now.sources:
        if source.name not in known:
            yield f"{source.name}: new"
        else:
            yield from _source_differences(known[source.name], source)
    if sorted(names[0]) == sorted(names[1]) and names[0] != names[1]:
        yield "the files are in another order"
    if not set(before.skipped) >= set(now.skipped):
        yield "other places cannot be read"


def _source_differences(before: Source, now: Source) -> Iterator[str]:
    if before.path != now.path:
        yield f"{now.name}: was {before.path}, is {now.path}"
    elif before.size_bytes != now.size_bytes:
        yield f"{now.name}: has changed: {before.size_bytes:,} bytes there, {now.size_bytes:,} now"
    elif before.sha256 != now.sha256:
        yield f"{now.name}: has changed: its content has another SHA-256"


def _setting_differences(before: Point, now: Point) -> Iterator[str]:
    """Yield how a setting differs, the identity of a shard aside."""
    if before.params != now.params:
        yield f"setting: {format_setting(before.params)} there, {format_setting(now.params)} now"
    fingerprints = [point.model.fingerprint if point.model else "none" for point in (before, now)]
    if fingerprints[0] != fingerprints[1]:
        yield f"model: {fingerprints[0][:12]} there, {fingerprints[1][:12]} now"
    digests = [{file.name: file.sha256 for file in point.files} for point in (before, now)]
    for name in sorted(digests[0].keys() & digests[1].keys()):
        if digests[0][name] != digests[1][name]:
            yield f"{name}: SHA-256 {digests[0][name][:12]} there, {digests[1][name][:12]} now"
    names = ("workload", "device", "order", "sort_window", "work_unit", "threads", "workers", "gpus", "mps")
    for name in (*names, *OFFERED, "allocator", "workload_folder"):
        was, is_ = getattr(before, name), getattr(now, name)
        if was != is_ and name not in before.params:
            yield f"{name}: {was} there, {is_} now"


MOST_LISTED = 10  # shards that are listed one by one at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    word: Path  # the run, or the spec
    paths: tuple[str, ...]  # the corpus, as typed
    out: Path  # the run folder to be, absolute
    options: Options  # what the command line adds to the spec
    wishes: ShardOptions  # what it asks of the shards
    text_field: str = "text"  # key of the text in JSONL documents
    id_field: str = "id"  # key of the id in JSONL documents
    skip_bad: bool = False  # whether what cannot be read is left out
    fmt: str = DEFAULT_FORMAT  # the format in which the results are wanted
    script: bool = False  # whether a dry run prints the job script, and not the plan
    show_environment: bool = False  # whether that script is printed with the values of `environment`
    processes: int | None = None  # how many read the corpus; ``None`` for one for each core
    # whether it was asked of an earlier version, which used a stand-in without a question
    earlier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    prepared: Prepared
    prospect: CorpusSummary

    @property
    def lines(self) -> str:
        return "\n".join(plan_lines(self.prospect))


def apply(request: ApplyRequest, *, dry_run: bool = False, wait: bool = False) -> int | None:
    """Work through a corpus, or go on with it; return an exit code, or ``None`` if all shards have ended."""
    refuse_other_folder(request.out)
    if unplanned := is_unplanned(request.out):
        refuse_planning_job(request.out)
    setting = find_permitted(request, build=not dry_run)
    check_format(request.fmt, columns(setting.point))
    corpus, pieces, read_s = read(request)
    if is_corpus_folder(request.out) and not unplanned:
        return go_on(request, setting, corpus, dry_run=dry_run, wait=wait)
    planned = prepare(request, setting, corpus, pieces, read_s)
    if dry_run:
        prepared = planned.prepared
        script, path = prepared.script, prepared.run_dir / JOB_SCRIPT
        script = script if request.show_environment else prepared.spec.hidden_in(script, request.word)
        lines, commands = planned.lines.splitlines(), launch.submit_commands(prepared)
        launch.preview(lines, script, path, commands, only_script=request.script)
        return 0
    return _start(planned, wait=wait)


def find_permitted(request: ApplyRequest, *, build: bool) -> AppliedSetting:
    """Return the setting that a person asks for; refuse a stand-in for a corpus that is not the sample."""

    def refuse(workload: str, model: ModelRef | None, ways: tuple[str, ...]) -> None:
        if model and model.stand_in and not _permits_stand_in(request):
            from jobkit.planning.models import refuse_stand_in  # only for a stand-in

            refuse_stand_in(workload, model, "jobkit apply", *ways)

    return find_setting(request.word, request.options, build=build, say=note, refuse=refuse)


def _permits_stand_in(request: ApplyRequest) -> bool:
    """Return whether a person permits it, the folder is planned already, or the corpus is the sample."""
    if (
        request.options.stand_in
        or request.earlier
        or (is_corpus_folder(request.out) and not is_unplanned(request.out))
    ):
        return True
    return all(is_sample_file(Path(found.path), cache_dir()) for found in find_sources(request.paths).files)


def columns(point: Point) -> tuple[str, ...]:
    staged = str(Path(point.files[0].path).parent) if point.files else None
    return traits(point.workload, point.workload_folder, staged).columns


def read(request: ApplyRequest) -> tuple[Corpus, Sequence[Piece], float]:
    """Read a corpus once; return it, its pieces, and how long that took."""
    begin = time.monotonic()
    found = scan(
        find_sources(request.paths),
        text_field=request.text_field,
        id_field=request.id_field,
        skip_bad=request.skip_bad,
        processes=request.processes,
    )
    return replace(found.corpus, format=request.fmt), found.pieces, time.monotonic() - begin


def prepare(
    request: ApplyRequest, setting: AppliedSetting, corpus: Corpus, pieces: Sequence[Piece], read_s: float
) -> Planned:
    """Return the run that works through a corpus, as it could be submitted now."""
    heavy = find_heavy(corpus, pieces, setting)
    refuse_too_large(heavy, setting)
    plan = plan_shards(pieces, setting, request.wishes, heavy=heavy)
    changes = {"resources": plan.resources, "pack": min(setting.spec.pack, len(plan.shards))}
    spec = setting.spec.model_copy(update=changes)
    setting = replace(setting, spec=spec)
    name = run_id_of(request.out) or run_id(spec.name)
    points = points_of(plan.shards, setting.point, request.out, name, corpus)
    refuse_too_many_threads(spec, points[:1])
    warn_again(note, spec, points[:1])
    followed = spec.policy.follow_up and not runs_here(spec.scheduler)
    prepared = Prepared(
        spec=spec,
        site=setting.site,
        why=setting.why,
        inputs=replace(setting.inputs, run_id=points[0].run_id, text=points[0].text),
        points=points,
        run_dir=request.out,
        script=render(spec, setting.site, points[0], request.out, places=corpus.folders()),
        follow_script=render_follow(spec, setting.site, points[0], request.out) if followed else None,
        needs={} if runs_here(spec.scheduler) else plan.needs,
    )
    model = setting.point.model.fingerprint if setting.point.model else None
    prospect = CorpusSummary(
        corpus=corpus,
        setting=setting,
        plan=plan,
        read_s=read_s,
        now=datetime.now(UTC),
        before=ledger.corpus_summary(ledger.corpora(ledger_path()), setting.point.workload, model) or "",
    )
    return Planned(prepared=prepared, prospect=prospect)


def _start(planned: Planned, *, wait: bool) -> int | None:
    prepared = planned.prepared
    note(planned.lines)
    if is_unplanned(prepared.run_dir):
        write_planned(planned)
        return resume.run_again(prepared.run_dir, (), (), wait=wait)
    write = partial(write_planned, planned)
    if runs_here(prepared.spec.scheduler):
        write()
        note(f"run folder: {relative_path(prepared.run_dir)}")
        _here(prepared)
        return resume.run_follow_up(prepared.run_dir) or None
    announce(prepared.spec.scheduler, sweep.submit(prepared, note, write=write))
    if prepared.needs:  # a round of its own for those that request more
        return resume.run_again(prepared.run_dir, (), (), wait=wait)
    if wait:
        return launch.wait_for_points(prepared.run_dir, prepared.points, prepared.spec.policy)
    launch.note_follow(prepared.run_dir)
    return 0


def write_planned(planned: Planned) -> None:
    prospect = planned.prospect
    promise = promise_of(prospect.setting)
    write_folder(planned.prepared, prospect.corpus, prospect.plan.shards, promise)


def promise_of(setting: AppliedSetting) -> Promise:
    """Return what was measured of a setting, as the run folder keeps it."""
    return Promise(
        source=setting.source,
        speed=setting.speed,
        energy=setting.energy,
        peak_bytes=setting.peak_bytes,
        measured=setting.measured,
        given=setting.given,
        past=setting.past,
        whole=True,
    )


def _here(prepared: Prepared) -> None:
    from jobkit.runs import watch  # brings rich: a submission returns at once without it

    run_dir, points = prepared.run_dir, prepared.points
    with local.as_driver(run_dir) as job_id, watch.ProgressBars(run_dir, points) as progress:
        local.drive(run_dir, progress.tick, job_id)


def go_on(
    request: ApplyRequest, setting: AppliedSetting, corpus: Corpus, *, dry_run: bool, wait: bool
) -> int | None:
    """Go on with a folder that is of this corpus and this setting; refuse any other."""
    refuse_differences(request.out, corpus, setting.point)
    note(f"{relative_path(request.out)}: the corpus is planned already: jobkit goes on with that plan")
    if request.fmt not in {DEFAULT_FORMAT, (planned := read_corpus(request.out).format)}:
        other = f"jobkit merge {shell_path(request.out)} --format {request.fmt}"
        note(f"the format of this run is {planned}; for {request.fmt}: {other}")
    if dry_run:
        script = shell_path(request.out / JOB_SCRIPT)
        note(f"dry run: nothing was submitted; {script} is the job script")
        return 0
    return resume.run_again(request.out, (), _changes(request), wait=wait)


def _changes(request: ApplyRequest) -> tuple[str, ...]:
    """Return those keys that a person sets whose values are not yet those of the run."""
    path, overrides = request.out / SPEC_FILE, request.options.overrides
    before = load_spec(path)
    words = [word for word in overrides if word.partition("=")[0].strip() != "scheduler"]
    asked = asked_scheduler(request.options)
    if asked and asked not in {"auto", before.scheduler}:
        raise JobkitError(
            f"{request.out}: runs with {before.scheduler}",
            hint="to move the shards: "
            f"jobkit resume {shell_path(request.out)} --replan --set scheduler={asked}",
        )
    return tuple(word for word in words if load_spec(path, (word,)) != before)


def report_end(run_dir: Path) -> int:
    """Print how an ended corpus stands, and what to type next; return the exit code."""
    run_dir = run_dir.absolute()
    closing = finish(run_dir)
    (run,) = read_standings([run_dir])
    terminal.say(
        render_status(run, relative_path(run_dir), width=terminal.page_width(), most=MOST_LISTED), nl=False
    )
    if closing:
        terminal.say(f"\n{closing}")
    return run.exit_code
