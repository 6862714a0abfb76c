"""Runs side by side: their differences, and the ratios of means of the settings that they share. Pure.

A difference is called one only if the 95 % interval of the ratio (`jobkit.answers.setting.Mean.over`)
excludes 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from string import ascii_uppercase
from typing import Any

from jobkit.answers.setting import Mean, Ratio
from jobkit.answers.speed import tested
from jobkit.core.blocks import Block, Column
from jobkit.core.figures import FIGURES, SPEED, Figure
from jobkit.core.frozen import keyed
from jobkit.core.units import format_bytes_gib, format_list, format_setting
from jobkit.report.output import heading
from jobkit.report.rows import SETTING, Row
from jobkit.report.tables import Collected, Size


@keyed
class Side:
    """A group of points of one run: all that share GPU, model, text, versions and settings."""

    letter: str  # its short name
    run: str
    title: str  # what was run, in words
    first: Row
    sizes: Mapping[str, Size]  # by setting, in words
    # the setting that a search found, in words; then the side has only the last phase of the search
    answer: str = ""
    found: str = ""  # the answer of the search in a sentence

    @property
    def fastest(self) -> tuple[str, Size] | None:
        """The setting of the highest mean speed, of a search its answer; ``None`` if no speed is known."""
        if self.answer:
            return self.answer, self.sizes[self.answer]
        known = [(mean.value, words) for words, size in self.sizes.items() if (mean := size.mean(SPEED))]
        return (words := max(known, key=itemgetter(0))[1], self.sizes[words]) if known else None


@keyed
class ComparedSetting:
    """A setting of both sides: the means of a figure, and their ratio, the other over the first."""

    setting: str
    first: Mean
    other: Mean
    ratio: Ratio


@keyed
class SideComparison:
    first: Side
    other: Side
    differ: Sequence[tuple[str, str, str]]  # the columns in which they differ, with the two values in words
    lines: Mapping[Figure, Sequence[ComparedSetting]]  # by figure, the settings that both sides have


def sides(runs: Sequence[Collected]) -> list[Side]:
    """Return a side for each table of runs that were collected separately, in order."""
    groups = [(run, group) for run in runs for group in range(len(run.by_group))]
    letters = [*ascii_uppercase, *(f"{one}{two}" for one in ascii_uppercase for two in ascii_uppercase)]
    found: list[Side] = []
    for (run, group), letter in zip(groups, letters, strict=False):
        search = run.search(group)
        counting = {  # the settings in words, the answer of a search as the search names it
            format_setting(search.named(row.record) if search and row.record else row.params): size
            for size in run.sizes_of(group)
            for row in [size.first]
            if search is None or search.rests_on(row.point.phase)
        }
        answer = format_setting(search.setting) if search else ""
        first = run.by_group[group]
        model = first.record.point.model if first.record else None
        side = Side(
            letter=letter,
            run=first.folder,
            title=f"{heading(run, group)[0]}{f' ({model.caveat})' if model and model.caveat else ''}",
            first=first,
            sizes=counting,
            answer=answer if answer in counting else "",  # another table of the search may have it
            found=search.sentence if search and answer in counting else "",
        )
        found.append(side)
    return found


def compare(first: Side, other: Side) -> SideComparison:
    lines: dict[Figure, list[ComparedSetting]] = {}
    for figure in FIGURES.values():
        for words, size in first.sizes.items() if figure.compared else ():
            one, two = size.mean(figure), other.sizes[words].mean(figure) if words in other.sizes else None
            if one and two and min(*one.values, *two.values) > 0:  # there is no ratio to 0
                line = ComparedSetting(setting=words, first=one, other=two, ratio=two.over(one))
                lines.setdefault(figure, []).append(line)
    values = [(name, *(_words(name, side.first) for side in (first, other))) for name in SETTING]
    return SideComparison(
        first=first, other=other, lines=lines, differ=[(name, a, b) for name, a, b in values if a != b]
    )


def _words(name: str, row: Row) -> str:
    value = dict(zip(SETTING, row.fixed, strict=True))[name]
    if value is None:
        return ""
    if name in {"text_sha256", "model_fingerprint"}:
        # characters of a fingerprint that are shown
        return str(value)[:12]
    return format_bytes_gib(value) if isinstance(value, int) and name.endswith("_bytes") else str(value)


def verdict(ratio: Ratio, figure: Figure) -> str:
    if ratio.differs is None:
        return "one repeat: cannot show a difference"
    if not ratio.differs:
        return "no difference is shown"
    return figure.more if ratio.mean > 1 else figure.less


def blocks(compared: Sequence[Side]) -> list[Block]:
    fastest = [side.fastest for side in compared]
    speeds = [best[1].mean(SPEED) if best else None for best in fastest]
    head = "fastest, or the answer" if any(side.answer for side in compared) else "fastest"
    titles = dict.fromkeys(side.title for side in compared)
    columns = (
        Column("side", [side.letter for side in compared], left=True),
        Column("run", [side.run for side in compared], left=True),
        Column("what was run", [side.title for side in compared] if len(titles) > 1 else (), left=True),
        Column(head, [best[0] if best else "" for best in fastest], left=True),
        Column("paragraphs/s", [_number(speed.value) if speed else "" for speed in speeds]),
    )
    answers = tuple(f"{side.letter}: {side.found}" for side in compared if side.found)
    alike = (f"All ran {titles.popitem()[0]}.",) if len(titles) == 1 else ()
    names = Block(title="Runs", before=(*alike, *answers), columns=columns)
    return [names, *(block for other in compared[1:] for block in _pair(compare(compared[0], other)))]


def side_by_side(runs: Sequence[Collected]) -> list[Block]:
    """Return the comparison of all tables of runs, collected separately, with the first."""
    return blocks(sides(runs))


def as_data(compared: Sequence[Side]) -> dict[str, Any]:
    """Return the comparison for a program: measures by their names in the tables, in bytes and joules."""
    runs, pairs = [], []
    for side in compared:
        setting, size = side.fastest or (None, None)
        speed = size.mean(SPEED) if size else None
        run = {
            "side": side.letter,
            "run": side.run,
            "title": side.title,
            "fastest": setting,
            "items_per_s": speed.value if speed else None,
            "answer": side.answer or None,
        }
        runs.append(run)
    for pair in (compare(compared[0], other) for other in compared[1:]):
        first, other = pair.first.letter, pair.other.letter
        measures = {
            figure.name: [
                {
                    "setting": line.setting,
                    "first": line.first.value,
                    "other": line.other.value,
                    "ratio": line.ratio.mean,
                    "ratio_low": line.ratio.low,
                    "ratio_high": line.ratio.high,
                    "differs": line.ratio.differs,
                    "verdict": verdict(line.ratio, figure),
                }
                for line in lines
            ]
            for figure, lines in pair.lines.items()
        }
        differ = {name: {first: one, other: two} for name, one, two in pair.differ}
        notes = list(_about(pair))
        pairs.append({"first": first, "other": other, "differ": differ, "notes": notes, "measures": measures})
    return {"runs": runs, "comparisons": pairs}


def _pair(pair: SideComparison) -> Iterator[Block]:
    first, other = pair.first.letter, pair.other.letter
    differing = tuple(
        Column(head, [row[place] or "-" for row in pair.differ], left=True)
        for place, head in enumerate(("difference", first, other))
    )
    about = tuple(_about(pair))
    yield Block(title=f"{other} next to {first}", before=about, columns=differing if pair.differ else ())
    for figure, lines in pair.lines.items():
        columns = (
            Column("setting", [line.setting for line in lines], left=True),
            Column(first, [_number(line.first.value / figure.scale) for line in lines]),
            Column(other, [_number(line.other.value / figure.scale) for line in lines]),
            Column(f"{other} over {first}", [f"{line.ratio.mean:.2f}" for line in lines]),
            Column("95 % interval", [_ends(line.ratio) for line in lines]),
            Column(
                f"{other} is",
                ["" if line.ratio.differs is None else verdict(line.ratio, figure) for line in lines],
                left=True,
            ),
        )
        yield Block(title=f"{figure.title}: {other} next to {first}", columns=columns)


def _about(pair: SideComparison) -> Iterator[str]:
    first, other = pair.first, pair.other
    if not pair.differ:
        yield "The runs share GPU or machine, text, model, versions and settings."
    # Two sides that differ in one of these do not do the same work
    work = ("text_sha256", "model_fingerprint", "workload")
    if unlike := [
        name.removesuffix("_sha256").removesuffix("_fingerprint") for name, *_ in pair.differ if name in work
    ]:
        yield f"Beware: the work differs ({', '.join(unlike)}), so a ratio also shows this difference."
    if line := _fastest(first, other):
        yield line
    for side, against in ((first, other), (other, first)):
        only = [words for words in side.sizes if words not in against.sizes]
        if only:
            yield f"Only in {side.letter}: {format_list(only, 8)}."
    if any(line.ratio.differs is None for lines in pair.lines.values() for line in lines):
        yield "A row without an interval has one repeat, which cannot show a difference."
    if not pair.lines:
        yield "No setting succeeded in both, so there is no table."


def _fastest(first: Side, other: Side) -> str:
    if first.fastest is None or other.fastest is None:
        return ""
    (one, base), (two, best) = first.fastest, other.fastest
    ratio = Mean.of(best.values(SPEED)).over(Mean.of(base.values(SPEED)))
    times = f"{ratio.mean:.2f} times as fast"
    which = "answer" if other.answer else "fastest"
    of = f"the answer of {first.letter}" if first.answer else f"the fastest of {first.letter}"
    if bool(first.answer) == bool(other.answer):
        of = f"that of {first.letter}"
    sentence = f"The {which} of {other.letter} ({two}) is {times} as {of} ({one})"
    interval = "" if ratio.low is None else f" ({ratio.low:.2f} to {ratio.high:.2f} with 95 % confidence)"
    return "; ".join(filter(None, (f"{sentence}{interval}", tested(ratio)))) + "."


def _ends(ratio: Ratio) -> str:
    return "" if ratio.low is None else f"{ratio.low:.2f}-{ratio.high:.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
