"""What a run of a command costs besides the command: jobkit and ReFrame."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from statistics import median

from benchmarks.raw import Row
from benchmarks.timing import JOBKIT, once

TITLE = "The overhead of a point: jobkit and ReFrame"
POINTS = 8
RUNS = 5
PROGRAM = "BEGIN { for (i = 0; i < 1000000 + n; i++) s += i }"
SPEC = f"""\
name: harness
workload:
  command: awk -v n={{batch_size}} '{PROGRAM.replace("{", "{{").replace("}", "}}")}'
text: sample:10
sweep: {{batch_size: [{", ".join(map(str, range(1, POINTS + 1)))}]}}
repeats: 1
resources: {{gpus: 0, cpus: 1, memory: 500MiB, walltime: 5m}}
scheduler: local
"""
REFRAME = f"""\
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Awk(rfm.RunOnlyRegressionTest):
    n = parameter(range(1, {POINTS + 1}))
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "awk"

    @run_before("run")
    def arguments(self):
        self.executable_opts = ["-v", f"n={{self.n}}", {shlex.quote(PROGRAM)!r}]

    @sanity_function
    def ended(self):
        return sn.assert_eq(self.job.exitcode, 0)
"""


def measure(folder: Path) -> list[Row]:
    """Return for each program the time that it adds to a point, the median of runs in turn."""
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "awk_test.py").write_text(REFRAME, encoding="utf-8")
    reframe = str(Path(sys.executable).with_name("reframe"))
    commands = {
        "jobkit": [*JOBKIT, "sweep", str(folder / "spec.yaml"), "--new"],
        "ReFrame": [reframe, "-c", str(folder / "awk_test.py"), "--exec-policy=serial", "-r"],
    }
    bare = [["awk", "-v", f"n={number}", PROGRAM] for number in range(1, POINTS + 1)]
    times: dict[str, list[float]] = {name: [] for name in ("bare", *commands)}
    for _ in range(RUNS):
        times["bare"].append(sum(once(argv).wall_s for argv in bare))
        for name, argv in commands.items():
            times[name].append(once(argv, cwd=folder).wall_s)
    middle = {name: median(values) for name, values in times.items()}
    raw: dict[str, object] = {"seconds": times, "points": POINTS}
    return [
        Row(what="the command alone", shown=f"{middle['bare'] / POINTS:.3f} s", raw=raw),
        *(
            Row(
                what=f"{name}, beyond that, for each of {POINTS} points",
                shown=f"{(middle[name] - middle['bare']) / POINTS:.3f} s",
            )
            for name in commands
        ),
    ]


if __name__ == "__main__":
    sys.exit("python -m benchmarks harness")
