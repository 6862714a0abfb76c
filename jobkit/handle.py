"""A run as an object of Python, which outlives the process that began it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jobkit.core.errors import JobkitError, file_error
from jobkit.core.layout import SPEC_FILE, read_points, refuse_contract_file
from jobkit.core.terminal import note
from jobkit.report.loaded import Results
from jobkit.runs import reader, which_run
from jobkit.runs.journal import Submission, read_journal
from jobkit.runs.status import RunStatus, count_by_state, kind_of, point_named
from jobkit.schedulers.registry import runs_here

if TYPE_CHECKING:
    from jobkit.answers.gpus import GpuKind
    from jobkit.planning.prepare import Options
    from jobkit.report.recommend.advice import Advice
    from jobkit.spec.policy import Policy
    from jobkit.spec.sweep_spec import SweepSpec

Spec: TypeAlias = "Path | str | Mapping[str, Any] | SweepSpec"
"""A YAML file, its keys as a mapping, or the object that `load_spec` returns."""
Changes = Mapping[str, object] | Sequence[str]
"""Keys of the spec with other values: ``{"resources.memory": "16GiB"}``, or as ``--set`` takes them."""


@dataclass(frozen=True)
class Run(Results):
    """A handle on a run folder; of the jobs and of the results it holds nothing itself.

    A run goes on without it: after a restart of Python `jobkit.load` returns the same handle. Its notes, such
    as the ids of jobs, go to standard error. A point that fails is a row and a state, no exception.

    Attributes
    ----------
    folder
        The run folder.
    submitted
        Whether the call that returned this handle has submitted something.
    """

    submitted: bool = False

    def __repr__(self) -> str:
        try:
            (run,) = reader.read_status([self.folder.absolute()], ask=False)
        except (JobkitError, OSError):  # a debugger asks for it at any time
            return f"<jobkit.Run {self.folder}>"
        return f"<jobkit.Run {self.folder}: {count_by_state(run)}>"

    def status(self) -> RunStatus:
        """Return where the points and jobs stand now, as ``jobkit status`` prints it; ask the scheduler."""
        folder = self.folder.absolute()
        kind_of(folder).settle(folder)
        (run,) = reader.read_status([folder])
        return run

    @property
    def jobs(self) -> Sequence[Submission]:
        """The jobs that the scheduler accepted, the oldest first: ``job.id``, ``role``, ``at``."""
        return read_journal(self.folder).submissions

    def wait(self, timeout: float | None = None, poll: float | None = None) -> RunStatus:
        """Return where the run stands once nothing of it is to come, or after ``timeout`` seconds.

        Ctrl-C ends the waiting, not the run.

        Parameters
        ----------
        timeout
            In seconds; ``None`` for no end.
        poll
            Seconds between two questions to the scheduler. Default: from 2 to 30, growing.
        """
        from jobkit.runs import watch

        folder = self.folder.absolute()
        points, _ = read_points(folder)
        watch.until_done(folder, points, self._policy, waits=watch.until_time(timeout, poll))
        return self.status()

    def __await__(self) -> Generator[Any, None, RunStatus]:
        """Return as `wait`, without a bar, while other tasks of the event loop go on."""
        return self._ended().__await__()

    @property
    def _policy(self) -> Policy:
        from jobkit.spec.sweep_spec import load_spec

        return load_spec(self.folder / SPEC_FILE).policy

    async def _ended(self) -> RunStatus:
        from jobkit.runs import watch

        policy = self._policy
        for pause_s in watch.until_time(None, None):
            if watch.is_over(run := await asyncio.to_thread(self.status), policy):
                break
            await asyncio.sleep(pause_s)
        return run

    def recommend(
        self,
        corpus: Sequence[Path | str] | Path | str = (),
        changes: Changes = (),
        *,
        gpus: str | Sequence[GpuKind] | None = None,
        margin: float = 0.0,
        min_f1: float = 1.0,
        skip_bad: bool = False,
    ) -> Advice:
        """Return what ``jobkit recommend`` prints: setting, request, time, largest batch.

        Parameters
        ----------
        corpus
            Files and folders, or a number of paragraphs as text.
        changes
            Keys of the spec with other values, such as ``objective.metric``.
        gpus
            Names of GPUs with commas between, or ``all``.
        margin
            Share of memory to keep free in addition.
        min_f1
            Also accept a precision whose F1 with the entities of fp32 is at least this.
        skip_bad
            Whether to skip what cannot be read of the corpus.
        """
        from jobkit.answers.gpus import gpu_kinds
        from jobkit.planning.texts import read_corpora
        from jobkit.report.recommend.advice import recommend
        from jobkit.report.recommend.material import read_material

        which_run.refuse_unmeasured(self.folder, "recommend")
        material = read_material(self.folder, _words(changes))
        return recommend(
            material,
            gpus=gpu_kinds(gpus) if isinstance(gpus, str) else gpus,
            corpus=read_corpora(paths, material.records, skip_bad=skip_bad)
            if (paths := _paths(corpus))
            else None,
            margin=margin,
            min_f1=min_f1,
        )

    def report(self, output: Path | str = "report.html") -> Path:
        """Write what ``jobkit report`` writes, whole or not at all, and return the file."""
        from jobkit.core.files import write_atomically
        from jobkit.report.page import page

        refuse_contract_file(file := Path(output), "report")
        try:
            write_atomically(file, page([self.folder]).html)
        except OSError as error:
            raise file_error(error, file) from error
        return file

    def merge(self, fmt: str = "", output: Path | str | None = None) -> Path:
        """Write the rows of a corpus into one file, in the order of the corpus, and return the file.

        Parameters
        ----------
        fmt
            As ``jobkit merge --format``. Default: the format that `apply` got.
        output
            Default: ``merged`` in the run folder, with the ending of the format.
        """
        from jobkit.extensions.corpus.merge import default_format, merge
        from jobkit.extensions.corpus.plan import refuse_sweep
        from jobkit.extensions.corpus.standing import finish

        refuse_sweep(folder := self.folder.absolute())
        fmt = fmt or default_format(folder)
        refuse_contract_file(file := Path(output or self.folder / f"merged.{fmt}"), "merge")
        merged = merge(folder, file, fmt)
        finish(folder)
        return merged.outputs[0]

    def resume(self, *points: int | str, changes: Changes = ()) -> Run:
        """Submit again what failed, was cancelled or is missing, or only these points; return at once.

        Parameters
        ----------
        points
            Numbers or ids. Default: all that failed, were cancelled or are missing.
        changes
            Keys of the spec with other values, such as ``resources.memory``.
        """
        from jobkit.launch.launch import in_background
        from jobkit.launch.resume import Asked, resumption_of
        from jobkit.spec.sweep_spec import load_spec

        folder = which_run.changed_run_named(self.folder, "resume").absolute()
        words, named = _words(changes), tuple(map(str, points))
        for word in named:
            point_named(read_points(folder)[0], word)
        before = len(self.jobs)
        if runs_here(load_spec(folder / SPEC_FILE).scheduler):
            in_background(folder, [*named, *(word for value in words for word in ("--set", value))])
        else:
            resumption_of(folder).resume(folder, Asked(only=named, overrides=words))
        return replace(self, submitted=len(self.jobs) > before)

    def cancel(self, *points: int | str) -> Run:
        """Cancel what has not ended, or only these points, given by number or id."""
        from jobkit.launch.cancel import cancel

        cancel(which_run.changed_run_named(self.folder, "cancel").absolute(), tuple(map(str, points)), ())
        return self


def load(run: Path | str) -> Run:
    """Return a handle on a run that exists, which needs no scheduler.

    Parameters
    ----------
    run
        The run folder, or the name of a run, as every command takes it.

    Raises
    ------
    NotFoundError
        If there is no such run.
    """
    return Run(which_run.run_named(run))


def sweep(
    spec: Spec,
    changes: Changes = (),
    *,
    new: bool = False,
    setting: Path | None = None,
    stand_in: bool = False,
    runs_dir: Path | str | None = None,
) -> Run:
    """Submit what a spec describes, as ``jobkit sweep``, or run it here in the background.

    Returns at once. If a run of the same spec, text, model and points exists, that run is returned and
    nothing is submitted.

    Parameters
    ----------
    spec
        A file, a mapping of keys, or what `load_spec` returns.
    changes
        Keys with other values.
    new
        Whether to begin another run even if one exists.
    setting
        The folder of a run of `tune`, whose setting applies.
    stand_in
        Whether a stand-in may replace a model that is missing.
    runs_dir
        The folder of the run folders.

    Raises
    ------
    InvalidSpecError
        With all errors of the spec.
    RefusedError
        If the scheduler would refuse the request, or refuses it.
    """
    from jobkit.launch import launch
    from jobkit.launch.submission import write_run
    from jobkit.planning.prepare import prepare

    path, options = _named(spec, changes, runs_dir, stand_in=stand_in)
    run = prepare(path, replace(options, setting=setting), build=True, say=note)
    if not new and (before := launch.find_duplicate(run)):
        return Run(before)
    check = partial(launch.refuse_duplicate, run, new=new)
    launch.go(run, partial(write_run, run, check), detach=True)
    return Run(run.run_dir, submitted=True)


def tune(
    spec: Spec,
    changes: Changes = (),
    *,
    new: bool = False,
    stand_in: bool = False,
    runs_dir: Path | str | None = None,
) -> Run:
    """Search the fastest setting of a spec, as ``jobkit tune``; parameters, return and errors as `sweep`."""
    from jobkit.extensions.tune import job
    from jobkit.launch import launch

    path, options = _named(spec, changes, runs_dir, stand_in=stand_in)
    run, goal = job.prepare_search(path, options, build=True, say=note)
    if not new and (before := launch.find_duplicate(run)):
        return Run(before)
    job.tune(run, goal, partial(launch.refuse_duplicate, run, new=new), wait=False, detach=True)
    return Run(run.run_dir, submitted=True)


def apply(
    run: Run | Path | str,
    corpus: Sequence[Path | str] | Path | str,
    out: Path | str,
    changes: Changes = (),
    *,
    stand_in: bool = False,
    **options: Any,  # noqa: ANN401 - fields of `ApplyRequest`
) -> Run:
    """Work through a corpus with the setting of a run, or of a spec, as ``jobkit apply``; return at once.

    If ``out`` exists, its run goes on: what is done is not done again.

    Parameters
    ----------
    run
        A run, its folder, or a spec.
    corpus
        Files and folders.
    out
        The run folder, in which the rows will be.
    changes
        Keys of the spec with other values.
    stand_in
        Whether a stand-in model may work on a corpus.
    options
        ``text_field``, ``id_field``, ``encoding``, ``split_long``, ``skip_bad``, ``fmt``, ``minutes`` (of a
        shard), ``number`` (of shards): as the options of the command.
    """
    from jobkit.core.paths import cache_dir
    from jobkit.extensions.corpus import apply as applying
    from jobkit.extensions.corpus.scan import corpus_path

    request = applying.ApplyRequest(
        word=str(run.folder if isinstance(run, Run) else run),
        paths=tuple(corpus_path(word, cache_dir()) for word in _paths(corpus)),
        overrides=_words(changes),
        stand_in=stand_in,
        **options,
    )
    made = Run(Path(out).expanduser())
    before = len(made.jobs)
    applying.apply(made.folder, request, how=applying.How(detach=True))
    return replace(made, submitted=len(made.jobs) > before)


def _named(
    spec: Spec, changes: Changes, runs_dir: Path | str | None, *, stand_in: bool
) -> tuple[Path, Options]:
    """Return the file of a spec, or the text of one that has none, with its options."""
    from jobkit.planning.prepare import Options
    from jobkit.spec.sweep_spec import SweepSpec
    from jobkit.spec.yaml_files import as_yaml

    text = None
    if isinstance(spec, SweepSpec):
        text = spec.as_yaml()
    elif isinstance(spec, Mapping):
        text = as_yaml(spec)
    path = Path("spec") if text is not None else Path(str(spec))
    folder = None if runs_dir is None else Path(runs_dir)
    return path, Options(overrides=_words(changes), stand_in=stand_in, runs_dir=folder, text=text)


def _words(changes: Changes) -> tuple[str, ...]:
    """Return changes as ``--set`` takes them: JSON is YAML."""
    if isinstance(changes, str):
        raise JobkitError(f"{changes!r} is one text", hint='name changes as {"repeats": 1} or ["repeats=1"]')
    if isinstance(changes, Mapping):
        return tuple(f"{key}={json.dumps(value, default=str)}" for key, value in changes.items())
    return tuple(changes)


def _paths(corpus: Sequence[Path | str] | Path | str) -> tuple[str, ...]:
    return (str(corpus),) if isinstance(corpus, (str, Path)) else tuple(map(str, corpus))
