"""sacctmgr: show associations, QOS, clusters and users."""

from __future__ import annotations

import os
import pwd

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.store import Store
from tests.fakes.slurm.options import parse_anywhere
from tests.fakes.slurm.site import ACCOUNTS, QOS

SHORT = {"n": "noheader", "P": "parsable2", "V": "version"}


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sacctmgr."""
    asked = parse_anywhere("sacctmgr", arguments, (), SHORT.values(), SHORT)
    if "version" in asked:
        return Answer("slurm-wlm 22.05.8\n")
    verb, what, *words = [*asked.rest, "", ""][: max(2, len(asked.rest))]
    if verb not in {"show", "list"}:
        raise Refused(f" Invalid keyword: {verb}\n")
    values = {key: value for key, _, value in (word.partition("=") for word in words)}
    rows = _rows(store, what.lower(), values)
    names = values.get("format", ",".join(rows[0]) if rows else "").split(",")
    lines = [[row.get(name.lower(), "") for name in names] for row in rows]
    if "noheader" not in asked:
        lines.insert(0, names)
    return Answer("".join("|".join(line) + "\n" for line in lines))


def _rows(store: Store, what: str, values: dict[str, str]) -> list[dict[str, str]]:
    me = pwd.getpwuid(os.getuid()).pw_name
    if what.startswith("assoc"):
        mine = values.get("user", me) in {me, "root"}
        row = {"cluster": store.settings["cluster"], "user": me, "qos": ",".join(QOS)}
        return [{**row, "account": name} for name in ACCOUNTS if mine]
    if what == "qos":
        return [{"name": name} for name in QOS]
    if what.startswith("cluster"):
        return [{"cluster": store.settings["cluster"], "controlhost": "127.0.0.1", "controlport": "6817"}]
    accounts = [{"account": name} for name in ACCOUNTS]
    return [
        {"user": me, "defaultaccount": ACCOUNTS[0], "adminlevel": "None", **account} for account in accounts
    ]
