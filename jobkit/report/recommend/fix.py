"""What to change in a request: keys of the spec, and the header lines that change with them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobkit.report.recommend.request import PORTABLE, lines
from jobkit.report.recommend.types import Lines
from jobkit.report.recommend.use import PointUse, RunUse
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """What to change.

    Attributes
    ----------
    does
        In words.
    keys
        Of the spec, with their new values.
    lines
        By scheduler, the header lines that are new or have changed.
    leave_out
        By scheduler, header lines that go.
    command
        To type, if no key of a spec does it; else empty.
    """

    does: str
    keys: Mapping[str, str | int] = field(default_factory=dict)
    lines: tuple[Lines, ...] = ()
    leave_out: tuple[Lines, ...] = ()
    command: str = ""


def fix_of(
    run: RunUse,
    uses: Sequence[PointUse],
    does: str,
    keys: Mapping[str, str | int],
    pack: int | None = None,
    **changes: object,
) -> Fix:
    """Return a fix with the header lines that it changes.

    Parameters
    ----------
    run
        The run.
    uses
        The points whose request changes; the largest of them counts.
    does, keys
        As in `Fix`.
    pack
        How many points share a job then; as many as now without it.
    changes
        Of the resources of a point.
    """
    before, now_pack = largest(uses), max(use.pack for use in uses)
    before = before if run.own else before.model_copy(update={"gpu_type": None})
    after = before.model_copy(update=changes)
    new, gone = [], []
    for site in run.sites:
        old = header(before, site, own=run.own, pack=now_pack)
        after_lines = header(after, site, own=run.own, pack=pack or now_pack)
        changed = tuple(line for line in after_lines.lines if line not in old.lines)
        new.append(replace(after_lines, lines=changed))
        if not changed and not after_lines.reason:
            left = tuple(line for line in old.lines if line not in after_lines.lines)
            gone.append(replace(after_lines, lines=left))
    return Fix(
        does=does,
        keys=keys,
        lines=tuple(line for line in new if line.lines or line.reason),
        leave_out=tuple(line for line in gone if line.lines),
    )


def header(resources: Resources, site: Site, *, own: bool, pack: int = 1) -> Lines:
    """Return the header lines of a job; on a plain site with the type of the GPU, if that is set."""
    job = resources.model_copy(update={"walltime": resources.walltime * pack})
    if own or job.gpu_type is None:
        return lines(job, site, own=own)
    portable = {name: getattr(job, name) for name in (*PORTABLE, "gpu_type")}
    return replace(lines(Resources().model_copy(update=portable), site, own=True), own=False)


def largest(uses: Sequence[PointUse]) -> Resources:
    """Return the largest request of points: the most of each resource."""
    most = {
        name: max(getattr(use.asked, name) for use in uses) for name in ("gpus", "cpus", "memory", "walltime")
    }
    return uses[0].asked.model_copy(update=most)
