"""A command as a workload: swept on this machine, killed, and hostile, by what is typed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.core.measurements import Metric
from jobkit.core.records import Outcome, Record
from jobkit.runs.results import read_run
from jobkit.worker.process import started_at
from tests.cluster.daemons import until
from tests.support.commands import JOBKIT, jobkit
from tests.support.processes import parent_of, with_words

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int batch = atoi(argv[1]), lines = 0, c;
    FILE *text = fopen(argv[2], "r"), *out = fopen(getenv("JOBKIT_METRICS"), "a");
    char *memory = malloc(64 << 20);
    if (!text || !out || !memory) return 3;
    memset(memory, 1, 64 << 20);
    while ((c = getc(text)) != EOF) lines += c == '\n';
    for (int done = 0; done < 100; done += batch)
        fprintf(out, "{\"items\": %d, \"seconds\": 0.001, \"load\": %d}\n", batch, batch * 7);
    fprintf(out, "{\"metric\": \"lines\", \"value\": %d, \"unit\": \"1\"}\n", lines);
    fclose(out);
    puts("accuracy: 0.875");
    return atoi(getenv("JOBKIT_STATUS"));
}
"""
SPEC = """\
name: own
workload:
  command: tagger {{batch_size}} {{text}}
  files: [tagger]
  metrics: {{accuracy: 'accuracy: ([0-9.]+)'}}
text: text.txt
sweep: {{batch_size: [10, 50]}}
repeats: 1
scheduler: local
environment: {{variables: {{JOBKIT_STATUS: "{status}"}}}}
resources: {{gpus: 0, cpus: 1, memory: 500MiB, walltime: 2m}}
"""


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program that is no Python."""
    folder = tmp_path_factory.mktemp("c")
    (folder / "tagger.c").write_text(SOURCE)
    subprocess.run(["cc", "-o", folder / "tagger", folder / "tagger.c"], check=True)
    return folder / "tagger"


def lab(folder: Path, spec: str, **files: str) -> Path:
    for name, text in {"text.txt": "One two.\n\nThree.\n", "spec.yaml": spec, **files}.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def run_of(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    return run


def record(folder: Path, point: int = 0) -> Record:
    found = read_run(run_of(folder)).points[point].record
    assert found
    return found


@pytest.mark.program("cc")
def test_a_program_in_c_is_swept_with_its_own_figures(tagger: Path, tmp_path: Path) -> None:
    shutil.copy(tagger, tmp_path)
    done = jobkit("sweep", "spec.yaml", cwd=lab(tmp_path, SPEC.format(status=0)))
    assert done.returncode == 0, done.stderr
    small, large = record(tmp_path, 0), record(tmp_path, 1)
    assert large.metrics == {"lines": Metric(value=3.0, unit="1"), "accuracy": Metric(value=0.875)}
    assert small.summary
    assert (small.summary.items, small.summary.batches, small.summary.load_max) == (100, 10, 70)
    assert small.summary.work_s == pytest.approx(0.01)
    assert small.summary.items_per_s == pytest.approx(10_000)
    assert 64 * 2**20 < (small.memory.ram_peak_bytes or 0) < 80 * 2**20
    assert small.point.files[0].sha256[:12] == small.versions["tagger"]
    assert "accuracy: 0.875" in jobkit("logs", run_of(tmp_path), "1").stdout
    assert "10,000" in done.stdout


@pytest.mark.program("cc")
def test_an_exit_status_is_a_failure_and_what_was_measured_stays(tagger: Path, tmp_path: Path) -> None:
    shutil.copy(tagger, tmp_path)
    done = jobkit(
        "sweep", "spec.yaml", "--set", "sweep.batch_size=10", cwd=lab(tmp_path, SPEC.format(status=7))
    )
    assert done.returncode == 4, done.stderr
    found = record(tmp_path)
    assert (found.outcome, found.message) == (Outcome.BUG, "exit status 7: accuracy: 0.875")
    assert found.metrics["lines"].value == 3


SHELL = """\
name: own
workload:
  shell: true
  command: {command}
text: text.txt
repeats: 1
scheduler: local
resources: {{gpus: 0, cpus: 1, memory: 500MiB, walltime: {walltime}}}
"""


def shell(folder: Path, command: str) -> Record:
    jobkit("sweep", "spec.yaml", cwd=lab(folder, SHELL.format(command=json.dumps(command), walltime="2m")))
    return record(folder)


@pytest.mark.parametrize(
    ("command", "outcome", "message"),
    [
        ("kill -SEGV $$", Outcome.BUG, "SIGSEGV"),
        ("no-such-program {text}", Outcome.ENVIRONMENT, "no-such-program"),
        (
            "echo 'torch.cuda.OutOfMemoryError: CUDA out of memory.'; exit 1",
            Outcome.GPU_OOM,
            "CUDA out of memory",
        ),
        ("echo 'MemoryError: no'; exit 1", Outcome.RAM_OOM, "MemoryError"),
        ("false | true", Outcome.BUG, "exit status 1"),
        (
            "rm $JOBKIT_METRICS; mkdir $JOBKIT_METRICS",
            Outcome.BUG,
            "$JOBKIT_METRICS cannot be read: Is a directory",
        ),
    ],
)
def test_outcomes(tmp_path: Path, command: str, outcome: Outcome, message: str) -> None:
    found = shell(tmp_path, command)
    assert found.outcome is outcome
    assert message in found.message


def test_places_and_variables(tmp_path: Path) -> None:
    found = shell(
        tmp_path,
        'cmp {text} "$JOBKIT_TEXT" && cp {text} {output}/copy && touch {scratch}/x && [[ {point} == r1 ]] &&'
        ' [[ "$JOBKIT_POINT $JOBKIT_THREADS {threads}" == "r1 1 1" ]] && ls -A && echo {{}}',
    )
    assert (found.outcome, found.message) == (Outcome.OK, "")
    (copy,) = tmp_path.glob("runs/*/results/r1/try-1/output/copy")
    assert copy.read_text() == "One two.\n\nThree.\n"


HOSTILE = r"""
for line in garbage '{"items": 1, "seconds": NaN}' '{"items": -5, "seconds": 1}' \
    '{"items": 1, "items": 2, "seconds": 1}' '{"metric": "f1", "value": 0.5}' \
    '{"items": 10, "seconds": 0.5}' '{"items": 10, "sec'; do
    echo "$line" >>"$JOBKIT_METRICS"
done
head -c 100000 /dev/zero >>"$JOBKIT_METRICS"
(sleep 30; echo '{"metric": "late", "value": 1}' >>"$JOBKIT_METRICS") &
"""


def test_hostile_figures_are_counted_and_nothing_outlives_the_command(tmp_path: Path) -> None:
    found = shell(tmp_path, HOSTILE.replace("{", "{{").replace("}", "}}"))
    assert found.outcome is Outcome.OK
    assert found.metrics == {"f1": Metric(value=0.5)}
    assert found.metrics_bad_lines == 6
    assert found.summary
    assert (found.summary.items, found.summary.batches) == (10, 1)
    assert "behind, which jobkit ended" in jobkit("logs", run_of(tmp_path), "1").stdout
    assert "Traceback" not in jobkit("collect", "runs", cwd=tmp_path).stdout


def test_a_text_with_crlf_has_the_paragraphs_for_the_program_that_the_table_names(tmp_path: Path) -> None:
    (tmp_path / "count.awk").write_text('BEGIN { RS = "" }\nEND { print "found " NR " at " size }\n')
    folder = lab(
        tmp_path,
        "name: own\n"
        "workload:\n"
        "  command: awk -v size={batch_size} -f count.awk {text}\n"
        "  files: [count.awk]\n"
        "  metrics: {found: 'found ([0-9]+)'}\n"
        "text: text.txt\nsweep: {batch_size: [10]}\nrepeats: 1\nscheduler: local\n"
        "resources: {gpus: 0, cpus: 1, memory: 500MiB, walltime: 2m}\n",
    )
    (folder / "text.txt").write_bytes(b"One two\r\nthree.\r\n\r\nFour.\r\n\r\nFive.\r\n")
    jobkit("sweep", "spec.yaml", "--wait", cwd=folder)
    assert record(folder).metrics["found"].value == 3
    assert "text.txt (3 paragraphs)" in jobkit("collect", str(run_of(folder)), cwd=folder).stdout


def test_without_items_the_speed_is_blank_and_the_time_is_that_of_the_command(tmp_path: Path) -> None:
    found = shell(tmp_path, "sleep 0.3")
    assert found.summary
    assert found.summary.items_per_s is None
    assert 0.3 <= found.summary.work_s < 3


LONG = 'sleep 300 & echo $! $$ >"$PIDS"; echo started >>"$JOBKIT_METRICS"; wait'


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes], list[int]]]:
    """Yield a sweep whose command runs, with the process ids of the command and its child."""
    pids = tmp_path / "pids"
    lab(tmp_path, SHELL.format(command=json.dumps(LONG), walltime="5m"))
    settings = f"environment.variables.PIDS={pids}", "policy.timeout.tries=0"
    argv = [str(JOBKIT), "sweep", "spec.yaml", *(word for one in settings for word in ("--set", one))]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        until(lambda: pids.is_file() and len(pids.read_text().split()) == 2, "the command", 60)
        yield tmp_path, process, [int(pid) for pid in pids.read_text().split()]
        process.kill()


def _gone(pids: list[int]) -> bool:
    return all(started_at(pid) is None for pid in pids)


@pytest.mark.parametrize("how", ["cancel", "kill the worker", "kill the command", "end the walltime"])
def test_a_kill_leaves_no_process(started: tuple[Path, subprocess.Popen[bytes], list[int]], how: str) -> None:
    folder, process, pids = started
    worker = parent_of(parent_of(pids[1]))
    if how == "cancel":
        assert jobkit("cancel", run_of(folder)).returncode == 0
    elif how == "end the walltime":
        (timeout,) = with_words("timeout", f"{run_of(folder).name}/job.sh")
        os.kill(timeout, signal.SIGUSR1)  # it does what it does at the time
    else:
        os.kill(worker if how == "kill the worker" else pids[1], signal.SIGKILL)
    until(lambda: _gone(pids), "the end of the command's processes", 30)
    process.wait(60)
    if how == "kill the command":
        found = record(folder)
        assert (found.outcome, found.metrics_bad_lines) == (Outcome.LOST, 1)
    if how == "end the walltime":
        found = record(folder)
        assert (found.outcome, "SIGUSR1" in found.message) == (Outcome.TIMEOUT, True)
