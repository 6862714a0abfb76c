"""What `jobkit apply` does: read the corpus, plan it, write the folder, run or submit it; or go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jobkit.core import files
from jobkit.core.errors import JobkitError
from jobkit.core.frozen import keyed
from jobkit.core.json_codec import to_json
from jobkit.core.knobs import OFFERED, TIMING
from jobkit.core.layout import (
    JOB_SCRIPT,
    PROMISE_FILE,
    SPEC_FILE,
    WINNERS_FOLDER,
    read_points,
)
from jobkit.core.paths import ledger_path
from jobkit.core.records import MODEL_OPTIONS, Point
from jobkit.core.terminal import note, relative_path, shell_path
from jobkit.core.units import first_lines, format_count, format_list, format_setting
from jobkit.extensions.corpus import ledger
from jobkit.extensions.corpus.formats import DEFAULT_FORMAT, check_format
from jobkit.extensions.corpus.plan import (
    Corpus,
    Piece,
    is_corpus_folder,
    is_planned,
    is_unplanned,
    write_plan,
)
from jobkit.extensions.corpus.replan import cut_once_measured, grow
from jobkit.extensions.corpus.scan import find_sources, scan
from jobkit.extensions.corpus.setting import AppliedSetting, asked_scheduler, find_setting, without
from jobkit.extensions.corpus.shards import (
    CorpusSummary,
    ShardOptions,
    covered,
    find_heavy,
    plan_lines,
    plan_shards,
    points_of,
    refuse_too_large,
    table_bytes,
)
from jobkit.extensions.corpus.standing import CorpusState
from jobkit.extensions.corpus.tables import FILE_ROW
from jobkit.launch import launch, resume, submission
from jobkit.launch.launch import Preview
from jobkit.launch.resume import (
    refuse_moved_run,
)
from jobkit.planning.job_script import job_python
from jobkit.planning.prepare import NamedSpec, Options, Prepared, run_id, run_of, shared_by, warn_again
from jobkit.planning.workload_traits import traits
from jobkit.report.recommend.material import VALUES_OF
from jobkit.runs import journal
from jobkit.runs.reader import read_status
from jobkit.runs.request import MINUTES
from jobkit.runs.status import run_id_of
from jobkit.schedulers.registry import runs_here
from jobkit.spec.sweep_spec import SweepSpec, load_spec


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


def apply(out: Path, request: ApplyRequest, *, how: How = How()) -> int | None:  # noqa: B008 - it is immutable
    """Work through a corpus, or go on with it; return an exit code, or ``None`` if all shards have ended."""
    out = out.expanduser().absolute()
    refuse_other_folder(out)
    if is_unplanned(out):
        _refuse_planning_job(out)
    setting = checked_setting(out, request, build=how.preview is None)
    before = CorpusState(out).corpus if is_planned(out) else None
    corpus, pieces, read_s = read(request, setting, before)
    if before:
        return go_on(out, request, setting, before, corpus, pieces, how)
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


def checked_setting(out: Path, request: ApplyRequest, *, build: bool) -> AppliedSetting:
    """Return the setting that a person asks for, whose results the format can hold."""
    setting = find_permitted(out, request, build=build)
    point = setting.point
    staged = str(Path(point.files[0].path).parent) if point.files else None
    python = job_python(setting.spec.environment, setting.site)
    check_format(request.fmt, traits(point.workload, point.workload_folder, staged, python).columns)
    return setting


def find_permitted(out: Path, request: ApplyRequest, *, build: bool) -> AppliedSetting:
    """Return the setting that a person asks for; refuse a stand-in for a corpus that is not the sample."""
    corpus = request.paths if request.stand_in is False and not is_planned(out) else ()
    return find_setting(Path(request.word), request.options, build=build, corpus=corpus)


def read(
    request: ApplyRequest, setting: AppliedSetting, before: Corpus | None = None
) -> tuple[Corpus, Sequence[Piece], float]:
    """Read a corpus once, first the files ``before``; return it, its pieces, and how long that took."""
    split = ((before and before.split) or covered(setting)) if request.split_long else 0
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


def _refuse_planning_job(run_dir: Path) -> None:
    (run,) = read_status([run_dir])
    if run.planner:
        typed = shell_path(run_dir)
        raise JobkitError(
            f"{run_dir}: job {run.planner.submission.job} reads and plans this corpus",
            hint=f"jobkit status {typed} shows it; to plan the corpus here: jobkit cancel {typed} first",
        )


def create(run_dir: Path, fill: Callable[[Path], None]) -> None:
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

    create(prepared.run_dir, fill)


def go_on(
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
    return cut_once_measured(run_dir, run, given, wait=how.wait)


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
    yield from _differing(*map(_read_as, (before, now)))
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
    was_bad, is_bad = ({bad for bad in one.skipped if bad.source in known} for one in (before, now))
    if was_bad != is_bad:
        yield "other places cannot be read"


def _read_as(corpus: Corpus) -> dict[str, str]:
    return {
        "text_field": corpus.text_field or FILE_ROW,
        "id_field": corpus.id_field or FILE_ROW,
        "--split-long": "yes" if corpus.split else "no",
    }


def _setting_differences(before: Point, now: Point) -> Iterator[str]:
    if before.params != now.params:
        yield f"setting: {format_setting(before.params)} there, {format_setting(now.params)} now"
    yield from _differing(*map(_facts, (before, now)))


def _facts(point: Point) -> dict[str, str]:
    """Return what a point consists of, its setting and the identity of a shard aside."""
    options = point.model.options if point.model else {}
    knobs = ("workload", *TIMING, *OFFERED, "trim", "nan", "allocator", "workload_folder")
    return {
        "model": point.model.fingerprint[:12] if point.model else "none",
        **{name: repr(options[name]) if name in options else "none" for name in MODEL_OPTIONS},
        **{file.name: f"SHA-256 {file.sha256[:12]}" for file in point.files},
        **{name: str(getattr(point, name)) for name in knobs if name not in point.params},
    }


def _differing(was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in now:
        if was.get(name, now[name]) != now[name]:
            yield f"{name}: {was[name]} there, {now[name]} now"


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
