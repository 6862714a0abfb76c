"""Who is told of the end of a run: at most once, whatever is slow, dead, refuses or is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import SPEC_FILE
from jobkit.core.records import Outcome
from jobkit.runs import on_end
from jobkit.runs.journal import Role
from jobkit.runs.status import PointStanding
from jobkit.runs.status_text import render, run_json
from jobkit.schedulers.types import State
from jobkit.spec.policy import OnEnd, Webhook
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.builders import grid, record, write_records
from tests.support.programs import seen
from tests.support.statuses import a_point, a_run, submission, waits

TEXT = "jobkit: demo-20260102-101530-3f9a has ended: 2 points: 2 done"
PATH = "/services/T0/B0/s3cret?key=s3cret"


class Server:
    """A server on this machine that answers each POST with the next status; 0 is no answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statuses, self.told, self.over = [200], list[dict[str, Any]](), threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                status = server.statuses.pop(0) if server.statuses[1:] else server.statuses[0]
                if not status:
                    server.over.wait(30)
                    return
                self.send_response(status)
                self.send_header("Location", "/services/elsewhere")
                self.end_headers()

            def do_CONNECT(self) -> None:
                server.told.append({"proxy": self.headers["Proxy-Authorization"]})
                self.send_error(407)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}{PATH}"
        monkeypatch.setenv("HOOK", self.address)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(monkeypatch)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.over.set()
    server.http.shutdown()
    server.http.server_close()
    thread.join()


HOOK = OnEnd(webhook=Webhook(env="HOOK"))


def ended(folder: Path, told: OnEnd) -> Path:
    """Return a run of two points that are done."""
    run = write_records(folder, map(record, grid([10, 20])))
    (run / SPEC_FILE).write_text(SweepSpec(name="demo", on_end=told).as_yaml(), encoding="utf-8")
    return run


def test_a_run_that_has_ended_is_told_once(tmp_path: Path, server: Server) -> None:
    run = ended(tmp_path / "run", HOOK)
    assert on_end.states(run) == {}
    on_end.tell(run)
    on_end.tell(run)
    assert server.told == [{"text": TEXT}]
    assert "on_end: webhook sent" in render(seen(run), "run", width=100, most=9)
    assert run_json(seen(run), "run")["on_end"] == {"webhook": "sent"}
    on_end.tell(ended(tmp_path / "teams", OnEnd(webhook=Webhook(env="HOOK", format="teams"))))
    _, card = server.told
    assert card["attachments"][0]["content"]["body"][0]["text"] == TEXT


@pytest.mark.parametrize(
    ("statuses", "first", "then", "times"),
    [
        ([0], "perhaps sent", "perhaps sent", 1),
        ([302], "kept: the server answered 302", "kept: the server answered 302", 2),
        ([500, 200], "kept: the server answered 500", "sent", 2),
    ],
    ids=["hangs", "redirects", "answers 500 and then 200"],
)
def test_a_server_that(
    tmp_path: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    *,
    statuses: list[int],
    first: str,
    then: str,
    times: int,
) -> None:
    monkeypatch.setattr(on_end, "DEADLINE_S", 10.0 if all(statuses) else 0.2)
    run, server.statuses = ended(tmp_path / "run", HOOK), statuses
    for state in (first, then):
        on_end.tell(run)
        assert on_end.states(run) == {"webhook": state}
    assert len(server.told) == times
    assert_secret(run)


def test_a_server_that_was_not_reached_gets_it_later(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, address = ended(tmp_path / "run", HOOK), os.environ["HOOK"]
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:1{PATH}")
    on_end.tell(run)
    assert on_end.states(run) == {"webhook": "kept: no connection (ConnectionRefusedError)"}
    monkeypatch.delenv("HOOK")
    on_end.tell(run)
    assert "the variable HOOK: has no address" in on_end.states(run)["webhook"]
    monkeypatch.setenv("HOOK", address)
    on_end.tell(run)
    assert (on_end.states(run), len(server.told)) == ({"webhook": "sent"}, 1)
    assert_secret(run)


def assert_secret(run: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in run.rglob("*") if path.is_file()]
    shown = render(seen(run), "run", width=200, most=9)
    assert not any("s3cret" in text for text in (*texts, shown))


def test_commands_that_tell_it_at_once_send_one_message(tmp_path: Path, server: Server) -> None:
    run = ended(tmp_path / "run", HOOK)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(on_end.tell, [run] * 8))
    assert len(server.told) == 1


@pytest.mark.slow
@pytest.mark.parametrize("outlet", ["command", "webhook"])
def test_a_kill_at_any_step_never_makes_two_messages(tmp_path: Path, server: Server, outlet: str) -> None:
    """Each child is killed one line of `on_end` later than the child before it, until one is not."""
    file = tmp_path / "told"
    file.touch()
    command = ["/bin/sh", "-c", f"cat >> '{file}'; echo >> '{file}'"]
    told = OnEnd(command=command) if outlet == "command" else HOOK

    def messages() -> int:
        return len(server.told) + len(file.read_text(encoding="utf-8").splitlines())

    counts, status, step = list[int](), -1, 0
    while status:
        step, before = step + 1, messages()
        run = ended(tmp_path / str(step), told)
        pid = os.fork()
        if not pid:
            _die_at(step, lambda run=run: on_end.tell(run))  # type: ignore[misc]
        status = os.waitpid(pid, 0)[1]
        on_end.tell(run)
        counts.append(messages() - before)
        assert counts[-1] or on_end.states(run) == {outlet: "perhaps sent"}
    assert set(counts) == {0, 1}
    assert step > 30


def _die_at(step: int, act: Callable[[], None]) -> None:
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != on_end.__file__:
            return None
        lines += event == "line"
        if lines >= step:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    act()
    os._exit(0)


@pytest.mark.slow
def test_a_command_gets_json_and_no_shell_and_is_killed_if_it_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tell"
    program.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" >"$0.words"; cat >"$0.json"; exit 3\n', encoding="utf-8"
    )
    program.chmod(0o755)
    told = OnEnd(command=["./tell", "$HOME; exit"]).of_folder(tmp_path)
    run = ended(tmp_path / "run", told)
    on_end.tell(run)
    assert (tmp_path / "tell.words").read_text(encoding="utf-8") == "$HOME; exit\n"
    assert json.loads((tmp_path / "tell.json").read_text(encoding="utf-8"))["state"] == "has ended"
    assert on_end.states(run) == {"command": "kept: it ended with status 3"}
    monkeypatch.setattr(on_end, "DEADLINE_S", 0.2)
    run = ended(tmp_path / "hangs", OnEnd(command=["sleep", "1000"]))
    on_end.tell(run)
    assert on_end.states(run) == {"command": "perhaps sent"}


DONE, FAILED = (
    a_point(1, PointStanding.DONE, Outcome.OK),
    a_point(2, PointStanding.FAILED, Outcome.BUG),
)
FOLLOWS = {"submissions": (submission(), submission("78", Role.FOLLOW))}


@pytest.mark.parametrize(
    ("points", "fields", "state"),
    [
        ([DONE], {}, "has ended"),
        ([DONE, FAILED], {}, "has failed"),
        ([DONE, a_point(2, PointStanding.RUNNING)], {}, ""),
        ([DONE, a_point(2, PointStanding.MISSING)], {}, "needs you"),
        ([DONE, a_point(2, PointStanding.STUCK, queued=waits(State.ERROR))], {}, "needs you"),
        ([DONE, FAILED], {"left": {"points": [2], "why": "no"}}, "needs you"),
        ([DONE, FAILED], FOLLOWS, ""),
        ([DONE, FAILED], {"silent": {"slurm": JobkitError("away")}}, ""),
    ],
)
def test_what_is_told(points: list[Any], fields: dict[str, Any], state: str) -> None:
    assert on_end.verdict(a_run(points, **fields)) == state


def test_the_job_that_follows_does_not_wait_for_itself_and_no_name_of_a_job_is_obeyed() -> None:
    assert on_end.verdict(a_run([DONE, FAILED], **FOLLOWS), following=True) == "has failed"
    text = on_end.harmless("<!channel> @all <b>*x*</b> [a](https://b) `c` _d_\n\x1b[1m")
    assert not set(text) & set("<>@*_`[]\n\x1b")
    assert "://" not in text


def test_an_address_is_refused_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "hook"
    for address, mode, reason in (
        ("", 0, "No such file"),
        ("http://example.org/s3cret", 0o600, "begins with https://"),
        ("https://[s3cret", 0o600, "begins with https://"),
        ("https://example.org/s3cret", 0o640, "can be read by others"),
    ):
        if address:
            file.write_text(address, encoding="utf-8")
            file.chmod(mode)
        with pytest.raises(JobkitError, match=reason) as refused:
            on_end.address_of(Webhook(file=str(file)))
        assert "s3cret" not in str(refused.value)


def test_a_proxy_gets_the_user_that_the_environment_names(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", f"http://me:a%40b@127.0.0.1:{server.http.server_port}")
    monkeypatch.setenv("HOOK", f"https://hook.invalid{PATH}")
    on_end.tell(run := ended(tmp_path / "run", HOOK))
    assert server.told == [{"proxy": f"Basic {b64encode(b'me:a@b').decode()}"}]
    assert on_end.states(run) == {"webhook": "kept: no connection (OSError)"}
