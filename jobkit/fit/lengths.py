"""The lengths of a text's items, as data and as a small file; and how they are cut into batches.

Pure, standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.knobs import CUT_BY
from jobkit.core.layout import LENGTHS_FILE
from jobkit.run.workloads.base import CHARACTERS

SCHEMA = 1

TOKENIZER = "tokenizer"
"""Lengths as the workload itself finds them."""
PUNCTUATION = "punctuation"
"""Lengths estimated from where sentences seem to end."""
NONE = "none"
"""No lengths: every paragraph counts 1, so the load is the batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long the items of a text are, in the units that the framework pads to.

    Attributes
    ----------
    paragraphs
        For each paragraph the length of each of its items, in text order.
    source
        How they were found: `TOKENIZER`, `PUNCTUATION` or `NONE`.
    unit
        What a load counts.
    padded
        Whether the framework pads the items of a batch to the longest, so that the load is items x longest;
        else it is the sum of the lengths.
    """

    paragraphs: tuple[tuple[int, ...], ...]
    source: str = TOKENIZER
    unit: str = CHARACTERS
    padded: bool = True

    @classmethod
    def unknown(cls, paragraphs: int) -> Lengths:
        """Return the lengths of a text of which none are known: the load is then the batch size."""
        return cls(paragraphs=((1,),) * paragraphs, source=NONE, unit="paragraphs")

    def every(self, number: int) -> Lengths:
        """Return the lengths of one of every so many paragraphs, as a point with ``every`` takes them."""
        return replace(self, paragraphs=self.paragraphs[::number])

    def to_json(self) -> str:
        """Return the lengths as one line of compact JSON."""
        data: dict[str, object] = {"schema": SCHEMA, "source": self.source}
        if self.unit != CHARACTERS:
            data["unit"] = self.unit
        if not self.padded:
            data["padded"] = False
        data["paragraphs"] = self.paragraphs
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, where: str = LENGTHS_FILE) -> Lengths:
        """Return the lengths that `to_json` wrote.

        Parameters
        ----------
        text
            The JSON.
        where
            What it was read from, for the message.

        Raises
        ------
        JobkitError
            Where it is anything else.
        """
        try:
            data = json.loads(text)
            if data["schema"] != SCHEMA:
                raise ValueError(f"schema {data['schema']!r}, not {SCHEMA}")  # noqa: TRY301 - reported below
            rows = tuple(tuple(_length(length) for length in row) for row in data["paragraphs"])
            unit, padded = str(data.get("unit", CHARACTERS)), data.get("padded") is not False
            return cls(paragraphs=rows, source=str(data["source"]), unit=unit, padded=padded)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise JobkitError(f"{where}: no lengths of a text: {error!r}") from error


def _length(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no length")
    return value


_parsed = lru_cache(maxsize=2)(Lengths.from_json)
"""A report reads the lengths of a run several times, and runs of one text have the same."""


def read_lengths(folder: Path) -> Lengths | None:
    """Return the lengths that a run folder holds; ``None`` if it holds none that can be read."""
    try:
        return _parsed(read_text(folder / LENGTHS_FILE))
    except (OSError, JobkitError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a text becomes calls, and a call the chunks that are padded together.

    Attributes
    ----------
    paragraphs_per_call
        Consecutive paragraphs a call; ``None`` for as many as the batch size.
    sentences_per_ner_batch
        Items a chunk, never across the end of a call; ``None`` for as many as the batch size.
    """

    paragraphs_per_call: int | None = None
    sentences_per_ner_batch: int | None = None

    @classmethod
    def largest(cls, settings: Iterable[Mapping[str, int]]) -> Cut:
        """Return the cut that makes the largest batches of some settings of knobs."""
        settings = list(settings)
        return cls(**{name: max((s.get(name, 0) for s in settings), default=0) or None for name in CUT_BY})

    def at(self, batch_size: int) -> tuple[int, int]:
        """Return paragraphs a call and items a chunk of a batch size."""
        return self.paragraphs_per_call or batch_size, self.sentences_per_ner_batch or batch_size
