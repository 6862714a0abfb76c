"""What jobkit must know of a workload before it runs, found in a child process.

The jobkit process imports no torch and leaves user's code, large memory and the GPU to the child: so a point
starts on a GPU that is as empty as it was. The child is ``python -m jobkit.planning.workload_traits
MODULE:FUNCTION``. It takes its arguments as JSON from stdin, and writes a JSON object a line to stdout: that
it has begun, its messages, then its result or its error. The user's code runs in the Python of the jobs.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jobkit.core import shell
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import RUN_KNOBS, Knob, declared, from_fields
from jobkit.core.records import Command
from jobkit.core.terminal import Say
from jobkit.worker import command_line
from jobkit.worker.workloads import own
from jobkit.worker.workloads.base import CHARACTERS, SHIPPED
from jobkit.worker.workloads.stanza_ner import SLEEP_WHILE_WAITING
from jobkit.worker.workloads.user_file import names_file

ACTIVATION = "ACTIVATION_OF_JOBS"
"""The variable with the lines of `JobPython`: unlike the words of a command, no other user can read it."""


class JobPython(NamedTuple):
    """What makes the Python of the jobs ready: shell lines, and variables; without lines it is this one."""

    activation: str = ""
    variables: tuple[tuple[str, str], ...] = ()


class NotBegunError(JobkitError):
    """The Python of the jobs, or its jobkit, is not to be had on this machine."""


def run_in_child(
    function: str,
    *arguments: object,
    say: Say,
    what: str,
    gpus: bool = False,
    python: JobPython = JobPython(),  # noqa: B008 - it is immutable
) -> Any:  # noqa: ANN401 - any JSON
    """Call a function in a child process and return its result once the child has ended.

    ``function``: ``module:name``; arguments and result are anything that JSON holds; it gets ``say``, too.
    ``what``: the work in words, for the message of a failure: ``building the stand-in model``.
    ``gpus``: whether the child may use GPUs.
    """
    reply: dict[str, Any] = {}
    activated = ("bash", "-c", f'eval "${ACTIVATION}" >&2; unset {ACTIVATION}; exec python "$@"', "bash")
    start = activated if python.activation else (sys.executable,)
    argv = (*start, "-P", "-m", "jobkit.planning.workload_traits", function)
    env = dict([SLEEP_WHILE_WAITING]) | os.environ | ({} if gpus else {"CUDA_VISIBLE_DEVICES": ""})
    env |= dict(python.variables) | {ACTIVATION: python.activation}
    done = shell.run_streaming(argv, partial(_receive, reply, say), text=json.dumps(arguments), env=env)
    if "error" in reply:
        message, hint, exit_code = reply["error"]
        raise JobkitError(message, hint=hint, exit_code=exit_code)
    fix = "jobkit doctor reports what this Python lacks"
    if "fault" in reply:
        raise JobkitError(f"{what} failed: {reply['fault']}", hint=fix)
    if not done.ok or "result" not in reply:
        how = f"was killed by signal {-done.status}" if done.status < 0 else f"ended with {done.status}"
        last = done.stderr.strip().rpartition("\n")[2]
        if python.activation and "begun" not in reply:
            hint = "jobkit doctor SPEC reports what the environment lacks"
            raise NotBegunError(f"the Python of the jobs does not start here: {last or how}", hint=hint)
        raise JobkitError(f"{what} failed: its process {how}{': ' * bool(last)}{last}", hint=fix)
    return reply["result"]


def _receive(reply: dict[str, Any], say: Say, line: str) -> None:
    message = json.loads(line)
    if "say" in message:
        say(message["say"])
    reply |= message


def main() -> None:
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed, by a framework for instance, is no answer

    def send(**message: object) -> None:
        stream.write(json.dumps(message) + "\n")
        stream.flush()

    module, _, name = sys.argv[1].partition(":")
    arguments = json.load(sys.stdin)
    try:
        send(begun=True)
        function = getattr(importlib.import_module(module), name)
        send(result=function(*arguments, say=lambda line: send(say=line)))
    except JobkitError as error:
        send(error=(error.message, error.hint, error.exit_code))
    except BrokenPipeError:  # the caller has gone
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - a framework raises what it likes: the caller puts it in words
        traceback.print_exc()
        send(fault=" ".join(f"{type(error).__name__}: {error}".split()))


if __name__ == "__main__":
    main()


class Traits(NamedTuple):
    """Whether a workload needs a model, whether it reports the lengths of a text's items, and its knobs."""

    needs_model: bool
    reports_lengths: bool
    knobs: tuple[Knob, ...]
    columns: tuple[str, ...] = ()  # columns of the rows of ``jobkit apply`` after document and paragraph
    # what its load counts, and whether the items of a batch are padded to the longest
    unit: str = CHARACTERS
    pads: bool = True
    # whether the workload states it. A function without ``lengths`` next to it does not: jobkit takes the
    # characters of a paragraph for its length.
    says_padding: bool = True
    windows: Mapping[str, int] = {}  # as `WINDOW` of `jobkit.worker.workloads.base.Workload`
    budgets: Mapping[str, int] = {}  # as its `BUDGET`
    pairs: bool = False  # whether it takes pairs, of queries and paragraphs
    # why the user's file was only parsed; then its lengths are not known. Empty if it was imported
    unseen: str = ""


def command_traits(template: str, knobs: Iterable[str], sources: Iterable[Path]) -> Traits:
    command, own = Command(template=template), {knob.name for knob in RUN_KNOBS}
    declared_knobs = declared(knob for knob in knobs if knob not in own)
    return Traits(
        needs_model=command_line.needs(command_line.MODEL, command, sources),
        reports_lengths=False,
        knobs=(*declared_knobs, *RUN_KNOBS),
    )


@functools.cache
def traits(
    name: str,
    folder: str | None = None,
    staged: str | None = None,
    python: JobPython = JobPython(),  # noqa: B008 - it is immutable
) -> Traits:
    """Return what jobkit must know of a workload; the user's is in ``folder``, or in the ``staged`` files.

    A file whose ``python`` is not to be had here is only parsed.
    """
    unseen = ""
    fields: Any
    if name in SHIPPED:
        fields = own.traits(name, None, say=print)
    else:
        words, silent = ("jobkit.worker.workloads.own:traits", name, folder, staged), lambda _: None
        what = f"looking at workload {name!r}"
        try:
            fields = run_in_child(*words, say=silent, what=what, python=python)
        except NotBegunError as error:
            if not names_file(name):
                raise
            unseen = error.message
            fields = run_in_child(*words, True, say=silent, what=what)  # noqa: FBT003 - as JSON
    needs_model, reports_lengths, own_knobs, columns, *rest = fields
    knobs = (*map(from_fields, own_knobs), *RUN_KNOBS)
    known = Traits(needs_model, reports_lengths and not unseen, knobs, tuple(columns), *rest)
    return known._replace(unseen=unseen)
