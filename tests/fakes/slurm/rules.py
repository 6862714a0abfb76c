"""The practice cluster, and how Slurm runs a task: environment, logs, signals, its end. "Seen": 22.05.8."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
from pathlib import Path

from tests.fakes.slurm.life import again, end, environment_of, tell
from tests.fakes.slurm.model import ENDED, PENDING, Job, Task
from tests.fakes.slurm.store import Store
from tests.fakes.slurm.text import duration_s, iso, size_bytes

PARTITIONS = ("cpu", "gpu", "low", "high")
"""The first is the default one."""
NODES = ("n1", "n2")
CPUS, MEMORY_MB, GPUS, GPU_TYPE = 8, 8000, 2, "v100"
"""Of each node."""
MAX_TIME_MIN = 60
"""Of each partition."""
ACCOUNTS = ("root",)


def logs(store: Store, job: Job, task: Task) -> tuple[Path, Path | None, str]:
    """Return where the output goes: sbatch(1), FILENAME PATTERN."""
    del store
    how = "ab" if job.options.get("open-mode") == "append" else "wb"
    out = log_path(job, task, job.options.get("output", "slurm-%A_%a.out"))
    err = job.options.get("error")
    return out, log_path(job, task, err) if err else None, how


def log_path(job: Job, task: Task, pattern: str) -> Path:
    """Return the file that a pattern names for a task."""
    values = {"A": job.id, "a": task.number, "j": task.raw or job.id, "x": job.name, "u": job.user, "%": "%"}
    values |= {"N": task.node, "n": 0, "t": 0, "s": "batch"}

    def value(found: re.Match[str]) -> str:
        return str(values.get(found[2], found[0])).zfill(int(found[1] or 0))

    return Path(job.directory) / re.sub(r"%(\d*)([A-Za-z%])", value, pattern)


def ahead(store: Store, job: Job) -> str:
    """Return why no task of a job may start: what it waits for, or what it can never have."""
    if limit_min(job) > MAX_TIME_MIN:
        return "PartitionTimeLimit"
    before = (store.state.job(int(number)) for number in job.options.get("dependency", "").split(":")[1:])
    return "" if all(task.over for job in before if job for task in job.tasks) else "Dependency"


def place(store: Store, job: Job, task: Task) -> None:
    """Give a task its node, the first one with room, and its own job id: the last one has the array's."""
    used = [other.node for job in store.state.jobs for other in job.tasks if other.live]
    task.node = next((node for node in NODES if used.count(node) < CPUS), NODES[0])
    task.queue = job.options.get("partition", PARTITIONS[0]).partition(",")[0]
    if not task.raw:
        left = not_begun(job, task)
        task.raw = store.state.next_id if left else job.id
        store.state.next_id += bool(left)


def not_begun(job: Job, but: Task | None = None) -> list[Task]:
    """Return the tasks that the array's own record still stands for."""
    return [task for task in job.tasks if task.state == PENDING and not task.single and task is not but]


def stop(store: Store, job: Job, task: Task, cause: str) -> None:
    """Tell a live task to end: a line in its log, then CONT and TERM to all its processes."""
    end(store, task, cause)
    said = (
        f"slurmstepd-{task.node}: error: *** JOB {task.raw} ON {task.node} CANCELLED AT {iso(store.clock())} "
    )
    out, err, _ = logs(store, job, task)
    with contextlib.suppress(OSError), (err or out).open("a", encoding="utf-8") as log:
        log.write(f"{said}***\n")
    tell(task, signal.SIGCONT)
    tell(task, signal.SIGTERM)


def cancel(store: Store, job: Job, task: Task, uid: int) -> None:
    """Cancel a task, whatever it is doing; alone before it began, it vanishes from the list (seen)."""
    if task.live and not task.cause:
        stop(store, job, task, f"cancelled by {uid}")
    elif task.state == PENDING:
        task.state, task.word, task.cause_at = ENDED, f"CANCELLED by {uid}", store.clock()
        store.changed(task)


def ended(store: Store, job: Job, task: Task, status: int) -> None:
    """Note how a script ended; what is left of its process group is killed, as slurmstepd does."""
    run = task.runs[-1]
    code, number = max(status, 0), max(-status, 0)
    run.end, run.step_status, run.step_signal = store.clock(), code, number
    run.step_word = "CANCELLED" if number else "FAILED" if code else "COMPLETED"
    run.rss_kib = run.rss_kib or 4676
    if not task.cause:
        run.word, run.status, run.signal = "FAILED" if status else "COMPLETED", code, number
    else:
        run.word = "NODE_FAIL" if task.cause == "node_fail" else task.cause.replace("cancelled", "CANCELLED")
        run.end = task.cause_at
    if task.cause == "node_fail" and "no-requeue" not in job.options:
        again(store, task, store.settings["requeue_delay_s"])
    else:
        task.state, task.word = ENDED, run.word.partition(" ")[0]
        task.reason = "NodeDown" if task.cause == "node_fail" else task.reason


def minutes(text: str) -> int:
    """Return a time limit in whole minutes, for Slurm knows no parts; 0 for none: sbatch(1), --time."""
    if text in {"", "0", "UNLIMITED", "INFINITE"}:
        return 0
    return math.ceil(duration_s(text if ":" in text else f"{text}:00") / 60)


def limit_min(job: Job) -> int:
    """Return the time limit of a job in minutes."""
    return minutes(job.options.get("time", "")) or MAX_TIME_MIN


def environment(store: Store, job: Job, task: Task) -> dict[str, str]:
    """Return what a script finds in its environment: of what sbatch(1) lists, what jobkit reads."""
    del store
    asked = job.options
    passed = environment_of(job) if asked.get("export", "ALL").startswith("ALL") else {"PATH": os.defpath}
    values = {
        "HOSTNAME": task.node,
        "SLURM_ARRAY_JOB_ID": str(job.id),
        "SLURM_ARRAY_TASK_ID": str(task.number),
        "SLURM_CPUS_PER_TASK": asked.get("cpus-per-task", "1"),
        "SLURM_JOB_ID": str(task.raw),
        "SLURM_JOB_NODELIST": task.node,
        "SLURM_JOB_PARTITION": task.queue,
    }
    if found := re.search(r"gpu(?::[a-z]\w*)?:(\d+)", asked.get("gres", "")):
        values["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(min(int(found[1]), GPUS))))
    if task.restarts:
        values["SLURM_RESTART_COUNT"] = str(task.restarts)
    return {"TMPDIR": "/tmp"} | passed | values  # noqa: S108 - as slurmd


def memory(job: Job) -> str:
    """Return the memory asked for, as sacct and squeue print it."""
    asked = size_bytes(job.options.get("mem", "200")) // 2**20
    return f"{asked // 1024}G" if asked % 1024 == 0 else f"{asked}M"
