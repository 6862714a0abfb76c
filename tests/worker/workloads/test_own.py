from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobkit.answers.loads import Lengths, Loads
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import BUDGET, RUN_KNOBS, declared
from jobkit.worker.workloads.base import (
    ENTITY_COLUMNS,
    SHIPPED,
    Entity,
    as_tsv,
    columns_of,
    knobs,
    workload_class,
)
from jobkit.worker.workloads.own import checked_class, code_folder, open_workload
from tests.support.builders import own_workload


def test_a_class_is_refused_with_all_that_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("\nclass Toy:\n    KNOBS = 'batch_size'\n    def load(self): ...\n")
    with pytest.raises(JobkitError, match=rf"'bare:Toy' \({tmp_path}/bare.py:2\) has no method") as caught:
        checked_class("bare:Toy", str(tmp_path))
    for lack in ("items_per_call", "process", "effective", "versions", "KNOBS", "NEEDS_MODEL"):
        assert lack in caught.value.message
    assert "load" not in caught.value.message.replace("workload", "")
    assert "pydoc" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("class Toy(:\n", r"^workload '\w+:Toy' cannot be imported: .*\.py:1: SyntaxError: "),
        ("import sys\nsys.exit('usage: ...')\n", r"\.py:2: SystemExit: usage"),
        ("import no_such_thing\n", r"\.py:1: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("class Tay: ...\n", r"has no 'Toy'; did you mean 'Tay'\?"),
        ("Toy = 7\n", "7 is not a class"),
    ],
)
def test_what_cannot_be_used_is_reported_with_its_line(source: str, told: str, tmp_path: Path) -> None:
    name = f"own_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(source)
    with pytest.raises(JobkitError, match=told) as caught:
        checked_class(f"{name}:Toy", str(tmp_path))
    assert caught.value.hint


def test_what_is_installed_comes_before_the_specs_folder(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit")
    assert workload_class("json:JSONDecoder", str(tmp_path)).__name__ == "JSONDecoder"


RESULT = "a jobkit.worker.workloads.base.Result"


@pytest.mark.parametrize(
    ("method", "answer", "expected"),
    [
        ("items_per_call(self)", "None", "a whole number above 0"),
        ("process(self, paragraphs)", "None", RESULT),
        ("process(self, paragraphs)", "Result(entities=(), load=1.5)", RESULT),
        ("process(self, paragraphs)", "Result(entities=('Bath',), load=1)", RESULT),
        ("process(self, paragraphs)", "Result(rows=[(0, 1)], load=1)", RESULT),
        ("process(self, paragraphs)", "Result(vectors=iter(()), load=1)", RESULT),
        ("effective(self)", "{'pinned': 1.5}", "a mapping of knobs to whole numbers, words or None"),
        ("versions(self)", "{'toy': 2}", "a mapping of names to texts"),
    ],
)
def test_a_wrong_answer_is_reported_with_what_is_expected(
    method: str, answer: str, expected: str, tmp_path: Path
) -> None:
    module = f"own_{abs(hash((method, answer)))}"
    body = (f"def {method}:", "    from jobkit.worker.workloads.base import Result", f"    return {answer}")
    workload = open_workload(own_workload(tmp_path, *body, name=module), str(tmp_path))
    name = method.partition("(")[0]
    arguments = [["a"]] if name == "process" else []
    with pytest.raises(JobkitError, match=rf"{module}\.py:4\): {name}\(\) returned .*; expected: {expected}"):
        getattr(workload, name)(*arguments)


def test_right_answers_pass_and_what_is_absent_stays_so(tmp_path: Path) -> None:
    name = own_workload(tmp_path, name="own_whole")
    workload = open_workload(name, str(tmp_path))
    assert not hasattr(workload, "heaviest")
    workload.load(None, "cpu", {"batch_size": 3}, 1)
    assert (workload.items_per_call(), workload.process(["a b", "c"]).tokens) == (3, 3)
    assert workload.effective() == {"batch_size": 2}
    counts = open_workload("count", None)
    assert (counts.items_per_call(), counts.effective()) == (32, {"batch_size": None})
    result = counts.process(["  one three\n two seven", "…\n"])
    assert (result.tokens, result.rows, result.load) == (4, ((0, 4), (1, 0)), 2 * 22)
    assert result.entities == (Entity(0, "three", "WORD", 6, 11),), "the first of the longest words"
    assert (code_folder(name, None), code_folder("count", None)) == (str(tmp_path), None)


@pytest.mark.parametrize("columns", ["'words'", "()", "('words', 'words')", "('document',)", "('words', 2)"])
def test_columns_are_different_names(columns: str, tmp_path: Path) -> None:
    module = f"own_{abs(hash(columns))}"
    name = own_workload(tmp_path, f"COLUMNS = {columns}", name=module)
    with pytest.raises(JobkitError, match="has COLUMNS that are not a tuple of different names"):
        open_workload(name, str(tmp_path))


def test_without_columns_the_rows_are_the_entities(tmp_path: Path) -> None:
    toy = (
        "from jobkit.worker.workloads.base import Result\n\nclass Toy:\n    KNOBS, NEEDS_MODEL = (), False\n"
    )
    names = ("load", "items_per_call", "process", "effective", "versions")
    methods = (f"    def {name}(self): ...\n" for name in names)
    (tmp_path / "own_old.py").write_text(toy + "".join(methods))
    assert columns_of(open_workload("own_old:Toy", str(tmp_path))) == ENTITY_COLUMNS
    assert columns_of(open_workload("count", None)) == ("words",)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_workload_is_found_without_its_framework(name: str) -> None:
    found = workload_class(name)
    known = knobs(name) or ()
    assert [*dict.fromkeys((*declared(found.KNOBS), BUDGET, *RUN_KNOBS))] == [*known]
    assert knobs("package.module:Class") is None, "it is not imported"
    assert "batch_size" in {knob.name for knob in declared(found.KNOBS)}


@pytest.mark.parametrize(
    ("order", "cap"), [("load", 8), ("sorted", 8), ("sorted", 7), ("load", 1), ("load", 99)]
)
def test_a_budget_cuts_the_calls_of_a_workload_with_lengths(order: str, cap: int) -> None:
    workload, texts = open_workload("count", None), ["abcdef", "b", "c", "d e", "fghi"]
    workload.load(None, "cpu", {"padded": cap, "order": order, "paragraphs_per_call": 7}, 1)
    result = workload.process(texts)
    lengths = Lengths(paragraphs=tuple((len(text),) for text in texts))
    planned = Loads(lengths, by_length=order == "sorted").under_budget(cap, 7)
    assert (result.load, result.padded_chars) == (planned.load, round(15 / planned.efficiency))
    assert result.rows == tuple(enumerate((1, 1, 1, 2, 1)))
    assert [texts[found.paragraph][found.start : found.end] for found in result.entities] == [
        found.text for found in result.entities
    ]


def test_the_arrays_of_the_batches_of_a_budget_are_in_order(tmp_path: Path) -> None:
    source = "import numpy\ndef tag(texts):\n    return [numpy.arange(len(one)) for one in texts]\n"
    (tmp_path / "own.py").write_text(f"{source}def lengths(texts):\n    return [len(one) for one in texts]\n")
    workload = open_workload("./own.py:tag", str(tmp_path))
    workload.load(None, "cpu", {"padded": 4, "order": "sorted", "paragraphs_per_call": 7}, 1)
    assert workload.process(["ab", "abcd", "", "a"]).vectors.lengths.tolist() == [2, 4, 0, 1]


@pytest.mark.parametrize(
    ("answer", "lengths", "found"),
    [
        ("[1] if 'c' in paragraphs else None", "[1] * len(paragraphs)", ((2, 1),)),
        (
            "ones if 'c' in paragraphs else None",
            "[1] * len(paragraphs)",
            r"paragraph 3 of it: .* fp32\[2\] here",
        ),
        ("[1]", "[1] * 2", "returned lengths of 2 paragraphs, not 3"),
    ],
)
def test_each_batch_of_a_budget_has_its_results(
    tmp_path: Path, answer: str, lengths: str, found: Any
) -> None:
    source = f"import numpy\nones = numpy.ones((1, 2))\ndef tag(paragraphs):\n    return {answer}\n"
    (tmp_path / "own.py").write_text(f"{source}def lengths(paragraphs):\n    return {lengths}\n")
    workload = open_workload("./own.py:tag", str(tmp_path))
    workload.load(None, "cpu", {"padded": 1, "paragraphs_per_call": 7}, 1)
    if isinstance(found, tuple):
        assert workload.process(["a", "b", "c"]).rows == found
    else:
        with pytest.raises(JobkitError, match=found):
            workload.process(["a", "b", "c"])


@pytest.mark.parametrize(
    "name", ["no.such.module:Class", "jobkit.worker.workloads.function:Nothing", "jobkit", ":"]
)
def test_what_is_no_workload_is_named(name: str) -> None:
    with pytest.raises(JobkitError, match="workload '") as caught:
        workload_class(name)
    assert "stanza-ner" in caught.value.hint


def test_the_file_as_a_person_sees_it_in_text_order() -> None:
    found = [
        Entity(2, "Ada\nMarsh", "PERSON", 14, 23),
        Entity(0, "Leeds", "GPE", 0, 5),
        Entity(2, 'A "b"\tc', "GPE", 4, 11),
    ]
    assert as_tsv(found).split("\n") == [
        "paragraph\ttext\tlabel\tstart\tend",
        "0\tLeeds\tGPE\t0\t5",
        '2\t"A ""b""\tc"\tGPE\t4\t11',
        '2\t"Ada',
        'Marsh"\tPERSON\t14\t23',
        "",
    ]
