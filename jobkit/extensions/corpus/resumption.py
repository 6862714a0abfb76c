"""How `jobkit resume` goes on with a corpus: it is planned, planned again, or its shards run again."""

from __future__ import annotations

from pathlib import Path

from jobkit.extensions.corpus import plan_job
from jobkit.extensions.corpus.kind import CORPUS as KIND
from jobkit.extensions.corpus.replan import replan
from jobkit.extensions.corpus.shards import MINUTES, ShardOptions
from jobkit.extensions.corpus.start import report_end
from jobkit.launch.launch import wait_for_points
from jobkit.launch.resume import Asked, Resumption
from jobkit.runs.status import ENDINGS, RunStatus
from jobkit.spec.sweep_spec import SweepSpec


class CorpusResumption(Resumption):
    def resume(self, run_dir: Path, asked: Asked) -> int | None:
        """Go on, and print how the corpus stands once its shards have ended."""
        if KIND.unplanned(run_dir):
            code = plan_job.go_on(run_dir, wait=asked.wait)
        elif asked.replan:
            wishes = ShardOptions(minutes=asked.shard_minutes or MINUTES, number=asked.shards)
            code = replan(run_dir, wishes, asked.overrides, wait=asked.wait)
        else:
            code = super().resume(run_dir, asked)
        return report_end(run_dir) if code is None else code

    def follow_up(self, run_dir: Path) -> int:
        """Plan the corpus and submit its shards, if that is still to be done."""
        return plan_job.run(run_dir) if plan_job.is_open(run_dir) else super().follow_up(run_dir)

    def nothing(
        self, run: RunStatus, spec: SweepSpec, *, by_itself: bool = False, wait: bool = False
    ) -> int | None:
        """Return ``None`` if all shards have ended: the exit code is that of their state."""
        code = super().nothing(run, spec, by_itself=by_itself, wait=wait)
        if code or by_itself:
            return code
        if all(point.state in ENDINGS for point in run.points):
            return None
        points = [point.point for point in run.points]
        return wait_for_points(run.folder, points, spec.policy, run) if wait else 0


CORPUS = CorpusResumption()
