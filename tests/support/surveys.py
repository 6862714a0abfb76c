"""What real schedulers said of their sites, read from tests/data/."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from jobkit.core.shell import Completed
from jobkit.schedulers.registry import by_name
from jobkit.schedulers.survey import Survey
from jobkit.schedulers.types import Array, JobRequest

DATA = Path(__file__).parents[1] / "data"
_FORM = re.compile(r"\$ (.*)\nstatus (\d+)\n--- stdout\n(.*)--- stderr\n(.*)", re.DOTALL)
FILES = {
    "slurm": {
        **{name: name for name in ("version", "config", "nodes", "partitions", "sacct", "accounts")},
        "controller": "ping",
    },
    "sge": {
        **{name: name for name in ("version", "queues", "instances", "qacct")},
        "controller": "config",
        "resources": "complexes",
    },
}
"""The question of a survey, and the end of the name of the file with its answer."""


ARRAY = Array(first=1, last=3, offset=0, throttle=2)
REQUEST = JobRequest(
    name="demo",
    queue=None,
    gpus=0,
    gpu_type=None,
    cpus=1,
    memory_bytes=50 * 2**20,
    walltime_s=60,
    account=None,
    qos=None,
)
"""What any cluster grants."""


def captured(name: str) -> Completed:
    """Return an answer by the name of its file, ``slurm/sinfo`` for example (capture.sh wrote it)."""
    found = _FORM.fullmatch((DATA / f"{name}.txt").read_text(encoding="utf-8"))
    assert found is not None, f"{name}.txt is not what capture.sh writes"
    argv, status, stdout, stderr = found.groups()
    return Completed(tuple(shlex.split(argv)), int(status), stdout, stderr)


def answers_of(scheduler: str, site: str) -> dict[str, Completed]:
    """Return the answers of a site, ``lab`` or ``other``, by the name of the question."""
    found = {name: captured(f"{scheduler}/{site}-{file}") for name, file in FILES[scheduler].items()}
    for path in (DATA / scheduler).glob(f"{site}-pe-*.txt"):
        found[f"environment {path.stem.removeprefix(f'{site}-pe-')}"] = captured(f"{scheduler}/{path.stem}")
    return found


def survey_of(scheduler: str, site: str, **more: Completed) -> Survey:
    """Return what a site comes to; ``more`` answers stand in for those captured."""
    return by_name(scheduler).parse_survey(answers_of(scheduler, site) | more)
