"""What `jobkit apply` does: read the corpus, plan it, show the plan, write the folder, run or submit it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.layout import JOB_SCRIPT, SPEC_FILE, is_corpus_folder, is_unplanned, run_id_of
from jobkit.core.paths import cache_dir, ledger_path
from jobkit.core.records import ModelRef, Point
from jobkit.core.terminal import note, relative_path, shell_path
from jobkit.corpus.formats import DEFAULT_FORMAT, check_format
from jobkit.corpus.plan import Corpus, Piece, read_corpus
from jobkit.corpus.scan import scan
from jobkit.corpus.sources import find_sources
from jobkit.fit import ledger
from jobkit.planning.job_script import render, render_follow
from jobkit.planning.prepare import Prepared, refuse_too_many_threads, run_id
from jobkit.planning.resolve import Options, warn_again
from jobkit.planning.texts import is_sample_file
from jobkit.planning.workload_traits import traits
from jobkit.report.provenance import Promise, finish
from jobkit.schedulers.registry import runs_here
from jobkit.spec.sweep_spec import load_spec
from jobkit.status.reader import read_standings
from jobkit.status.table import render as render_status
from jobkit.submit import launch, local, resume, sweep
from jobkit.submit.apply import folder
from jobkit.submit.apply.heavy import find_heavy, refuse_too_large
from jobkit.submit.apply.lines import LABEL, Prospect, plan_lines
from jobkit.submit.apply.setting import AppliedSetting, find_setting
from jobkit.submit.apply.shards import Wishes, plan_shards, points_of

MOST_LISTED = 10
"""Shards that are listed one by one at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person asks of `jobkit apply`.

    Attributes
    ----------
    word
        The run, or the spec.
    paths
        The corpus, as typed.
    out
        The run folder to be, absolute.
    options
        What the command line adds to the spec.
    wishes
        What it asks of the shards.
    text_field, id_field
        Of JSONL documents.
    skip_bad
        Whether what cannot be read is left out.
    fmt
        The format in which the results are wanted.
    script
        Whether a dry run prints the job script, and not the plan.
    processes
        How many read the corpus; ``None`` for one for each core.
    earlier
        Whether it was asked of an earlier version, which used a stand-in without a question.
    """

    word: Path
    paths: tuple[str, ...]
    out: Path
    options: Options
    wishes: Wishes
    text_field: str = "text"
    id_field: str = "id"
    skip_bad: bool = False
    fmt: str = DEFAULT_FORMAT
    script: bool = False
    processes: int | None = None
    earlier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A corpus that could be worked through now: the run, and what was planned."""

    prepared: Prepared
    prospect: Prospect

    @property
    def lines(self) -> str:
        """The plan in words."""
        return "\n".join(plan_lines(self.prospect))


def apply(request: Request, *, dry_run: bool = False, wait: bool = False) -> int | None:
    """Work through a corpus, or go on with it; return an exit code, or ``None`` if all shards have ended.

    Raises
    ------
    JobkitError
        With all that is wrong with the corpus; if the folder is of something else; exit code 3 if the
        scheduler refuses.
    """
    folder.refuse_other_folder(request.out)
    if unplanned := is_unplanned(request.out):
        folder.refuse_planning_job(request.out)
    setting = find_permitted(request, build=not dry_run)
    check_format(request.fmt, columns(setting.point))
    corpus, pieces, read_s = read(request)
    if is_corpus_folder(request.out) and not unplanned:
        return go_on(request, setting, corpus, dry_run=dry_run, wait=wait)
    planned = prepare(request, setting, corpus, pieces, read_s)
    if dry_run:
        prepared = planned.prepared
        preview(request, planned.lines, prepared.script, launch.submit_commands(prepared, note))
        return 0
    return _start(planned, wait=wait)


def find_permitted(request: Request, *, build: bool) -> AppliedSetting:
    """Return the setting that a person asks for; refuse a stand-in for a corpus that is not the sample.

    Raises
    ------
    JobkitError
        As `jobkit.submit.apply.setting.find_setting`.
    """

    def refuse(workload: str, model: ModelRef | None, ways: tuple[str, ...]) -> None:
        if model and model.stand_in and not _permits_stand_in(request):
            from jobkit.planning.models.find import refuse_stand_in  # only for a stand-in

            refuse_stand_in(workload, model, "jobkit apply", *ways)

    return find_setting(request.word, request.options, build=build, say=note, refuse=refuse)


def _permits_stand_in(request: Request) -> bool:
    """Return whether a person permits it, the folder is planned already, or the corpus is the sample."""
    if (
        request.options.stand_in
        or request.earlier
        or (is_corpus_folder(request.out) and not is_unplanned(request.out))
    ):
        return True
    return all(is_sample_file(Path(found.path), cache_dir()) for found in find_sources(request.paths))


def columns(point: Point) -> tuple[str, ...]:
    """Return the columns of the rows that a shard yields."""
    staged = str(Path(point.files[0].path).parent) if point.files else None
    return traits(point.workload, point.workload_folder, staged).columns


def read(request: Request) -> tuple[Corpus, Sequence[Piece], float]:
    """Read a corpus once; return it, its pieces, and how long that took.

    Raises
    ------
    JobkitError
        With every place that cannot be read, unless they are to be left out.
    """
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
    request: Request, setting: AppliedSetting, corpus: Corpus, pieces: Sequence[Piece], read_s: float
) -> Planned:
    """Return the run that works through a corpus, as it could be submitted now."""
    heavy = find_heavy(corpus, pieces, setting)
    refuse_too_large(heavy, setting)
    plan = plan_shards(pieces, setting, request.wishes, heavy=heavy)
    spec = setting.spec.model_copy(update={"resources": plan.resources})
    spec = spec.model_copy(update={"pack": min(spec.pack, len(plan.shards))})
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
        script=render(spec, setting.site, points[0], request.out, corpus=corpus),
        follow_script=render_follow(spec, setting.site, points[0], request.out) if followed else None,
        needs={} if runs_here(spec.scheduler) else plan.needs,
    )
    prospect = Prospect(
        corpus=corpus,
        setting=setting,
        plan=plan,
        read_s=read_s,
        now=datetime.now(UTC),
        before=_before(setting.point),
    )
    return Planned(prepared=prepared, prospect=prospect)


def _before(point: Point) -> str:
    """Return how long earlier corpora took with this workload and model, next to what was predicted."""
    model = point.model.fingerprint if point.model else None
    return ledger.corpus_summary(ledger.corpora(ledger_path()), point.workload, model) or ""


def preview(request: Request, plan: str, script: str, commands: Iterable[Sequence[str]]) -> None:
    """Print the plan of a corpus and the commands that would submit it, or only the job script if asked."""
    if request.script:
        terminal.say(script.rstrip("\n"))
        return
    lines = [
        plan,
        f"{'commands':<{LABEL}}" + f"\n{' ' * LABEL}".join(map(shlex.join, commands)),
        "dry run: nothing was written or submitted; --script instead of --dry-run prints the job script",
    ]
    terminal.say("\n".join(lines))


def _start(planned: Planned, *, wait: bool) -> int | None:
    """Write the run folder, and run the shards here or submit them."""
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
    taken = sweep.submit(prepared, note, write=write)
    launch.note_submitted(prepared.spec.scheduler, taken.jobs, taken.refused)
    if prepared.needs:  # a round of its own for those that request more
        return resume.run_again(prepared.run_dir, (), (), wait=wait)
    if wait:
        return launch.wait_for_points(prepared.run_dir, prepared.points, prepared.spec.policy)
    launch.note_follow(prepared.run_dir)
    return 0


def write_planned(planned: Planned) -> None:
    """Write the run folder of a corpus, as `jobkit.submit.apply.folder.write_folder` does."""
    prospect = planned.prospect
    promise = promise_of(prospect.setting)
    folder.write_folder(planned.prepared, prospect.corpus, prospect.plan.shards, promise)


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
    from jobkit.status import progress_bars  # brings rich: a submission returns at once without it

    run_dir, points = prepared.run_dir, prepared.points
    with local.as_driver(run_dir) as job_id, progress_bars.ProgressBars(run_dir, points) as progress:
        local.drive(run_dir, progress.tick, job_id)


def go_on(
    request: Request, setting: AppliedSetting, corpus: Corpus, *, dry_run: bool, wait: bool
) -> int | None:
    """Go on with a folder that is of this corpus and this setting; refuse any other."""
    folder.refuse_differences(request.out, corpus, setting.point)
    note(f"{relative_path(request.out)}: is planned already: going on with it")
    if request.fmt not in {DEFAULT_FORMAT, (planned := read_corpus(request.out).format)}:
        other = f"jobkit merge {shell_path(request.out)} --format {request.fmt}"
        note(f"its results were ordered as {planned}; for the other format: {other}")
    if dry_run:
        script = shell_path(request.out / JOB_SCRIPT)
        note(f"dry run: nothing was submitted; {script} is the job script")
        return 0
    return resume.run_again(request.out, (), _changes(request), wait=wait)


def _changes(request: Request) -> tuple[str, ...]:
    """Return those of the keys that a person sets whose values are not yet those of the run."""
    path, overrides = request.out / SPEC_FILE, request.options.overrides
    before = load_spec(path)
    words = [word for word in overrides if word.partition("=")[0].strip() != "scheduler"]
    asked = request.options.scheduler or _scheduler_word(overrides)
    if asked and asked not in {"auto", before.scheduler}:
        raise JobkitError(
            f"{request.out}: runs with {before.scheduler}",
            hint=f"to move it: jobkit resume {shell_path(request.out)} --replan --set scheduler={asked}",
        )
    return tuple(word for word in words if load_spec(path, (word,)) != before)


def _scheduler_word(overrides: Sequence[str]) -> str:
    found = [
        word.partition("=")[2].strip() for word in overrides if word.partition("=")[0].strip() == "scheduler"
    ]
    return found[-1] if found else ""


def report_end(run_dir: Path) -> int:
    """Print how a corpus stands whose shards have ended, and what to type next; return the exit code."""
    run_dir = run_dir.absolute()
    closing = finish(run_dir)
    (run,) = read_standings([run_dir])
    terminal.say(
        render_status(run, relative_path(run_dir), width=terminal.page_width(), most=MOST_LISTED), nl=False
    )
    if closing:
        terminal.say(f"\n{closing}")
    return run.exit_code
