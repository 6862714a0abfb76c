"""A run as an object of Python, which outlives the process that began it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jobkit.core.errors import InvalidSpecError, JobkitError, file_error
from jobkit.core.layout import SPEC_FILE, read_points, refuse_contract_file
from jobkit.core.terminal import note
from jobkit.report.loaded import Results
from jobkit.runs import reader, which_run
from jobkit.runs.journal import Submission, read_journal
from jobkit.runs.status import RunStatus, count_by_state, kind_of, point_named
from jobkit.schedulers.registry import runs_here

if TYPE_CHECKING:
    from jobkit.answers.gpus import GpuKind
    from jobkit.report.recommend.advice import Advice
    from jobkit.schedulers.survey import RequestedQueues
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
    on
        The host that has the run, as of ``jobkit --on``; ``folder`` is then a copy of its records, which each
        answer brings up to date.
    """

    submitted: bool = False
    on: str = ""

    def __repr__(self) -> str:
        name = f"{self.folder} on {self.on}" if self.on else self.folder
        try:
            (run,) = reader.read_status([self.folder.absolute()], ask=False)
        except (JobkitError, OSError):  # a debugger asks for it at any time
            return f"<jobkit.Run {name}>"
        return f"<jobkit.Run {name}: {count_by_state(run)}>"

    def _home(self) -> Path:
        return Path(self._there("load")["run"]) if self.on else self.folder

    def _there(self, name: str, *points: int | str, **given: object) -> Mapping[str, Any]:
        from jobkit.extensions.on_host.commands import call

        return call(self.on, name, {"run": str(self.folder), "points": points, **given})

    def _look(self) -> tuple[RunStatus, bool]:
        """Return where the run stands, and whether nothing of it is to come."""
        from jobkit.runs import watch

        if self.on:
            there = self._there("status")
            return reader.status_of_copy(self.folder.absolute(), there), there["over"]
        return (run := self.status()), watch.is_over(run, self._policy)

    def status(self) -> RunStatus:
        """Return where the points and jobs stand now, as ``jobkit status`` prints it; ask the scheduler."""
        if self.on:
            return self._look()[0]
        folder = self.folder.absolute()
        kind_of(folder).settle(folder)
        (run,) = reader.read_status([folder])
        return run

    @property
    def jobs(self) -> Sequence[Submission]:
        """The jobs that the scheduler accepted, the oldest first: ``job.id``, ``role``, ``at``."""
        return read_journal(self._home()).submissions

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
        waits, look = watch.until_time(timeout, poll), self._look if self.on else None
        watch.until_done(folder, points, self._policy, waits=waits, look=look)
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

        for pause_s in watch.until_time(None, None):
            run, over = await asyncio.to_thread(self._look)
            if over:
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

        which_run.refuse_unmeasured(folder := self._home(), "recommend")
        material = read_material(folder, _words(changes))
        asked, site = material.resources, material.site

        def queues() -> RequestedQueues | None:
            from jobkit.setup.ask import asked_queues  # only a long request asks for limits

            return asked_queues(asked, site) if asked and site else None

        return recommend(
            material,
            gpus=gpu_kinds(gpus) if isinstance(gpus, str) else gpus,
            corpus=read_corpora(paths, material.records, skip_bad=skip_bad)
            if (paths := _paths(corpus))
            else None,
            margin=margin,
            min_f1=min_f1,
            queues=queues,
        )

    def report(self, output: Path | str = "report.html") -> Path:
        """Write what ``jobkit report`` writes, whole or not at all, and return the file."""
        from jobkit.core.files import write_atomically
        from jobkit.report.page import page

        refuse_contract_file(file := Path(output), "report")
        try:
            write_atomically(file, page([self._home()]).html)
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

        if self.on:
            from jobkit.extensions.on_host.commands import fetch_merged

            self._there("merge", fmt=fmt, output=output)
            return fetch_merged(self.on, str(self.folder), fmt, str(output or ""))
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

        if self.on:
            there = self._there("resume", *points, changes=_words(changes))
            return replace(self, submitted=there["submitted"])
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

        if self.on:
            self._there("cancel", *points)
            return self
        cancel(which_run.changed_run_named(self.folder, "cancel").absolute(), tuple(map(str, points)), ())
        return self


def load(run: Path | str, *, on: str = "") -> Run:
    """Return a handle on a run that exists, which needs no scheduler.

    Parameters
    ----------
    run
        The run folder, or the name of a run, as every command takes it.
    on
        The host that has the run, as of ``jobkit --on``.

    Raises
    ------
    NotFoundError
        If there is no such run.
    """
    if on:
        from jobkit.extensions.on_host.commands import call

        return Run(call(on, "load", {"run": str(run)})["run"], on=on)
    return Run(which_run.run_named(run))


def sweep(
    spec: Spec,
    changes: Changes = (),
    *,
    new: bool = False,
    setting: Path | None = None,
    stand_in: bool = False,
    runs_dir: Path | str | None = None,
    on: str = "",
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
    on
        The host that runs it, as of ``jobkit --on``; the working directory is the project.

    Raises
    ------
    InvalidSpecError
        With all errors of the spec.
    RefusedError
        If the scheduler would refuse the request, or refuses it.
    """
    given = {"new": new, "setting": setting, "stand_in": stand_in, "runs_dir": runs_dir}
    return _begin("sweep", spec, changes, on, **given)


def tune(
    spec: Spec,
    changes: Changes = (),
    *,
    new: bool = False,
    stand_in: bool = False,
    runs_dir: Path | str | None = None,
    on: str = "",
) -> Run:
    """Search the fastest setting of a spec, as ``jobkit tune``; parameters, return and errors as `sweep`."""
    return _begin("tune", spec, changes, on, new=new, stand_in=stand_in, runs_dir=runs_dir)


def _begin(name: str, spec: Spec, changes: Changes, on: str, **given: Any) -> Run:  # noqa: ANN401 - as `sweep`
    """Begin a sweep or a search, here or on a host, unless it has a run already."""
    from jobkit.extensions.tune import job
    from jobkit.launch import launch
    from jobkit.launch.submission import write_run
    from jobkit.planning.prepare import Options, prepare
    from jobkit.spec.sweep_spec import SweepSpec
    from jobkit.spec.yaml_files import as_yaml

    spec = spec.model_dump(mode="json") if isinstance(spec, SweepSpec) else spec
    text = as_yaml(spec) if isinstance(spec, Mapping) else None
    path = Path("spec" if isinstance(spec, Mapping) else spec)
    if on:
        files = {"setting": given.get("setting"), "document": text, "spec": None if text else path}
        return _begin_there(on, name, changes, {**given, "spec": spec}, files)
    new, folder = given.pop("new"), given.pop("runs_dir")
    options = Options(overrides=_words(changes), runs_dir=folder and Path(folder), text=text, **given)
    goal = None
    if name == "tune":
        run, goal = job.prepare_search(path, options, build=True, say=note)
    else:
        run = prepare(path, options, build=True, say=note)
    if not new and (before := launch.find_duplicate(run)):
        return Run(before)
    check = partial(launch.refuse_duplicate, run, new=new)
    if goal:
        job.tune(run, goal, check, detach=True)
    else:
        launch.go(run, partial(write_run, run, check), detach=True)
    return Run(run.run_dir, submitted=True)


def apply(
    run: Run | Path | str,
    corpus: Sequence[Path | str] | Path | str,
    out: Path | str,
    changes: Changes = (),
    *,
    stand_in: bool = False,
    on: str = "",
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
    on
        The host that does it, as of ``jobkit --on``. Default: that of the run.
    options
        ``text_field``, ``id_field``, ``encoding``, ``split_long``, ``skip_bad``, ``format``,
        ``shard_minutes``, ``shards``: as the options of the command.

    Raises
    ------
    InvalidSpecError
        If an option is none of these, or something of the corpus cannot be read.
    """
    if unknown := [name for name in options if name not in {*_OPTIONS, *_OPTIONS.values()}]:
        hint = f"its options are {', '.join(_OPTIONS)}"
        raise InvalidSpecError(f"jobkit.apply has no argument {', '.join(unknown)}", hint=hint)
    options = {_OPTIONS.get(name) or name: value for name, value in options.items()}
    word = str(run.folder if isinstance(run, Run) else run)
    if on := on or (run.on if isinstance(run, Run) else ""):
        files = {"run": word, "corpus": _paths(corpus), "site": options.get("site")}
        given = {**options, "run": word, "corpus": files["corpus"], "out": str(out), "stand_in": stand_in}
        return _begin_there(on, "apply", changes, given, files)
    from jobkit.core.paths import cache_dir
    from jobkit.extensions.corpus import apply as applying
    from jobkit.extensions.corpus.scan import corpus_path

    request = applying.ApplyRequest(
        word=word,
        paths=tuple(corpus_path(word, cache_dir()) for word in _paths(corpus)),
        overrides=_words(changes),
        stand_in=stand_in,
        **options,
    )
    made = Run(Path(out).expanduser())
    before = len(made.jobs)
    applying.apply(made.folder, request, how=applying.How(detach=True))
    return replace(made, submitted=len(made.jobs) > before)


_OPTIONS: Mapping[str, str | None] = {
    "shards": "number",
    "shard_minutes": "minutes",
    "format": "fmt",
    **dict.fromkeys(("text_field", "id_field", "encoding", "split_long", "skip_bad", "scheduler", "site")),
}
"""The options of `apply`, by the names of the command: fields of `ApplyRequest`, which may be named too."""


def _begin_there(
    on: str, name: str, changes: Changes, given: Mapping[str, Any], files: Mapping[str, object]
) -> Run:
    """Have a host call `sweep`, `tune` or `apply`; ``files`` are what may travel, as `call` has them."""
    from jobkit.extensions.on_host.commands import call

    words = _words(changes)
    there = call(on, name, {**given, "changes": words}, **files, overrides=words)
    return Run(there["run"], there["submitted"], on)


def answer(name: str, given: str) -> str:
    """Call a function or a method of a run for Python on a laptop; return, as JSON, the run and its state."""
    from jobkit.core.terminal import as_json
    from jobkit.extensions.on_host.server import place_of

    named: dict[str, Any] = json.loads(given)
    state: Mapping[str, object] = {}
    with contextlib.redirect_stdout(sys.stderr):
        if name in {"sweep", "tune", "apply"}:
            run: Run = globals()[name](**named)
        else:
            run, points = load(named.pop("run")), named.pop("points", ())
            if name == "status":
                stands, over = run._look()  # noqa: SLF001 - its own class
                state = {**reader.answered(stands), "over": over}
            elif name != "load" and isinstance(changed := getattr(run, name)(*points, **named), Run):
                run = changed
    return as_json({"run": place_of(run.folder), "submitted": run.submitted, **state})


def _words(changes: Changes) -> tuple[str, ...]:
    """Return changes as ``--set`` takes them: JSON is YAML."""
    if isinstance(changes, str):
        raise JobkitError(f"{changes!r} is one text", hint='name changes as {"repeats": 1} or ["repeats=1"]')
    if isinstance(changes, Mapping):
        return tuple(f"{key}={json.dumps(value, default=str)}" for key, value in changes.items())
    return tuple(changes)


def _paths(corpus: Sequence[Path | str] | Path | str) -> tuple[str, ...]:
    return (str(corpus),) if isinstance(corpus, (str, Path)) else tuple(map(str, corpus))
