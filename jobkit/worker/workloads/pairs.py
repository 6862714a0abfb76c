"""A function of the user's that takes pairs: each query of a file with each paragraph."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from jobkit.core.errors import JobkitError
from jobkit.core.records import FileRef
from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.function import FunctionWorkload

PAIRS = "pairs"
"""What the first parameter of such a function is called."""
QUERIES_FILE = "queries.txt"
"""What the file of the queries is called next to the user's file, in the folder of the inputs."""


def read_queries(path: Path) -> tuple[str, ...]:
    """Return the queries of a file, one a line."""
    hint = "`queries` names a text of UTF-8 with a query a line, from the folder of the spec"
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise JobkitError(f"queries {path}: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise JobkitError(f"queries {path}: not UTF-8 at byte {error.start}", hint=hint) from error
    if queries := tuple(filter(None, map(str.strip, lines))):
        return queries
    raise JobkitError(f"queries {path}: holds no query", hint=hint)


def queries_of(files: Iterable[FileRef]) -> str | None:
    """Return the path of the queries among the files of a workload."""
    return next((file.path for file in files if file.name == QUERIES_FILE), None)


class PairsWorkload(FunctionWorkload):
    """A workload whose calls are several of the function, each with a batch of pairs."""

    PAIRS: ClassVar[bool] = True
    ITEM: ClassVar[str] = "pair"
    QUERIES: ClassVar[tuple[str, ...]] = ()

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Call the function for one batch of pairs after the other."""
        self._last = paragraphs
        pairs, rows = self._pairs(paragraphs), list[tuple[Any, ...]]()
        starts = range(0, len(pairs), self._batch_size)
        results = [self._called(pairs[start : start + self._batch_size]) for start in starts]
        for start, result in zip(starts, results, strict=True):
            if result.vectors is not None:
                self._refuse("returned arrays; expected of pairs: rows, or numbers")
            for number, *values in result.entities or result.rows or ():
                paragraph, query = divmod(start + number, len(self.QUERIES))
                rows.append((paragraph, self.QUERIES[query], *values))
        tokens = [result.tokens for result in results if result.tokens is not None]
        load = max((result.load for result in results), default=0)
        kept = not results or any(result.rows is not None or result.entities for result in results)
        return Result(rows=tuple(rows) if kept else None, load=load, tokens=sum(tokens) if tokens else None)

    @classmethod
    def _pairs(cls, paragraphs: Sequence[str]) -> list[tuple[str, str]]:
        if not cls.QUERIES:
            raise JobkitError(
                f"workload {cls.WORKLOAD!r} takes pairs, and there are no queries",
                hint="name a file with a query a line in a spec, `queries: FILE`, and name the spec",
            )
        return [(query, paragraph) for paragraph in paragraphs for query in cls.QUERIES]

    @classmethod
    def _lengths(cls, paragraphs: Sequence[str], model: Path | None) -> list[list[int]]:
        """Return for each paragraph the lengths of its pairs."""
        pairs = cls._pairs(paragraphs)
        of_pairs = cls._found_lengths(pairs, model)
        if of_pairs is None:
            of_pairs = [[len(query) + len(paragraph)] for query, paragraph in pairs]
        each = len(cls.QUERIES)
        return [[*chain.from_iterable(of_pairs[at : at + each])] for at in range(0, len(of_pairs), each)]

    def versions(self) -> Mapping[str, str]:
        """Return those of any function, and the digest of the queries as a version of them."""
        digest = hashlib.sha256("\n".join(self.QUERIES).encode()).hexdigest()[:12]
        return {**super().versions(), **({"queries": digest} if self.QUERIES else {})}
