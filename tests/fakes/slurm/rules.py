"""How Slurm runs a task: environment, logs, signals, and how it ends. "Seen": Slurm 22.05.8."""

from __future__ import annotations

import contextlib
import re
import signal
from pathlib import Path

from tests.fakes.common.life import again, end, once, tell
from tests.fakes.common.model import ENDED, PENDING, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import iso
from tests.fakes.slurm.environment import environment, memory
from tests.fakes.slurm.sbatch import limit_min
from tests.fakes.slurm.site import CPUS, MAX_TIME_MIN, NODES, PARTITIONS

__all__ = [
    "ACCOUNTING",
    "ahead",
    "cancel",
    "ended",
    "environment",
    "log_path",
    "logs",
    "look",
    "memory",
    "not_begun",
    "not_started",
    "overtaken",
    "place",
    "stop",
]

ACCOUNTING = "sacct"
WHY = {
    "timeout": "DUE TO TIME LIMIT ",
    "preempted": "DUE TO PREEMPTION ",
    "node_fail": "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ",
}
"""What stands in the log of a task that was ended, behind ``CANCELLED AT ...`` (seen)."""
WORDS = {"timeout": "TIMEOUT", "preempted": "PREEMPTED", "node_fail": "NODE_FAIL"}
FAR_OFF_S = 60.0
"""--signal without a time: sbatch(1)."""


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


def overtaken(store: Store, job: Job, task: Task) -> bool:
    """Tell that nothing keeps a task from starting."""
    del store, job, task
    return False


def not_started(store: Store, job: Job, task: Task, error: OSError) -> None:
    """End a task whose folder or log is not there: FAILED, 0:53, and not a word (seen)."""
    del job, error
    run = task.runs[-1]
    run.end, run.word, run.signal = store.clock(), "FAILED", 53
    run.step_word, run.step_signal = "CANCELLED", 53
    task.state, task.word = ENDED, "FAILED"


def look(store: Store, job: Job, task: Task) -> None:
    """Send the warning of ``--signal``, then what ends a task whose time is over."""
    now, began = store.clock(), task.runs[-1].start
    over = began + 60 * limit_min(job)
    warning = re.fullmatch(r"B:(?:SIG)?(\w+?)(?:@(\d+))?", job.options.get("signal", ""))
    if warning and not task.cause:  # without B: it goes to steps, of which there are none (seen)
        number = signal.Signals[f"SIG{warning[1]}"]
        once(
            task,
            "warning",
            over - float(warning[2] or FAR_OFF_S),
            now,
            lambda: tell(task, number, group=False),
        )
    if not task.cause:
        once(task, "limit", over, now, lambda: stop(store, job, task, "timeout"))
    if task.cause:
        wait_s = store.settings["kill_wait_s"]
        once(task, "kill", task.cause_at + wait_s, now, lambda: tell(task, signal.SIGKILL))


def stop(store: Store, job: Job, task: Task, cause: str) -> None:
    """Tell a live task to end: a line in its log, then CONT and TERM to all its processes."""
    end(store, task, cause)
    said = (
        f"slurmstepd-{task.node}: error: *** JOB {task.raw} ON {task.node} CANCELLED AT {iso(store.clock())} "
    )
    out, err, _ = logs(store, job, task)
    with contextlib.suppress(OSError), (err or out).open("a", encoding="utf-8") as log:
        log.write(f"{said}{WHY.get(cause, '')}***\n")
    tell(task, signal.SIGCONT)
    tell(task, signal.SIGTERM)


def cancel(store: Store, job: Job, task: Task, uid: int) -> None:
    """Cancel a task, whatever it is doing; alone before it began, it vanishes from the list (seen)."""
    if task.live and not task.cause:
        stop(store, job, task, f"cancelled by {uid}")
    elif task.state == PENDING:
        task.state, task.word, task.cause_at = ENDED, f"CANCELLED by {uid}", store.clock()
        store.changed(task, ACCOUNTING)


def ended(store: Store, job: Job, task: Task, status: int) -> None:
    """Note how a script ended; what is left of its process group is killed, as slurmstepd does."""
    run = task.runs[-1]
    code, number = max(status, 0), max(-status, 0)
    run.end, run.step_status, run.step_signal = store.clock(), code, number
    run.step_word = "CANCELLED" if number else "FAILED" if code else "COMPLETED"
    run.rss_kib = run.rss_kib or 4676
    if not task.cause:
        run.word, run.status, run.signal = "FAILED" if status else "COMPLETED", code, number
    elif task.cause == "out_of_memory":
        run.step_word, run.step_status, run.step_signal = "OUT_OF_MEMORY", 0, 125
        run.word, run.signal = "OUT_OF_MEMORY", 125
    else:
        run.word, run.end = WORDS.get(task.cause, task.cause.replace("cancelled", "CANCELLED")), task.cause_at
    if _runs_again(job, task):
        again(store, task, store.settings["requeue_delay_s"])
    else:
        task.state, task.word = ENDED, run.word.partition(" ")[0]
        task.reason = "NodeDown" if task.cause == "node_fail" else task.reason


def _runs_again(job: Job, task: Task) -> bool:
    return task.cause in {"preempted", "node_fail"} and "no-requeue" not in job.options
