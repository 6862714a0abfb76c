"""Cut a corpus into shards, each with what it requests, and show that plan. Pure but for the corpus."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path

from jobkit.answers.speed import Duration, duration, not_sampled, total, upper
from jobkit.core import terminal
from jobkit.core.errors import JobkitError
from jobkit.core.frozen import frozen, keyed
from jobkit.core.knobs import BATCH_SIZE, CPU, budget_of, numbers
from jobkit.core.layout import CORPUS_FILE, WINNERS_FOLDER
from jobkit.core.records import Point, TextRef
from jobkit.core.units import (
    GIB,
    MIB,
    MOST_NAMED,
    first_lines,
    format_about,
    format_count,
    format_energy,
    format_hours,
    format_list,
    format_memory,
    format_size,
    format_walltime,
    parse_size,
)
from jobkit.extensions.corpus.plan import MANIFEST_FILE, Corpus, Piece, Shard, cut
from jobkit.extensions.corpus.readers import place_of, read_pieces
from jobkit.extensions.corpus.setting import AppliedSetting
from jobkit.extensions.corpus.streams import foreign_word
from jobkit.extensions.corpus.tables import BY_ROWS
from jobkit.launch.ceiling import at_most, with_retries
from jobkit.launch.launch import request_words
from jobkit.planning.job_script import PointScript
from jobkit.planning.texts import estimated_lengths
from jobkit.runs.request import MEMORY_FACTOR, MINUTES, enough, memory_request, shard_s
from jobkit.schedulers.registry import runs_here
from jobkit.spec.sweep_spec import Resources, SweepSpec

# -- paragraphs that no measured batch covers

TAGGED_BYTES = 1024
"""RAM for a character of a paragraph of ordinary sentences: Stanza took 0.75 KiB in one of 400,000."""
LENGTHS: Mapping[str, Callable[[str], Sequence[int]]] = {
    "stanza-ner": lambda text: estimated_lengths([text]).paragraphs[0],
    "count": lambda text: [len(text)],
}
"""How long the items of a paragraph are to a workload; unknown for a workload that is not here."""


@frozen
class OversizedPiece:
    piece: Piece  # it has a shard of its own
    where: str  # the paragraph that needs most, in words
    characters: int  # of that paragraph
    longest: int  # the characters of its longest item, as the framework sees it
    load: int  # of the piece, if it is worked through alone
    known: bool  # whether what was measured says how much memory it needs


def find_heavy(corpus: Corpus, pieces: Sequence[Piece], setting: AppliedSetting) -> list[OversizedPiece]:
    """Return the pieces that must not share a shard with others, by what was measured of the setting.

    Only paragraphs that are longer than the bound allows an item to be are read.
    """
    items = longest_item(setting) if setting.point.workload in LENGTHS else None
    lengths_of = LENGTHS.get(setting.point.workload, LENGTHS["count"])
    most = covered(setting)
    heavy: list[OversizedPiece] = []
    for piece in pieces:
        if piece.longest <= min(most, math.inf if items is None else items):
            continue
        paragraphs = [(one, lengths_of(one.text)) for one in read_pieces(corpus, (piece,))]
        longest = max(max(own, default=0) for _, own in paragraphs)
        long = items is not None and longest > items
        if long or piece.longest > most:
            worst, _ = max(paragraphs, key=lambda one: max(one[1], default=0) if long else len(one[0].text))
            load = longest * min(_together(setting), sum(len(own) for _, own in paragraphs))
            known = setting.memory is not None if long else setting.point.workload in LENGTHS
            where = place_of(corpus, piece, worst)
            heavy.append(OversizedPiece(piece, where, len(worst.text), longest, load, known))
    return heavy


def covered(setting: AppliedSetting) -> int:
    """Return the longest permitted paragraph: by a measured call, or by the margin of memory."""
    if setting.peak_bytes is None:
        # a longer paragraph gets a shard of its own if nothing was measured
        return 100_000
    return max(setting.call_characters, int((MEMORY_FACTOR - 1) * setting.peak_bytes / TAGGED_BYTES))


def longest_item(setting: AppliedSetting) -> int | None:
    """Return the permitted length of an item by the memory line; without a line, of an item alone.

    ``None`` if no load was measured.
    """
    if setting.memory is None:
        return setting.call_load or None
    return int(setting.memory.largest.safe_load // max(1, _together(setting)))


def _together(setting: AppliedSetting) -> int:
    """Return how many long items a batch has: one that is longer than the budget is a batch of its own."""
    params = setting.point.params
    return 1 if budget_of(params) else numbers(params).get(BATCH_SIZE, 1)


def refuse_too_large(heavy: Sequence[OversizedPiece], setting: AppliedSetting) -> None:
    """Refuse paragraphs whose shard is not known to have the memory that they need."""
    lines = list(_too_large(heavy, setting))
    if not lines:
        return
    head = f"{format_count(len(lines), 'paragraph')} too large for what was measured of the setting:"
    raise JobkitError(
        "\n  ".join([head, *first_lines(lines, 10)]),
        hint="--split-long cuts a paragraph between sentences; or put blank lines into it; "
        "measure with a text that has such a paragraph; "
        "or name the memory of a shard: --set resources.memory=16GiB",
    )


def _too_large(heavy: Sequence[OversizedPiece], setting: AppliedSetting) -> Iterator[str]:
    given = setting.peak_bytes is None or setting.sets("memory")
    largest = None if setting.memory is None or setting.point.device == CPU else setting.memory.largest
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for one in heavy:
        what = f"{one.where}: {one.characters:,} characters, {one.longest:,} in a sentence"
        if not one.known:
            if not given:
                yield f"{what}: no measured batch had so many characters, so its need of memory is not known"
        elif largest and one.load > largest.safe_load:
            yield f"{what}: the bound of the GPU is {format_memory(largest.capacity_bytes)}"
        elif runs_here(setting.spec.scheduler) and (needed := memory_of(one, setting, 0)) > machine_bytes:
            yield f"{what}: {format_memory(needed)} of {format_memory(machine_bytes)} on this machine"


def memory_of(heavy: OversizedPiece, setting: AppliedSetting, usual_bytes: int) -> int:
    line, needed = setting.memory.line if setting.memory else "", setting.peak_bytes
    if needed is None or not heavy.known:
        return usual_bytes
    if not isinstance(line, str) and setting.point.device == CPU:
        needed = max(needed, math.ceil(line.upper(heavy.load)))
    if heavy.characters > covered(setting):
        needed += TAGGED_BYTES * heavy.characters
    return max(usual_bytes, memory_request(needed))


# -- shards

MEASURED = 2**17  # characters of the first shard if it measures the speed
UNKNOWN = 2**22  # characters of a shard that is cut before a speed is known


@keyed
class ShardOptions:
    minutes: float = MINUTES  # how long each may take
    number: int | None = None  # of shards; ``None``: it follows from the time of each
    limit_s: float | None = None  # the longest walltime of a job there; ``None`` if there is none


@keyed
class CorpusPlan:
    shards: tuple[Shard, ...]
    each: Duration | None  # how long the largest shard takes; ``None`` if no speed is known
    whole: Duration | None  # how long all take, one after the other
    resources: Resources  # what each requests
    measured: Resources  # what each would request if a person had set nothing
    needs: Mapping[int, tuple[str, ...]]  # by index the shards that request more, as ``key=value``
    even: int  # how many shards are of equal load: the others are of a large paragraph each
    measures: bool = False  # whether the first measures the speed, by which the rest is cut then
    limit_s: float | None = None  # the longest walltime of a job there, if the shards are shorter for it

    @property
    def spread(self) -> float:
        """How far the loads differ at most, as a share of the largest."""
        loads = [shard.load for shard in self.shards[: self.even]]
        largest = max(loads, default=0)
        return 1 - min(loads) / largest if largest else 0.0


def plan_shards(
    pieces: Sequence[Piece],
    setting: AppliedSetting,
    wishes: ShardOptions,
    *,
    first: int = 1,
    tables: int = 0,
    heavy: Sequence[OversizedPiece] = (),
) -> CorpusPlan:
    """Return pieces cut into shards of equal load; each heavy piece gets a shard at the end.

    The shards are shorter than was wished if their queue allows no longer walltime.
    ``tables``: what `table_bytes` returns of their corpus.
    """
    if not pieces:
        raise JobkitError("the corpus holds no paragraph", hint="name the files with --corpus")
    plan = _plan(pieces, setting, wishes, first, tables, heavy)
    asked = wishes.number or setting.sets("walltime") or setting.speed is None
    limit_s = math.inf if asked or wishes.limit_s is None else wishes.limit_s / setting.spec.pack
    # each makes more, shorter shards: the start of a shard takes its share of the limit
    most_cuts = 10
    for _ in range(most_cuts):
        if plan.resources.walltime <= limit_s or plan.even >= len(pieces) - len(heavy):
            break
        number = math.ceil(plan.even * plan.resources.walltime / limit_s)
        plan = _plan(pieces, setting, replace(wishes, number=number), first, tables, heavy)
        plan = replace(plan, limit_s=wishes.limit_s)
    return plan


def _plan(
    pieces: Sequence[Piece],
    setting: AppliedSetting,
    wishes: ShardOptions,
    first: int,
    tables: int,
    heavy: Sequence[OversizedPiece],
) -> CorpusPlan:
    alone = [one.piece for one in heavy]
    pieces = [piece for piece in pieces if piece not in alone] if alone else pieces
    loads = [max(1, piece.characters) for piece in pieces]
    measures = first == 1 and setting.speed is None and not wishes.number and sum(loads) > 2 * MEASURED
    number = min(_number(pieces, setting, wishes), len(pieces))
    parts = [part for part in cut(pieces, loads, number) if part] if pieces else []
    if measures:
        bound = next(at for at, load in enumerate(accumulate(loads), 1) if load >= MEASURED)
        parts = [[*part] for part in (pieces[:bound], pieces[bound:]) if part]
    parts += [[piece] for piece in alone]
    forks = setting.point.fork and runs_here(setting.spec.scheduler)  # the first imports for all
    timed = [
        _shard(first + place, part, setting, forked=forks and place > 0) for place, part in enumerate(parts)
    ]
    shards = tuple(shard for shard, _ in timed)
    known = [time for _, time in timed if time]
    each = max(known, key=lambda time: time.expected_s, default=None)
    measured = enough(
        setting.spec.resources,
        held_bytes=setting.peak_bytes,
        longest_s=each.longest_s if each else None,
        warning_s=setting.site.warning_s,
        text_bytes=window_bytes(shards, setting.spec) + tables,
    )
    given = (key for key in ("memory", "walltime") if setting.sets(key))
    resources = measured.model_copy(update={key: getattr(setting.spec.resources, key) for key in given})
    return CorpusPlan(
        shards=shards,
        each=each,
        whole=total(known) if known else None,
        resources=resources,
        measured=measured,
        needs={
            shard.index: (f"resources.memory={format_size(size)}",)
            for shard, one in zip(shards[len(shards) - len(heavy) :], heavy, strict=True)
            if (size := memory_of(one, setting, resources.memory)) > resources.memory
        },
        even=len(shards) - len(heavy),
        measures=measures and len(shards) > 1,
    )


def _number(pieces: Sequence[Piece], setting: AppliedSetting, wishes: ShardOptions) -> int:
    if wishes.number:
        return wishes.number
    if setting.speed is None:
        return math.ceil(sum(piece.characters for piece in pieces) / UNKNOWN)
    start_s, allowed_s = setting.speed.start_s, 60 * wishes.minutes
    items = sum(piece.paragraphs for piece in pieces)
    whole = duration(setting.speed, items=items, characters=sum(piece.characters for piece in pieces))
    if wishes.minutes == MINUTES and wishes.limit_s:
        limit_s, spread = wishes.limit_s / setting.spec.pack, whole.longest_s / whole.expected_s
        allowed_s = shard_s(limit_s, spread, setting.site.warning_s)
    # A start is part of a shard; if it takes most of one, the shard is longer than was wished.
    return math.ceil((whole.expected_s - start_s) / max(allowed_s - start_s, allowed_s / 2))


def _shard(
    index: int, pieces: Sequence[Piece], setting: AppliedSetting, *, forked: bool
) -> tuple[Shard, Duration | None]:
    shard = Shard(index=index, pieces=tuple(pieces), load=sum(piece.characters for piece in pieces))
    if setting.speed is None:
        return shard, None
    items, characters = shard.paragraphs, shard.characters
    time = duration(setting.speed, items=items, characters=characters, forked=forked, past=setting.past)
    # a shard that takes longer than this share of such shards is named
    low_s, high_s, slow_s = time.low_s, time.high_s, upper(time, 0.99)
    return replace(shard, expected_s=time.expected_s, low_s=low_s, high_s=high_s, slow_s=slow_s), time


def window_bytes(shards: Sequence[Shard], spec: SweepSpec) -> int:
    """Return the RAM for the paragraphs that a worker holds at a time, and for what is read ahead."""
    number = sum(shard.paragraphs for shard in shards)
    mean = sum(shard.characters for shard in shards) / max(1, number)
    window = min(spec.sort_window or number, max(shard.paragraphs for shard in shards))
    # 64 MiB of the corpus are read ahead; of three windows one is read, one is worked on, one is written, and
    # a paragraph takes 1024 bytes besides its characters, its rows included
    return 64 * MIB + round(3 * window * (4 * mean + 1024))


def table_bytes(corpus: Corpus) -> int:
    """Return the memory that a worker needs to read Parquet and Arrow: pyarrow, and a group with its copy."""
    groups = [one.columns.group_bytes for one in corpus.sources if one.columns and one.kind in BY_ROWS]
    # address space of pyarrow, which a limit of Grid Engine counts; 70 MiB of RAM
    return 300 * MIB + 2 * max(groups) if groups else 0


def points_of(
    shards: Sequence[Shard],
    template: Point,
    run_dir: Path,
    run_id: str,
    corpus: Corpus,
    *,
    plan_number: int = 1,
) -> tuple[Point, ...]:
    """Return the points of shards, made from a shard with the setting; the first plan is number 1."""
    path, name = str(run_dir / CORPUS_FILE), corpus.sources[0].name
    return tuple(
        replace(
            template,
            run_id=run_id,
            index=shard.index,
            point_id=f"shard-{shard.index:05d}",
            repeat=plan_number,
            text=TextRef(
                path=path,
                sha256="",
                size_bytes=sum(piece.size_bytes for piece in shard.pieces),
                name=name,
            ),
        )
        for shard in shards
    )


SCRIPT = PointScript(  # what the job script of a shard has beyond that of another point
    text_sizes=2,  # of the rows; the tagger wrote 1.4 (benchmarks/records)
    claim={"module": "jobkit.extensions.corpus.winners", "manifest": MANIFEST_FILE, "folder": WINNERS_FOLDER},
)


# -- the plan in words


@keyed
class CorpusSummary:
    corpus: Corpus
    setting: AppliedSetting
    plan: CorpusPlan
    read_s: float | None  # how long it took to read the corpus; ``None`` if it was read before
    now: datetime  # when it would begin
    # how long earlier corpora took, next to what was predicted, in words; empty if there were none
    before: str = ""


def plan_lines(prospect: CorpusSummary) -> list[str]:
    """Return the plan, a line for each thing that a person decides by."""
    rows = {
        "corpus": _corpus_words(prospect.corpus, prospect.read_s),
        "not read": unread_words(prospect.corpus.unread),
        **_read_as(prospect.corpus),
        "setting": f"{prospect.setting.words} ({prospect.setting.source})",
        "model": prospect.setting.point.model.label if prospect.setting.point.model else "",
        "shards": _shards(prospect),
        **_cost(prospect),
        "earlier": prospect.before if prospect.plan.whole else "",
        "request": _request(prospect),
        "warning": "\n".join(_warnings(prospect)),
    }
    return labelled(rows)


def labelled(rows: Mapping[str, str]) -> list[str]:
    """Return rows that are not empty as lines as wide as a page, their words below each other."""
    below, width = " " * 11, terminal.page_width() - 2  # in a pipe they are comments
    return [
        line
        for label, words in rows.items()
        for number, text in enumerate(words.splitlines())
        for line in terminal.wrap(text, width, first=below if number else f"{label:11}", below=below)
    ]


def _corpus_words(corpus: Corpus, read_s: float | None) -> str:
    """Return a corpus in words, with what ends a paragraph: ``3 files, 88.1 MiB, 412,330 paragraphs``."""
    size = sum(source.size_bytes for source in corpus.sources)
    words = [
        format_count(len(corpus.sources), "file"),
        format_bytes(size),
        format_count(corpus.paragraphs, "paragraph"),
    ]
    if corpus.skipped:
        names = format_list([*dict.fromkeys(bad.source for bad in corpus.skipped)])
        words.append(f"{format_count(len(corpus.skipped), 'place')} left out (in {names})")
    read = "" if read_s is None else f" (read in {read_s:,.1f} s)"
    return f"{', '.join(words)}{read}; a blank line ends a paragraph, also in a table or a list"


def _read_as(corpus: Corpus) -> dict[str, str]:
    """Return what jobkit chose to read a corpus: columns and encodings."""
    columns, encoded = dict[str, list[str]](), list[str]()
    for source in corpus.sources:
        if source.columns:
            name = f", id {source.columns.id!r}" if source.columns.id else ", without an id"
            columns.setdefault(f"text {source.columns.text!r}{name}", []).append(source.name)
        if source.encoding and len(encoded) < MOST_NAMED:
            encoded.append(f"{source.name} {source.encoding} ({foreign_word(source) or 'all ASCII'})")
    number = sum(bool(source.encoding) for source in corpus.sources)
    more = [f"{number - len(encoded):,} more"] if number > len(encoded) else []
    return {
        "columns": "; ".join(f"{words} ({format_list(names, 2)})" for words, names in columns.items()),
        "encoding": ", ".join([*encoded, *more]),
        "cut": f"paragraphs of more than {corpus.split:,} characters" if corpus.split else "",
    }


def unread_words(names: Sequence[str]) -> str:
    """Return the number and first names of files in the folders of a corpus that are not read."""
    return f"{format_count(len(names), 'file')}: {format_list(names)}" if names else ""


def format_bytes(size: int) -> str:
    """Return the size of files: ``1.4 GiB``, ``88.1 MiB``; small ones in bytes."""
    if size >= GIB:
        return f"{size / GIB:,.1f} GiB"
    return f"{size / MIB:,.1f} MiB" if size >= MIB else f"{size:,} bytes"


def _shards(prospect: CorpusSummary) -> str:
    plan = prospect.plan
    if plan.measures:
        size = format_bytes(plan.shards[0].load)
        return f"1 of {size} measures the speed, with the walltime of the spec; then the rest is cut by it"
    number = f"{len(plan.shards):,}"
    spread = plan.spread
    alike = ""
    if plan.even > 1:
        within = max(0.001, math.ceil(1000 * spread) / 1000)
        alike = f" (loads differ by at most {100 * within:.1f} %)"
    if alone := len(plan.shards) - plan.even:
        sizes = {word.partition("=")[2] for words in plan.needs.values() for word in words}
        most = "".join(f" ({size})" for size in sorted(sizes, key=parse_size)[-1:])
        alike += f", {alone:,} of them of a large paragraph{most}"
    if plan.limit_s:
        alike += f"; a job may take {format_walltime(plan.limit_s)} at most"
    if plan.each is None:
        return f"{number}{alike}; speed not known: {UNKNOWN:,} characters at most, walltime as in the spec"
    return f"{number} of about {format_about(plan.each.expected_s)}{alike}"


def _cost(prospect: CorpusSummary) -> dict[str, str]:
    setting, plan, corpus = prospect.setting, prospect.plan, prospect.corpus
    if plan.whole is None or setting.speed is None:
        return {}
    on_cpu = setting.point.device == CPU
    each = setting.spec.resources.of(setting.point).cpus if on_cpu else setting.point.gpus
    words = {f"{'CPU' if on_cpu else 'GPU'}-hours": _hours(plan.whole, each)}
    elsewhere = not runs_here(setting.spec.scheduler)
    shared = elsewhere and not setting.spec.resources.exclusive
    if doubts := not_sampled(setting.speed, elsewhere=elsewhere, shared=shared, past=setting.past):
        words["beware"] = "\n".join(doubts)
    if setting.energy:
        joules = setting.energy.of(corpus.paragraphs, corpus.characters)
        rate = 1000 * joules / max(1, corpus.characters)
        words["energy"] = f"{format_energy(joules)} (measured: {format_energy(rate)} for 1,000 characters)"
    words["ends"] = _end(prospect)
    return words


def _hours(whole: Duration, each: int) -> str:
    hour_s = 3600.0
    expected = format_hours(whole.expected_s * each / hour_s)
    if whole.low_s is None or whole.high_s is None:
        return f"{expected} (one repeat was measured, so there is no interval)"
    if whole.unknown:
        repeats = format_count(whole.repeats, "repeat")
        return f"{expected} (mean of {repeats}; spread unknown: half the interval is more than the mean)"
    low, high = (format_hours(seconds * each / hour_s) for seconds in (whole.low_s, whole.high_s))
    return f"{expected} (95 %: {low} to {high})"


def _end(prospect: CorpusSummary) -> str:
    """Return when it ends if the queue starts all that may run at a time now."""
    plan, spec, point = prospect.plan, prospect.setting.spec, prospect.setting.point
    if plan.each is None:
        return ""
    number = len(plan.shards)
    at_a_time, where = 1, "here, one shard after the other"
    if not runs_here(spec.scheduler):
        at_a_time = min(number, (spec.max_parallel or number) * spec.pack)
        each, unit = (1, "CPU job") if point.device == CPU else (point.gpus, "GPU")
        where = f"with {format_count(at_a_time * each, unit)} from now"
    time = plan.whole if at_a_time == 1 and plan.whole else plan.each
    rounds = 1 if time is plan.whole else math.ceil(number / at_a_time)
    now = prospect.now.astimezone()

    def moment(seconds: float) -> tuple[str, str]:
        """Return day and time: ``today`` and ``19:40``, ``2026-01-05`` and ``09:00``."""
        end = now + timedelta(seconds=rounds * seconds)
        days = (end.date() - now.date()).days
        return {0: "today", 1: "tomorrow"}.get(days, f"{end:%Y-%m-%d}"), f"{end:%H:%M}"

    day, clock = moment(time.expected_s)
    between = ""
    if time.low_s is not None and time.high_s is not None and not time.unknown:
        bounds = (moment(seconds) for seconds in (time.low_s, time.high_s))
        low, high = (at if on == day else f"{on} {at}" for on, at in bounds)
        between = f" (95 %: {low} to {high})"
    return f"{day} {clock} {where}{between}"


def _request(prospect: CorpusSummary) -> str:
    setting, plan = prospect.setting, prospect.plan
    resources, each, why = plan.resources.of(setting.point), plan.each, ""
    if each and plan.resources.walltime == plan.measured.walltime:
        so = ", twice the mean" if each.high_s is None else ", as the spread is unknown" * each.unknown
        why = f" (for a shard of up to {format_about(each.longest_s)}{so})"
    if runs_here(setting.spec.scheduler):
        return f"on this machine ({setting.why}): walltime {format_walltime(resources.walltime)}{why} a shard"
    where = f"({setting.spec.scheduler}, site {setting.site.name})"
    more = f"; {len(plan.needs):,} with more memory, by a script of its own (job-2.sh)" if plan.needs else ""
    number, unit = (resources.gpus, "GPU") if resources.gpus else (resources.cpus, "CPU")
    most_s = len(plan.shards) * number * resources.walltime
    most = at_most(setting.spec, most_s, unit, with_retries(setting.spec.policy))
    return f"each shard: {request_words([resources])}{why} {where}{more}; {most}"


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
    if peak is None or asked >= peak or not setting.sets("memory"):
        return
    here = runs_here(setting.spec.scheduler)
    so = "jobkit sets no limit here, but a scheduler does" if here else "shards may run out of memory"
    yield (
        f"memory {format_size(asked)} is less than the {format_memory(peak)} that the run measured: {so}; "
        f"better: --set resources.memory={format_size(measured_bytes)}"
    )
