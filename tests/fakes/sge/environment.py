"""The environment of a script under Grid Engine."""

from __future__ import annotations

import os
import pwd
import re

from tests.fakes.common.life import environment_of
from tests.fakes.common.model import Job, Task
from tests.fakes.common.store import Store
from tests.fakes.sge.paths import logs, temporary_folder
from tests.fakes.sge.site import HOST


def environment(store: Store, job: Job, task: Task) -> dict[str, str]:
    """Return what a script finds in its environment: qsub(1), ENVIRONMENTAL VARIABLES.

    Nothing of the submitter's but with ``-v`` and ``-V``. (root finds no TMPDIR, only TMP: seen.)
    """
    own = environment_of(job)
    return {**_passed(job, own), **_of_the_job(job, own), **_of_the_task(store, job, task)}


def _passed(job: Job, own: dict[str, str]) -> dict[str, str]:
    words = [word for word in job.options.get("v", "").split(",") if word]
    named = {
        name: value if equals else own.get(name, "")
        for name, equals, value in (w.partition("=") for w in words)
    }
    return {**(own if "V" in job.options else {}), **named}


def _of_the_job(job: Job, own: dict[str, str]) -> dict[str, str]:
    first, last, step = _range(job)
    return {
        "ARC": "lx-amd64",
        "HOME": pwd.getpwnam(job.user).pw_dir,
        "HOSTNAME": HOST,
        "JOB_ID": str(job.id),
        "JOB_NAME": job.name,
        "JOB_SCRIPT": job.script,
        "LOGNAME": job.user,
        "NHOSTS": "1",
        "NQUEUES": "1",
        "NSLOTS": job.options.get("pe", "- 1").split()[1],
        "REQNAME": job.name,
        "REQUEST": job.name,
        "SGE_ACCOUNT": "sge",
        "SGE_CWD_PATH": job.directory,
        "SGE_O_HOME": own.get("HOME", ""),
        "SGE_O_HOST": HOST,
        "SGE_O_PATH": own.get("PATH", ""),
        "SGE_O_WORKDIR": job.directory,
        "SGE_TASK_FIRST": first,
        "SGE_TASK_LAST": last,
        "SGE_TASK_STEPSIZE": step,
        "SHELL": job.options.get("S", "/bin/bash"),
        "USER": job.user,
    }


def _of_the_task(store: Store, job: Job, task: Task) -> dict[str, str]:
    temporary = temporary_folder(store, job, task)
    temporary.mkdir(parents=True, exist_ok=True)
    out, err, _ = logs(store, job, task)
    system = os.environ.get("NODE_PATH", "/usr/local/bin:/bin:/usr/bin")
    return {
        "PATH": f"{temporary}:{store.folder / 'bin'}:{system}",
        "QUEUE": task.queue,
        "RESTARTED": "1" if task.restarts else "0",
        "SGE_STDERR_PATH": str(err or out),
        "SGE_STDIN_PATH": "/dev/null",
        "SGE_STDOUT_PATH": str(out),
        "SGE_TASK_ID": str(task.number),
        "TMP": str(temporary),
        "TMPDIR": str(temporary),
    }


def _range(job: Job) -> tuple[str, str, str]:
    step = re.search(r":(\d+)", job.array)
    return str(job.tasks[0].number), str(job.tasks[-1].number), step[1] if step else "1"
