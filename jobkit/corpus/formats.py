"""The formats of merged rows: JSON lines, TSV, CoNLL, and Parquet, which needs pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from jobkit.core.errors import JobkitError

FORMATS = ("jsonl", "tsv", "conll", "parquet")
TOKEN_COLUMNS = ("sentence", "token", "tag")
"""What a workload must yield for CoNLL: the number of the sentence in the paragraph, the token, its tag."""


def check_format(name: str, columns: Sequence[str]) -> None:
    """Refuse a format that cannot be written.

    Parameters
    ----------
    name
        One of `FORMATS`.
    columns
        Of the workload.

    Raises
    ------
    JobkitError
        If there is no such format, the columns do not fill it, or its library is not installed.
    """
    if name not in FORMATS:
        raise JobkitError(f"--format {name}: no such format", hint=f"one of {', '.join(FORMATS)}")
    if name == "conll" and (missing := [column for column in TOKEN_COLUMNS if column not in columns]):
        raise JobkitError(
            f"--format conll: the rows have no {', '.join(missing)} (they have {', '.join(columns)})",
            hint="CoNLL has one token a line: it needs a workload that yields tokens; use --format tsv",
        )
    if name == "parquet" and find_spec("pyarrow") is None:
        raise JobkitError("--format parquet needs pyarrow", hint="pip install 'jobkit[parquet]'")
