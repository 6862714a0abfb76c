"""The loads of a run's text, from the lengths that lie in its folder. Reads one file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.record_files import read_text
from jobkit.core.records import Point
from jobkit.fit.lengths import LENGTHS_FILE, Cut, Lengths
from jobkit.fit.loads import Loads

KNOB = "batch_size"
AGREE = 0.2
"""Lengths whose loads differ by more than this share from what was measured are of something else."""


def read_lengths(folder: Path) -> Lengths | None:
    """Return the lengths that a run folder holds; ``None`` where it holds none that can be read."""
    path = folder / LENGTHS_FILE
    try:
        return Lengths.from_json(read_text(path), where=str(path))
    except (OSError, JobkitError):
        return None


def loads_of(lengths: Lengths | None, points: Iterable[Point]) -> Loads | None:
    """Return the loads by batch size, other knobs that cut the text as the points have them.

    ``None`` where there are no lengths, or where the batch size is no knob of the points.
    """
    params = [point.params for point in points]
    if lengths is None or not params or any(KNOB not in one for one in params):
        return None
    return Loads(
        lengths,
        Cut(
            paragraphs_per_call=max(one.get("paragraphs_per_call", 0) for one in params) or None,
            sentences_per_ner_batch=max(one.get("sentences_per_ner_batch", 0) for one in params) or None,
        ),
    )


def agreeing(loads: Loads | None, load_by_batch: Mapping[int, int]) -> Loads | None:
    """Return the loads if they are those that were measured, else ``None``.

    A workload that tells no lengths, but loads of its own, would otherwise have its loads taken
    for batch sizes.
    """
    if loads is None or all(
        abs(loads.own(batch) - load) <= AGREE * load for batch, load in load_by_batch.items()
    ):
        return loads
    return None
