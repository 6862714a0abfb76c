"""Why a task waits on Slurm, and what a person can do about it.

The words are those of squeue(1), JOB REASON CODES: https://slurm.schedmd.com/job_reason_codes.html
"""

from __future__ import annotations

from collections.abc import Mapping

from jobkit.schedulers.parsing import task_ranges
from jobkit.schedulers.types import JobId, Queued, Remedy, State

# The first key that a reason begins with counts: hundreds of limits share the beginning of their names.
_WORDS: Mapping[str, str] = {
    "Resources": "what it needs is in use",
    "Priority": "other jobs are ahead of it",
    "JobArrayTaskLimit": "the limit of tasks at a time is reached",
    "DependencyNeverSatisfied": "its dependency can never be satisfied",
    "Dependency": "waits for another job to end",
    "BeginTime": "not before a set time, as after a requeue",
    "JobHeldUser": "held by its owner",
    "JobHeldAdmin": "held by an administrator: ask them",
    "launch failed requeued held": "its launch failed, so Slurm holds it",
    "JobLaunchFailure": "its launch failed",
    "BadConstraints": "no node has what it requests",
    "InvalidAccount": "the account is not known",
    "InvalidQOS": "the QOS is not known",
    "PartitionTimeLimit": "the walltime is longer than the partition allows",
    "PartitionNodeLimit": "the partition has fewer nodes, or some are down",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition starts no jobs now",
    "PartitionConfig": "the partition does not allow it",
    "ReqNodeNotAvail": "the nodes that it could run on are down, drained or reserved",
    "Nodes required for job are DOWN": "the nodes that it could run on are down, drained or reserved",
    "NodeDown": "the nodes that it could run on are down",
    "ReservationDeleted": "its reservation is gone",
    "Reservation": "waits for its reservation",
    "Licenses": "waits for a licence",
    "QOS": "a limit of the QOS is reached",
    "MaxCpuPerAccount": "a limit of the account is reached",
    "MaxMemPerLimit": "requests more memory than is allowed",
    "Assoc": "a limit of the account is reached",
    "MaxJobs": "the limit of running jobs is reached",
    "Cleaning": "its last run is being cleaned up",
    "Prolog": "its node is being made ready",
    "SystemFailure": "Slurm itself failed on it",
    "FedJobLock": "waits for the other clusters to answer",
}

_KEYS: Mapping[str, str] = {
    "BadConstraints": "resources.constraint",
    "InvalidAccount": "resources.account",
    "InvalidQOS": "resources.qos",
    "PartitionTimeLimit": "resources.walltime",
}
"""The key of the spec to change if Slurm would never start the task."""

_RELEASED = ("JobHeldUser", "launch failed requeued held")
"""The owner can release these (scontrol(1), release)."""


def explain(task: Queued) -> str:
    """Return why a task waits: Slurm's word and what it means; empty if Slurm gives no reason."""
    if not task.reason:
        return ""
    words = next((words for begin, words in _WORDS.items() if task.reason.startswith(begin)), "")
    return f"{task.reason}: {words}" if words else task.reason


def remedy(job: JobId, tasks: tuple[int, ...], task: Queued) -> Remedy | None:
    """Return what a person can do for tasks that wait alike; ``None`` if they need no person.

    scontrol takes array tasks as a list in brackets: ``release 12_[3,7-9]`` (measured).
    """
    if task.state not in {State.HELD, State.ERROR}:
        return None
    if task.reason.startswith(_RELEASED):
        clusters = ("-M", job.cluster) if job.cluster else ()
        named = ",".join(task_ranges(tasks))
        target = f"{job.id}_{named}" if named.isdecimal() else f"{job.id}_[{named}]"
        return Remedy(argv=("scontrol", *clusters, "release", target))
    return Remedy(key=_KEYS.get(task.reason, ""))
