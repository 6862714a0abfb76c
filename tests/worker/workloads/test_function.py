"""Functions of the user's as workloads: what they take, what they return, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import ModelRef
from jobkit.worker.workloads import own
from jobkit.worker.workloads.base import BY_LENGTHS, CHARACTERS, Entity, vectors_of
from jobkit.worker.workloads.user_file import file_ref, names_file

TEXT = ["Ada met Bob.", "Nothing here."]


def written(folder: Path, source: str) -> str:
    """Write a file; return the folder."""
    (folder / "tagger.py").write_text(dedent(source), encoding="utf-8")
    return str(folder)


def opened(folder: Path, source: str, **params: int | str) -> Any:
    """Return the loaded workload of the function ``tag`` of a file."""
    workload = own.open_workload("./tagger.py:tag", written(folder, source))
    workload.load(None, "cpu", params, 2)
    return workload


@pytest.mark.parametrize(
    ("answer", "rows", "tokens", "load"),
    [
        ("None", None, None, BY_LENGTHS),
        ("7", None, 7, BY_LENGTHS),
        ("(7, 90)", None, 7, 90),
        ("['POS', None]", ((0, "POS"),), None, BY_LENGTHS),
        ("([{'a': 1}, []], 3)", ((0, {"a": 1}),), None, 3),
        ("__import__('numpy').array([0.5, 2])", ((0, 0.5), (1, 2.0)), None, BY_LENGTHS),
    ],
)
def test_what_it_may_return(tmp_path: Path, answer: str, rows: Any, tokens: int | None, load: int) -> None:
    result = opened(tmp_path, f"def tag(paragraphs):\n    return {answer}\n").process(TEXT)
    assert (result.rows, result.tokens, result.load) == (rows, tokens, load)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("'x'", r"returned 'x' \(a str\); expected: None, a whole number"),
        ("-1", r"returned -1"),
        ("[1]", r"returned 1 result for 2 paragraphs"),
        ("[{'a': 1, 'c': 2}, None]", r"a row with c, and COLUMNS has a, b"),
        ("[(1, 2, 3), None]", r"the row \(1, 2, 3\), and COLUMNS has a, b"),
        ("object(), 'x' * 99", r"\.\.\. \(a tuple\)"),
    ],
)
def test_a_wrong_answer_names_file_and_line(tmp_path: Path, answer: str, words: str) -> None:
    source = f"COLUMNS = ['a', 'b']\ndef tag(paragraphs):\n    return {answer}\n"
    with pytest.raises(JobkitError, match=rf"\({tmp_path}/tagger\.py:2\): tag\(\) .*{words}"):
        opened(tmp_path, source).process(TEXT)


@pytest.mark.parametrize(
    ("answer", "types"),
    [
        ("[zeros((3, 4)), zeros((0, 4), 'f4')]", "fp32[*,4]"),
        ("[zeros(2, 'f2'), zeros(5, 'f2')]", "fp16[*]"),
        ("[(arange(2), zeros(2)), (arange(0), zeros(0))]", "int64[*] fp32[*]"),
        ("[{'a': arange(2), 'b': zeros((2, 3, 1))}] * 2, 9", "int64[*] fp32[*,3,1]"),
        ("[(arange(2), zeros(1))] * 2", r"int64 \(2,\) and float64 \(1,\)|float32 \(1,\)"),
        ("[arange(2), arange(2) / 2]", r"float32 \(2,\) for paragraph 1, .* int64 \(2,\)"),
        ("[(arange(2), arange(2)), ()]", "arrays of  for paragraph 1, counted from 0, and int64"),
        ("[zeros(2), None]", r"object \(\) for paragraph 1, counted from 0"),
        ("[zeros((2, 2)), zeros((2, 3))]", r"\(2, 3\) for paragraph 1, .* \(2, 2\)"),
        ("[(zeros(1), zeros(1), zeros(1))] * 2", "returned 3 arrays for a paragraph, and COLUMNS has"),
        ("[[[0.5, 1.5, 2.5]], []]", "a list has rows, and an array is one of numpy"),
    ],
)
def test_arrays_of_any_length(tmp_path: Path, answer: str, types: str) -> None:
    columns = ["a", "b"] if "(arange" in answer or "'b'" in answer or "[[" in answer else ["a"]
    source = f"from numpy import arange, zeros\nCOLUMNS = {columns}\ndef tag(texts):\n    return {answer}\n"
    workload = opened(tmp_path, source)
    if "[*" in types:
        result = workload.process(TEXT)
        assert vectors_of(result, 2) == types
        assert [len(some[-1]) for some in result.vectors.split()] in ([3, 0], [2, 5], [2, 0], [2, 2])
    else:
        with pytest.raises(JobkitError, match=types):
            workload.process(TEXT)


def test_rows_by_columns_and_entities(tmp_path: Path) -> None:
    rows = "[[{'b': 2}, (1, 2), [3, 4]], {'a': 5}]"
    workload = opened(tmp_path, f"COLUMNS = ('a', 'b')\ndef tag(paragraphs):\n    return {rows}\n")
    assert workload.process(TEXT).rows == ((0, None, 2), (0, 1, 2), (0, 3, 4), (1, 5, None))
    assert workload.COLUMNS == ("a", "b")
    source = """
        COLUMNS = ("text", "label", "start", "end")
        def tag(paragraphs):
            return [[("Ada", "PER", 0, 3)], None]
    """
    assert opened(tmp_path, source).process(TEXT).entities == (Entity(0, "Ada", "PER", 0, 3),)


SWEPT = """
    from typing import Literal

    def load(device, threads, model, mode: Literal["fast", "exact"] = "fast"):
        return (device, threads, model, mode)

    def tag(texts, batch_size, loaded, beam=5, width: int = 3, *, scale=0.5, workers=1, low=False, **more):
        return [[loaded, batch_size, beam, width, scale, low]] * len(texts)
"""


def test_parameters_are_knobs_and_what_jobkit_fills_in(tmp_path: Path) -> None:
    folder = written(tmp_path, SWEPT)
    traits = own.traits("tagger.py:tag", folder, say=print)
    needs_model, has_lengths, knobs, columns, unit, pads, says_padding, *by_device = traits
    assert (needs_model, has_lengths, columns) == (True, True, ("result",))
    assert (unit, pads, says_padding, by_device) == (CHARACTERS, True, False, [{}, {}, False])
    assert {knob["name"]: knob["words"] for knob in knobs} == {
        "batch_size": (),
        "beam": (),
        "width": (),
        "mode": ("fast", "exact"),
        "low": ("false", "true"),
    }
    workload = own.open_workload("tagger.py:tag", folder)
    workload.load(Path("m"), "cuda", {"batch_size": 2, "beam": 9, "mode": "exact", "low": "true"}, 4)
    assert workload.items_per_call() == 2
    rows = workload.process(TEXT).rows or ()
    assert [row[1] for row in rows[:6]] == [("cuda", 4, Path("m"), "exact"), 2, 9, 3, 0.5, True]
    words = {"mode": "exact", "low": "true"}
    assert workload.effective() == {"batch_size": 2, "beam": 9, "width": 3, "workers": 1, **words}
    assert workload.versions().keys() == {"python", "tagger.py"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def tag(): ...", "takes no paragraphs"),
        ("def tag(paragraphs, mode: str): ...", "annotate its words"),
        ("def tog(paragraphs): ...", "has no function 'tag': it has tog"),
        ("import jobkit_absent", r"tagger\.py:1: ModuleNotFoundError"),
        ("def tag(paragraphs:", r"tagger\.py:1: SyntaxError"),
        ("COLUMNS = ['start', 'start']\ndef tag(paragraphs): ...", "COLUMNS that are not a tuple"),
    ],
)
def test_what_is_refused_before_a_run(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(JobkitError, match=words) as caught:
        own.checked_class("./tagger.py:tag", written(tmp_path, source))
    assert caught.value.hint


def test_a_parameter_that_nothing_sets(tmp_path: Path) -> None:
    source = "def tag(paragraphs, beam, kind: 'undefined_name' = 'x'): ..."
    with pytest.raises(JobkitError, match=r"needs beam, which the sweep does not set"):
        opened(tmp_path, source)
    opened(tmp_path, source, beam=1)


def test_the_batch_size_without_a_sweep(tmp_path: Path) -> None:
    for default, size in {"": 32, "batch_size=7": 7, "batch_size=None": 32}.items():
        workload = opened(tmp_path, f"def tag(paragraphs, {default}): ...")
        assert (workload.items_per_call(), workload.effective()) == (size, {"batch_size": None})
        workload.process(TEXT)
        assert workload.effective()["batch_size"] == 2


def test_the_load_follows_from_the_lengths(tmp_path: Path) -> None:
    plain = opened(tmp_path, "def tag(paragraphs): ...", batch_size=2)
    assert plain.attempted_load() == 0
    plain.process(TEXT)
    assert plain.load_of(TEXT) == plain.attempted_load() == 2 * len(TEXT[1])
    source = """
        def tag(paragraphs): ...

        def lengths(paragraphs, model):
            assert model is None or model.name == "m"
            return [len(text.split()) if number else [4, 1, 9] for number, text in enumerate(paragraphs)]
    """
    workload = opened(tmp_path, source, batch_size=2)
    assert workload.lengths(TEXT, None) == [[4, 1, 9], [2]]
    assert workload.load_of(TEXT) == max(2 * 4, 2 * 9)
    model = ModelRef(path="/m", name="m", size="full", stand_in=False, fingerprint="", size_bytes=0)
    assert workload.lengths(TEXT, model) == [[4, 1, 9], [2]]


def test_pairs_are_each_query_with_each_paragraph(tmp_path: Path) -> None:
    source = """
        COLUMNS = ["words"]

        def tag(pairs, batch_size=3):
            assert len(pairs) <= batch_size
            return [len(query.split()) for query, text in pairs], 9

        def lengths(pairs):
            return [len(query) + len(text) for query, text in pairs]
    """
    (tmp_path / "queries.txt").write_text("Who met Bob?\n\n  here\n", encoding="utf-8")
    made = own.open_workload("./tagger.py:tag", written(tmp_path, source), str(tmp_path))
    workload: Any = made
    workload.load(None, "cpu", {}, 1)
    assert workload.COLUMNS == ("query", "words")
    found = workload.process(TEXT)
    rows = ((0, "Who met Bob?", 3), (0, "here", 1), (1, "Who met Bob?", 3), (1, "here", 1))
    assert (found.rows, found.load) == (rows, 9)
    assert workload.effective()["batch_size"] == 3
    assert workload.lengths(TEXT, None) == [[12 + 12, 4 + 12], [12 + 13, 4 + 13]]
    assert workload.load_of(TEXT) == max(3 * 25, 17)
    assert (workload.process([]).rows, workload.process([]).load) == ((), 0)
    digest = workload.versions()["queries"]
    (tmp_path / "queries.txt").write_text("Who met Ada?", encoding="utf-8")
    assert own.open_workload("./tagger.py:tag", str(tmp_path), str(tmp_path)).versions()["queries"] != digest
    counting = written(tmp_path, "def tag(pairs):\n    return len(pairs)\n")
    counted = own.open_workload("./tagger.py:tag", counting, str(tmp_path)).process(TEXT)
    assert (counted.rows, counted.tokens) == (None, 2), "nothing is kept"


@pytest.mark.parametrize(
    ("queries", "answer", "words"),
    [
        (None, "None", "there are no queries"),
        (b" \n", "None", "holds no query"),
        (b"\xff", "None", "not UTF-8 at byte 0"),
        (b"one", "__import__('numpy').zeros((2, 3))", "returned arrays; expected of pairs"),
        (b"one", "[1]", "1 result for 2 pairs"),
    ],
)
def test_what_is_no_query_or_no_answer_to_pairs(
    tmp_path: Path, queries: bytes | None, answer: str, words: str
) -> None:
    if queries:
        (tmp_path / "queries.txt").write_bytes(queries)
    folder = written(tmp_path, f"def tag(pairs):\n    return {answer}\n")
    path = str(tmp_path / "queries.txt") if queries else None
    with pytest.raises(JobkitError, match=words):
        own.open_workload("./tagger.py:tag", folder, queries=path).process(TEXT)


def test_the_code_is_that_of_the_copy_and_the_errors_name_the_original(tmp_path: Path) -> None:
    copy, folder = tmp_path / "copy", tmp_path / "spec"
    for place, label in ((copy, "copied"), (folder, "changed")):
        place.mkdir()
        written(place, f"import helper\n\ndef tag(paragraphs):\n    return [helper.NAME + {label!r}][:0]\n")
    (folder / "helper.py").write_text("NAME = 'x'\n", encoding="utf-8")
    workload = own.open_workload("tagger.py:tag", str(folder), str(copy))
    workload.load(None, "cpu", {}, 1)
    sys.path.remove(str(folder))
    with pytest.raises(JobkitError, match=rf"\({folder}/tagger\.py:3\)"):
        workload.process(TEXT)
    assert workload.versions()["tagger.py"] == file_ref("tagger.py:tag", str(copy)).sha256[:12]
    assert own.code_folder("tagger.py:tag", str(folder)) == str(folder)


def test_which_workloads_name_a_file() -> None:
    named = ("./tagger.py:tag", "/a b/c.py:d", "a.b:C", "count", "a.py")
    assert [*filter(names_file, named)] == ["./tagger.py:tag", "/a b/c.py:d"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    folder = written(tmp_path, "")
    with pytest.raises(JobkitError, match=r"there is no file .*/taggre\.py; did you mean 'tagger\.py'"):
        file_ref("taggre.py:tag", folder)
    with pytest.raises(JobkitError, match=r"there is no file .*/x/tagger\.py\n"):
        file_ref("x/tagger.py:tag", folder)
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(JobkitError, match="Is a directory"):
        file_ref("folder.py:tag", folder)
