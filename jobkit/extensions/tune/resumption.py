"""How `jobkit resume` goes on with a search: it chooses the next point, and runs none again."""

from __future__ import annotations

from jobkit.extensions.tune import job
from jobkit.launch.resume import Resumption
from jobkit.runs.request import RetryGroup
from jobkit.runs.status import RunStatus
from jobkit.spec.sweep_spec import SweepSpec


class TuneResumption(Resumption):
    def decide(self, *_: object, **__: object) -> list[RetryGroup]:
        """Return no point: a search judges a point that failed."""
        return []

    def nothing(
        self, run: RunStatus, spec: SweepSpec, *, by_itself: bool = False, wait: bool = False
    ) -> int | None:
        return job.go_on(run.folder, spec, run, by_itself=by_itself, wait=wait)


TUNE = TuneResumption()
