"""One try of a command: prepare its folder, start it under a keeper, follow it, judge its end.

The keeper is a process between the worker and the command. It is a child subreaper (prctl(2)), so processes
that the command leaves behind become its children. It kills them when the command has ended, and kills the
command too when the worker ends, however that happens. It gets none of a scheduler's signals: the worker
decides which of them the command gets.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TextIO

from jobkit.core import json_codec
from jobkit.core.files import copy_files
from jobkit.core.frozen import frozen
from jobkit.core.layout import FILES_FOLDER
from jobkit.core.measurements import total
from jobkit.core.records import Batch, Command, Outcome
from jobkit.core.units import format_count
from jobkit.worker import process, steps
from jobkit.worker.command_line import COUNTS, MODEL, OUTPUT, POINT, SCRATCH, TEXT, argv, variable
from jobkit.worker.failure import Stopped, TryFailed, outcome_of_output
from jobkit.worker.measure import nvml
from jobkit.worker.measure.figures import GrowingFile, LinePart, OwnFigures
from jobkit.worker.measure.sampler import sampling
from jobkit.worker.record import Task, TryState, check_text

REST_S = 1.0
"""The time in which processes that the command left behind may end."""
KILL_S = 10.0
"""The time in which a killed process must end: a GPU's driver may hold it."""


@frozen
class CommandEnd:
    status: int | None  # exit status, negative for a signal; ``None`` if the command could not be started
    # the largest high-water mark of one process (getrusage(2)); ``None`` if it may be that of this process,
    # which a child inherits until it runs its program
    maxrss_bytes: int | None = None
    left: int = 0  # the number of processes that it left behind, which were killed
    error: str = ""  # why the command could not be started


class Keeper:
    def __init__(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        """Fork a keeper, which calls ``start`` once it is asked to."""
        here, (ours, theirs) = os.getpid(), Pipe()

        def keep() -> None:
            ours.close()
            process.adopt_orphans()
            try:
                with contextlib.suppress(EOFError, OSError), process.ends_of_children() as ended:
                    theirs.recv()
                    if os.getppid() == here:
                        theirs.send(_run(theirs, ended, start))
            finally:
                process.end_descendants(KILL_S)

        with theirs, process.signals_blocked():
            self._connection: Connection[int, CommandEnd] = ours
            self.process = process.fork(keep)

    def send(self, number: int) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._connection.send(number)

    def ended(self, timeout_s: float) -> CommandEnd | None:
        """Return how the command ended; ``None`` if it still runs after the timeout."""
        if not self._connection.poll(timeout_s):
            return None
        with contextlib.suppress(EOFError, OSError):  # only a kill -9 ends a keeper before its command
            return self._connection.recv()
        return CommandEnd(-signal.SIGKILL)

    def close(self) -> None:
        self._connection.close()
        process.ends(self.process, KILL_S + REST_S)


def _run(
    worker: Connection[CommandEnd, int], ended: socket.socket, start: Callable[[], subprocess.Popen[bytes]]
) -> CommandEnd:
    try:
        child = start()
    except (OSError, ValueError) as error:
        return CommandEnd(None, error=getattr(error, "strerror", None) or str(error))
    status: int | None = None
    child.returncode = 0  # this process waits for it by itself
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    maxrss = 0
    while status is None:
        ready, _, _ = select.select([worker.fileno(), ended.fileno()], [], [])
        if worker.fileno() in ready:
            process.kill(process.process_tree(os.getpid())[1:], worker.recv())
        if ended.fileno() in ready:
            ended.recv(4096)
        for pid, code, size in process.reap():
            maxrss = max(maxrss, size)
            status = code if pid == child.pid else status
    left = process.end_descendants(KILL_S, REST_S)
    return CommandEnd(status, maxrss if maxrss > own else None, left)


LOOK_S = 0.1
"""The longest time of a look: the node is there for the command."""
HALF_BYTES = 50 * 2**20
"""Bytes that the log keeps of the beginning of the output, and of its end."""
MOST_BATCHES = 100_000
"""Lines of ``batches.jsonl``; batches beyond these are in the totals only."""


def run_command(state: TryState, command: Command, stack: ExitStack) -> None:
    task, [measured] = state.task, state.workers
    point, log = task.point, task.out.parent / "output.log"
    text, paragraphs = _with_line_feeds(check_text(task), task.out.parent / TEXT)
    if len(point.files) <= 3:  # more would fill the record
        measured.versions = {file.name: file.sha256[:12] for file in point.files}
    folder, values = _folders(task, text)
    environment = {**os.environ, **{variable(name): value for name, value in values.items()}}
    words = argv(command, values)
    if (own := folder / words[0]).is_file():
        words[0] = str(own)
    steps.wait_for_memory(state)
    uuids = nvml.visible_uuids(point.gpus) if point.device == "cuda" else []
    if point.device == "cuda":
        state.device_idle_bytes = total(nvml.used_bytes(uuids).values()) if uuids else None
        measured.gpu = steps.read_gpu(uuids[0] if uuids else None)

    def become_command() -> None:  # a plain process that ends with the keeper
        process.end_with(os.getppid())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, process.BLOCKED)

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as stream:
            return subprocess.Popen(  # noqa: S603 - the user's command, an argv list
                words,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                preexec_fn=become_command,  # noqa: PLW1509 - this process has one thread
            )

    keeper = Keeper(start)
    stack.callback(keeper.close)
    stream = stack.enter_context(steps.open_batches(state))
    state.figures.keep, state.figures.flush = partial(keep_batch, state, stream), stream.flush
    state.figures.patterns = {name: re.compile(pattern) for name, pattern in command.metrics.items()}
    echo = _Echo(state.figures, log)
    stack.callback(echo.end)
    output = GrowingFile(log, echo.take)
    state.sampler = stack.enter_context(sampling(uuids, parent=keeper.process.pid))
    state.ask_sampler("mark")
    oom_kills = process.oom_kills()
    ended = _follow(state, keeper, output)
    if not output.read_rest([LOOK_S] * 300):
        process.report("the command wrote more than can be searched for metrics in time")
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    measured.maxrss_bytes = ended.maxrss_bytes
    with contextlib.suppress(OSError):  # it has results
        Path(values[OUTPUT]).rmdir()
    if ended.left:
        left = format_count(ended.left, "process", "processes")
        process.report(f"the command left {left} behind, which jobkit ended")
    state.items_total = state.items_total or paragraphs  # of a command that reports no items
    _refuse_failure(ended, words[0], log, oom_kills, shell=command.shell)


# -- before


def _with_line_feeds(text: Path, copy: Path) -> tuple[Path, int]:
    """Return a text with LF line ends, and its number of paragraphs; a text with other line ends is copied.

    To most programs a line with a carriage return is not blank, so they would find no paragraphs.
    """
    paragraphs, blank = 0, True
    with text.open(encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            paragraphs += blank and not line.isspace()
            blank = line.isspace()
        if stream.newlines in {None, "\n"}:
            return text, paragraphs
        stream.seek(0)
        with copy.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as out:
            shutil.copyfileobj(stream, out)
    return copy, paragraphs


def _folders(task: Task, text: Path) -> tuple[Path, dict[str, str]]:
    """Make the folders of this try; return that with the staged files, and the values of placeholders."""
    point = task.point
    folder, scratch, output = task.out.parent / FILES_FOLDER, task.out.parent / "scratch", task.out / "output"
    folder.mkdir()
    if staged := steps.check_files(task):
        copy_files(Path(staged), folder)
    scratch.mkdir()
    output.mkdir()
    counts = {name: getattr(point, name) for name in COUNTS}
    return folder, {
        **{name: str(value) for name, value in (*counts.items(), *point.params.items())},
        TEXT: str(text),
        MODEL: str(task.inputs / "model") if point.model else "",
        OUTPUT: str(output),
        SCRATCH: str(scratch),
        POINT: point.point_id,
    }


# -- meanwhile


def keep_batch(state: TryState, stream: TextIO, batch: Batch) -> None:
    """Count a batch that the command reports; write it to ``batches.jsonl`` if that has room."""
    listed = state.batches_total < MOST_BATCHES
    state.tally.add(batch, listed=listed)
    if listed:
        placed = replace(batch, index=state.batches_total, first_item=state.items_total)
        stream.write(json_codec.to_json(placed) + "\n")
    state.items_total += batch.items
    state.batches_total += 1


class _Echo:
    """Copies the output of a command to the log, without the middle of a long output."""

    def __init__(self, figures: OwnFigures, output: Path) -> None:
        self._figures, self._output = figures, output
        self._place = 0

    def take(self, line: bytes, part: LinePart) -> None:
        data = line if part is LinePart.FIRST else line + b"\n"
        if self._place <= HALF_BYTES:
            with contextlib.suppress(OSError):  # the log may be on a full disk
                sys.stdout.buffer.write(data)
        self._place += len(data) if self._place <= HALF_BYTES else 0
        self._figures.take_output(line, part)

    def end(self) -> None:
        with contextlib.suppress(OSError), self._output.open("rb") as stream:
            left = stream.seek(0, os.SEEK_END) - self._place
            if left <= 0:
                return
            if left > HALF_BYTES:
                note = f"\njobkit: {left - HALF_BYTES:,} bytes of the output are left out here\n"
                sys.stdout.buffer.write(note.encode())
            stream.seek(-min(left, HALF_BYTES), os.SEEK_END)
            shutil.copyfileobj(stream, sys.stdout.buffer)
            sys.stdout.flush()


def _follow(state: TryState, keeper: Keeper, output: GrowingFile) -> CommandEnd:
    began_s = time.monotonic()
    keeper.send(0)  # no signal: start the command
    try:
        while (ended := keeper.ended(1.0)) is None:
            state.wall_s = time.monotonic() - began_s
            _look(state, output)
        state.wall_s = time.monotonic() - began_s
        if ended.status in {-signal.SIGTERM, -signal.SIGINT}:
            time.sleep(2.0)  # perhaps for the whole job: then the worker is stopped here
    except Stopped:
        state.wall_s = time.monotonic() - began_s
        keeper.send(signal.SIGTERM)
        grace_s = float(os.environ.get(process.GRACE_VARIABLE) or 4) / 2
        ended = keeper.ended(grace_s)
        if ended is None:
            keeper.send(signal.SIGKILL)
            ended = keeper.ended(grace_s)
        _look(state, output)
        if ended:
            state.workers[0].maxrss_bytes = ended.maxrss_bytes
        raise
    finally:
        state.ask_sampler("stop")
    return ended


def _look(state: TryState, output: GrowingFile) -> None:
    with process.signals_blocked():  # a signal between two lines must not lose one
        output.read(LOOK_S)
        if state.figures_file:
            state.figures_file.read(LOOK_S)
        state.figures.flush()
        with contextlib.suppress(OSError):
            sys.stdout.flush()


# -- after


def _refuse_failure(
    ended: CommandEnd, program: str, log: Path, oom_kills: int | None, *, shell: bool
) -> None:
    if ended.status is None:
        message = f"{program!r} cannot be started on {platform.node()}: {ended.error}"
        with contextlib.suppress(OSError):
            if os.statvfs(program).f_flag & os.ST_NOEXEC:
                message += "; no program may run on that disk (noexec): name another scratch in the site file"
        raise TryFailed(Outcome.ENVIRONMENT, message)
    status = ended.status
    if shell and status - 128 in signal.valid_signals():  # as a shell reports the end of its child
        status = 128 - status
    if status >= 0 and (process.oom_kills() or 0) > (oom_kills or 0):  # as below perf, py-spy or mprof
        killed = "meanwhile the kernel killed a process of its cgroup for lack of memory"
        raise TryFailed(Outcome.RAM_OOM, f"exit status {status}, but {killed}")
    if status == 0:
        return
    tail = ""
    with contextlib.suppress(OSError), log.open("rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - 8192))
        tail = stream.read().decode("utf-8", "replace")
    last = next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")
    if status < 0:
        raise steps.killed("the command", -status, oom_kills, tail)
    outcome = outcome_of_output(tail)
    if status in {126, 127} and outcome is Outcome.BUG:  # of a shell or env(1): there is no such program
        outcome = Outcome.ENVIRONMENT
    raise TryFailed(outcome, f"exit status {status}{last and f': {last[:400]}'}")
