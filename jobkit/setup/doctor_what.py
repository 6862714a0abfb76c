"""What `jobkit doctor` is asked about: this machine, a spec, a job script, or a workload."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from jobkit.core import shell
from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.terminal import Say, shell_quote
from jobkit.schedulers.lint import lint
from jobkit.schedulers.parsed_script import IsFolder
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import ONE_TASK, Request
from jobkit.setup import check_workload
from jobkit.setup.check_workload import SPEC_SUFFIXES, Answer, Found
from jobkit.setup.doctor import ASK_LIMIT_S
from jobkit.setup.findings import Finding, fine, missing, unknown, warning
from jobkit.spec.yaml_files import is_mapping
from jobkit.submit.scheduler_calls import submission_environment

FIRST_SPEC = "first.yaml"
SCRIPT_SUFFIXES = (".sh", ".slurm", ".sbatch", ".sge", ".qsub", ".job")
PYTHON = ".py"
NEEDED = ("loads", "knob")
"""The first word of those answers about a workload without which no sweep works."""


class What(StrEnum):
    """The kind of thing."""

    MACHINE = "machine"
    SPEC = "spec"
    SCRIPT = "script"
    WORKLOAD = "workload"


def what_is(word: str) -> What:
    """Return what a word names: nothing, a file by its content, else a workload.

    A file with the suffix of YAML is a spec, also if it is broken.

    Raises
    ------
    JobkitError
        If a file is none of these.
    """
    path = Path(word)
    if not word or word.endswith(SPEC_SUFFIXES):
        return What.SPEC if word else What.MACHINE
    if not path.exists():
        if word.endswith(SCRIPT_SUFFIXES):
            raise JobkitError(
                f"{word}: there is no such file", hint="jobkit doctor takes a SPEC, a script, a workload"
            )
        return What.WORKLOAD
    text = _text(path)
    if lint(text).found:
        return What.SCRIPT
    if path.suffix != PYTHON and is_mapping(text):
        return What.SPEC
    raise JobkitError(
        f"{word}: neither a spec nor a job script: it has no #SBATCH and no #$ line", hint=_named(path)
    )


def _text(path: Path) -> str:
    try:
        text = read_text(path)
    except OSError as error:
        raise JobkitError(
            f"{path}: cannot be read: {error.strerror}", hint="name a file: a spec, or a job script"
        ) from error
    if "\0" in text:
        raise JobkitError(f"{path}: not a text file", hint="name a spec, or a job script")
    return text


def _named(path: Path) -> str:
    if path.suffix == PYTHON:
        return f"name the function in it: jobkit doctor ./{path}:FUNCTION"
    return "a program is measured by a spec with `workload: {command: ...}`: jobkit help workloads"


def script(path: Path, is_folder: IsFolder) -> Iterator[Finding]:
    """Yield what a scheduler would ignore in a job script, and whether it would take the job."""
    found = lint(_text(path), str(path), is_folder)
    for _, finding in found.findings:
        yield missing(
            f"line {finding.line}",
            f"{finding.text.strip()}\n{finding.effect}: {finding.message}",
            finding.hint,
        )
    for name, findings in found.found.items():
        title = SCHEDULERS[name].TITLE
        if not findings:
            yield fine("lines", f"{title} ignores none of them")
        yield _trial(name, path)


def _trial(name: str, path: Path) -> Finding:
    """Return the scheduler's answer to a trial submission of a script."""
    scheduler = SCHEDULERS[name]
    checks = scheduler.checks(str(path), ONE_TASK, _request(path.stem))
    check = next(check for check in checks if str(path) in check.argv)
    answer = shell.run(check.argv, env=submission_environment(), timeout_s=ASK_LIMIT_S)
    if answer.status == shell.NOT_FOUND:
        return unknown(
            "job", f"there is no {check.argv[0]} on this machine", "type the same on a submit host"
        )
    if refused := check.refusal(answer):
        return missing("job", refused, "change the lines of the script")
    return fine("job", f"{check.argv[0]} would take it; {check.outlook(answer)}".rstrip("; "))


def _request(name: str) -> Request:
    """Return a request that asks for nothing: the script has its own."""
    return Request(
        name=name,
        queue=None,
        gpus=0,
        gpu_type=None,
        cpus=1,
        memory_bytes=0,
        walltime_s=0,
        account=None,
        qos=None,
    )


def workload(word: str, say: Say) -> Iterator[Finding]:
    """Yield what works of a workload, tried on a short text, and what is missing."""
    try:
        subject = check_workload.find_subject(word, text="sample:100", model="", device="auto", say=say)
        probe = check_workload.try_out(subject, say)
        answers = check_workload.answers(probe, subject, check_workload.predict(subject, probe.sizes, say))
    except JobkitError as error:
        yield missing("loads", error.message, error.hint)
        return
    yield from map(_finding, answers)


def _finding(answer: Answer) -> Finding:
    if answer.found is Found.OK:
        return fine(answer.check, answer.what)
    if answer.found is Found.UNKNOWN:
        return unknown(answer.check, answer.what, answer.do)
    status = missing if answer.check.startswith(NEEDED) else warning
    return status(answer.check, answer.what, answer.do)


def next_command(what: What, word: str, options: Sequence[str]) -> str:
    """Return what to type once nothing is missing; empty if that depends on the user's choice.

    Parameters
    ----------
    options
        Those that the sweep needs too, so that it is the sweep that was checked.
    """
    if what is What.MACHINE:
        return f"jobkit doctor {FIRST_SPEC}" if Path(FIRST_SPEC).is_file() else "jobkit init"
    if what is What.SCRIPT:
        schedulers = (SCHEDULERS[name] for name in lint(_text(Path(word))).found)
        return f"{next(schedulers).PROGRAMS[0]} {shell_quote(word)}"
    if what is What.WORKLOAD:
        return f"jobkit help workloads   # a spec with `workload: {word}`"
    return f"jobkit sweep {shell_quote(word)} {shlex.join(options)}".rstrip()
