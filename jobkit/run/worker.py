"""One of several workers: ``python -m jobkit.run.worker FD PARENT`` does the steps of its supervisor.

FD is its end of the connection, PARENT the supervisor's process id. A supervisor that has imported the
framework forks its workers instead (`work_forked`). It blocks the signals of a scheduler for them (see
`jobkit.run.pool`), so only the supervisor ends them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from jobkit.core.records import Batch
from jobkit.run import process, steps
from jobkit.run.failure import SpareMemory, TryFailed, outcome_of, print_error
from jobkit.run.measure import need, profile
from jobkit.run.measure.device import Device
from jobkit.run.measure.profile import Recording
from jobkit.run.paragraphs import Call
from jobkit.run.record import Done, Measured, Report, Task
from jobkit.run.workloads.base import Workload


def main() -> None:
    """Work until the supervisor closes the connection."""
    descriptor, parent = map(int, sys.argv[1:])
    if process.end_with(parent):
        _serve(Connection(descriptor))


def work_forked(supervisor: Connection[Any, Any], parent: int, environment: Mapping[str, str]) -> NoReturn:
    """Work, as `main` does, in a new child of the supervisor.

    Parameters
    ----------
    supervisor
        The worker's end of the connection: of the files of the supervisor it keeps only this.
    parent
        The supervisor's process id.
    environment
        Of the worker.
    """
    status = 1
    try:
        if process.end_with(parent):
            process.close_files(supervisor.fileno())
            process.replace_environment(environment)
            _serve(supervisor)
            status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)  # nothing of the supervisor may go on here


def _serve(connection: Connection[Any, Any]) -> None:
    """Do steps until the supervisor closes the connection."""
    with connection as supervisor, contextlib.suppress(EOFError, OSError):
        worker = Worker(supervisor.recv())
        while True:
            step, *arguments = supervisor.recv()
            supervisor.send(worker.report(step, arguments))


class Worker:
    """Does the steps of a try; each method but `report` is a step."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._measured = Measured()
        self._device: Device
        self._workload: Workload
        self._loaded = self._worked = False
        self._recording: Recording | None = None
        self._spare = SpareMemory()

    def report(self, step: str, arguments: Sequence[object]) -> Report:
        """Do a step; return what it did, all that is measured so far, and the failure if it failed."""
        done: Done | None = None
        error: BaseException | None = None
        try:
            done = getattr(self, step)(*arguments)
        except Exception as caught:  # noqa: BLE001 - the record reports what it was
            error = caught
            self._spare.free_after(error)
        if self._loaded:
            error = steps.ask_workload(self._measured, self._workload, worked=self._worked, error=error)
        steps.read_maxrss(self._measured)
        if error and not isinstance(error, TryFailed):
            with contextlib.suppress(OSError):  # the log may be on a full disk
                print_error(error, self._measured.code)
        return Report(self._measured, done, outcome_of(error, self._measured.code) if error else None)

    def open(self, foreign_processes: Mapping[str, int | None]) -> None:
        """Import the framework and open the device.

        Parameters
        ----------
        foreign_processes
            Of each GPU before any worker opened it.
        """
        measured = self._measured
        self._workload = steps.open_workload(self._task, measured)
        self._device = steps.device_of(self._task.point, measured, self._workload)
        if measured.gpu:
            foreign = foreign_processes.get(measured.gpu.uuid)
            measured.gpu = replace(measured.gpu, foreign_processes=foreign)

    def load(self) -> None:
        """Load the workload."""
        steps.load(self._task, self._measured, self._workload, self._device)
        self._loaded = True
        self._recording = profile.of_point(self._task.point)

    def check(self, paragraphs: Sequence[str]) -> None:
        """Compare the shortcuts of the workload with its ordinary way, if it can."""
        if compare := getattr(self._workload, "check_shortcuts", None):
            self._measured.refused = compare(paragraphs)
        self._measured.readings.reserved_peak_bytes = self._device.peaks()[1]

    def warm_up(self, paragraphs: Sequence[str], call: Call | None) -> None:
        """Warm up with the first paragraphs of the text and the likely first call, if there is one."""
        steps.warm_up(self._measured, self._workload, self._device, paragraphs)
        if call:
            steps.warm_up_call(self._task.point, self._measured, self._workload, self._device, call)
        self._measured.reserved_bytes = self._device.reserved_bytes()

    def keep_context(self, size_bytes: int | None) -> None:
        """Keep the size of the CUDA context, which only the supervisor can tell."""
        self._measured.readings.context_bytes = size_bytes

    def work(self, call: Call) -> Done:
        """Process a call."""
        shard = self._task.point.shard
        done = steps.do_call(call, self._measured, self._workload, self._device, self._recording, shard=shard)
        self._worked = True
        return done

    def measure(self, batch: Batch, call: Call) -> None:
        """Measure the need of the heaviest batches, which this worker did."""
        heavy = need.heaviest(self._workload, batch, call)
        self._measured.needs = need.measure_needs(self._device, heavy, self._task.point)

    def write_profile(self) -> None:
        """Write the profile of the calls so far."""
        if self._recording:
            self._recording.write(self._task.out, self._task.try_number)


if __name__ == "__main__":
    main()
