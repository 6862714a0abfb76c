"""What a run of a command costs besides the command: jobkit, hyperfine, pyperf and ReFrame."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from statistics import median

from benchmarks.raw import Row
from benchmarks.timing import JOBKIT, once

TITLE = "The overhead of a point: jobkit, hyperfine, pyperf, ReFrame"
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
    commands = {name: argvs for name, argvs in harnesses(folder).items() if shutil.which(argvs[0][0])}
    times: dict[str, list[float]] = {name: [] for name in ("bare", *commands)}
    for _ in range(RUNS):
        times["bare"].append(sum(once(bare(n)).wall_s for n in range(1, POINTS + 1)))
        for name, argvs in commands.items():
            times[name].append(sum(once(argv, cwd=folder).wall_s for argv in argvs))
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


def bare(number: int) -> list[str]:
    """Return the command itself."""
    return ["awk", "-v", f"n={number}", PROGRAM]


def harnesses(folder: Path) -> dict[str, list[list[str]]]:
    """Return the commands of each program that run every point once."""
    numbers = range(1, POINTS + 1)
    parameters = ",".join(map(str, numbers))
    once_each = ["--runs", "1", "--parameter-list", "n", parameters]
    pyperf = [
        sys.executable,
        "-m",
        "pyperf",
        "command",
        "--processes",
        "1",
        "--values",
        "1",
        "--warmups",
        "0",
    ]
    reframe = str(Path(sys.executable).with_name("reframe"))
    return {
        "jobkit": [[*JOBKIT, "sweep", str(folder / "spec.yaml"), "--new"]],
        "hyperfine": [["hyperfine", "-N", "-w", "0", *once_each, f"awk -v n={{n}} '{PROGRAM}'"]],
        "pyperf": [[*pyperf, "--", *bare(number)] for number in numbers],
        "ReFrame": [[reframe, "-c", str(folder / "awk_test.py"), "--exec-policy=serial", "-r"]],
    }


if __name__ == "__main__":
    sys.exit("python -m benchmarks harness")
