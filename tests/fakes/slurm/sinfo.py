"""sinfo: the partitions, in any format of sinfo(1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.store import Store
from tests.fakes.common.text import clock_words
from tests.fakes.slurm.options import parse_anywhere, table
from tests.fakes.slurm.rows import clusters
from tests.fakes.slurm.site import CPUS, GPU_TYPE, GPUS, MAX_TIME_MIN, MEMORY_MB, NODES, PARTITIONS

SHORT = table(
    "h:noheader o:format a:all N:Node p:partition M:clusters V:version t:states n:nodes e:exact l:long"
)
FLAGS = ("noheader", "all", "Node", "version", "exact", "long")
VALUES = ("format", "partition", "clusters", "cluster", "states", "nodes")
DEFAULT, BY_NODE = "%9P %.5a %.10l %.6D %.6t %N", "%8N %.6D %.9P %6t"

FIELDS: Mapping[str, tuple[str, Callable[[str, tuple[str, ...]], object]]] = {
    "a": ("AVAIL", lambda _, __: "up"),
    "c": ("CPUS", lambda _, __: CPUS),
    "D": ("NODES", lambda _, nodes: len(nodes)),
    "F": ("NODES(A/I/O/T)", lambda _, nodes: f"0/{len(nodes)}/0/{len(nodes)}"),
    "C": ("CPUS(A/I/O/T)", lambda _, nodes: f"0/{CPUS * len(nodes)}/0/{CPUS * len(nodes)}"),
    "f": ("AVAIL_FEATURES", lambda _, __: "(null)"),
    "G": ("GRES", lambda _, __: f"gpu:{GPU_TYPE}:{GPUS}"),
    "L": ("DEFAULTTIME", lambda _, __: "n/a"),
    "l": ("TIMELIMIT", lambda _, __: clock_words(60 * MAX_TIME_MIN)),
    "m": ("MEMORY", lambda _, __: MEMORY_MB),
    "N": ("NODELIST", lambda _, nodes: nodes[0] if len(nodes) == 1 else "n[1-2]"),
    "P": ("PARTITION", lambda name, _: f"{name}*" if name == PARTITIONS[0] else name),
    "R": ("PARTITION", lambda name, _: name),
    "T": ("STATE", lambda _, __: "idle"),
    "t": ("STATE", lambda _, __: "idle"),
}


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sinfo; its nodes are always idle, whatever runs."""
    asked = parse_anywhere("sinfo", arguments, VALUES, FLAGS, SHORT)
    if "version" in asked:
        return Answer("slurm-wlm 22.05.8\n")
    clusters(store, "sinfo", asked.get("clusters", asked.get("cluster", "")))
    layout = asked.get("format", BY_NODE if "Node" in asked else DEFAULT)
    unknown = [letter for letter in re.findall(r"%\.?\d*(.)", layout) if letter not in FIELDS]
    if unknown:
        raise Refused(f"sinfo: error: Invalid node format specification: {unknown[0]}\n")
    names = [name for name in PARTITIONS if name in asked.get("partition", name).split(",")]
    rows = (
        [(name, (node,)) for node in NODES for name in names]
        if "Node" in asked
        else [(name, NODES) for name in names]
    )
    out = "" if "noheader" in asked else _line(layout, lambda letter: FIELDS[letter][0])
    for name, nodes in rows:
        out += _line(layout, lambda letter, name=name, nodes=nodes: FIELDS[letter][1](name, nodes))  # type: ignore[misc]
    return Answer(out)


def _line(layout: str, read: Callable[[str], object]) -> str:
    def field(found: re.Match[str]) -> str:
        text, width = str(read(found[3])), int(found[2] or 0)
        padded = text.rjust(width) if found[1] else text.ljust(width)
        return padded[:width] if width else text

    return re.sub(r"%(\.?)(\d*)(.)", field, layout) + "\n"
