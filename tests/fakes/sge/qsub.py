"""qsub: takes a script as a job; with ``-w v`` it finds a queue for each."""

from __future__ import annotations

import os
import pwd
from fnmatch import fnmatchcase
from pathlib import Path

from tests.fakes.common.entry import Answer
from tests.fakes.common.life import spool
from tests.fakes.common.model import Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import numbers
from tests.fakes.sge.options import header, merged, parse
from tests.fakes.sge.site import QUEUES


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qsub."""
    told, rest = parse(arguments)
    text = Path(rest[0]).read_text(encoding="utf-8", errors="surrogateescape")
    options = merged(header(text), told)
    options.setdefault("N", Path(rest[0]).name)
    number = store.state.next_id
    store.state.next_id += 1
    if options.get("w") == "v":
        return Answer("verification: found suitable queue(s)\n")
    _take(store, number, options, text, rest)
    return Answer(f"{number}.{_span(options['t'])}\n")


def _span(asked: str) -> str:
    first, _, rest = asked.partition("-")
    last, _, step = rest.partition(":")
    return f"{first}-{last or first}:{step or 1}"


def _queues(word: str) -> list[str]:
    return [name for name in QUEUES if fnmatchcase(name, word.partition("@")[0] or "*")]


def allowed(options: dict[str, str]) -> list[str]:
    """Return the queues that a job may run in."""
    words = options.get("q", "*").split(",")
    return [name for name in QUEUES if any(name in _queues(word) for word in words)]


def _take(store: Store, number: int, options: dict[str, str], text: str, rest: list[str]) -> None:
    where = options.get("wd") or (os.getcwd() if "cwd" in options else str(Path.home()))  # noqa: PTH109 - its text
    job = Job(
        id=number,
        name=options["N"],
        user=pwd.getpwuid(os.getuid()).pw_name,
        script=spool(store, str(number), text),
        directory=where,
        submitted=store.clock(),
        throttle=int(options.get("tc", 0)),
        array=options["t"],
        arguments=rest[1:],
        options=options,
        tasks=[Task(number=number) for number in numbers(options["t"])],
    )
    store.state.jobs.append(job)
