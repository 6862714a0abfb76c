"""sbatch: takes a script as a job, or says why not."""

from __future__ import annotations

import math
import os
import pwd
import re
from pathlib import Path

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.life import spool
from tests.fakes.common.model import Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import duration_s, iso, numbers, size_bytes
from tests.fakes.slurm.options import Options, header, sbatch_words
from tests.fakes.slurm.site import CPUS, GPU_TYPE, GPUS, MAX_TIME_MIN, MEMORY_MB, NODES, PARTITIONS

NO_MEMORY = "sbatch: error: Memory specification can not be satisfied\n"


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sbatch."""
    asked = sbatch_words(arguments)
    path = Path(asked.rest[0])
    script = path.read_text(encoding="utf-8", errors="surrogateescape")
    options = Options(header(script) | asked)
    options.setdefault("job-name", path.name)
    _refuse(options)
    number = store.state.next_id
    if "test-only" in options:
        store.state.next_id += 1
        at, where = iso(store.clock()), options.get("partition", PARTITIONS[0]).partition(",")[0]
        return Answer(
            "", f"sbatch: Job {number} to start at {at} using 1 processors on nodes n1 in partition {where}\n"
        )
    cluster = str(store.fault("other_cluster") or "")
    _take(store, options, script, asked.rest[1:], cluster)
    return Answer(f"{number};{cluster}\n" if cluster else f"{number}\n")


def minutes(text: str) -> int:
    """Return a time limit in whole minutes, for Slurm knows no parts; 0 for none: sbatch(1), --time."""
    if text in {"", "0", "UNLIMITED", "INFINITE"}:
        return 0
    return math.ceil(duration_s(text if ":" in text else f"{text}:00") / 60)


def _refuse(options: Options) -> None:
    """Refuse what the cluster cannot do, in the words of 22.05.8."""
    bad = [name for name in options.get("partition", PARTITIONS[0]).split(",") if name not in PARTITIONS]
    if bad:
        said = f"sbatch: error: invalid partition specified: {bad[0]}\n"
        raise Refused(said + _fails(options, "Invalid partition name specified"))
    gpus = re.fullmatch(r"(?:gres/)?gpu(?::([a-z]\w*))?(?::(\d+))?", options.get("gres", "gpu:0"))
    assert gpus
    if _too_much(options, gpus):
        memory = "" if "test-only" in options or _memory_mb(options) <= MEMORY_MB else NO_MEMORY
        raise Refused(memory + _fails(options, "Requested node configuration is not available"))
    if "constraint" in options:
        raise Refused(_fails(options, "Invalid feature specification"))


def _fails(options: Options, words: str) -> str:
    if "test-only" in options:
        return f"allocation failure: {words}\n"
    return f"sbatch: error: Batch job submission failed: {words}\n"


def _too_much(options: Options, gpus: re.Match[str]) -> bool:
    kind, count = gpus[1], int(gpus[2] or 1)
    return any(
        (
            count > GPUS or kind not in {None, GPU_TYPE},
            int(options.get("cpus-per-task", 1)) > CPUS,
            _memory_mb(options) > MEMORY_MB,
            int(options.get("nodes", "1").partition("-")[0]) > len(NODES),
        )
    )


def _memory_mb(options: Options) -> float:
    return size_bytes(options.get("mem", "0")) / 2**20


def _take(store: Store, options: Options, script: str, arguments: list[str], cluster: str) -> None:
    state, now = store.state, store.clock()
    throttle = options["array"].partition("%")[2]
    job = Job(
        id=state.next_id,
        name=options["job-name"],
        user=pwd.getpwuid(os.getuid()).pw_name,
        script=spool(store, "slurm_script", script),
        directory=str(Path.cwd() / options.get("chdir", ".")),
        submitted=now,
        throttle=int(throttle or 0),
        array=options["array"],
        cluster=cluster,
        arguments=arguments,
        options=dict(options),
        tasks=[Task(number=number) for number in numbers(options["array"].partition("%")[0])],
    )
    for task in job.tasks:
        store.changed(task, "sacct")
    state.next_id += 1
    state.jobs.append(job)


def limit_min(job: Job) -> int:
    """Return the time limit of a job in minutes."""
    return minutes(job.options.get("time", "")) or MAX_TIME_MIN
