"""What scontrol shows of a job."""

from __future__ import annotations

from tests.fakes.common.model import Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import clock_words, iso
from tests.fakes.slurm.rows import Row, listed
from tests.fakes.slurm.rules import NO_TASK, log_path, memory
from tests.fakes.slurm.sbatch import limit_min
from tests.fakes.slurm.site import PARTITIONS
from tests.fakes.slurm.squeue import Seen

_JOB = """\
JobId={raw}{array} JobName={name}
   UserId={user}(0) GroupId=root(0) MCS_label=N/A
   Priority={priority} Nice=0 Account={account} QOS={qos}
   JobState={state} Reason={reason} Dependency={dependency}
   Requeue={requeue} Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode={exit}
   RunTime={run_time} TimeLimit={limit} TimeMin=N/A
   SubmitTime={submitted} EligibleTime={eligible}
   StartTime={start} EndTime={end} Deadline=N/A
   Partition={partition} AllocNode:Sid=localhost:1
   ReqNodeList=(null) ExcNodeList={excluded}
   NodeList={node}
   NumNodes=1 NumCPUs={cpus} NumTasks=1 CPUs/Task={cpus} ReqB:S:C:T=0:0:*:*
   MinCPUsNode={cpus} MinMemoryNode={memory} MinTmpDiskNode=0
   Command={command}
   WorkDir={directory}
   StdErr={stderr}
   StdIn=/dev/null
   StdOut={stdout}
   Power=
   {mail}

"""


def details(store: Store, row: Row) -> str:
    """Return what is known of a task, or of the tasks of an array that have not begun."""
    job, task, seen = row.job, row.task, Seen(store, row, each=True)
    run = task.runs[-1] if task.runs else None
    asked = job.options
    return _JOB.format(
        **_names(row),
        **_times(seen),
        priority=0 if task.held else 4294901756,
        account=asked.get("account", "root"),
        qos=asked.get("qos", "normal"),
        state=seen.word,
        reason=task.reason,
        dependency=asked.get("dependency", "(null)"),
        requeue=int("no-requeue" not in asked),
        restarts=task.restarts,
        exit=f"{run.status}:{run.signal}" if run else "0:0",
        partition=asked.get("partition", PARTITIONS[0]),
        excluded=asked.get("exclude", "(null)"),
        node=task.node,
        cpus=asked.get("cpus-per-task", "1"),
        memory=memory(job),
        command=job.command,
        directory=job.directory,
    )


def _names(row: Row) -> dict[str, object]:
    job, task = row.job, row.task
    throttle = f" ArrayTaskThrottle={job.throttle}" if job.throttle else ""
    number = listed([task.number for task in row.tasks])
    shown = task if task.single or not job.array else Task(number=NO_TASK)
    default = "slurm-%A_%a.out" if job.array else "slurm-%j.out"
    stdout = log_path(job, shown, job.options.get("output", default))
    mail = [f"MailUser={job.options['mail-user']}"] if "mail-user" in job.options else []
    mail += [f"MailType={job.options['mail-type']}"] if "mail-type" in job.options else []
    return {
        "raw": task.raw or job.id,
        "array": f" ArrayJobId={job.id} ArrayTaskId={number}{throttle}" if job.array else "",
        "name": job.name,
        "user": job.user,
        "stdout": stdout,
        "stderr": log_path(job, shown, job.options["error"]) if "error" in job.options else stdout,
        "mail": " ".join(mail),
    }


def _times(seen: Seen) -> dict[str, str]:
    job, task = seen.job, seen.task
    limit_s = 60 * limit_min(job)
    ended = task.runs[-1].end if task.runs else 0.0
    return {
        "run_time": clock_words(seen.elapsed_s, long=True),
        "limit": clock_words(limit_s, long=True),
        "submitted": iso(task.submitted or job.submitted),
        "eligible": iso(task.begin or job.submitted),
        "start": iso(seen.start),
        "end": iso(ended or (seen.start + limit_s if seen.start else 0.0)),
    }
