"""A command as a spec's ``workload``: its keys, its files, and its faults."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, Field, GetPydanticSchema
from pydantic_core import core_schema

from jobkit.core.errors import JobkitError
from jobkit.core.files import digest, files_of
from jobkit.core.knobs import AUTO, BATCH_SIZE, OFF
from jobkit.core.records import Command, FileRef
from jobkit.core.units import format_count
from jobkit.run.command import words
from jobkit.run.measure.figures import MOST_NAME
from jobkit.run.workloads.base import SHIPPED
from jobkit.spec.axes import Loc, knob_values
from jobkit.spec.fields import STRICT
from jobkit.spec.yaml_files import Document

MOST_FILES = 10_000
UNUSED = {
    "order": "load",
    "sort_window": None,
    "work_unit": None,
    "every": 1,
    "mps": OFF,
    "precision": None,
    "shortcuts": OFF,
    "profile": OFF,
    "find_max": None,
}
"""Keys that mean nothing to a command, because jobkit does not cut its text nor see its batches."""


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


def _name_or(value: object, mapping: core_schema.ValidatorFunctionWrapHandler) -> object:
    """Return a name as it is, and anything else as a mapping."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | CommandSpec):
        raise ValueError("should be the name of a workload, or a mapping with a command")  # noqa: TRY004 - pydantic's
    return mapping(value)


def _core_schema(_source: Any, handler: Any) -> core_schema.CoreSchema:  # noqa: ANN401 - pydantic's
    return core_schema.no_info_wrap_validator_function(
        _name_or,
        handler(CommandSpec),
        serialization=core_schema.plain_serializer_function_ser_schema(
            lambda value: value.model_dump(mode="json") if isinstance(value, CommandSpec) else value
        ),
    )


NAMES = ({"enum": list(SHIPPED)}, {"type": "string", "pattern": ".:."})
"""What an editor shows of a name."""
NameOrCommand = Annotated[
    str | CommandSpec,
    GetPydanticSchema(_core_schema, lambda schema, handler: {"anyOf": [*NAMES, handler(schema)]}),
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
    return tuple(_file_ref(file, folder) for file in dict.fromkeys(files))


def _file_ref(file: str, folder: Path) -> FileRef:
    parts = PurePosixPath(file).parts
    if PurePosixPath(file).is_absolute() or ".." in parts or not parts:
        hint = "name files below the folder of the spec; an absolute path in the command needs no staging"
        raise JobkitError(f"{file!r} is not below the folder of the spec", hint=hint)
    path = Path(os.path.abspath(folder), *parts)  # noqa: PTH100 - links as they are
    try:
        number = len(files_of(path)) if path.is_dir() else 1
        if number > MOST_FILES:
            raise JobkitError(f"{path} holds {format_count(number, 'file')}", hint=f"at most {MOST_FILES:,}")
        sha256, size_bytes = digest(path)
    except OSError as error:
        raise JobkitError(
            f"{path}: {error.strerror}", hint="files are relative to the folder of the spec"
        ) from error
    name = f"{PurePosixPath(file)}{'/' if path.is_dir() else ''}"
    return FileRef(path=str(path), name=name, sha256=sha256, size_bytes=size_bytes)


def sources(refs: Iterable[FileRef]) -> list[Path]:
    """Return the staged files, those in folders too."""
    return [file for ref in refs for file in files_of(Path(ref.path))]


# -- faults


def swept(data: Mapping[str, Any]) -> dict[str, Loc]:
    """Return the knobs that raw YAML sweeps, with their places."""
    axes = data.get("sweep")
    axes = axes if isinstance(axes, dict) else {}
    rows = axes["include"] if isinstance(axes.get("include"), list) else []
    included: dict[str, Loc] = {
        str(name): ("sweep", "include", number, name)
        for number, row in enumerate(rows)
        if isinstance(row, dict)
        for name in row
    }
    return included | {str(loc[-1]): ("sweep", *loc) for loc in knob_values(axes)}


def command_faults(document: Document, folder: Path, refs: Iterable[FileRef]) -> Iterator[tuple[Loc, str]]:
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
        refs = tuple(refs)
        command, knobs = Command(template=text, shell=workload.get("shell") is True), swept(data)
        for fault in words.faults(command, knobs, sources(refs)):
            if fault.knob:
                loc = knobs[fault.knob]
                yield loc, f"{'.'.join(map(str, loc))}: {fault.what.partition(': ')[2]}"
            else:
                yield ("workload", "command"), f"workload.command: {fault.what}"
        yield from _unstaged(text, folder, {ref.name.rstrip("/") for ref in refs})
        if isinstance(axes := data.get("sweep"), dict) and axes.get(BATCH_SIZE) == AUTO:
            what = f"sweep.{BATCH_SIZE}: {AUTO!r} is chosen by the lengths of a text, and a command has none"
            yield ("sweep", BATCH_SIZE), what
    yield from _pattern_faults(workload.get("metrics"))
    for key, plain in UNUSED.items():
        if data.get(key, plain) != plain and (key, data[key]) != ("precision", "fp32"):
            yield (key,), f"{key}: means nothing to a command, which reads its text itself; leave it out"


def _unstaged(text: str, folder: Path, staged: set[str]) -> Iterator[tuple[Loc, str]]:
    """Yield the words that name a file next to the spec which does not travel with the run."""
    for word in dict.fromkeys(words.split(text)):
        name = word.removeprefix("./")
        if not name or word.startswith(("/", "-", "{")) or "\0" in word or len(word) > MOST_PATH:
            continue
        kept = {name, *(str(parent) for parent in PurePosixPath(name).parents)}
        if (folder / name).is_file() and not kept & staged:
            what = f"workload.command: {word} is a file next to the spec, and does not travel with the run"
            yield ("workload", "command"), f"{what}; add it: files: [{name}]"


MOST_PATH = 255


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
