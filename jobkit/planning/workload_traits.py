"""What jobkit must know of a workload before it runs. The user's code runs in a separate process."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from jobkit.core.knobs import RUN_KNOBS, Knob, declared, from_fields
from jobkit.core.records import Command
from jobkit.planning.child_process import run_in_child
from jobkit.run.command import words
from jobkit.run.workloads import own
from jobkit.run.workloads.base import CHARACTERS, SHIPPED


class Traits(NamedTuple):
    """Whether a workload needs a model, whether it reports the lengths of a text's items, and its knobs.

    Attributes
    ----------
    columns
        Of the rows that ``jobkit apply`` writes, after document and paragraph.
    unit, pads
        What its load counts, and whether the items of a batch are padded to the longest.
    says_padding
        Whether it says so itself. A function without ``lengths`` next to it says nothing: jobkit takes the
        characters of a paragraph for its length.
    """

    needs_model: bool
    reports_lengths: bool
    knobs: tuple[Knob, ...]
    columns: tuple[str, ...] = ()
    unit: str = CHARACTERS
    pads: bool = True
    says_padding: bool = True


def command_traits(template: str, knobs: Iterable[str], sources: Iterable[Path]) -> Traits:
    """Return what jobkit must know of a command with these knobs and files."""
    command, own = Command(template=template), {knob.name for knob in RUN_KNOBS}
    declared_knobs = declared(knob for knob in knobs if knob not in own)
    return Traits(
        needs_model=words.needs(words.MODEL, command, sources),
        reports_lengths=False,
        knobs=(*declared_knobs, *RUN_KNOBS),
    )


@functools.cache
def traits(name: str, folder: str | None = None, staged: str | None = None) -> Traits:
    """Return what jobkit must know of a workload.

    Parameters
    ----------
    name
        As a spec has it.
    folder
        The folder in which jobkit looks for the user's module: that of the spec.
    staged
        The ``files/`` of a run that consists of files of the user's.

    Raises
    ------
    JobkitError
        If there is no such class, it cannot be imported, or it lacks something.
    """
    if name in SHIPPED:
        fields = own.traits(name, None, say=print)
    else:
        fields = run_in_child(
            "jobkit.run.workloads.own:traits",
            name,
            folder,
            staged,
            say=lambda _: None,
            what=f"looking at workload {name!r}",
        )
    needs_model, reports_lengths, knobs, columns, unit, pads, says = fields
    own_knobs = (*map(from_fields, knobs), *RUN_KNOBS)
    return Traits(needs_model, reports_lengths, own_knobs, tuple(columns), unit, pads, says)
