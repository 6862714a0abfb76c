"""sacctmgr: show user, as jobkit asks for it."""

from __future__ import annotations

import os
import pwd

from tests.fakes.common.entry import Answer
from tests.fakes.common.store import Store
from tests.fakes.slurm.site import ACCOUNTS


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sacctmgr: a row for each account."""
    del store
    names = arguments[-1].removeprefix("format=").split(",")
    known = {"User": pwd.getpwuid(os.getuid()).pw_name, "DefaultAccount": ACCOUNTS[0]}
    rows = [{**known, "Account": name} for name in ACCOUNTS]
    return Answer("".join("|".join(row[name] for name in names) + "\n" for row in rows))
