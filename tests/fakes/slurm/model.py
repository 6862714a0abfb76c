"""What the fake cluster remembers: jobs, their tasks, and each time that a task ran.

These are no dataclasses, so that a fake command starts in the time that a real one does: dataclasses
alone would cost it 10 ms. Every object is written as a JSON object of the values that were set.
"""

from __future__ import annotations

from typing import Any

PENDING, RUNNING, ENDING, ENDED = "PENDING", "RUNNING", "ENDING", "ENDED"
"""Where a task is. ``ENDING``: it has a signal to end, and still has processes."""


class TaskRun:
    """One time that a task ran, as the accounting tells it; times are of the cluster's clock.

    Attributes
    ----------
    word, status, signal
        Of the task: how it ended (``COMPLETED``), its exit status, the signal that ended it.
    step_word, step_status, step_signal
        Of the batch script itself, which sacct tells in a row of its own.
    end
        0 while it runs.
    """

    submitted = 0.0
    start = 0.0
    end = 0.0
    node = ""
    queue = ""
    reason = "None"
    word = "RUNNING"
    status = 0
    signal = 0
    step_word = "RUNNING"
    step_status = 0
    step_signal = 0
    rss_kib = 0

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


class Task:
    """A task of a job: jobkit submits arrays alone.

    Attributes
    ----------
    raw
        The job id of the task itself.
    begin
        It may not start before this time.
    cause
        Why it is being ended, if not by itself: ``cancelled``, ``node_fail``; and since when.
    changed
        How often the accounting had been asked when this task last began or ended.
    single
        Whether it has a record of its own in the accounting, apart from its array's.
    gone
        Whether it was cancelled before it began, and others of the array were not.
    """

    number = 0
    raw = 0
    state = PENDING
    word = ""
    reason = "None"
    begin = 0.0
    submitted = 0.0
    restarts = 0
    pid = 0
    node = ""
    queue = ""
    cause = ""
    cause_at = 0.0
    changed = 0
    single = False
    gone = False

    def __init__(self, **values: Any) -> None:
        self.runs: list[TaskRun] = []
        vars(self).update(values)

    @property
    def live(self) -> bool:
        """Whether it has processes."""
        return self.state in {RUNNING, ENDING}

    @property
    def over(self) -> bool:
        """Whether it has ended for good."""
        return self.state == ENDED


class Job:
    """What was submitted; ``options`` are sbatch's, by their long names.

    Attributes
    ----------
    cluster
        Empty for the one that commands ask if none is named.
    foreign
        Somebody else's, of which only the id and the name matter: it never runs a process.
    replaced
        Whether a later job was given the same id.
    """

    id = 0
    name = ""
    user = ""
    script = ""
    directory = ""
    submitted = 0.0
    throttle = 0
    cluster = ""
    foreign = False
    replaced = False

    def __init__(self, **values: Any) -> None:
        self.arguments: list[str] = []
        self.options: dict[str, str] = {}
        self.tasks: list[Task] = []
        vars(self).update(values)

    def task(self, number: int) -> Task | None:
        """Return a task by its number."""
        return next((task for task in self.tasks if task.number == number), None)


class State:
    """All that a cluster remembers.

    Attributes
    ----------
    calls
        How often each command was called.
    runner
        Process id of the process that runs the tasks; 0 for none.
    """

    next_id = 1
    runner = 0

    def __init__(self, **values: Any) -> None:
        self.jobs: list[Job] = []
        self.calls: dict[str, int] = {}
        vars(self).update(values)

    def job(self, number: int) -> Job | None:
        """Return the latest job of that id."""
        return next((job for job in reversed(self.jobs) if job.id == number), None)


def restored(data: dict[str, Any]) -> State:
    """Return the state that was written as JSON: each object as the values that were set."""
    for job in data["jobs"]:
        for task in job["tasks"]:
            task["runs"] = [TaskRun(**run) for run in task["runs"]]
        job["tasks"] = [Task(**task) for task in job["tasks"]]
    return State(**{**data, "jobs": [Job(**job) for job in data["jobs"]]})
