from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.blocks import Block, Column, as_markdown, as_text, fit_columns
from jobkit.core.terminal import NoWrap, printable

SPEED = Column("speed\n1/s", ["20", "19"], notes=("speed: of the work", "± ?: unknown"))
MEMORY = Column("memory\nGiB", ["1.5", "2.5"], rank=1, notes=("± ?: unknown", "memory: the peak"))
SIZE = Column("size", ["a|b", "c"], left=True)
WHOLE = Block(title="Sizes", before=("of one run",), columns=(SIZE, SPEED, MEMORY), after=("The end.",))


def test_a_table_of_question_marks_and_a_column_without_a_value_are_not_shown() -> None:
    unknown, empty = Column("fits", ["?", "?"]), Column("empty", ["", ""], notes=("empty: nothing",))
    assert as_text([Block(title="none", columns=(SIZE, unknown))]) == "none\n"
    assert "fits" in as_text([Block(columns=(SIZE, unknown, SPEED))])
    assert as_text([Block(columns=(empty, SIZE))]) == as_text([Block(columns=(SIZE,))])
    assert as_text([Block(title="none", columns=(empty,), after=("why",))]) == "none\nwhy\n"


def test_a_control_character_is_spelt_out_and_moves_no_column() -> None:
    names = Column("name", ["a\x1b[1m", "b"], left=True)
    head, rule, *rows = as_text([Block(columns=(names, SIZE))]).splitlines()
    assert {line.rindex(end) for line, end in zip((head, *rows), ("size", "a|b", "c"), strict=True)} == {10}
    assert "\\x1b" in rows[0]
    assert set(rule) == {"─"}


def test_only_titles_and_notes_have_a_colour() -> None:
    text = as_text([WHOLE], 80, color=True)
    coloured = [line for line in text.splitlines() if "\x1b" in line]
    notes = [f"\x1b[2m{note}\x1b[0m" for note in ("speed: of the work", "± ?: unknown", "memory: the peak")]
    assert coloured == ["\x1b[1mSizes\x1b[0m", *notes]
    assert "\x1b" not in as_text([WHOLE], 80)


def test_markdown_has_all_of_a_block() -> None:
    code = NoWrap("resume", "  jobkit ")
    after = ("- An item.", "  more of it", "", code)
    block = Block(title="# Sizes", before=("of one run", ""), columns=WHOLE.columns, after=after)
    assert as_markdown([block, Block(after=("last",))]).splitlines() == [
        "## \\# Sizes",
        "",
        "of one run  ",
        "",
        "| size | speed 1/s | memory GiB |",
        "| :-- | --: | --: |",
        "| a\\|b | 20 | 1.5 |",
        "| c | 19 | 2.5 |",
        "",
        "- speed: of the work",
        "- ± ?: unknown",
        "- memory: the peak",
        "",
        "- An item.",
        "  - more of it",
        "  - jobkit resume",
        "",
        "- last",
    ]


@given(st.text(), st.integers(40, 80))
def test_nothing_is_lost_and_no_terminal_obeys(text: str, width: int) -> None:
    shown = as_text([Block(before=(text,))], width)
    assert shown.replace("\n", "").replace(" ", "").isprintable() or not text.isprintable()
    assert "".join(printable(text).split()) == "".join(shown.split())
    assert "\x1b" not in shown


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_a_table_loses_the_most_dispensable_columns_first(ranks: list[int]) -> None:
    columns = [Column(str(rank), (), rank) for rank in [0, *ranks]]
    for most in sorted({*ranks}, reverse=True):
        left = [column for column in columns if column.rank <= most]
        assert fit_columns(columns, 3 * len(left) - 2) == left
    assert fit_columns(columns, 0) == [column for column in columns if not column.rank]
    assert fit_columns(columns) == columns


@pytest.mark.parametrize(("width", "heads"), [(None, "abx"), (7, "abx"), (4, "sx")])
def test_a_sum_is_shown_unless_all_its_parts_are(width: int | None, heads: str) -> None:
    total = Column("s", ["3"], rank=1, sum_of=("a", "b"))
    parts = [Column("a", ["1"], rank=2), Column("b", ["2"], rank=2)]
    x = Column("x", ["0"])
    shown = fit_columns([total, *parts, x], width)
    assert "".join(column.head for column in shown) == heads
    assert fit_columns([total, parts[0], x]) == [total, parts[0], x]
