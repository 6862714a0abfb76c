"""The plan of a corpus in words: what is read, the setting, how long, until when, what is requested."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobkit.answers.speed import Duration
from jobkit.core.knobs import CPU
from jobkit.core.units import (
    GIB,
    MIB,
    format_about,
    format_count,
    format_energy,
    format_list,
    format_memory,
    format_size,
    format_walltime,
    parse_size,
)
from jobkit.extensions.corpus.plan import Corpus
from jobkit.extensions.corpus.scan import MOST_NAMED
from jobkit.extensions.corpus.setting import AppliedSetting
from jobkit.extensions.corpus.shards import UNKNOWN_BYTES, CorpusPlan
from jobkit.launch.launch import request_words
from jobkit.schedulers.registry import runs_here

LABEL = 11
HOUR_S = 3600.0
SMALL_SPREAD = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSummary:
    corpus: Corpus
    setting: AppliedSetting
    plan: CorpusPlan
    read_s: float | None  # how long it took to read the corpus; ``None`` if it was read before
    now: datetime  # when it would begin
    # how long earlier corpora took, next to what was predicted, in words; empty if there were none
    before: str = ""

    @property
    def at_a_time(self) -> int:
        """How many shards run at the same time, if the queue starts them at once."""
        spec, number = self.setting.spec, len(self.plan.shards)
        return 1 if runs_here(spec.scheduler) else min(number, (spec.max_parallel or number) * spec.pack)


def plan_lines(prospect: CorpusSummary) -> Iterator[str]:
    """Yield the plan, a line for each thing that a person decides by."""
    rows = {
        "corpus": corpus_words(prospect.corpus, prospect.read_s),
        "not read": unread_words(prospect.corpus.unread),
        "setting": f"{prospect.setting.words} ({prospect.setting.source})",
        "model": prospect.setting.point.model.label if prospect.setting.point.model else "",
        "shards": _shards(prospect),
        **_cost(prospect),
        "earlier": prospect.before if prospect.plan.whole else "",
        "request": _request(prospect),
        "warning": f"\n{' ' * LABEL}".join(_warnings(prospect)),
    }
    yield from (f"{label.ljust(LABEL)}{words}" for label, words in rows.items() if words)


def corpus_words(corpus: Corpus, read_s: float | None = None) -> str:
    """Return a corpus in words: ``3 files, 88.1 MiB, 412,330 paragraphs``."""
    size = sum(source.size_bytes for source in corpus.sources)
    words = [
        format_count(len(corpus.sources), "file"),
        format_bytes(size),
        format_count(corpus.paragraphs, "paragraph"),
    ]
    if corpus.skipped:
        names = format_list([*dict.fromkeys(bad.source for bad in corpus.skipped)], MOST_NAMED)
        words.append(f"{format_count(len(corpus.skipped), 'place')} left out (in {names})")
    return ", ".join(words) + ("" if read_s is None else f" (read in {read_s:,.1f} s)")


def unread_words(names: Sequence[str]) -> str:
    """Return the number and first names of files in the folders of a corpus that are not read."""
    return f"{format_count(len(names), 'file')}: {format_list(names, MOST_NAMED)}" if names else ""


def format_bytes(size: int) -> str:
    """Return the size of files: ``1.4 GiB``, ``88.1 MiB``; small ones in bytes."""
    if size >= GIB:
        return f"{size / GIB:,.1f} GiB"
    return f"{size / MIB:,.1f} MiB" if size >= MIB else f"{size:,} bytes"


def _shards(prospect: CorpusSummary) -> str:
    plan = prospect.plan
    number = f"{len(plan.shards):,}"
    spread = plan.spread
    alike = ""
    if plan.even > 1:
        within = max(SMALL_SPREAD, math.ceil(1000 * spread) / 1000)
        alike = f" (loads differ by at most {100 * within:.1f} %)"
    if alone := len(plan.shards) - plan.even:
        sizes = {word.partition("=")[2] for words in plan.needs.values() for word in words}
        most = "".join(f" ({size})" for size in sorted(sizes, key=parse_size)[-1:])
        alike += f", {alone:,} of them of a large paragraph{most}"
    if plan.each is None:
        size = format_size(UNKNOWN_BYTES)
        return f"{number}{alike}; speed not known: shards of {size} at most, walltime as in the spec"
    return f"{number} of about {format_about(plan.each.expected_s)}{alike}"


def _cost(prospect: CorpusSummary) -> dict[str, str]:
    setting, plan, corpus = prospect.setting, prospect.plan, prospect.corpus
    if plan.whole is None:
        return {}
    on_cpu = setting.point.device == CPU
    each = setting.spec.resources.of(setting.point).cpus if on_cpu else setting.point.gpus
    words = {f"{'CPU' if on_cpu else 'GPU'}-hours": _hours(plan.whole, each)}
    if doubts := setting.doubts:
        words["beware"] = f"\n{' ' * LABEL}".join(doubts)
    if setting.energy:
        joules = setting.energy.of(corpus.paragraphs, corpus.characters)
        rate = 1000 * joules / max(1, corpus.characters)
        words["energy"] = f"{format_energy(joules)} (measured: {format_energy(rate)} for 1,000 characters)"
    words["ends"] = _end(prospect)
    return words


def _hours(whole: Duration, each: int) -> str:
    expected = f"{_number(whole.expected_s * each / HOUR_S)}"
    if whole.low_s is None or whole.high_s is None:
        return f"{expected} (one repeat was measured, so there is no interval)"
    if whole.unknown:
        return f"{expected} (mean of {format_count(whole.repeats, 'repeat')}; spread unknown)"
    low, high = (_number(seconds * each / HOUR_S) for seconds in (whole.low_s, whole.high_s))
    return f"{expected} (95 %: {low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def _end(prospect: CorpusSummary) -> str:
    """Return when it ends if the queue starts all that may run at a time now."""
    plan, at_a_time = prospect.plan, prospect.at_a_time
    if plan.each is None:
        return ""
    unit = "CPU job" if prospect.setting.point.device == CPU else "GPU"
    number = at_a_time * (1 if unit == "CPU job" else prospect.setting.point.gpus)
    where = "here, one shard after the other" if runs_here(prospect.setting.spec.scheduler) else ""
    where = where or f"with {format_count(number, unit)} from now"
    time = plan.whole if at_a_time == 1 and plan.whole else plan.each
    rounds = 1 if time is plan.whole else math.ceil(len(plan.shards) / at_a_time)
    ends = [
        None if seconds is None else moment_words(prospect.now, rounds * seconds)
        for seconds in (time.expected_s, time.low_s, time.high_s)
    ]
    known = ends[1] is not None and not time.unknown
    between = f" (95 %: {_short(ends[1], ends[0])} to {_short(ends[2], ends[0])})" if known else ""
    return f"{ends[0]} {where}{between}"


def moment_words(now: datetime, after_s: float) -> str:
    """Return a moment: ``today 19:40``, ``tomorrow 02:10``, ``2026-01-05 09:00``."""
    local = now.astimezone()
    end = local + timedelta(seconds=after_s)
    days = (end.date() - local.date()).days
    day = {0: "today", 1: "tomorrow"}.get(days, f"{end:%Y-%m-%d}")
    return f"{day} {end:%H:%M}"


def _short(end: str | None, other: str | None) -> str:
    """Return a moment, without its day if that is the day of the other."""
    day, _, clock = (end or "").rpartition(" ")
    return clock if other and other.startswith(day) else f"{day} {clock}"


def _request(prospect: CorpusSummary) -> str:
    setting, resources = prospect.setting, prospect.plan.resources.of(prospect.setting.point)
    why = _rests_on(prospect.plan)
    if runs_here(setting.spec.scheduler):
        return f"on this machine ({setting.why}): walltime {format_walltime(resources.walltime)}{why} a shard"
    where = f"({setting.spec.scheduler}, site {setting.site.name})"
    return f"each shard: {request_words([resources])}{why} {where}"


def _rests_on(plan: CorpusPlan) -> str:
    each = plan.each
    if each is None or plan.resources.walltime != plan.measured.walltime:
        return ""
    why = ", twice the mean" if each.high_s is None else ", as the spread is unknown" if each.unknown else ""
    return f" (for a shard of up to {format_about(each.longest_s)}{why})"


def _warnings(prospect: CorpusSummary) -> Iterator[str]:
    """Yield what a person has set that is less than what was measured."""
    setting, plan = prospect.setting, prospect.plan
    yield from low_memory(setting, plan.measured.memory)
    walltime_s = plan.resources.walltime
    left_s = walltime_s - min(setting.site.warning_s, walltime_s // 4)
    if plan.each and left_s < plan.each.expected_s:
        yield (
            f"walltime {format_walltime(walltime_s)} gives a shard {format_about(left_s)}, but it takes "
            f"about {format_about(plan.each.expected_s)} at the measured speed; "
            f"better: --set resources.walltime={format_walltime(plan.measured.walltime)}"
        )


def low_memory(setting: AppliedSetting, measured_bytes: int) -> Iterator[str]:
    """Yield that a person has set less memory than a try of the setting held.

    ``measured_bytes`` is what a shard would request if a person had set nothing.
    """
    asked, peak = setting.spec.resources.memory, setting.peak_bytes
    if peak is None or asked >= peak or not {*setting.given} & {"resources", "resources.memory"}:
        return
    here = runs_here(setting.spec.scheduler)
    so = "jobkit sets no limit here, but a scheduler does" if here else "shards may run out of memory"
    yield (
        f"memory {format_size(asked)} is less than the {format_memory(peak)} that the run measured: {so}; "
        f"better: --set resources.memory={format_size(measured_bytes)}"
    )
