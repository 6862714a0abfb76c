"""The side on the laptop: send a request over a connection, show what comes back, return how it ended."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any, TextIO, cast

from jobkit.core import shell, terminal
from jobkit.core.command_list import HERE_ALONE, LISTED
from jobkit.core.errors import ExitCode, JobkitError, UnknownError
from jobkit.core.frozen import frozen
from jobkit.core.host import PROTOCOL
from jobkit.extensions.on_host.connection import ANSWER_S, RUN_JOBKIT, VENV, Connection, waiting
from jobkit.extensions.on_host.protocol import (
    ABSENT,
    ACCEPTED,
    INTERRUPT,
    READY,
    Place,
    Request,
    parse_answer,
)

_COMMAND = re.compile(rf"(?<![\w./-])jobkit (?=(?:{'|'.join({*LISTED} - HERE_ALONE)})\b)")


@frozen
class Cluster:
    """A cluster to which requests go."""

    connection: Connection  # the connection to it
    folder: str  # `folder`, `project`: as in `Request`
    project: str
    typed: str  # ``HOST`` or ``HOST:FOLDER``, as typed
    named: bool = True  # whether each command line names the host; else the site file does

    @property
    def prefix(self) -> str:
        """What makes a command that it suggests one of this machine: ``--on HOST``; empty if not needed."""
        return f"--on {terminal.shell_quote(self.typed)}" if self.named else ""

    @property
    def host(self) -> str:
        """The name of the host."""
        return self.connection.host

    def ask(self, question: str, *words: str, **about: object) -> Any:  # noqa: ANN401 - each question has an answer of its own
        """Return the answer to a question."""
        request = Request(question=question, words=[*words], about=about)
        with contextlib.closing(self._answers(request)) as answers:
            for answer in answers:
                if "answer" in answer:
                    return answer["answer"]
                terminal.note(answer.get("err", "").rstrip()) if "err" in answer else None
        raise self.broken()

    def prepare(self, **about: object) -> dict[str, str]:
        """Let the cluster make the folder of the project; return this folder, and what is there.

        ``model``: where a model goes that it lacks; ``site``: its site file; ``spec``: that of ``about``.
        Each is empty if there is none.
        """
        answer = self.ask("prepare", **about)
        names = ("folder", "model", "site", "spec")
        if not isinstance(answer, dict) or any(not isinstance(answer.get(name), str) for name in names):
            raise JobkitError(f"{self.host} answers what this jobkit does not understand")
        return answer

    def find(self, question: str, *words: str, **about: object) -> list[Place]:
        """Return the files and folders that answer a question."""
        return self.places_of(self.ask(question, *words, **about))

    def places_of(self, answer: Any) -> list[Place]:  # noqa: ANN401 - checked here
        """Return the files and folders of an answer; refuse one that is not below this folder."""
        try:
            places = [Place(str(base), Path(path), bool(is_folder)) for base, path, is_folder in answer]
        except (TypeError, ValueError) as error:
            raise JobkitError(f"{self.host} answers what this jobkit does not understand") from error
        for _, path, _ in places:
            if path.is_absolute() or ".." in path.parts:
                raise JobkitError(f"{self.host} names {path}, which is not below this folder")
        return places

    def run(self, words: list[str], *, kept: str, sent: Mapping[str, str], out: TextIO | None = None) -> int:
        """Run a command there, show what it prints, and return its exit code.

        ``words``: the command line after ``jobkit``.
        ``kept``, ``sent``: as in `Request`.
        ``out``: gets its standard output; by default that of this process.
        """
        out = out or sys.stdout
        shown = out.isatty()
        columns, lines = shutil.get_terminal_size() if shown else (0, 0)
        request = Request(words=words, kept=kept, sent={**sent}, terminal=shown, columns=columns, lines=lines)
        streams = {"out": Suggesting(out, self.prefix), "err": Suggesting(sys.stderr, self.prefix)}
        with contextlib.closing(self._answers(request)) as answers:
            for answer in answers:
                for name, stream in streams.items():
                    if name in answer:
                        stream.write(str(answer[name]))
                if "kept" in answer:
                    at = datetime.fromtimestamp(max(0.0, min(time.time(), answer["kept"]))).astimezone()
                    lost = f"which was lost at {at:%Y-%m-%d %H:%M:%S}"
                    terminal.note(f"{self.host} has the answer to this command, {lost}:")
                if "busy" in answer:
                    terminal.note(f"{self.host}: the same command is running already; waiting for it")
                if "exit" in answer:
                    code: int = answer["exit"]
                    if code < 0 and code != -signal.SIGINT:
                        terminal.note(f"{self.host}: signal {-code} ended this command there; {TYPE_AGAIN}")
                    return code if code >= 0 else 128 - code
        raise self.broken()

    def broken(self) -> JobkitError:
        """Return the error of an answer that did not come."""
        return UnknownError(
            f"{self.host}: the connection broke before the answer came",
            hint=TYPE_AGAIN,
        )

    def _answers(self, request: Request) -> Generator[dict[str, Any], None, None]:
        """Yield the answers to a request; the first has shown that both sides understand each other."""
        str(Path.cwd()).encode()  # a name that is not UTF-8 is refused here, in the words of all commands
        request = replace(
            request,
            version=metadata.version("jobkit"),
            folder=self.folder,
            project=self.project,
            origin=str(Path.cwd()),
        )
        argv = self.connection.argv(RUN_JOBKIT)
        with _Conversation(argv) as talk, waiting(f"{self.host} to answer") as answered:
            for line in talk.lines():
                if line.rstrip().endswith(ABSENT.encode()):
                    raise JobkitError(
                        f"{self.host} has no jobkit",
                        hint=f"jobkit {self.prefix} init shows how to install jobkit there, "
                        "and with --install does so",
                    )
                if not talk.begun and line.rstrip().endswith(READY.encode()):
                    talk.begun = True
                    talk.send(request.as_line())
                answer = parse_answer(line)
                if answer is None:
                    continue
                talk.answered = True
                answered()
                if answer.get("protocol", PROTOCOL) != PROTOCOL:
                    raise self._other_protocol(answer)
                if "error" in answer:
                    error, hint = (
                        suggest_here(answer.get(key, ""), self.prefix) for key in ("error", "hint")
                    )
                    code = answer.get("code", ExitCode.REFUSED)
                    raise JobkitError(f"{self.host}: {error}", hint=hint, exit_code=code)
                if "exit" in answer:
                    talk.send(ACCEPTED)
                yield answer
            if talk.noise:
                raise self._noisy(talk.noise)
            if not talk.answered:
                raise self._silent(talk)

    def _other_protocol(self, answer: dict[str, Any]) -> JobkitError:
        ours = metadata.version("jobkit")
        message = (
            f"{self.host} has jobkit {answer.get('version')} with protocol {answer['protocol']}, "
            f"and this machine {ours} with protocol {PROTOCOL}"
        )
        newer = answer["protocol"] > PROTOCOL
        there, here = f"jobkit {self.prefix} init --install brings {ours}", "update jobkit on this machine"
        return JobkitError(message, hint=here if newer else there)

    def _noisy(self, noise: bytes) -> JobkitError:
        said = terminal.printable(noise.decode(errors="replace")[-MOST_NOISE:])
        return UnknownError(
            f"{self.host}: its login shell prints {said!r}, and begins no command within {ANSWER_S} s",
            hint="a start file there waits; put this in front of what waits: [ -t 0 ] || return",
        )

    def _silent(self, talk: _Conversation) -> JobkitError:
        said = talk.said()
        if not said.strip() and talk.status() == CONNECTION_LOST:
            return self.broken()
        reason = f": {terminal.printable(' '.join(said.split()))}" if said.strip() else ""
        return UnknownError(
            f"{self.host}: no answer{reason}",
            hint=f"jobkit {self.prefix} init checks the jobkit there; ssh {self.host} must work",
        )


class Suggesting(io.TextIOBase):
    """A stream on which suggested commands are those to type here, safe if it is shown on a terminal."""

    def __init__(self, to: TextIO, prefix: str) -> None:
        self._to, self._prefix, self._log = to, prefix, terminal.LogSanitizer()

    def write(self, text: str) -> int:
        """Write text, with its commands changed."""
        shown = suggest_here(text.encode("utf-8", "replace").decode(), self._prefix)
        if self.isatty():
            # How `jobkit status --watch` draws over what it has drawn
            pieces = enumerate(re.split(r"(\x1b\[\d{1,4}F\x1b\[J)", shown))
            shown = "".join(
                piece if number % 2 else self._log.through(piece.encode()).decode()
                for number, piece in pieces
            )
        self._to.write(shown)
        self._to.flush()
        return len(text)

    def flush(self) -> None:
        """Flush the stream behind it."""
        self._to.flush()

    def isatty(self) -> bool:
        """Return whether the stream behind it is a terminal."""
        return self._to.isatty()

    def fileno(self) -> int:
        """Return the file of the stream behind it."""
        return self._to.fileno()


def suggest_here(text: str, prefix: str) -> str:
    """Return text whose commands are those to type here: ``jobkit --on HOST COMMAND``."""
    text = re.sub(r"(?<=next: )jobkit merge \S+(?! --fetch)", r"\g<0> --fetch", text)
    # an extra is added to the environment that `jobkit --on HOST init` made by a command that is typed here
    python = rf"\S*{VENV.removeprefix('$HOME')}/bin/python\S*"
    text = re.sub(
        rf"{python}\s+-m\s+pip\s+install\s+\S+\[(\w+)\]'?", r"jobkit init --install --extra \1", text
    )
    return _COMMAND.sub(lambda _: f"jobkit {prefix} ", text) if prefix else text


class _Conversation:
    """A process of ssh whose other end reads what is sent and answers in lines."""

    def __init__(self, argv: list[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the conversation
        self._process = shell.open_pipes(argv, self._errors)
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        self.begun = self.answered = False
        self.noise = b""

    def __enter__(self) -> _Conversation:  # noqa: PYI034 - no subclass
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        try:
            self._process.wait(SETTLE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()
        self._errors.close()

    def send(self, line: bytes) -> None:
        """Send a line; if the other end is gone, its answers end, too."""
        with contextlib.suppress(BrokenPipeError):
            self._input.write(line)
            self._input.flush()

    def lines(self) -> Iterator[bytes]:
        """Yield what comes back, by the line; Ctrl-C is sent to the other end, and a second one ends it.

        A login shell that prints the beginning of a line, then nothing, ends it too: that is the noise.
        """
        interrupted, held = False, b""
        while True:
            try:
                if held and not self.begun and not select.select([self._output], [], [], ANSWER_S)[0]:
                    self.noise = held
                    return
                data = os.read(self._output.fileno(), BLOCK_BYTES)
            except KeyboardInterrupt:
                if interrupted or not self.begun:
                    raise
                interrupted = True
                terminal.note("interrupting the command; Ctrl-C again stops waiting for it")
                self.send(INTERRUPT)
                continue
            *lines, held = (held + data).split(b"\n")
            yield from lines
            if not data:
                return

    def status(self) -> int:
        """Return ssh's exit status."""
        return self._process.wait(SETTLE_S)

    def said(self) -> str:
        """Return what ssh and the login shell printed as errors."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")


TYPE_AGAIN = "type the same command again: it asks for the answer, and submits nothing twice"
BLOCK_BYTES, MOST_NOISE = 1 << 16, 200
"""Of one read, and of the end of the noise that an error names."""
CONNECTION_LOST = 255
"""The status of ssh if an error of its own occurred (ssh(1))."""
SETTLE_S = 5.0
"""How long ssh may take to end once its work is done."""
