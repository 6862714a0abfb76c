"""Where a task of Grid Engine writes: its logs, and its temporary folder."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fakes.common.model import Job, Task
from tests.fakes.common.store import Store
from tests.fakes.sge.site import HOST


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
