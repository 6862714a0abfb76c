"""The practice cluster, and how Grid Engine runs a task: environment, logs, its end. "Seen": 8.1.9."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
from fnmatch import fnmatchcase
from pathlib import Path

from tests.fakes.common.life import again, end, environment_of, in_error, tell
from tests.fakes.common.model import ENDED, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import iso

HOST = "localhost"
QUEUES = ("gpu.q", "serial.q")
SLOTS = 8
"""Of each queue."""
PORT = 6444
"""What Grid Engine's commands name if the qmaster does not answer."""
ACCOUNTING = "qacct"
FAILED = {
    0: "",
    19: "before writing exit_status",
    25: "rescheduling",
    26: "opening input/output file",
    28: "changing into working directory",
    30: "application error returned",
    100: "assumedly after job",
}
"""sge_status(5)."""
_AGAIN, _ERROR = 99, 100
"""Exit statuses that are orders: qsub(1)."""


def ahead(store: Store, job: Job) -> str:
    """Return why no task may start: a job that ``-hold_jid`` names, by id or by name, has not ended."""
    for word in filter(None, job.options.get("hold_jid", "").split(",")):
        before = [one for one in store.state.jobs if one is not job and named(one, word)]
        if any(not task.over for one in before for task in one.tasks):
            return "Dependency"
    return ""


def named(job: Job, word: str) -> bool:
    """Tell whether a word is the id or a pattern of the name of a job."""
    return str(job.id) == word if word.isdecimal() else fnmatchcase(job.name, word)


def place(store: Store, job: Job, task: Task) -> None:
    """Give a task a queue, the first with a free slot."""
    used = [other.queue for job in store.state.jobs for other in job.tasks if other.live]
    queues = allowed(job.options)
    task.queue = next((queue for queue in queues if used.count(queue) < SLOTS), queues[0])
    task.node = HOST


def _into_error(store: Store, task: Task, words: str) -> None:
    at = iso(store.clock()).replace("T", " ")
    in_error(task, f"{at[5:7]}/{at[8:10]}/{at[:4]} {at[11:]} [0:{os.getpid()}]: {words}")


def stop(store: Store, job: Job, task: Task, cause: str) -> None:
    """End a live task at once (seen)."""
    del job
    end(store, task, cause)
    tell(task, signal.SIGKILL)


def ended(store: Store, job: Job, task: Task, status: int) -> None:
    """Note how a script ended, and what that means: sge_status(5)."""
    run = task.runs[-1]
    run.end, run.rss_kib = store.clock(), run.rss_kib or 4398
    run.status, run.signal = (status if status >= 0 else 128 - status), max(-status, 0)
    run.word = str(_failed(task, status))
    shutil.rmtree(temporary_folder(store, job, task), ignore_errors=True)
    if run.word == "25" or (task.cause == "node_fail" and job.options.get("r", "n").startswith("y")):
        again(store, task, store.settings["reschedule_delay_s"])
    elif run.word == "30":
        _into_error(store, task, f"exit_status of job start = {_ERROR}")
    else:
        task.state, task.word = ENDED, run.word


def _failed(task: Task, status: int) -> int:
    if task.cause == "node_fail":
        return 19
    if not task.cause and status in {_AGAIN, _ERROR}:
        return 25 if status == _AGAIN else 30
    return 100 if status < 0 else 0


def _queues(word: str) -> list[str]:
    return [name for name in QUEUES if fnmatchcase(name, word.partition("@")[0] or "*")]


def allowed(options: dict[str, str]) -> list[str]:
    """Return the queues that a job may run in."""
    words = options.get("q", "*").split(",")
    return [name for name in QUEUES if any(name in _queues(word) for word in words)]


def temporary_folder(store: Store, job: Job, task: Task) -> Path:
    """Return the folder of a task's own that TMPDIR names: queue_conf(5), tmpdir."""
    return store.folder / "tmp" / f"{job.id}.{task.number}.{task.queue}"


def logs(store: Store, job: Job, task: Task) -> tuple[Path, Path | None, str]:
    """Return where the output goes: qsub(1), -o; logs are appended to, whatever ran before (seen)."""
    del store
    out = _log(job, task, "o")
    return out, None if job.options.get("j", "n").startswith("y") else _log(job, task, "e"), "ab"


def _log(job: Job, task: Task, kind: str) -> Path:
    values = {"JOB_ID": str(job.id), "TASK_ID": str(task.number), "JOB_NAME": job.name, "USER": job.user}
    values |= {"HOME": str(Path.home()), "HOSTNAME": HOST}
    text = job.options.get(kind, "").rpartition(":")[2]
    path = Path(job.directory) / re.sub(r"\$(\w+)", lambda found: values.get(found[1], found[0]), text)
    return path / f"{job.name}.{kind}{job.id}.{task.number}" if path.is_dir() else path


def environment(store: Store, job: Job, task: Task) -> dict[str, str]:
    """Return what a script finds in its environment: of what qsub(1) lists, what jobkit reads.

    Nothing of the submitter's but with ``-v`` and ``-V``. (root finds no TMPDIR, only TMP: seen.)
    """
    own = environment_of(job)
    pairs = (word.partition("=") for word in job.options.get("v", "").split(",") if word)
    passed = {name: value if equals else own.get(name, "") for name, equals, value in pairs}
    temporary = temporary_folder(store, job, task)
    temporary.mkdir(parents=True, exist_ok=True)
    system = os.environ.get("NODE_PATH", "/usr/local/bin:/bin:/usr/bin")
    return {
        **(own if "V" in job.options else {}),
        **passed,
        "HOME": pwd.getpwnam(job.user).pw_dir,
        "HOSTNAME": HOST,
        "JOB_ID": str(job.id),
        "JOB_NAME": job.name,
        "LOGNAME": job.user,
        "NSLOTS": job.options.get("pe", "- 1").split()[1],
        "PATH": f"{temporary}:{store.folder / 'bin'}:{system}",
        "QUEUE": task.queue,
        "RESTARTED": "1" if task.restarts else "0",
        "SGE_TASK_ID": str(task.number),
        "SHELL": job.options.get("S", "/bin/bash"),
        "TMP": str(temporary),
        "TMPDIR": str(temporary),
        "USER": job.user,
    }
