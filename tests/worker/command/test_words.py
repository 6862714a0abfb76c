"""The words of a command: what is filled in once, and never read again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.records import Command
from jobkit.worker.command_line import argv, faults, needs, paths, shell_text, variable

HOSTILE = (
    "{text}",
    "{{",
    "}",
    "a b",
    "$(touch x)",
    "`id`",
    "'",
    '"',
    "\\",
    "*",
    "; exit 1",
    "$HOME",
    "-n",
    "",
)
values = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0", codec="utf-8")))


@given(values, values)
def test_a_value_stays_one_word_and_is_not_read_again(first: str, second: str) -> None:
    command = Command(template="run --a={first} '{second}' \"{{}} {first}\"")
    made = argv(command, {"first": first, "second": second})
    assert made == ["run", f"--a={first}", second, f"{{}} {first}"]


@pytest.mark.slow
@pytest.mark.parametrize("value", HOSTILE)
def test_a_shell_gets_a_value_as_one_word_in_any_quotes(value: str) -> None:
    template = "printf '%s\\0' {v} \"{v}\" '{v}' \"\"'{v}'\"\""
    words = argv(Command(template=template, shell=True), {"v": value})  # noqa: S604 - a field of a dataclass
    done = subprocess.run(words, env={"JOBKIT_V": value}, capture_output=True, check=True)
    assert done.stdout.decode().split("\0") == [*[value] * 4, ""]


@pytest.mark.slow
@pytest.mark.parametrize(("value", "flag"), [("true", ["--use-fast"]), ("false", []), ("", [])])
def test_a_switch_is_its_flag_or_no_word(value: str, flag: list[str]) -> None:
    """Also in a shell, in quotes too, and in a setting that does not have the knob."""
    template = "printf '%s ' {--use-fast} -a{use_fast} \"{--use-fast}\" '{--use-fast}'"
    words = argv(Command(template=template), {"use_fast": value})
    assert words == ["printf", "%s ", *flag, f"-a{value}", *flag * 2]
    shell = argv(Command(template=template, shell=True), {})  # noqa: S604 - a field of a dataclass
    done = subprocess.run(shell, env={"JOBKIT_USE_FAST": value}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*flag, f"-a{value}", *flag * 2]


def test_braces_are_written_twice() -> None:
    assert argv(Command(template="{{print}} {x}"), {"x": "1"}) == ["{print}", "1"]
    assert (
        shell_text("awk '{{print $1}}' ${{HOME}} \\' {x}") == "awk '{print $1}' ${HOME} \\' \"${JOBKIT_X}\""
    )
    assert shell_text("'\\{x}'") == "'\\'\"${JOBKIT_X}\"''"


@pytest.mark.parametrize(
    ("template", "knobs", "what"),
    [
        ("run {batch}", ["batch_size"], "did you mean"),
        ("run {a} {x", ["a"], "written twice: {{"),
        ("run {a} }", ["a"], "written twice: }}"),
        ("run 'a {a}", ["a"], "no closing quotation"),
        (" ", [], "is empty"),
        ("run", ["a"], "has no place: write {a}"),
        ("run {--fast} {--text}", ["a", "fas"], "{--fast}: no such knob in the sweep; did you mean 'fas'"),
        ("run {--text}", ["a"], "{--text}: no such knob"),
        ("run {text}", ["text"], "jobkit uses this name"),
        ("run {a-b}", ["a_b"], "written twice"),
        ("run {a_b} JOBKIT_A_B", ["a_b", "a.b"], "as a_b has"),
    ],
)
def test_faults(template: str, knobs: list[str], what: str) -> None:
    assert any(what in found for found, _ in faults(Command(template=template), knobs))


def test_a_knob_is_placed_by_its_variable_in_the_command_or_in_a_file(tmp_path: Path) -> None:
    source = tmp_path / "a.sh"
    source.write_bytes(b"\xff echo $JOBKIT_BATCH_SIZE\n")
    assert not list(faults(Command(template="sh a.sh"), ["batch_size"], [source]))
    assert not list(faults(Command(template="sh -c 'echo $JOBKIT_A'"), ["a"]))
    assert list(faults(Command(template="echo $JOBKIT_AB"), ["a"]))
    assert variable("batch.size") == "JOBKIT_BATCH_SIZE"
    assert needs("model", Command(template="run {model}"), [])
    assert not needs("model", Command(template="run {{model}}"), [source])


def test_absolute_paths_are_listed() -> None:
    found = paths("/usr/bin/awk -f words.awk --model=/data/m {text} /data/m 'un")
    assert found == ["/usr/bin/awk", "/data/m"]
