"""The side on the cluster: read one request, run it, and answer; nothing of it stays running.

A command whose answer matters is kept in a file until the laptop has all of it, so that one whose connection
broke is asked about and not run again. A file in the project has the run folder that it
has begun, so that one that was killed goes on.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import io
import json
import os
import select
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

import platformdirs

from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.core.files import exclusive_lock, last_line, try_lock, write_atomically
from jobkit.core.host import CALL, PROTOCOL
from jobkit.core.terminal import relative_path
from jobkit.extensions.on_host.protocol import (
    ACCEPTED,
    INTERRUPT,
    MARK,
    Request,
    parse_answer,
    parse_request,
)
from jobkit.extensions.on_host.served import SERVED

ORIGIN_FILE, BEGUN_FOLDER = ".jobkit-on", ".jobkit-begun"
POLL_S, PAUSE_S = 1.0, 0.05
"""How often a lock is tried again, and how long the beginning of a line waits for the rest of it."""


Run = Callable[[list[str]], int]


def serve(run: Run) -> int:
    """Answer the request on standard input."""
    answers = Answers(sys.stdout.buffer)
    if not (line := _line_of_input()):  # the laptop has gone
        return 0
    request = parse_request(line)
    answers.send({"protocol": PROTOCOL, "version": metadata.version("jobkit")})
    if request.protocol != PROTOCOL:
        return 0
    try:
        place = project_folder(request, answers)
        os.chdir(place)
        if request.question != "run":
            answers.send({"answer": QUESTIONS[request.question](request)})
        else:
            _run(request, run, answers)
    except (JobkitError, OSError) as error:
        refusal = error if isinstance(error, JobkitError) else file_error(error)
        answers.send({"error": refusal.message, "hint": refusal.hint, "code": int(refusal.exit_code)})
    return 0


def _line_of_input() -> bytes:
    """Return a line of standard input and no byte beyond it, for others read on."""
    with contextlib.suppress(ConnectionError):
        return io.FileIO(0, closefd=False).readline()
    return b""


class Answers:
    """The answers of one request: to the laptop, as long as it is there, and to a file if they are kept."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._kept: io.FileIO | None = None

    @contextlib.contextmanager
    def keep(self, path: Path) -> Iterator[None]:
        """Also write what is sent to a file, until the block ends or the disk is full."""
        with contextlib.suppress(OSError):
            self._kept = path.open("wb", buffering=0)
        try:
            yield
        finally:
            self._keep_no_more()

    def _keep_no_more(self) -> None:
        with contextlib.suppress(OSError):
            self._kept.close() if self._kept else None
        self._kept = None

    def send(self, answer: Mapping[str, object]) -> None:
        """Send an answer."""
        line = f"{MARK}{json.dumps(answer)}\n".encode()
        if self._kept:
            try:
                written = self._kept.write(line)
            except OSError:
                written = None
            if written != len(line):
                self._keep_no_more()
        self.relay(line)

    def relay(self, data: bytes) -> None:
        """Send lines of answers as they are, unless the connection has ended."""
        with contextlib.suppress(ConnectionError):  # of sshd's socket: EPIPE or ECONNRESET
            self._out.write(data)
            self._out.flush()


def project_folder(request: Request, answers: Answers) -> Path:
    """Return the folder of the project, made if it is missing."""
    place = Path.home() / Path(request.folder).expanduser() / request.project
    others = sorted(note.parent.name for note in place.parent.glob(f"*/{ORIGIN_FILE}"))
    is_new = not place.is_dir()
    place.mkdir(parents=True, exist_ok=True)
    if is_new and others:
        answers.send({"err": f"a new project: {place}; there are {', '.join(others)} too\n"})
    note = place / ORIGIN_FILE
    if not note.exists():
        write_atomically(note, f"{request.origin}\n")
    origin = note.read_text(encoding="utf-8").removesuffix("\n")
    if origin != request.origin:
        raise JobkitError(
            f"{place} belongs to {origin}, not to {request.origin}",
            hint=f"name another place: --on HOST:FOLDER; or, if it is the same project, remove {note} there",
        )
    return place


def _run(request: Request, run: Run, answers: Answers) -> None:
    from jobkit.runs.journal import read_journal

    SERVED.sent = {str(Path.cwd() / name): what for name, what in request.sent.items()}
    SERVED.refuse_other()
    if not request.kept:
        _relay(request, run, answers)
        return
    note, kept = _note_and_answer(request)
    with exclusive_lock(note, lambda: _wait_for_the_same(note, answers)):
        if (code := _kept_code(kept)) is not None:
            answers.send({"kept": kept.stat().st_mtime})
            answers.relay(kept.read_bytes())
        elif not select.select([0], [], [], 0)[0]:  # else the laptop has gone while this waited
            with answers.keep(kept):
                code = _relay(_go_on(request, note, answers), run, answers)
        while (said := _line_of_input()) == INTERRUPT:  # a Ctrl-C that came as the command ended
            pass
        if said == ACCEPTED:
            with contextlib.suppress(OSError):
                kept.unlink()
            # A command that failed is over once the scheduler has answered all that it has submitted.
            over = code == 0 or (begun := _begun(note)) is None or read_journal(begun).unanswered is None
            if over and code is not None and code >= 0:
                os.truncate(note, 0)


def _go_on(request: Request, note: Path, answers: Answers) -> Request:
    SERVED.note, begun = note, _begun(note)
    if begun is None:
        return request
    SERVED.begun, words = begun, [word for word in request.words if word != "--again"]
    answers.send({"err": f"this command has begun {relative_path(begun)} before: going on with it\n"})
    # Commands that make a run folder of their own; the others find what they have begun
    if words[0] in {"sweep", "tune"}:
        words = ["resume", str(begun), *(word for word in words if word == "--wait")]
    elif words[0] == CALL and words[1] in {"sweep", "tune"}:
        words = [CALL, "resume", json.dumps({"run": str(begun)})]
    return replace(request, words=words)


def _begun(note: Path) -> Path | None:
    run = Path(last_line(note).strip() or "none")
    return run if run.is_absolute() and run.is_dir() else None


def _wait_for_the_same(lock: Path, answers: Answers) -> None:
    """Wait for the same command of another connection, until Ctrl-C or the end of this connection."""
    answers.send({"busy": True})
    with lock.open() as handle:
        while try_lock(handle.fileno(), shared=True) is False:
            if select.select([0], [], [], POLL_S)[0]:
                raise JobkitError("interrupted; the same command goes on", exit_code=ExitCode.INTERRUPTED)


def _note_and_answer(request: Request) -> tuple[Path, Path]:
    """Return the file with the run folder of a request, which is its lock too, and that of its answer.

    Only the answer may be lost, if the user's folder for states cannot be written.
    """
    name = hashlib.sha256(f"{Path.cwd()}\n{request.kept}".encode()).hexdigest()[:32]
    notes, answers = Path.cwd() / BEGUN_FOLDER, platformdirs.user_state_path("jobkit") / "on"
    notes.mkdir(exist_ok=True)
    with contextlib.suppress(OSError):
        answers.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in (*notes.iterdir(), *answers.iterdir()):
            if time.time() - old.stat().st_mtime > 7 * 86400:
                old.unlink(missing_ok=True)
    return notes / name, answers / f"{name}.answer"


def _kept_code(kept: Path) -> int | None:
    """Return the exit code of a kept answer; ``None`` if not all of it is there, or Ctrl-C ended it."""
    with contextlib.suppress(OSError):
        for line in kept.read_bytes().splitlines(keepends=True)[-1:] if kept.is_file() else []:
            code: int = (parse_answer(line) or {}).get("exit", -1)
            return code if code >= 0 and code != ExitCode.INTERRUPTED else None
    return None


def _relay(request: Request, run: Run, answers: Answers) -> int:
    """Run a command in a process of its own, send what it prints and its exit code, and return that."""
    out, err, ready = os.pipe(), os.pipe(), os.pipe()
    answers.send({"begun": True})
    child = os.fork()
    if child == 0:
        _be_the_command(request, run, out, err, ready)
    for _, its in (out, err, ready):
        os.close(its)
    os.read(ready[0], 1)  # returns once the child has closed its end: before, it would lose a Ctrl-C
    # Options of commands that wait: they are interrupted at once
    watches = {"--wait", "--watch", "--follow", "-f"}
    # How long a command may go on once the connection has broken; then it is interrupted, as by Ctrl-C
    grace_s = 0 if watches & {*request.words} else 60.0
    interrupted = _until_closed(child, {out[0]: "out", err[0]: "err"}, answers, grace_s=grace_s)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    answers.send({"ended": code} if interrupted else {"exit": code})
    return code


def _be_the_command(request: Request, run: Run, *pipes: tuple[int, int]) -> None:
    """Be the command: its streams are the first pipes, and a terminal of the laptop's size if there is one.

    It keeps the lock of the request, so that the same is not begun again if only its parent is killed.
    """
    (_, out), (_, err), _ = pipes
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    os.environ |= {"COLUMNS": str(request.columns), "LINES": str(request.lines)} if request.columns else {}
    sys.stdin, sys.stderr = os.fdopen(0, encoding="utf-8"), os.fdopen(2, "w", encoding="utf-8", buffering=1)
    sys.stdout = _Shown(os.fdopen(1, "wb", buffering=0), encoding="utf-8", write_through=True)
    sys.stdout.terminal = request.terminal
    sys.argv = ["jobkit", *request.words]
    code = int(ExitCode.INTERRUPTED)
    try:
        for end in (nothing, *(end for pipe in pipes for end in pipe)):
            os.close(end)
        code = run(request.words)
        sys.stdout.flush()
    finally:
        os._exit(code)


class _Shown(io.TextIOWrapper):
    """Standard output that says whether a terminal shows it, though it is a pipe."""

    terminal = False

    def isatty(self) -> bool:
        """Return whether the laptop shows it on a terminal."""
        return self.terminal


def _until_closed(child: int, pipes: Mapping[int, str], answers: Answers, *, grace_s: float) -> bool:
    """Send what comes through pipes until all are closed; return whether a lost connection ended it."""
    streams = {pipe: _Lines() for pipe in pipes}
    deadline, ended = float("inf"), False
    with selectors.DefaultSelector() as selector:
        for pipe in (*pipes, 0):
            selector.register(pipe, selectors.EVENT_READ)
        while open_pipes := [pipe for pipe in pipes if pipe in selector.get_map()]:
            ready = {
                key.fd for key, _ in selector.select(PAUSE_S if any(map(bool, streams.values())) else 1.0)
            }
            if 0 in ready:
                said = b""
                with contextlib.suppress(ConnectionError):
                    said = os.read(0, len(INTERRUPT))
                if said:  # Ctrl-C on the laptop
                    _interrupt(child)
                else:
                    selector.unregister(0)
                    deadline = time.monotonic() + grace_s
            if time.monotonic() >= deadline:
                ended, deadline = True, float("inf")
                _interrupt(child)
            for pipe in open_pipes:
                data = os.read(pipe, 1 << 16) if pipe in ready else None
                if text := streams[pipe].through(data):
                    answers.send({pipes[pipe]: text})
                if data == b"":
                    selector.unregister(pipe)
    return ended


def _interrupt(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGINT)


class _Lines:
    """Cuts a stream at the ends of its lines; a line that waits for its end is sent after a pause."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def __bool__(self) -> bool:
        return bool(self._held)

    def through(self, data: bytes | None) -> str:
        """Return what can be sent: whole lines, or all that is held if nothing came."""
        if not data:
            text, self._held = self._held + (self._decoder.decode(b"", final=True) if data == b"" else ""), ""
            return text
        text = self._held + self._decoder.decode(data)
        end = text.rfind("\n") + 1
        self._held = text[end:]
        return text[:end]


def _prepare(request: Request) -> dict[str, Any]:
    """Return what is here: the project's folder, the site file, the spec; and where a missing model goes."""
    from jobkit.core.paths import cache_dir, make_folder
    from jobkit.planning.models import find
    from jobkit.spec.site import own_site

    model, site, place = request.about.get("model"), own_site(), ""
    if model:
        try:
            find(model["workload"], model["model"], Path(), cache_dir())
        except JobkitError:
            place = str(make_folder(cache_dir() / "models").resolve() / model["folder"])
    return {
        "folder": str(Path.cwd()),
        "model": place,
        "site": str(site) if site.exists() else "",
        "spec": str(spec) if (spec := Path(request.about.get("spec", ""))).is_file() else "",
    }


def _runs(request: Request) -> list[list[str | bool]]:
    from jobkit.runs.which_run import resolve_words, runs_in

    named: list[Path] = []
    for word in request.words:
        if Path(word).is_file():
            named.append(Path(word))
            continue
        what = resolve_words([word])
        named += what.runs or runs_in(what.folder)
    if not request.words:
        found = runs_in(resolve_words([]).folder)
        named = list(found if request.about.get("all") else found[:1])
    return [place_of(path) for path in named]


def place_of(path: Path) -> list[str | bool]:
    """Return the folder that is the project on the laptop, the path below it, and whether it is a folder."""
    here, path = Path.cwd(), Path(os.path.abspath(path))  # noqa: PTH100 - without `..`, and links as they are
    inside = path.is_relative_to(here)
    parts = [str(here), str(path.relative_to(here))] if inside else [str(path.parent), path.name]
    return [*parts, path.is_dir()]


def _merged(request: Request) -> list[list[str | bool]]:
    from jobkit.extensions.corpus.formats import counts_path, output_paths, places_path, quarantine_path
    from jobkit.extensions.corpus.merge import default_format
    from jobkit.runs.which_run import run_named

    run = run_named(request.words[0])
    output = request.about.get("output")
    forms = str(request.about.get("fmt") or default_format(run)).split(",")
    stems = ("merged", "merged.partial") if request.about.get("allow_missing") else ("merged",)
    named = [Path(output)] if output else [run / f"{stem}.{forms[0]}" for stem in stems]
    found = [output_paths(path, forms) for path in named]
    found = [paths for paths in found if paths[forms[0]].is_file()]
    found.sort(key=lambda paths: paths[forms[0]].stat().st_mtime_ns)
    merged = found[-1] if found else {}  # the other is of an earlier merge
    tables = [places_path(path) for form, path in merged.items() if form in {"npy", "npz"}]
    lists = (name_of(path) for path in merged.values() for name_of in (counts_path, quarantine_path))
    files = dict.fromkeys((*merged.values(), *tables, *lists, run / "provenance.json"))
    return [place_of(path) for path in files if path.is_file()]


QUESTIONS: Mapping[str, Callable[[Request], Any]] = {"prepare": _prepare, "runs": _runs, "merged": _merged}
"""The questions that a laptop may ask, by name."""
