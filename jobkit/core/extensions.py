"""The one table of extensions: what the kernel knows of each, and how it loads a part of one.

An extension adds a kind of run or of point, or reads files of other programs. The kernel imports none: it
asks this table by a file that marks a run folder, or by the name that a point has (`PointKind.extension`).
Standard library only, because the compute node imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    marks: tuple[str, ...] = ()  # a run folder with any of these files is a run of this extension
    logs: str = ""  # pattern of files in ``logs/`` of any run which the extension reads; empty for none
    figures: str = ""  # the key in JSON of the figures in these files
    # by the name of a hook: the object that the extension has for it, as ``module:name``
    parts: Mapping[str, str] = field(default_factory=dict)


EXTENSIONS: dict[str, Extension] = {
    "corpus": Extension(
        marks=("corpus.json", "plan.jsonl", "apply.json"),
        parts={
            "run": "jobkit.extensions.corpus.standing:CORPUS",
            "resume": "jobkit.extensions.corpus.apply:CORPUS",
            "work": "jobkit.extensions.corpus.work:WORK",
            "script": "jobkit.extensions.corpus.shards:SCRIPT",
            "volume": "jobkit.extensions.corpus.scan:volume",
            "text": "jobkit.extensions.corpus.drawn:text_of",
            "page": "jobkit.extensions.corpus.page:of_corpus",
        },
    ),
    "tune": Extension(
        marks=("tune.json",),
        parts={
            "run": "jobkit.extensions.tune.search:TUNE",
            "resume": "jobkit.extensions.tune.job:TUNE",
            "search": "jobkit.extensions.tune.answer:read_answer",
        },
    ),
    "profile": Extension(
        parts={
            "work": "jobkit.extensions.profile.work:WORK",
            "packages": "jobkit.extensions.profile.packages:refuse_missing_profiler",
        },
    ),
    "other_logs": Extension(
        logs="*.gpu-report",
        figures="dcgm",
        parts={
            "read": "jobkit.extensions.other_logs:read",
            "figures": "jobkit.extensions.other_logs:more_figures",
        },
    ),
    "on_host": Extension(parts={"request": "jobkit.extensions.on_host.served:SERVED"}),
    "compare": Extension(parts={"side_by_side": "jobkit.extensions.compare:side_by_side"}),
}
"""A kind of run has the hooks ``run`` (`jobkit.runs.status`), ``resume`` (`jobkit.launch.resume`) and
``search`` (`jobkit.answers.objective`); a kind of point has ``work`` (`jobkit.worker.record`) and
``script`` (`jobkit.planning.job_script`). All extensions are asked for ``packages``, which refuses a spec
(`jobkit.planning.prepare`), for ``volume``, the size of a corpus, and ``text``, a text out of one (both
`jobkit.planning.texts`), and for ``request``, the request of a laptop that this process serves
(`jobkit.core.host`). The report asks for
``read`` and ``figures`` (`jobkit.report.rows`), ``page`` and ``side_by_side`` (`jobkit.report.page`)."""


def extension_of(run: Path) -> str:
    """Return the name of the extension whose file marks a run folder; empty for a sweep."""
    marks = ((name, mark) for name, extension in EXTENSIONS.items() for mark in extension.marks)
    return next((name for name, mark in marks if (run / mark).is_file()), "")


def load(name: str, hook: str) -> Any | None:  # noqa: ANN401 - each hook has a type of its own
    """Return the object of the extension ``name`` for a hook; ``None`` if it has none, or for no name."""
    module, _, part = (EXTENSIONS[name].parts.get(hook, "") if name else "").partition(":")
    return getattr(import_module(module), part) if part else None


def load_all(hook: str) -> list[Any]:
    return [part for name in EXTENSIONS if (part := load(name, hook)) is not None]
