"""The one table of extensions: what the kernel knows of each, and how it gets a part of one.

An extension adds a kind of run or of point, or reads files of other programs. The kernel imports none: it
asks this table by a file that marks a run folder, or by the name that a point has (`PointKind.extension`).
Standard library only, because the compute node imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from jobkit.core.frozen import frozen, keyed

if TYPE_CHECKING:
    from jobkit.answers.objective import Objective, SearchAnswer
    from jobkit.answers.speed import CorpusVolume
    from jobkit.core.blocks import Block
    from jobkit.extensions.on_host.served import Served
    from jobkit.launch.resume import Resumption
    from jobkit.planning.job_script import PointScript
    from jobkit.report.page import OfRun
    from jobkit.report.rows import OtherFigures, ReadFile, Row
    from jobkit.report.tables import Collected
    from jobkit.runs.status import RunKind
    from jobkit.spec.sweep_spec import SweepSpec
    from jobkit.worker.record import PointWork

T = TypeVar("T")


@frozen
class Part(Generic[T]):
    """An object of an extension, which is imported when it is first asked for."""

    place: str = ""  # ``module:name``; empty if the extension has none

    def __call__(self) -> T | None:
        module, _, name = self.place.partition(":")
        return cast("T", getattr(import_module(module), name)) if name else None


@keyed
class Extension:
    """What an extension gives the kernel. The comment of a field names the module that asks for it."""

    marks: tuple[str, ...] = ()  # a run folder with any of these files is a run of this extension
    logs: str = ""  # pattern of files in ``logs/`` of any run which the extension reads; empty for none
    key: str = ""  # in JSON, of the figures in these files
    figures: Part[Callable[[Iterable[Path], Sequence[Row], list[str]], Iterator[OtherFigures]]] = Part()
    run: Part[RunKind] = Part()  # runs/status.py
    resume: Part[Resumption] = Part()  # launch/resume.py
    search: Part[Callable[[Path, Objective | None], SearchAnswer]] = Part()  # answers/objective.py
    page: Part[Callable[[Path], OfRun]] = Part()  # report/page.py
    work: Part[PointWork] = Part()  # worker/record.py, for a kind of point
    script: Part[PointScript] = Part()  # planning/job_script.py, for a kind of point
    # all extensions are asked for these
    packages: Part[Callable[[SweepSpec], None]] = Part()  # refuses a spec: planning/prepare.py
    auto: Part[Callable[[str, str, Mapping[str, int]], dict[str, dict[str, Any]]]] = Part()  # the same
    volume: Part[Callable[..., CorpusVolume | None]] = Part()  # the size of a corpus: planning/texts.py
    text: Part[Callable[[Path, int | None, int], tuple[str, Callable[[], str]] | None]] = Part()  # the same
    request: Part[Served] = Part()  # of a laptop that this process serves: core/host.py
    read: Part[ReadFile] = Part()  # report/rows.py
    side_by_side: Part[Callable[[Sequence[Collected]], list[Block]]] = Part()  # report/page.py


HERE = "jobkit.extensions"
EXTENSIONS: dict[str, Extension] = {
    "corpus": Extension(
        marks=("corpus.json", "plan.jsonl", "apply.json"),
        run=Part(f"{HERE}.corpus.standing:CORPUS"),
        resume=Part(f"{HERE}.corpus.apply:CORPUS"),
        work=Part(f"{HERE}.corpus.work:WORK"),
        script=Part(f"{HERE}.corpus.shards:SCRIPT"),
        volume=Part(f"{HERE}.corpus.scan:volume"),
        text=Part(f"{HERE}.corpus.drawn:text_of"),
        page=Part(f"{HERE}.corpus.page:of_corpus"),
    ),
    "tune": Extension(
        marks=("tune.json",),
        run=Part(f"{HERE}.tune.search:TUNE"),
        resume=Part(f"{HERE}.tune.job:TUNE"),
        search=Part(f"{HERE}.tune.answer:read_answer"),
    ),
    "profile": Extension(
        work=Part(f"{HERE}.profile.work:WORK"),
        packages=Part(f"{HERE}.profile.work:refuse_missing_profiler"),
    ),
    "other_logs": Extension(
        logs="*.gpu-report",
        key="dcgm",
        figures=Part(f"{HERE}.other_logs:more_figures"),
        read=Part(f"{HERE}.other_logs:read"),
    ),
    "on_host": Extension(request=Part(f"{HERE}.on_host.served:SERVED")),
    "past_jobs": Extension(auto=Part(f"{HERE}.past_jobs.auto:decided")),
    "compare": Extension(side_by_side=Part(f"{HERE}.compare:side_by_side")),
}


def extension_of(run: Path) -> str:
    """Return the name of the extension whose file marks a run folder; empty for a sweep."""
    marks = ((name, mark) for name, extension in EXTENSIONS.items() for mark in extension.marks)
    return next((name for name, mark in marks if (run / mark).is_file()), "")


def of_run(run: Path) -> Extension:
    """Return the extension of a run folder, without any part for a sweep."""
    return of_name(extension_of(run))


def of_name(name: str) -> Extension:
    """Return the extension of this name, without any part for no name."""
    return EXTENSIONS[name] if name else Extension()


def each(part_of: Callable[[Extension], Part[T]]) -> Iterator[T]:
    """Yield a part of all extensions that have it."""
    parts = (part_of(extension)() for extension in EXTENSIONS.values())
    return (part for part in parts if part is not None)
