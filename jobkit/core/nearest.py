"""Words for messages. Standard library only."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

SCHEDULER_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("partition", "p", "q"), "resources.queue"),
    **dict.fromkeys(
        ("time", "t", "h_rt", "s_rt", "timelimit", "time_limit", "runtime"), "resources.walltime"
    ),
    **dict.fromkeys(("mem", "mem_per_node", "mem_per_cpu", "ram"), "resources.memory"),
    **dict.fromkeys(("h_vmem", "s_vmem", "vmem", "mem_free", "virtual_free", "h_rss"), "resources.memory"),
    **dict.fromkeys(("cpu", "cpus_per_task", "c", "ntasks", "n", "ntasks_per_node"), "resources.cpus"),
    **dict.fromkeys(("pe", "slots", "smp", "ncpus", "cores", "threads"), "resources.cpus"),
    **dict.fromkeys(("gpu", "gres", "ngpus", "gpus_per_node", "gpus_per_task", "G"), "resources.gpus"),
    **dict.fromkeys(("project", "A", "P"), "resources.account"),
    **dict.fromkeys(("email", "mail_user", "mail_type", "M", "m"), "resources.mail"),
    **dict.fromkeys(("feature", "features", "C"), "resources.constraint"),
    **dict.fromkeys(("exclude_nodes", "x"), "resources.exclude"),
    **dict.fromkeys(("ar",), "resources.reservation"),
    **dict.fromkeys(("whole_node", "excl", "oversubscribe"), "resources.exclusive"),
    **dict.fromkeys(("job_name", "jobname", "J", "N"), "name"),
    **dict.fromkeys(("tc", "throttle", "parallel", "concurrency"), "max_parallel"),
    **dict.fromkeys(("array", "a"), "sweep"),
    **dict.fromkeys(("module", "export", "v", "V", "env"), "environment"),
    **dict.fromkeys(("nodes", "nnodes"), "a point runs on one node"),
    **dict.fromkeys(("nodelist", "w"), "a header line of your own goes into resources.options"),
    **dict.fromkeys(
        ("output", "error", "o", "e", "log", "logs"),
        "logs lie in the run folder: see jobkit sweep --runs-dir",
    ),
}
"""What sbatch, qsub and people call it, and the key that it is here; or what to do instead."""


def advice(word: str, words: Sequence[str]) -> str:
    """Return ``did you mean 'x'?`` for the closest word, empty if none is close."""
    close = difflib.get_close_matches(word, words, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else ""


def nearest(word: str, words: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest word, else the list to choose from."""
    return f"; {advice(word, words) or 'one of: ' + ', '.join(words)}"


def meant(names: Sequence[int | str], words: Mapping[str, str], keys: Sequence[str] = ()) -> str:
    """Return ``; did you mean 'resources.queue'?`` for another program's word, empty where it is none.

    Parameters
    ----------
    names
        The key as it was written, with the keys that it stands under: ``resources``, ``--partition``.
    words
        Word to the key that is meant, dotted, or to a sentence.
    keys
        Those of the part that the word stands in: such a key is named by its last part.
    """
    word = str(names[-1]).lstrip("-").replace("-", "_")
    found = words.get(word) or words.get(word.lower(), "")
    if not found or " " in found:
        return f"; {found}" if found else ""
    under, _, key = found.rpartition(".")
    if key in keys:
        return f"; did you mean {key!r}?"
    return f"; did you mean {found!r}{'' if under else ', at the top'}?"
