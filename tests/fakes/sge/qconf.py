"""qconf: shows what the real one showed, from tests/data/sge; it changes nothing."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.store import Store
from tests.fakes.common.text import captured
from tests.fakes.sge.site import PES, QUEUES

_PE = """\
pe_name            {}
slots              999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    $pe_slots
control_slaves     TRUE
job_is_first_task  TRUE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
"""


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qconf."""
    del store
    verb, name = arguments[0], (arguments[1] if len(arguments) > 1 else "")
    if verb == "-sconf":
        return Answer(_lines(captured("sge", "config")))
    if verb == "-sc":
        return Answer(captured("sge", "complexes"))
    if verb == "-sq":
        return Answer(_lines(_queues(name)))
    if verb == "-sp" and name in PES:
        return Answer(_PE.format(name))
    raise Refused(f'error: invalid option argument "{verb}"\n')


def _queues(name: str) -> str:
    blocks = captured("sge", "queues").split("\n\n")
    named = {block.split()[1]: block for block in blocks if block.split()[1:2]}
    found = [named[queue] for queue in QUEUES if any(fnmatchcase(queue, word) for word in name.split(","))]
    return "\n\n".join(block.rstrip("\n") for block in found) + "\n"


def _lines(text: str) -> str:
    """Join what is continued on a next line, where the caller asks for that: qconf(1)."""
    return re.sub(r"\\\n\s*", "", text) if "SGE_SINGLE_LINE" in os.environ else text
