from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from jobkit.core.errors import JobkitError
from jobkit.core.paths import shipped_folder
from jobkit.spec.yaml_files import MOST_REPEATED, raise_faults, read_document, validated


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    cpus: int = 1
    memory: str = "1G"


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: str
    inner: Inner = Inner()
    values: list[int] = []
    others: list[Inner] = []
    spare: Inner | None = None
    numbers: dict[str, int] = {}


def faults(tmp_path: Path, text: str, *overrides: str) -> list[str]:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    document = read_document(path, overrides, Outer)
    validated(document, Outer)
    return [str(fault).removeprefix(f"{path}:") for fault in sorted(document.faults)]


def test_every_fault_is_reported_with_its_place(tmp_path: Path) -> None:
    text = "inner:\n  cpuz: 3\n  memory: 4\nvalues: [1, two]\nvalues: [1, two]\nnmae: x\n"
    assert faults(tmp_path, text) == [
        "1:1: name: required, not given",
        "2:3: inner.cpuz: no such key; did you mean 'cpus'?",
        "3:11: inner.memory: 4: should be a valid string",
        "5:1: values: given twice, first on line 4",
        "5:13: values.1: 'two': should be a valid integer",
        "6:1: nmae: no such key; did you mean 'name'?",
    ]
    assert faults(tmp_path, "name: x\nothers: [{}, {cpuz: 1}]\nspare: {memry: 2G}\n") == [
        "2:15: others.1.cpuz: no such key; did you mean 'cpus'?",
        "3:9: spare.memry: no such key; did you mean 'memory'?",
    ]
    assert faults(tmp_path, "name: x\ninner: 3\nothers: [4]\nspare: [5]\nnumbers: 6\n") == [
        "2:8: inner: 3: should be a mapping of keys to values",
        "3:10: others.0: 4: should be a mapping of keys to values",
        "4:8: spare: [5]: should be a mapping of keys to values",
        "5:10: numbers: 6: should be a mapping of keys to values",
    ]


def test_a_pipe_that_a_shell_made_is_read() -> None:
    """``jobkit sweep <(command)``: the shell passes /dev/fd/N."""
    reading, writing = os.pipe()
    with os.fdopen(reading):
        with os.fdopen(writing, "w") as stream:
            stream.write("name: x\n")
        assert read_document(Path(f"/dev/fd/{reading}")).data == {"name": "x"}


def test_a_missing_spec_that_jobkit_ships_can_be_copied(here: Path) -> None:
    (here / "here" / "demo.yaml").mkdir(parents=True)
    shipped = shipped_folder("sweeps") / "demo.yaml"
    for path, hint in {
        "sweeps/demo.yaml": f"mkdir -p sweeps && cp {shipped} sweeps/demo.yaml",
        "demo.yaml": f"copy it: cp {shipped} demo.yaml",
        "here/demo.yaml": "name a YAML file",
    }.items():
        with pytest.raises(JobkitError) as caught:
            read_document(Path(path))
        assert hint in caught.value.hint


def test_an_override_is_named_as_it_was_typed(tmp_path: Path) -> None:
    assert faults(tmp_path, "name: x\n", "inner.cpus=many", "inner.x=1", "name=[1", "nonsense") == [
        "--set inner.cpus=many: inner.cpus: 'many': should be a valid integer",
        "--set inner.x=***: inner.x: no such key; one of: cpus, memory",
        "--set name=[1: the value is not YAML: did not find expected ',' or ']'",
        "--set nonsense: not key=value, for instance resources.cpus=4",
    ]
    (line,) = faults(tmp_path, "name: x\n", "innre.cpus=2")
    assert line.startswith("--set innre.cpus=***: innre: no such key; did you mean 'inner'?")
    (line,) = faults(tmp_path, "name: x\ninnre: {cpus: 1}\n", "innre.cpus=2")
    assert line.startswith("2:1: innre: no such key"), "the file has it, too"


def test_an_override_wins_and_makes_the_way_to_its_key(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("name: x\n", encoding="utf-8")
    document = read_document(path, ("inner.cpus=4", "values=[1, 2]"))
    assert validated(document, Outer) == Outer(name="x", inner=Inner(cpus=4), values=[1, 2])
    words = ["24:00:00", "on", "no", "2026-11-21", "1_000"]
    path.write_text(f"values: [{', '.join(words)}]\n", encoding="utf-8")
    assert read_document(path).data == {"values": words}, "what YAML 1.1 would change stays text"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1\nb: 2", "not YAML"),
        ("- 1\n", "not a mapping"),
        ("", "not a mapping"),
        ("a: &x [*x]\n", "an alias stands inside its own anchor"),
        ("a: !!int some\n", "'some' is no !!int"),
        ("a: !!set {b}\n", "!!set is not used here"),
        ("name: " + "[" * 100_000, "nested more than 100 deep"),
    ],
)
def test_what_is_no_mapping_or_no_value_of_its_tag_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(JobkitError, match=said):
        read_document(path)


def test_aliases_repeat_no_more_values_than_the_limit(tmp_path: Path) -> None:
    path, number = tmp_path / "x.yaml", MOST_REPEATED // 10
    text = f"a: &a [{'[], ' * 9}]\nb: &b [{'*a, ' * (number - 1)}"
    path.write_text(f"{text}*a]\n", encoding="utf-8")
    assert len(read_document(path).data["b"]) == number
    for more in ("*a, *a]\n", "]\nc: *b\n"):
        path.write_text(f"{text}{more}", encoding="utf-8")
        with pytest.raises(JobkitError, match=r"x\.yaml:[23]:\d+: not YAML: aliases repeat more than 10,000"):
            read_document(path)


def test_a_file_that_is_missing_endless_or_in_latin_1_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for file, said in ((path, "No such file"), (Path("/dev/zero"), r"/dev/zero.*more than 16")):
        with pytest.raises(JobkitError, match=said):
            read_document(file)
    path.write_bytes("name: caf\xe9".encode("latin-1"))
    with pytest.raises(JobkitError, match="not UTF-8 at byte 9"):
        read_document(path)


def test_the_faults_of_a_file_that_another_names_are_counted_once(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.yaml", tmp_path / "outer.yaml"
    inner.write_text("nmae: x\n", encoding="utf-8")
    outer.write_text("name: x\nspare: inner.yaml\n", encoding="utf-8")
    named, document = read_document(inner), read_document(outer)
    validated(named, Outer)
    with pytest.raises(JobkitError) as caught:
        raise_faults(named, "read the docs", nested=True)
    document.add(("spare",), f"spare: {caught.value.message}")
    with pytest.raises(JobkitError) as caught:
        raise_faults(document, "read the docs")
    assert caught.value.message.splitlines() == [
        f"{outer}: 1 error; nothing was submitted",
        f"  {outer}:2:8: spare: {inner} has errors",
        f"    {inner}:1:1: name: required, not given",
        f"    {inner}:1:1: nmae: no such key; did you mean 'name'?",
    ]
