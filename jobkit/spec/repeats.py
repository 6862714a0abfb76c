"""How often each setting runs: a number, or until the mean of its speed is known well enough. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, GetPydanticSchema, PlainSerializer, WithJsonSchema
from pydantic_core import core_schema

from jobkit.core.knobs import AUTO
from jobkit.core.student import LEAST
from jobkit.spec.fields import MOST, POSITIVE, STRICT

PERCENT_PATTERN = r"^\d+(\.\d+)?%$"
ENOUGH = 2
"""Fewer repeats have no interval."""


def _percent(value: object) -> object:
    """Return the share of ``3%``."""
    wanted = "a share is written like 3%, and is between 0% and 100%"
    if not isinstance(value, str) or not value.endswith("%"):
        raise ValueError(wanted)
    try:
        share = float(value[:-1]) / 100
    except ValueError as error:
        raise ValueError(wanted) from error
    if not 0 < share < 1:
        raise ValueError(wanted)
    return share


Percent = Annotated[
    float,
    BeforeValidator(_percent),
    PlainSerializer(lambda share: f"{100 * share:g}%"),
    WithJsonSchema({"type": "string", "pattern": PERCENT_PATTERN}),
]
"""A share of 1, written ``3%``."""


class Repeats(BaseModel):
    """Repeat a setting until the mean of its speed is known well enough.

    Attributes
    ----------
    share
        Half the 95 % interval of the mean speed, as a share of the mean, at which repeats end.
    least
        The number of repeats that run in any case; fewer than `LEAST` seem precise too often by chance.
    most
        The largest number of repeats; each is planned as a point.
    """

    model_config = STRICT

    share: Percent = 0.03
    least: Annotated[int, Field(ge=ENOUGH, le=MOST)] = LEAST
    most: Annotated[int, Field(ge=ENOUGH, le=MOST)] = 10


def most(repeats: int | Repeats) -> int:
    """Return the number of repeats that are planned."""
    return repeats.most if isinstance(repeats, Repeats) else repeats


def _number_or(value: object, mapping: core_schema.ValidatorFunctionWrapHandler) -> object:
    """Return a number as it is, the defaults for ``auto``, and anything else as a mapping."""
    if value == AUTO:
        return Repeats()
    if isinstance(value, bool) or not isinstance(value, int | dict | Repeats):
        raise ValueError("should be a whole number above 0, auto, or a mapping")  # noqa: TRY004 - pydantic's
    if isinstance(value, dict) and isinstance(planned := value.get("most"), int) and planned >= ENOUGH:
        value = {"least": min(LEAST, planned), **value}
    if not isinstance(value, int):
        return mapping(value)
    if not 0 < value <= MOST:
        raise ValueError("should be greater than 0" if value < 1 else f"should be at most {MOST:,}")
    return value


def _core_schema(_source: Any, handler: Any) -> core_schema.CoreSchema:  # noqa: ANN401 - pydantic's
    return core_schema.no_info_wrap_validator_function(
        _number_or,
        handler(Repeats),
        serialization=core_schema.plain_serializer_function_ser_schema(
            lambda value: value.model_dump(mode="json") if isinstance(value, Repeats) else value
        ),
    )


RepeatsOrNumber = Annotated[
    int | Repeats,
    GetPydanticSchema(
        _core_schema,
        lambda schema, handler: {"anyOf": [POSITIVE, {"const": AUTO}, handler(schema)]},
    ),
]
"""A whole number above 0, ``auto``, or the keys of `Repeats`."""
