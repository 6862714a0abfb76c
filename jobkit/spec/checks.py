"""Faults of a spec, or of a command in it, that no type can see: each found in the raw data."""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from jobkit.core.errors import JobkitError
from jobkit.core.figures import by_key
from jobkit.core.files import digest, files_of
from jobkit.core.knobs import (
    AUTO,
    BATCH_SIZE,
    CUT_BY,
    CUTTING,
    OFF,
    OFFERED,
    PADDED,
    RENAMED,
    SIZES,
    SPEC_KNOBS,
    SWITCH,
    Knob,
)
from jobkit.core.layout import EARLIER_PROFILERS, is_run_folder
from jobkit.core.records import Command, FileRef
from jobkit.core.terminal import suggest
from jobkit.core.units import format_count
from jobkit.schedulers.registry import own_option
from jobkit.spec.axes import ENOUGH, Loc, Repeats, axis_faults, each, knob_values, places, value_faults
from jobkit.spec.fields import STRICT, or_mapping
from jobkit.spec.yaml_files import YamlDocument
from jobkit.worker import command_line
from jobkit.worker.measure.figures import MOST_NAME
from jobkit.worker.workloads.base import SHIPPED, class_name, knobs, offered, offered_by


class CommandSpec(BaseModel):
    """A program of your own, in any language.

    Attributes
    ----------
    command
        The program and its arguments; ``{batch_size}`` is the value of a knob.
    shell
        Whether a shell reads the command.
    files
        Files and folders next to the spec that travel with the run.
    metrics
        Names and regular expressions with one group, which find a figure in a line of the output.
    """

    model_config = STRICT

    command: str
    shell: bool = False
    files: list[Annotated[str, Field(min_length=1)]] = []
    metrics: dict[Annotated[str, Field(min_length=1, max_length=MOST_NAME)], str] = {}

    @property
    def of_point(self) -> Command:
        """The command as a point has it."""
        return Command(template=self.command, shell=self.shell, metrics=self.metrics)


def _name_or(value: object, mapping: ValidatorFunctionWrapHandler) -> object:
    """Return a name as it is, and anything else as a mapping."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | CommandSpec):
        raise ValueError("should be the name of a workload, or a mapping with a command")  # noqa: TRY004 - pydantic's
    return mapping(value)


NameOrCommand = Annotated[
    str | CommandSpec,
    or_mapping(CommandSpec, _name_or, ({"enum": list(SHIPPED)}, {"type": "string", "pattern": ".:."})),
]
"""The name of a workload, or a command."""


# -- files


def file_refs(files: Iterable[str], folder: Path) -> tuple[FileRef, ...]:
    """Return the files and folders that a command takes along.

    Parameters
    ----------
    folder
        Of the spec.

    Raises
    ------
    JobkitError
        If one is missing or is not below the folder.
    """
    refs = []
    most_files = 10_000
    for file in map(PurePosixPath, dict.fromkeys(files)):
        if file.is_absolute() or ".." in file.parts or not file.parts:
            hint = "name files below the folder of the spec; an absolute path in the command needs no staging"
            raise JobkitError(f"{str(file)!r} is not below the folder of the spec", hint=hint)
        path = Path(os.path.abspath(folder), file)  # noqa: PTH100 - links as they are
        try:
            number = len(files_of(path)) if path.is_dir() else 1
            if number > most_files:
                what = f"{path} holds {format_count(number, 'file')}"
                raise JobkitError(what, hint=f"at most {most_files:,}")
            sha256, size_bytes = digest(path)
        except OSError as error:
            hint = "files are relative to the folder of the spec"
            raise JobkitError(f"{path}: {error.strerror}", hint=hint) from error
        name = f"{file}{'/' if path.is_dir() else ''}"
        refs.append(FileRef(path=str(path), name=name, sha256=sha256, size_bytes=size_bytes))
    return tuple(refs)


def sources(refs: Iterable[FileRef]) -> list[Path]:
    """Return the staged files, those in folders too."""
    return [file for ref in refs for file in files_of(Path(ref.path))]


# -- faults


def swept(data: Mapping[str, Any]) -> dict[str, Loc]:
    """Return the knobs that raw YAML sweeps, with their places."""
    axes = data["sweep"] if isinstance(data.get("sweep"), dict) else {}
    found = [loc for loc, _ in places(axes) if loc[0] != "exclude"]
    return {str(loc[-1]): ("sweep", *loc) for loc in reversed(found)}


def command_faults(
    document: YamlDocument, folder: Path, refs: Sequence[FileRef]
) -> Iterator[tuple[Loc, str]]:
    """Yield the place and the words of each fault of a command.

    Parameters
    ----------
    folder
        Of the spec.
    refs
        Its files, as far as they are found.
    """
    data, workload = document.data, document.data["workload"]
    if isinstance(text := workload.get("command"), str):
        command, knobs = Command(template=text, shell=workload.get("shell") is True), swept(data)
        for what, knob in command_line.faults(command, knobs, sources(refs)):
            if knob:
                loc = knobs[knob]
                yield loc, f"{'.'.join(map(str, loc))}: {what.partition(': ')[2]}"
            else:
                yield ("workload", "command"), f"workload.command: {what}"
        axes = document.part("sweep")
        flags = [Knob(name=name, words=SWITCH) for name in command_line.switches(text)]
        yield from ((("sweep", *loc), what) for loc, what in value_faults(axes, flags))
        yield from _unstaged(text, folder, {ref.name.rstrip("/") for ref in refs})
        if axes.get(BATCH_SIZE) == AUTO:
            what = f"sweep.{BATCH_SIZE}: {AUTO!r} is chosen by the lengths of a text, and a command has none"
            yield ("sweep", BATCH_SIZE), what
    yield from _pattern_faults(workload.get("metrics"))
    plain = {knob.name: knob.plain for knob in SPEC_KNOBS}
    for key in (*CUTTING, "profile", "find_max"):
        if data.get(key) not in [None, False, OFF, plain.get(key)]:
            yield (key,), f"{key}: means nothing to a command, which reads its text itself; leave it out"


def _unstaged(text: str, folder: Path, staged: set[str]) -> Iterator[tuple[Loc, str]]:
    """Yield the words that name a file next to the spec which does not travel with the run."""
    for word in dict.fromkeys(command_line.split(text)):
        name = word.removeprefix("./")
        if not name or word.startswith(("/", "-", "{")) or "\0" in word or len(word) > 255:
            continue
        kept = {name, *(str(parent) for parent in PurePosixPath(name).parents)}
        if (folder / name).is_file() and not kept & staged:
            what = f"workload.command: {word} is a file next to the spec, and does not travel with the run"
            yield ("workload", "command"), f"{what}; add it: files: [{name}]"


def _pattern_faults(metrics: object) -> Iterator[tuple[Loc, str]]:
    for name, pattern in metrics.items() if isinstance(metrics, dict) else ():
        if not isinstance(pattern, str):
            continue
        try:
            groups = re.compile(pattern).groups
        except (re.error, RecursionError, OverflowError) as error:
            yield ("workload", "metrics", name), f"workload.metrics.{name}: not a regular expression: {error}"
            continue
        if groups != 1:
            what = f"has {format_count(groups, 'group')}; it needs one: (...) around the number"
            yield ("workload", "metrics", name), f"workload.metrics.{name}: {what}"


DEFAULTS = Repeats()


def check_points(document: YamlDocument) -> None:
    """Add a fault where there would be more points than a run can have; nothing is multiplied out."""
    axes, repeats = document.part("sweep"), _most_repeats(document.data.get("repeats", 3))
    values = knob_values(axes)
    lists = [column for loc, column in values.items() if len(loc) == 1]
    lists += [column for loc, column in values.items() if len(loc) > 1][:1]
    count = math.prod(len(column) for column in lists if isinstance(column, list))
    count += len(axes["include"]) if isinstance(axes.get("include"), list) else 0
    # Of one run: each is a folder, and no scheduler that is known holds more
    most_points = 100_000
    if count * repeats <= most_points:
        return
    key = "repeats" if count <= most_points else "sweep"
    what = f"{key}: {format_count(count, 'setting')} x {repeats:,} would be {count * repeats:,} points; "
    document.add((key,), f"{what}a run has at most {most_points:,}")


def _most_repeats(repeats: object) -> int:
    """Return the number of repeats that are planned; 0 for what is no number and no mapping with one."""
    given = repeats.get("most", DEFAULTS.most) if isinstance(repeats, dict) else repeats
    given = DEFAULTS.most if given == AUTO else given
    return given if isinstance(given, int) and not isinstance(given, bool) else 0


def check_repeats(document: YamlDocument) -> None:
    """Add a fault if fewer repeats are planned than must run, of a sweep or of the finalists of a search."""
    for place, holder in (((), document.data), (("tune",), document.part("tune"))):
        repeats = holder.get("repeats")
        if not isinstance(repeats, dict):
            continue
        planned = _most_repeats(repeats)
        least = repeats.get("least", min(DEFAULTS.least, planned))
        if isinstance(least, int) and ENOUGH <= planned < least:
            name = ".".join((*place, "repeats"))
            key = "most" if "most" in repeats else "least"
            what = f"{name}.{key}: {planned} repeats at most, and {name}.least is {least}"
            document.add((*place, "repeats", key), what)


def check_objective(document: YamlDocument) -> None:
    """Add a fault for a figure of the workload of which it is not known whether more or less is better."""
    objective = document.part("objective")
    metric = objective.get("metric")
    if not isinstance(metric, str) or by_key(metric).direction or objective.get("direction") is not None:
        return
    what = f"objective.metric: {metric!r}: needs objective.direction, max if more is better, else min"
    document.add(("objective", "metric"), what)


def check_workload(document: YamlDocument) -> None:
    """Add the faults of the workload's name, of the knobs in the sweep, and of what it does not offer."""
    name = document.data.get("workload", "stanza-ner")
    word = name if isinstance(name, str) else None
    if word is not None and ":" not in class_name(word):
        document.add(("workload",), f"workload: {word!r}: no such workload{suggest(word, offered())}")
    for loc, what in axis_faults(document.part("sweep"), word or ""):
        document.add(("sweep", *loc), what, on_key=True)
    if word is not None and (known := knobs(word)) is not None:
        add_offer_faults(document, known, word)


def check_environment(document: YamlDocument) -> None:
    """Add a fault for each of ``venv`` and ``container`` that is given after another Python."""
    given = document.part("environment")
    first, *others = [key for key in ("conda", "venv", "container") if given.get(key)] or [""]
    for key in others:
        what = f"environment.{key}: given as well as {first}; keep one of the two"
        document.add(("environment", key), what, on_key=True)


def check_options(document: YamlDocument) -> None:
    """Add a fault for each header line that sets what jobkit sets itself."""
    options = document.part("resources").get("options")
    for scheduler, lines in (options if isinstance(options, dict) else {}).items():
        for number, line in enumerate(lines if isinstance(lines, list) else ()):
            if isinstance(line, str) and (what := own_option(str(scheduler), line)):
                loc = ("resources", "options", str(scheduler), number)
                document.add(loc, f"{'.'.join(map(str, loc))}: {what}")


def add_offer_faults(document: YamlDocument, known: Sequence[Knob], workload: str) -> None:
    """Add a fault for each key of `OFFERED` with a value that a workload with these knobs does not offer.

    The default is no fault: a workload without the knob ignores it.
    """
    for key, values in OFFERED.items():
        value, words = document.data.get(key), next((knob.words for knob in known if knob.name == key), ())
        if isinstance(value, str) and value in {*values} - {*words}:
            others = offered_by(key)
            choice = f"no choice; {each(others)} {'do' if len(others) > 1 else 'does'}"
            document.add((key,), f"{key}: {value!r}: {workload} offers {', '.join(words) or choice}")


def check_find_max(document: YamlDocument) -> None:
    """Add a fault if ``find_max`` is given with a sweep that varies anything but what it finds."""
    if not isinstance(document.data.get("find_max"), dict):
        return
    for loc, values in knob_values(document.part("sweep")).items():
        if loc[-1] not in SIZES and isinstance(values, list) and len(values) > 1:
            key = ".".join(map(str, ("sweep", *loc)))
            what = f"{key}: find_max needs a sweep in which only {' or '.join(SIZES)} varies"
            document.add(("sweep", *loc), what, on_key=True)


def check_renamed(document: YamlDocument) -> None:
    """Add a fault for each knob that a sweep names twice, by its name in an earlier version too."""
    knobs = swept(document.data)
    for name, loc in knobs.items():
        if (now := RENAMED.get(name)) in knobs:
            what = f"{'.'.join(map(str, loc))}: the earlier name of {now}; keep one of the two"
            document.add((*loc[:-1], now), what, on_key=True)


def check_profiler(document: YamlDocument) -> None:
    """Add a fault for a profiler of an earlier version; in the spec of an earlier run take today's."""
    if (now := EARLIER_PROFILERS.get(str(old := document.data.get("profile")))) is None:
        return
    if is_run_folder(Path(document.path).parent):
        document.data["profile"] = now
    else:
        what = f"profile: {old} is no longer a profiler: use {now}, which needs no package"
        document.add(("profile",), what)


def check_budget(document: YamlDocument) -> None:
    """Add a fault if ``padded`` and a size cut the same batches."""
    rows: dict[Loc, dict[str, Loc]] = defaultdict(dict)  # of each setting to add, and of the axes
    for loc, _ in places(document.part("sweep")):
        rows[loc[:2] if loc[0] in {"include", "exclude"} else ()][str(loc[-1])] = loc
    for row in (row for key, row in rows.items() if PADDED in row and "exclude" not in key):
        for name in sorted({BATCH_SIZE, *CUT_BY} & row.keys()):
            loc = ("sweep", *row[PADDED])
            what = f"{'.'.join(map(str, loc))}: {name} cuts the same batches; keep one of the two"
            document.add(loc, what, on_key=True)


CHECKS = (
    check_budget,
    check_points,
    check_repeats,
    check_objective,
    check_workload,
    check_environment,
    check_options,
    check_find_max,
)
"""All of them, in the order in which they are asked."""
