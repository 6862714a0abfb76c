"""The side on the cluster, as ssh starts it: one request on standard input, and answers."""

from __future__ import annotations

import hashlib
import json
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.host import PROTOCOL
from jobkit.extensions.on_host import server
from jobkit.extensions.on_host.protocol import ACCEPTED, INTERRUPT, Request, mark, parse_answer

PROGRAM = """\
import os, pathlib, sys, time
from jobkit.core.errors import JobkitError
from jobkit.core.host import note_begun
from jobkit.extensions.on_host.server import serve

def run(words):
    print(*words[1:], flush=True)
    print("said", file=sys.stderr, flush=True)
    if words[0] == "count":
        with open("runs", "a") as stream:
            stream.write("run\\n")
    if words[0] == "race":
        pathlib.Path(words[1]).write_text("name: theirs")
        try:
            note_begun(pathlib.Path("runs/a"))
        except JobkitError as error:
            print(error)
    if words[0] == "sweep":
        pathlib.Path("runs/a").mkdir(parents=True, exist_ok=True)
        note_begun(pathlib.Path("runs/a"))
        os.kill(os.getppid() if "go" in words else os.getpid(), 9)
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        os._exit(0)
    if words[0] == "wait":
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            print("stopped", flush=True)
            return 130
    if words[0] == "tty":
        print(sys.stdout.isatty(), sys.stderr.isatty())
    return 4

sys.exit(serve(run))
"""
"""A jobkit whose commands do as a test needs."""


class Laptop:
    """The other side, without ssh between."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def goes(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def answer(self) -> dict[str, Any]:
        """Return the next answer; empty at the end."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        return (parse_answer(line) or {}) if line else {}

    def answers(self) -> list[dict[str, Any]]:
        return list(iter(self.answer, {}))

    def until(self, key: str) -> dict[str, Any]:
        """Return the next answer with a key."""
        return next(answer for answer in iter(self.answer, {}) if key in answer)


@contextmanager
def laptop(home: Path, *argv: str, **changes: Any) -> Iterator[Laptop]:
    request = Request(folder="jobkit", project="letters", origin="/home/ada/letters", **changes)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "JOBKIT_CONFIG": str(home / "config")}
    process = subprocess.Popen(
        argv or (sys.executable, "-c", PROGRAM),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    with process:
        side = Laptop(process)
        side.send(request.as_line())
        yield side
        process.stdin = None if process.stdin and process.stdin.closed else process.stdin


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_a_command_answers_with_both_streams_and_its_code_and_knows_its_terminal(
    tmp_path: Path, *, terminal: bool
) -> None:
    with laptop(tmp_path, words=["tty", "it's $HOME"], terminal=terminal) as side:
        answers = side.answers()
    assert answers[0]["protocol"] == PROTOCOL
    assert "".join(answer.get("out", "") for answer in answers) == f"it's $HOME\n{terminal} False\n"
    assert "".join(answer.get("err", "") for answer in answers) == "said\n"
    assert answers[-1] == {"exit": 4}
    assert (tmp_path / "jobkit" / "letters").is_dir()


@pytest.mark.slow
def test_an_answer_is_kept_until_the_laptop_has_it(tmp_path: Path) -> None:
    def runs() -> int:
        return len((tmp_path / "jobkit" / "letters" / "runs").read_text().splitlines())

    with laptop(tmp_path, words=["count", "one"], kept="a") as side:
        assert side.until("exit") == {"exit": 4}
        side.goes()
    with laptop(tmp_path, words=["count", "one"], kept="a") as side:
        assert "kept" in side.until("kept")
        assert side.until("out") == {"out": "one\n"}
        assert side.until("exit") == {"exit": 4}
        side.send(ACCEPTED)
    assert runs() == 1
    with laptop(tmp_path, words=["count", "one"], kept="a") as side:
        side.until("exit")
        side.send(ACCEPTED)
    assert runs() == 2
    with laptop(tmp_path, words=["count", "two"], kept="b") as side:
        assert side.until("out") == {"out": "two\n"}
        side.until("exit")
        side.send(INTERRUPT)  # too late
        side.send(ACCEPTED)
        assert not side.answers()
    assert not [*tmp_path.rglob("*.answer")]


@pytest.mark.slow
@pytest.mark.parametrize(("option", "end"), [("--new", "ctrl-c"), ("--watch", "gone"), ("-f", "gone")])
def test_a_command_that_was_interrupted_runs_again(tmp_path: Path, option: str, end: str) -> None:
    for _ in range(2):
        with laptop(tmp_path, words=["wait", option], kept="a") as side:
            assert "begun" in next(one for one in iter(side.answer, {}) if one.keys() & {"begun", "kept"})
            side.until("out")
            side.send(INTERRUPT) if end == "ctrl-c" else side.goes()
            assert side.until("exit" if end == "ctrl-c" else "ended").popitem()[1] == 130


@pytest.mark.slow
def test_a_command_that_was_killed_goes_on_with_its_run(tmp_path: Path) -> None:
    run = tmp_path / "jobkit" / "letters" / "runs" / "a"
    for _ in range(2):
        with laptop(tmp_path, words=["sweep", "--new", "--wait"], kept="a") as side:
            assert side.until("exit") == {"exit": -9}
            side.send(ACCEPTED)
        with laptop(tmp_path, words=["sweep", "--new", "--wait"], kept="a") as side:
            assert "has begun runs/a before" in side.until("err")["err"]
            assert side.until("out") == {"out": f"{run} --wait\n"}
            assert side.until("exit") == {"exit": 4}
            side.send(ACCEPTED)


@pytest.mark.slow
def test_a_command_whose_parent_was_killed_is_waited_for(tmp_path: Path) -> None:
    with laptop(tmp_path, words=["sweep", "go"], kept="a") as side:
        assert not [answer for answer in side.answers() if "exit" in answer]
    with laptop(tmp_path, words=["sweep", "go"], kept="a") as side:
        assert side.until("busy")
        (tmp_path / "jobkit" / "letters" / "go").touch()
        assert "has begun runs/a before" in side.until("err")["err"]


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("fault", ["folder", "disk"])
def test_a_full_state_folder_loses_the_answer_and_not_the_command(tmp_path: Path, fault: str) -> None:
    """FAULT: nothing can be written to the folder of kept answers.

    HOW: real: a file is in its place, or the file of the answer is /dev/full.
    REPORTED: nothing; the command ends as it would.
    LOST: the answer, if the connection breaks too.
    """
    place = tmp_path / "jobkit" / "letters"
    name = hashlib.sha256(f"{place}\na".encode()).hexdigest()[:32]
    folder = tmp_path / ".local" / "state" / "jobkit" / "on"
    (folder if fault == "disk" else folder.parent).mkdir(parents=True)
    folder.touch() if fault == "folder" else (folder / f"{name}.answer").symlink_to("/dev/full")
    with laptop(tmp_path, words=["count", "one"], kept="a") as side:
        assert side.until("out") == {"out": "one\n"}
        assert side.until("exit") == {"exit": 4}
        side.send(ACCEPTED)


@pytest.mark.slow
@pytest.mark.parametrize("by_time", [True, False])
def test_a_command_does_not_run_with_what_another_laptop_has_sent(tmp_path: Path, *, by_time: bool) -> None:
    spec = tmp_path / "jobkit" / "letters" / "first.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text("mine")
    sent = {"first.yaml": mark(spec, by_time=by_time)}
    with laptop(tmp_path, words=["race", "first.yaml"], sent=sent) as side:
        assert "first.yaml: another machine" in "".join(answer.get("out", "") for answer in side.answers())
    spec.write_text("yours!" if by_time else "your")
    with laptop(tmp_path, words=["do"], sent=sent) as side:
        assert "first.yaml: another machine" in side.until("error")["error"]


@pytest.mark.slow
def test_the_same_command_at_the_same_time_waits(tmp_path: Path) -> None:
    with laptop(tmp_path, words=["wait"], kept="a") as first:
        first.until("out")
        with laptop(tmp_path, words=["wait"], kept="a") as second:
            assert second.until("busy")
            first.send(INTERRUPT)
            assert first.until("exit") == {"exit": 130}
            first.send(ACCEPTED)
            assert second.until("begun")
            second.send(INTERRUPT)
            assert second.until("exit") == {"exit": 130}


@pytest.mark.slow
def test_another_protocol_is_answered_with_this_one(tmp_path: Path) -> None:
    with laptop(tmp_path, protocol=PROTOCOL + 1, words=["do"]) as side:
        assert [answer["protocol"] for answer in side.answers()] == [PROTOCOL]
    assert not (tmp_path / "jobkit").exists()


@pytest.mark.slow
def test_a_request_of_a_later_version_may_have_more_fields(tmp_path: Path) -> None:
    line = json.dumps({**json.loads(Request(words=["do"]).as_line()), "later": 1, "project": "p"})
    done = subprocess.run(
        (sys.executable, "-c", PROGRAM), input=f"{line}\n".encode(), env={"HOME": str(tmp_path)},
        capture_output=True, check=True,
    )  # fmt: skip
    assert b'{"exit": 4}' in done.stdout


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "jobkit").touch()
    with laptop(tmp_path, words=["do"]) as side:
        error = side.until("error")
    assert str(tmp_path / "jobkit") in error["error"]


@pytest.mark.slow
def test_a_command_goes_on_if_the_connection_is_reset(tmp_path: Path) -> None:
    ours, its = socket.socketpair()
    request = Request(words=["count", "one"], kept="a", project="letters", origin="/home/ada/letters")
    ours.sendall(request.as_line())
    process = subprocess.Popen(
        (sys.executable, "-c", PROGRAM), stdin=its.fileno(), stdout=its.fileno(), env={"HOME": str(tmp_path)}
    )
    its.close()
    seen = b""
    while b"begun" not in seen:
        seen += ours.recv(1)
    select.select([ours], [], [])
    ours.close()  # with something unread: the next read or write of the other side is ECONNRESET
    assert process.wait(60) in {0, 120}
    with laptop(tmp_path, words=["count", "one"], kept="a") as side:
        assert side.until("exit") == {"exit": 4}
    assert (tmp_path / "letters" / "runs").read_text() == "run\n"


def test_a_folder_name_may_end_with_a_blank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    request = Request(folder="jobkit", project="letters ", origin="/home/ada/letters ")
    answers = server.Answers(BytesIO())
    assert server.project_folder(request, answers) == server.project_folder(request, answers)
