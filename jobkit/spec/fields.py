"""The kinds of value that specs and site files hold, each with its JSON schema for editors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    PlainSerializer,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import core_schema

from jobkit.core import units
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import AUTO, SWITCH, Value
from jobkit.core.terminal import suggest
from jobkit.schedulers.registry import SCHEDULERS, scheduler_names

SIZE_PATTERN = rf"^\s*\d+(\.\d+)? ?({'|'.join(units.SIZE_UNITS)})\s*$"
DURATION_PATTERN = rf"^\s*(\d+ ?[{''.join(units.DURATION_UNITS)}]|(\d+-)?\d{{1,5}}:[0-5]\d:[0-5]\d)\s*$"


STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)
"""Of every mapping of a spec or a site file: frozen, without unknown keys, each value of exactly its type."""


def _parsed(parse: Callable[[str], float], wanted: str) -> Callable[[object], object]:
    """Return a validator of text; a bare number is refused, for schedulers disagree on its unit."""

    def parsed(value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(wanted)  # noqa: TRY004 - pydantic collects ValueError
        try:
            return parse(value)
        except JobkitError as error:
            raise ValueError(f"{error.message}; {error.hint}") from error

    return parsed


def number_written(
    pattern: str, fits: Callable[[float], bool], wanted: str
) -> tuple[BeforeValidator, WithJsonSchema]:
    """Return the annotations of a number with a sign, such as 3% and x1.5."""

    def number(value: object) -> object:
        if (
            isinstance(value, str)
            and re.fullmatch(pattern, value)
            and fits(found := float(value.strip("x%")))
        ):
            return found
        raise ValueError(wanted)

    return BeforeValidator(number), WithJsonSchema({"type": "string", "pattern": pattern})


def or_mapping(
    model: type[BaseModel],
    check: Callable[[Any, core_schema.ValidatorFunctionWrapHandler], object],
    plain: Iterable[Mapping[str, object]],
) -> GetPydanticSchema:
    """Return the annotation of a value that is plain, or the mapping of a model; ``check`` validates both."""

    def schema(_source: Any, handler: Any) -> core_schema.CoreSchema:  # noqa: ANN401 - pydantic's
        dumped = core_schema.plain_serializer_function_ser_schema(
            lambda value: value.model_dump(mode="json") if isinstance(value, model) else value
        )
        return core_schema.no_info_wrap_validator_function(check, handler(model), serialization=dumped)

    return GetPydanticSchema(schema, lambda inner, handler: {"anyOf": [*plain, handler(inner)]})


def known_scheduler(name: str) -> str:
    """Return the name if the registry has it, else raise ``ValueError`` with the nearest."""
    if name not in SCHEDULERS:
        raise ValueError(f"no such scheduler{suggest(name, scheduler_names())}")
    return name


MOST = 10**9
"""No one means a larger whole number: it is a slip of the pen."""
Positive = Annotated[int, Field(gt=0, le=MOST)]
POSITIVE: dict[str, object] = {"type": "integer", "exclusiveMinimum": 0, "maximum": MOST}


def positive(value: int) -> int:
    """Return a number if it is `Positive`, for a value that may be something else."""
    if not 0 < value <= MOST:
        raise ValueError("should be greater than 0" if value < 1 else f"should be at most {MOST:,}")
    return value


def _knob_value(value: object) -> object:
    """Return a value of a knob if it is a whole number above 0, or a word; of a bool its word."""
    if isinstance(value, bool):
        return SWITCH[value]
    if not isinstance(value, int | str):
        raise ValueError("should be a whole number above 0, or a word")  # noqa: TRY004 - as in `_parsed`
    if isinstance(value, int):
        return positive(value)
    if not re.fullmatch(WORD_PATTERN, value):
        raise ValueError("should be a word of letters, digits, _, . and -; a switch is true or false")
    return value


WORD_PATTERN = r"[A-Za-z][A-Za-z0-9_.-]*"
ANY_VALUE = {"anyOf": [POSITIVE, {"type": "string", "pattern": f"^{WORD_PATTERN}$"}, {"type": "boolean"}]}
KnobValue = Annotated[int | str, BeforeValidator(_knob_value), WithJsonSchema(ANY_VALUE)]
"""A whole number, or a word; which of them a knob has, `jobkit.spec.axes.value_faults` checks."""


def one_or_list(value: dict[str, object]) -> dict[str, object]:
    """Return the JSON schema of a value, or of a list of such values."""
    return {"anyOf": [value, {"type": "array", "items": value, "minItems": 1}]}


Values = Annotated[
    list[KnobValue],
    BeforeValidator(lambda v: v if isinstance(v, list) else [v]),
    WithJsonSchema(one_or_list(ANY_VALUE)),
]
"""The values of a knob: a list, or one value."""


class Auto(list[Value]):
    """The values of a knob that jobkit chooses from the text: none, until it has."""


ValuesOrAuto = Annotated[
    Values,
    WrapValidator(lambda value, checked: Auto() if value == AUTO else checked(value)),
    PlainSerializer(lambda values: AUTO if isinstance(values, Auto) else values),
]
"""The values of a knob, or ``auto``; which knobs may have it, `jobkit.spec.axes.axis_faults` says."""

Size = Annotated[
    int,
    BeforeValidator(_parsed(units.parse_size, "a size needs a unit, for instance 8GiB")),
    PlainSerializer(units.format_size),
    Field(gt=0),
    WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN}),
]
"""Bytes, written with a unit."""

DEVICE = "device"
_size_of_memory = _parsed(units.parse_size, "device, or a size with a unit: 16GiB")
SizeOrDevice = Annotated[
    int | str,
    BeforeValidator(lambda value: value if value == DEVICE else _size_of_memory(value)),
    PlainSerializer(lambda value: value if value == DEVICE else units.format_size(value)),
    WithJsonSchema({"anyOf": [{"enum": [DEVICE]}, {"type": "string", "pattern": SIZE_PATTERN}]}),
]
"""Bytes, written with a unit, or the word ``device``."""

Duration = Annotated[
    int,
    BeforeValidator(_parsed(units.parse_duration, 'a duration is text, for instance "00:10:00" or 90m')),
    PlainSerializer(units.format_walltime),
    Field(gt=0),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}),
]
"""Seconds, written as a clock or with a unit."""


class AutoNumber(int):
    """A size or a time that the accounting decides when a run is prepared; until then a default."""


def _or_auto(default: int, pattern: str) -> tuple[WrapValidator, WithJsonSchema]:
    """Return the annotations of a value with a unit that may be ``auto``."""
    schema = {"anyOf": [{"enum": [AUTO]}, {"type": "string", "pattern": pattern}]}
    return (
        WrapValidator(lambda value, checked: AutoNumber(default) if value == AUTO else checked(value)),
        WithJsonSchema(schema),
    )


DEFAULT_MEMORY, DEFAULT_WALLTIME_S = 8 * 2**30, 600
SizeOrAuto = Annotated[Size, *_or_auto(DEFAULT_MEMORY, SIZE_PATTERN)]
DurationOrAuto = Annotated[Duration, *_or_auto(DEFAULT_WALLTIME_S, DURATION_PATTERN)]

Seconds = Annotated[
    float,
    BeforeValidator(_parsed(units.parse_seconds, "a time is text with a unit, for instance 2s or 500ms")),
    PlainSerializer(units.format_seconds),
    WithJsonSchema({"type": "string", "pattern": units.SECONDS_PATTERN}),
]
"""Seconds, also parts of one, written with a unit."""
PositiveNumber = Annotated[float, Field(gt=0, le=MOST)]

SchedulerName = Annotated[
    str, AfterValidator(known_scheduler), WithJsonSchema({"type": "string", "enum": list(SCHEDULERS)})
]
"""A scheduler of the registry."""

SchedulerOrAuto = Annotated[
    str,
    AfterValidator(lambda name: name if name == "auto" else known_scheduler(name)),
    WithJsonSchema({"type": "string", "enum": ["auto", *SCHEDULERS]}),
]
"""A scheduler of the registry, or ``auto``."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
"""A name that begins with a letter: what a scheduler takes as a job's name."""

ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?$")]
"""A language of Stanza, a package of spaCy, or a model of the Hugging Face hub."""

# What becomes part of a header line: no space, quote, `#` or line end, and no dash at its head,
# so that a value is one word of the line and never an option, a comment or a line of its own.
WORD = r"^[A-Za-z0-9_@*][A-Za-z0-9_@*?.,:;+=%!/-]*$"
Word = Annotated[str, Field(pattern=WORD)]
"""A queue, an account, a GPU type, a reservation."""


def _joined(value: object) -> object:
    """Return words with commas between them, as schedulers take several queues."""
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return ",".join(value)
    return value


Queues = Annotated[
    Word, BeforeValidator(_joined), WithJsonSchema(one_or_list({"type": "string", "pattern": WORD}))
]
"""A queue, or a list of them: a job starts in the first that has room."""

Parents = Annotated[
    list[Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*$")]],
    BeforeValidator(lambda v: [str(one) for one in (v if isinstance(v, list) else [v])]),
    WithJsonSchema(one_or_list({"type": ["string", "integer"]})),
]
"""Jobs and runs after which another begins: a number or a run folder, perhaps after ``any:``."""

Constraint = Annotated[str, Field(pattern=r"^[A-Za-z0-9_(\[][A-Za-z0-9_.,:+=%@/&|*()\[\]!-]*$")]
"""Features of nodes, with the operators of sbatch(1), ``--constraint``."""

Node = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.*?\[\],-]*$")]
"""A node, or nodes as the scheduler writes several: ``n[1-3]``."""

Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.%+-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?$")]
"""A mail address, or the name of a user on the cluster."""

Image = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*$")]
"""A container's image: a path or a URI, which no program takes for an option."""

Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A header line, whole: no line end or other control character."""
