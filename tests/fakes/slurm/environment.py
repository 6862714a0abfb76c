"""The environment of a script under Slurm."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.fakes.common.life import environment_of
from tests.fakes.common.model import Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import size_bytes
from tests.fakes.slurm.site import GPUS


def environment(store: Store, job: Job, task: Task) -> dict[str, str]:
    """Return what a script finds in its environment: the submitter's, and what sbatch(1) lists."""
    asked = job.options
    cpus, gpus = asked.get("cpus-per-task", "1"), _gpus(job)
    passed = environment_of(job) if asked.get("export", "ALL").startswith("ALL") else {"PATH": os.defpath}
    values = {
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": task.node,
        "SLURMD_NODENAME": task.node,
        "SLURM_CLUSTER_NAME": job.cluster or store.settings["cluster"],
        "SLURM_CPUS_ON_NODE": cpus,
        "SLURM_CPUS_PER_TASK": cpus,
        "SLURM_JOBID": str(task.raw),
        "SLURM_JOB_ACCOUNT": asked.get("account", "root"),
        "SLURM_JOB_CPUS_PER_NODE": cpus,
        "SLURM_JOB_ID": str(task.raw),
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_NODELIST": task.node,
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_PARTITION": task.queue,
        "SLURM_JOB_QOS": asked.get("qos", "normal"),
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_USER": job.user,
        "SLURM_MEM_PER_NODE": str(_memory_mb(job)),
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": task.node,
        "SLURM_PROCID": "0",
        "SLURM_SUBMIT_DIR": str(Path(job.directory)),
        "SLURM_SUBMIT_HOST": os.uname().nodename,
        "SLURM_TASKS_PER_NODE": "1",
    }
    restarted = {"SLURM_RESTART_COUNT": str(task.restarts)} if task.restarts else {}
    return {"TMPDIR": "/tmp"} | passed | values | _array(job, task) | gpus | restarted  # noqa: S108 - as slurmd


def _array(job: Job, task: Task) -> dict[str, str]:
    found = [task.number for task in job.tasks]
    step = re.search(r":(\d+)", job.array)
    return {
        "SLURM_ARRAY_JOB_ID": str(job.id),
        "SLURM_ARRAY_TASK_COUNT": str(len(found)),
        "SLURM_ARRAY_TASK_ID": str(task.number),
        "SLURM_ARRAY_TASK_MAX": str(max(found)),
        "SLURM_ARRAY_TASK_MIN": str(min(found)),
        "SLURM_ARRAY_TASK_STEP": step[1] if step else "1",
    }


def _gpus(job: Job) -> dict[str, str]:
    found = re.search(r"gpu(?::[a-z]\w*)?:(\d+)", job.options.get("gres", ""))
    count = int(found[1]) if found else int(job.options.get("gpus-per-node", "0"))
    listed = ",".join(str(card) for card in range(min(count, GPUS)))
    names = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "SLURM_JOB_GPUS")
    return {**dict.fromkeys(names, listed), "SLURM_GPUS_ON_NODE": str(count)} if count else {}


def _memory_mb(job: Job) -> int:
    return size_bytes(job.options.get("mem", "200")) // 2**20


def memory(job: Job) -> str:
    """Return the memory asked for, as sacct and squeue print it."""
    asked = _memory_mb(job)
    return f"{asked // 1024}G" if asked % 1024 == 0 else f"{asked}M"
