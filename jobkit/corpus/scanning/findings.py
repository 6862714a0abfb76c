"""What is bad in the parts of a corpus, and the corpus without it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from jobkit.core.errors import JobkitError
from jobkit.corpus.plan import Bad
from jobkit.corpus.scanning.doubled import Read, lines_before
from jobkit.corpus.scanning.parts import Part
from jobkit.corpus.sources import JSONL, Found

MOST_BAD = 100_000
"""With more the corpus is none."""
_SHOWN = 1_000


@dataclass(slots=True)
class Findings:
    """What is bad.

    Attributes
    ----------
    files
        For the number of a file that is bad as a whole the line, if it is known, and the reason.
    lines
        For the number of a part of JSONL its bad lines, from the part's first, and the reasons.
    """

    files: dict[int, tuple[int, str]] = field(default_factory=dict)
    lines: dict[int, dict[int, str]] = field(default_factory=dict)
    _number: int = 0

    def add(self, number: int, part: Part, bad: Iterable[tuple[int, str]], before: int = 0) -> None:
        """Add what is bad in a part.

        Parameters
        ----------
        number
            Of the part.
        before
            How many lines of the file are before it.

        Raises
        ------
        JobkitError
            If there is too much.
        """
        for line, reason in bad:
            self._number += 1
            if part.kind == JSONL and line:
                self.lines.setdefault(number, {})[line] = reason
            else:
                self.files.setdefault(part.source, (line and before + line, reason))
        if self._number > MOST_BAD:
            hint = "is this text, are these the fields? see --text-field and --id-field"
            raise JobkitError(f"the corpus has more than {MOST_BAD:,} places that cannot be read", hint=hint)

    def add_names(self, found: Sequence[Found]) -> None:
        """Add each file that has the name of an earlier one: its documents would have the same ids."""
        first: dict[str, str] = {}
        for number, one in enumerate(found):
            if one.name in first:
                self.files[number] = (0, f"{first[one.name]} has the same name: name the folders above them")
            first.setdefault(one.name, one.path)

    def listed(self, found: Sequence[Found], reads: Sequence[Read]) -> list[tuple[int, Bad]]:
        """Return all that is bad, with the number of its file, in corpus order."""
        before = lines_before(reads)
        places = [(source, line, reason) for source, (line, reason) in self.files.items()]
        for number, lines in self.lines.items():
            source = reads[number][0].source
            if source not in self.files:
                places += [(source, before[number] + line, reason) for line, reason in lines.items()]
        return [
            (source, Bad(source=found[source].name, line=line, reason=reason))
            for source, line, reason in sorted(places)
        ]

    def parts_again(self, reads: Sequence[Read]) -> Iterator[tuple[int, Part]]:
        """Yield each part with bad lines that were taken for good, which is to be read without them."""
        for number, lines in self.lines.items():
            part, result = reads[number]
            if part.source not in self.files and lines.keys() - {line for line, _ in result.bad}:
                yield number, replace(part, left_out=frozenset(lines))


def refusal(bad: Sequence[tuple[int, Bad]], found: Sequence[Found]) -> JobkitError:
    """Return the error that names all that is bad."""
    lines = [
        f"\n  {found[source].path}{f':{one.line}' if one.line else ''}: {one.reason}"
        for source, one in bad[:_SHOWN]
    ]
    more = f"\n  and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
    places = "1 place" if len(bad) == 1 else f"{len(bad):,} places"
    return JobkitError(
        f"the corpus cannot be read in {places}:{''.join(lines)}{more}",
        hint="fix them (iconv converts text that is not UTF-8), or leave them out: --skip-bad",
    )
