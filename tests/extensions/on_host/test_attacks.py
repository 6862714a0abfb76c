"""What goes wrong between a laptop and a cluster that is broken or means harm."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.host import usual_host
from jobkit.core.layout import COPY_FILE
from jobkit.extensions.on_host import commands, server, transfer
from jobkit.extensions.on_host.client import Cluster, suggest_here
from jobkit.extensions.on_host.connection import Connection
from jobkit.extensions.on_host.inputs import find_inputs
from jobkit.extensions.on_host.protocol import ACCEPTED, INTERRUPT, MARK, Request, answer_line, parse_answer
from tests.extensions.on_host.test_server import laptop

SPEC = "name: letters\nworkload: count\ntext: {text}\nsweep: {{batch_size: [1, 2]}}\n"


class Named(Cluster):
    """A cluster that names files, and sends none."""

    parts: ClassVar[tuple[tuple[str, bool], ...]] = ()
    kept: ClassVar[list[tuple[str, bool]]] = []

    def find(self, *_: str, **__: object) -> list[tuple[str, Path, bool]]:
        return [("/home", Path(path), is_folder) for path, is_folder in self.parts]

    def run(self, words: list[str], *, kept: str) -> int:
        self.kept.append((words[0], bool(kept)))
        return 0


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "connect", lambda host: Connection(host, ()))
    monkeypatch.setattr(transfer, "_rsync", lambda *_, **__: None)

    def run_on(name: str, params: dict[str, Any], *parts: tuple[str, bool]) -> int:
        monkeypatch.setattr(Named, "parts", parts)
        monkeypatch.setattr(commands, "Cluster", Named)
        typed = commands.Typed(name, [], params, lambda _: 0)
        return commands.run_on("hec", typed, named=True)

    return run_on


@pytest.mark.parametrize(
    ("name", "params", "part"),
    [
        ("collect", {}, ("evil.py", False)),
        ("collect", {}, ("letters.txt", False)),
        ("report", {"runs": ("there/letters.txt",)}, ("letters.txt", False)),
        ("collect", {}, ("texts", True)),
        ("merge", {"run": "tagged", "fetch": True}, ("texts/merged.jsonl", False)),
        ("merge", {"run": "tagged", "fetch": True}, ("letters.txt", False)),
    ],
)
def test_no_file_of_the_laptop_is_written_over(
    named: Any, name: str, params: dict[str, Any], part: tuple[str, bool]
) -> None:
    Path("letters.txt").write_text("mine")
    Path("texts").mkdir()
    with pytest.raises(JobkitError, match=r"file of yours|is no copy of that on hec"):
        named(name, params, part)


def test_what_was_asked_for_comes(named: Any) -> None:
    assert named("merge", {"run": "tagged", "fetch": True}, ("tagged/merged.jsonl", False)) == 0
    assert named("merge", {"run": "tagged", "fetch": True}, ("tagged/merged.jsonl", False)) == 0
    output = {"run": "tagged", "fetch": True, "output": "all.jsonl"}
    assert named("merge", output, ("all.jsonl", False), ("all.documents.jsonl", False)) == 0
    assert named("report", {"runs": ("there/rows.csv",)}, ("rows.csv", False)) == 0


def test_an_answer_is_kept_where_a_second_run_would_begin_something_twice(named: Any) -> None:
    Named.kept.clear()
    for name in ("sweep", "verify", "cancel", "resume", "throttle", "merge", "status"):
        named(name, {})
    again = ("cancel", "resume", "throttle", "merge", "status")
    assert Named.kept == [("sweep", True), ("verify", True), *((name, False) for name in again)]


def test_copies_of_runs_do_not_travel_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "texts" / "runs" / "[a]*"
    copy.mkdir(parents=True)
    (copy / COPY_FILE).touch()
    given: list[str] = []
    monkeypatch.setattr(transfer, "_rsync", lambda _, arguments, **__: given.extend(arguments))
    transfer.send(Connection("hec", ()), [tmp_path / "texts"], tmp_path, "/home")
    assert r"--exclude=/texts/runs/\[a]\*" in given


@pytest.mark.parametrize(
    "answer",
    ["{garbage", '{"exit": "a"}', '{"protocol": "x"}', '{"error": 1}', '{"out": [1]}', "{" * 100_000],
)
def test_a_line_that_is_malformed_is_no_answer(answer: str) -> None:
    assert parse_answer(f"{MARK}{answer}\n".encode()) is None


def test_a_host_may_have_any_characters_where_it_is_suggested() -> None:
    assert suggest_here("jobkit status", r"--on 'a\1'") == r"jobkit --on 'a\1' status"


@pytest.mark.parametrize("host", ["ssh://hec", "ada@::1", "[::1]:jobs", "fe80::1"])
def test_an_address_with_colons_is_refused_with_the_way_to_name_it(named: Any, host: str) -> None:
    typed = commands.Typed("status", [], {}, lambda _: 0)
    with pytest.raises(JobkitError, match="neither HOST nor HOST:FOLDER") as caught:
        commands.run_on(host, typed, named=True)
    assert "~/.ssh/config" in caught.value.hint
    assert named


@pytest.mark.parametrize("line", ["on: hec", '"on": hec', "on : 'hec'  # mine", "'on':\t\"hec\""])
def test_a_site_file_may_quote_the_key_that_names_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path))
    (tmp_path / "site.yaml").write_text(f"{line}\n")
    assert usual_host() == "hec"


@pytest.mark.parametrize("text", ["{folder}/letters.txt", "~/letters.txt"])
def test_a_text_of_the_project_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("letters.txt").write_text("One.\n")
    Path("first.yaml").write_text(SPEC.format(text=text.format(folder=tmp_path)))
    found = find_inputs({"spec": "first.yaml"})
    assert found.words(["first.yaml"]) == ["first.yaml", "--set", "text=letters.txt"]


def test_the_home_of_nobody_is_a_name_like_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not find_inputs({"corpus": ("~nobody-of-this-name/x",)}).outside


@pytest.mark.parametrize("code", [0, 2, 130, -2])
def test_a_command_that_ctrl_c_ended_is_run_again(tmp_path: Path, code: int) -> None:
    answer = tmp_path / "answer"
    answer.write_bytes(answer_line({"out": "jobkit: interrupted\n"}) + answer_line({"exit": code}))
    assert server._is_whole(answer) is (code in {0, 2})


def test_a_folder_whose_name_ends_with_a_blank_is_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    request = Request(folder="jobkit", project="letters ", origin="/home/ada/letters ")
    answers = server.Answers(io.BytesIO())
    assert server.project_folder(request, answers) == server.project_folder(request, answers)


@pytest.mark.parametrize("end", ["ctrl-c", "gone"])
def test_who_waits_for_the_same_command_may_go(tmp_path: Path, end: str) -> None:
    with laptop(tmp_path, words=["wait"], kept="a") as first:
        first.until("out")
        with laptop(tmp_path, words=["wait"], kept="a") as second:
            second.until("busy")
            second.send(INTERRUPT) if end == "ctrl-c" else second.goes()
            assert second.until("error")["code"] == 130
        first.send(INTERRUPT)
        assert first.until("exit") == {"exit": 130}


def test_a_ctrl_c_that_comes_too_late_keeps_no_answer(tmp_path: Path) -> None:
    with laptop(tmp_path, words=["do"], kept="a") as side:
        side.until("exit")
        side.send(INTERRUPT)
        side.send(ACCEPTED)
        assert not side.answers()
    assert not [*tmp_path.rglob("*.answer")]
