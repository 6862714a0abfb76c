"""Faults on purpose, for a lesson: what they break is real, and `fix` puts all of it right again."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.shell import check
from jobkit.practice import sge, slurm
from jobkit.practice.cluster import Cluster
from jobkit.practice.daemons import end_started, wait_for
from jobkit.practice.place import typed

NODE = slurm.NODES[-1]
URGENT = "urgent"  # the name of the job that preempts the others, on either scheduler
URGENT_QUEUE = "urgent.q"
ASIDE = ".aside"


def break_node(cluster: Cluster) -> str:
    """Kill the daemon and jobs of a node, if possible a busy one, as a loss of power would."""
    node, name = NODE, "execd"
    if cluster.place.scheduler == "slurm":
        busy = cluster.place.ask("squeue", "-h", "-t", "R", "-o", "%N").stdout.split()
        node = next((one for one in (NODE, *slurm.NODES) if one in busy), NODE)
        name = f"slurmd-{node}"
    daemon = cluster.daemons[name]
    end_started(cluster.place.folder, name)
    daemon.pid_file.unlink(missing_ok=True)
    if cluster.place.scheduler == "slurm":
        reason = "Reason=Not responding"
        check(cluster.place.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", reason), "scontrol")
        return f"node {node} is down and its jobs are dead: look at sinfo, squeue and sacct"
    # How long Grid Engine's broken host may be silent; its default is five minutes
    _set_unheard(cluster, "00:00:05")
    wait_for(lambda: any("u" in state for state in sge.states(cluster.place).values()), "the host is missed")
    return "the host is dead, and so are its jobs: look at qstat -f (state u) and qstat"


def _set_unheard(cluster: Cluster, duration: str) -> None:
    place = cluster.place
    text = place.ask("qconf", "-sconf", "global").stdout
    sge.put(place, "-Mconf", sge.changed(text, {"max_unheard": duration}), "global")


def _spool(cluster: Cluster) -> Path:
    folder = cluster.place.folder
    slurms, sges = folder / f"spool-{NODE}", folder / "spool/execd" / sge.HOST / "active_jobs"
    return slurms if cluster.place.scheduler == "slurm" else sges


def break_disk(cluster: Cluster) -> str:
    """Make the disk of a node's jobs unusable; return what to look at."""
    spool = _spool(cluster)
    aside = spool.with_name(spool.name + ASIDE)
    if not aside.exists():
        spool.rename(aside)
        spool.touch()  # no folder can be made below a file, not by root either
    if cluster.place.scheduler == "slurm":
        return (
            f"the disk of node {NODE} fails, and the node still takes jobs: submit one with -w {NODE}, and"
            " look at squeue (launch failed requeued held)"
        )
    return "the disk of the host fails: submit a job, and look at qstat -f -explain E (state E)"


def break_accounting(cluster: Cluster) -> str:
    if cluster.place.scheduler == "slurm":
        cluster.daemons["slurmdbd"].end(signal.SIGKILL)
        return "the accounting does not answer: look at sacct; squeue and sbatch work"
    file = _accounting(cluster)
    if not file.is_dir():
        file.touch()
        file.rename(file.with_name(file.name + ASIDE))
        file.mkdir()
    return "the accounting cannot be read or written: look at qacct -j JOB; qstat and qsub work"


def _accounting(cluster: Cluster) -> Path:
    return cluster.place.folder / "default/common/accounting"


def break_preempt(cluster: Cluster) -> str:
    """Submit a job of higher priority that takes the whole cluster; return what to look at."""
    place = cluster.place
    if place.scheduler == "slurm":
        where = ("-p", "high", "-N", str(len(slurm.NODES)), "--exclusive", "-t", "30", "-o", "/dev/null")
        check(place.ask("sbatch", "-J", URGENT, *where, "--wrap", "sleep 1800"), "sbatch")
        return f"job {URGENT} takes all nodes, and Slurm requeues what runs there: look at squeue"
    if URGENT_QUEUE not in place.ask("qconf", "-sql").stdout.split():
        below = ",".join(f"{name}=1" for name in sge.QUEUES)
        queue = sge.queue(URGENT_QUEUE, place.folder, subordinate_list=below)
        sge.put(place, "-Aq", sge.lines(queue))
    job = ("-N", URGENT, "-q", URGENT_QUEUE, "-b", "y", "-o", "/dev/null", "-j", "y", "sleep", "1800")
    check(place.ask("qsub", *job), "qsub")
    return f"job {URGENT} suspends what runs in the other queues: look at qstat (state S)"


FAULTS: dict[str, Callable[[Cluster], str]] = {
    "node": break_node,
    "disk": break_disk,
    "accounting": break_accounting,
    "preempt": break_preempt,
}


def break_(cluster: Cluster, fault: str) -> str:
    if not cluster.is_started():
        raise JobkitError(
            f"no practice {cluster.place.scheduler} is up in {cluster.place.folder.parent}",
            hint=f"jobkit practice up {cluster.place.scheduler}{typed(cluster.place.folder.parent)}",
        )
    return FAULTS[fault](cluster)


def fix(cluster: Cluster) -> None:
    """Put right whatever `break_` broke, and return when jobs can start everywhere."""
    place, spool = cluster.place, _spool(cluster)
    if (aside := spool.with_name(spool.name + ASIDE)).exists():
        spool.unlink()
        aside.rename(spool)
    if place.scheduler == "sge":
        file = _accounting(cluster)
        if (aside := file.with_name(file.name + ASIDE)).exists():
            with suppress(FileNotFoundError):
                file.rmdir()
            aside.rename(file)
    cluster.start_daemons()
    if place.scheduler == "slurm":
        place.ask("scancel", "--name", URGENT)
        cluster.heal()
        wait_for(lambda: not slurm.has_messages(place), "the controller has no message left for a node")
        _release(cluster)
        return
    place.ask("qdel", "-f", URGENT)
    if URGENT_QUEUE in place.ask("qconf", "-sql").stdout.split():
        wait_for(lambda: place.ask("qconf", "-dq", URGENT_QUEUE).ok, f"queue {URGENT_QUEUE} is empty")
    _set_unheard(cluster, "00:05:00")
    wait_for(lambda: "t" not in sge.job_states(place), "a job that starts has started or failed")
    cluster.heal()


def _release(cluster: Cluster) -> None:
    """Let requeued jobs start: some are held, all would wait two minutes (slurm.conf(5), cred_expire)."""
    place = cluster.place
    listed = place.ask("squeue", "-h", "-t", "PD", "-O", "JobArrayID:30,RestartCnt:10,Reason:60").stdout
    for job, restarts, *reason in (line.split() for line in listed.splitlines()):
        if int(restarts) > 0:
            if reason[0] == "launch":
                place.ask("scontrol", "release", job)
            place.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
