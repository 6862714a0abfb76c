"""Frozen data: the two dataclasses of nearly every module. A class with a cached property has no slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Data = TypeVar("Data")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Data]) -> type[Data]:
    """Return a dataclass that never changes, with slots."""
    return dataclass(frozen=True, slots=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def keyed(cls: type[Data]) -> type[Data]:
    """Return a frozen dataclass whose fields have their names in every call."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)
