"""qsub: takes a script as a job, verifies it with ``-w v``, or says why not."""

from __future__ import annotations

import os
import pwd
import re
from fnmatch import fnmatchcase
from pathlib import Path

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.life import spool
from tests.fakes.common.model import Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import captured, numbers
from tests.fakes.sge.options import header, merged, parse, resources
from tests.fakes.sge.site import HOST, MAX_TASKS, OFFERED, PES, QUEUES, SLOTS

UNABLE = "Unable to run job: {}\nExiting.\n"


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qsub."""
    told, rest = parse("qsub", arguments)
    if "help" in told:
        return Answer("SGE 8.1.9\nusage: qsub [options]\n")
    text = _text(rest[0])
    options = merged(header(text), told)
    options.setdefault("N", Path(rest[0]).name)
    tasks = _numbers(options)
    _refuse(options, len(tasks))
    number = store.state.next_id
    store.state.next_id += 1
    if options.get("w") == "v":
        _verify(number, options)
        return Answer("verification: found suitable queue(s)\n")
    _take(store, number, options, text, rest)
    span = f"{number}.{_span(options['t'])}" if "t" in options else str(number)
    if "terse" in options:
        return Answer(f"{span}\n")
    return Answer(
        f'Your job{"-array" if "t" in options else ""} {span} ("{options["N"]}") has been submitted\n'
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        why = f"error opening {path}: {error.strerror}"
        raise Refused(f"Unable to read script file because of error: {why}\n", 14) from None


def _numbers(options: dict[str, str]) -> list[int]:
    """Return the numbers of the tasks; of a job that is no array ``[0]``."""
    asked = options.get("t")
    if asked is None:
        return [0]
    if "," in asked:
        raise Refused("qsub: -t option only allows one range specification\n", 7)
    found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", asked)
    if not found:
        said = f'The initial portion of string "{asked}" contains no decimal number\n'
        raise Refused(f"qsub: Numerical value invalid!\n{said}", 7)
    first, last = sorted((int(found[1]), int(found[2] or found[1])))  # 5-3 is 3-5 (seen)
    if first == 0:
        raise Refused(UNABLE.format("job rejected: 0 is an invalid task id"))
    return numbers(f"{first}-{last}:{found[3] or 1}")


def _span(asked: str) -> str:
    first, _, rest = asked.partition("-")
    last, _, step = rest.partition(":")
    return f"{first}-{last or first}:{step or 1}"


def _refuse(options: dict[str, str], tasks: int) -> None:
    """Refuse what is never taken, in the words of 8.1.9."""
    known = {name for line in captured("sge", "complexes").splitlines() for name in line.split()[:2]}
    why = ""
    unknown = [name for name in resources(options) if name not in known]
    queue = [word for word in options.get("q", "").split(",") if word and not _queues(word)]
    if tasks > MAX_TASKS:
        why = f"job rejected: you tried to submit a job with more than {MAX_TASKS} tasks"
    elif options["N"][:1].isdigit():
        why = f'denied: "{options["N"]}" is not a valid object name (cannot start with a digit)'
    elif queue:
        why = f'Job was rejected because job requests unknown queue "{queue[0]}"'
    elif unknown:
        why = f'unknown resource "{unknown[0]}"'
    elif options.get("pe", PES[0]).split()[0] not in PES:
        why = f'job rejected: the requested parallel environment "{options["pe"].split()[0]}" does not exist'
    elif "P" in options:
        why = f'job rejected: the requested project "{options["P"]}" does not exist'
    if why:
        raise Refused(UNABLE.format(why))


def _queues(word: str) -> list[str]:
    return [name for name in QUEUES if fnmatchcase(name, word.partition("@")[0] or "*")]


def allowed(options: dict[str, str]) -> list[str]:
    """Return the queues that a job may run in."""
    words = options.get("q", "*").split(",")
    return [name for name in QUEUES if any(name in _queues(word) for word in words)]


def _verify(number: int, options: dict[str, str]) -> None:
    """Say what a job that is taken would wait for ever for, on an empty cluster."""
    asked = resources(options)
    for name, most in OFFERED.items():
        if int(asked.get(name, 0)) > most:
            why = f'cannot run at host "{HOST}" because it offers only hc:{name}={most:.6f}'
            raise Refused(_unsuitable(f"Job {number} (-l {options['l']}) {why}"))
    if options.get("pe") and int(options["pe"].split()[1]) > SLOTS:
        raise Refused(_unsuitable(f'Job {number} cannot run in PE "smp" because it only offers 0 slots'))
    host = re.fullmatch(r"!\((.*)\)", asked.get("hostname", asked.get("h", "")))
    if host and HOST in host[1].split("|"):
        why = f'it does not match the requested hostname "{asked.get("hostname", asked.get("h"))}"'
        raise Refused(
            _unsuitable(f'Job {number} (-l {options["l"]}) cannot run at host "{HOST}" because {why}')
        )


def _unsuitable(words: str) -> str:
    return UNABLE.format(f"{words}\nverification: no suitable queues")


def _take(store: Store, number: int, options: dict[str, str], text: str, rest: list[str]) -> None:
    where = options.get("wd") or (os.getcwd() if "cwd" in options else str(Path.home()))  # noqa: PTH109 - its text
    held = "user" if "h" in options else ""
    job = Job(
        id=number,
        name=options["N"],
        user=pwd.getpwuid(os.getuid()).pw_name,
        script=spool(store, str(number), text),
        command=rest[0],
        directory=where,
        submitted=store.clock(),
        throttle=int(options.get("tc", 0)),
        array=options.get("t", ""),
        arguments=rest[1:],
        options=options,
        tasks=[Task(number=number, held=held) for number in _numbers(options)],
    )
    store.state.jobs.append(job)
