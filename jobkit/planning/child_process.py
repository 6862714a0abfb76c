"""Run a function in a separate process, which ends before the caller continues.

Work that opens a GPU, needs much memory or runs the user's code is done so: the jobkit process never
imports torch, and a point starts on a GPU that is as empty as it was. The child is
``python -m jobkit.planning.child_process MODULE:FUNCTION``. It takes its arguments as JSON from stdin, and
writes a JSON object a line to stdout: its messages, then its result or its error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from functools import partial
from typing import Any

from jobkit.core import shell
from jobkit.core.errors import JobkitError
from jobkit.core.terminal import Say
from jobkit.run.workloads.stanza.lengths import SLEEP_WHILE_WAITING

NO_GPUS = {"CUDA_VISIBLE_DEVICES": ""}
FIX = "jobkit doctor reports what this Python lacks"


def run_in_child(function: str, *arguments: object, say: Say, what: str, gpus: bool = False) -> Any:  # noqa: ANN401 - any JSON
    """Call a function in a child process and return its result once the child has ended.

    Parameters
    ----------
    function
        ``module:name``; it takes the arguments and, by keyword, ``say``.
    arguments
        Anything that JSON holds; so is the result.
    say
        Prints each message of the function, as it comes.
    what
        The work in words, for the message of a failure: ``building the stand-in model``.
    gpus
        Whether the child may use GPUs.

    Raises
    ------
    JobkitError
        As the function raises it; with any other exception of it, or how the child died.
    """
    reply: dict[str, Any] = {}
    argv = (sys.executable, "-P", "-m", "jobkit.planning.child_process", function)
    env = dict([SLEEP_WHILE_WAITING]) | os.environ | ({} if gpus else NO_GPUS)
    done = shell.run_streaming(argv, partial(_receive, reply, say), text=json.dumps(arguments), env=env)
    if "error" in reply:
        message, hint, exit_code = reply["error"]
        raise JobkitError(message, hint=hint, exit_code=exit_code)
    if "fault" in reply:
        raise JobkitError(f"{what} failed: {reply['fault']}", hint=FIX)
    if not done.ok or "result" not in reply:
        how = f"was killed by signal {-done.status}" if done.status < 0 else f"ended with {done.status}"
        last = done.stderr.strip().rpartition("\n")[2]
        raise JobkitError(f"{what} failed: its process {how}{': ' * bool(last)}{last}", hint=FIX)
    return reply["result"]


def _receive(reply: dict[str, Any], say: Say, line: str) -> None:
    message = json.loads(line)
    if "say" in message:
        say(message["say"])
    reply |= message


def main() -> None:
    """Call the function that the command line names, and send back its result or its error."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed, by a framework for instance, is no answer

    def send(**message: object) -> None:
        stream.write(json.dumps(message) + "\n")
        stream.flush()

    module, _, name = sys.argv[1].partition(":")
    arguments = json.load(sys.stdin)
    try:
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
