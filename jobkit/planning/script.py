"""From a spec, a site and the inputs to the text of a job script."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.records import Point, TextRef
from jobkit.core.units import format_walltime
from jobkit.planning.points import ALLOCATOR_VARIABLES, Inputs, plan
from jobkit.planning.templates import fill
from jobkit.run.measure.nvml import GPU_COUNT_VARIABLE
from jobkit.run.process import MORE_VARIABLES
from jobkit.schedulers.lint import refuse_script
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.spec.directives import directives
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import Environment, SweepSpec

SCRATCH_MARGIN_BYTES = 64 * 2**20
"""Room asked for on scratch beyond the inputs: results are a few MiB."""

MODEL_FILES = ("resources.json",)
BODY = "job.sh.j2"
"""What a header template extends."""
FETCH_BODY = "fetch.sh.j2"
FIND_BODY = "find.sh.j2"
FOLLOW_BODY = "follow.sh.j2"
FOLLOW_RESOURCES = {
    "gpus": 0,
    "gpu_type": None,
    "cpus": 1,
    "memory": 2**30,
    "walltime": 600,
    "constraint": None,
    "mail": None,
    "exclusive": False,
}
"""What the job that follows a sweep asks for: it reads records, asks and submits."""
PLACES = ("JOBKIT_CONFIG", "JOBKIT_CACHE", "JOBKIT_LEDGER")
"""What the job that follows must find as the user does; Grid Engine hands no variables on."""
FIND_MODULE = " -m jobkit.fit.search "
"""What a script that follows a sweep runs, and a point's does not."""


def render(spec: SweepSpec, site: Site, point: Point, run_dir: Path, *, round_: int = 1) -> str:
    """Return the job script of a run.

    Parameters
    ----------
    spec, site
        What is asked for, and how the site spells it.
    point
        Any point of the run: they share text, model and device.
    run_dir
        The run folder, absolute.
    round_
        Which submission of the run it is for: 1 is the sweep, later ones are `jobkit resume`.

    Raises
    ------
    JobkitError
        Where a path cannot stand in a script, the site lacks what is asked for, or a template
        uses a value that does not exist (names the template and its line).
    """
    _check_paths(run_dir, point)
    _check_header_path(run_dir, site.scheduler)
    values = _values(spec, site, point, run_dir)
    values |= {"script": script_name(round_), "round": round_}
    if spec.pack > 1:
        walltime = spec.resources.walltime * spec.pack
        packed = spec.resources.model_copy(update={"walltime": walltime})
        values |= {"directives": directives(packed, site), "pack": spec.pack}
        values["soft_walltime"] = format_walltime(walltime - _warning_s(spec, site))
    return _filled(spec, site, values)


def script_name(round_: int) -> str:
    """Return the name of the script of a round, within the run folder."""
    return "job.sh" if round_ == 1 else f"job-{round_}.sh"


def _filled(spec: SweepSpec, site: Site, values: Mapping[str, object]) -> str:
    """Return the spec's own template, else the scheduler's, with the values in it.

    Raises
    ------
    JobkitError
        Also where the scheduler would ignore something of it, or take it for something else.
    """
    name = spec.template or str(values["base"])
    text = fill(name, spec.template, values)
    own = spec.resources.options.get(site.scheduler, [])
    origins = dict.fromkeys(directives(spec.resources, site), f"site {site.name!r}")
    origins |= dict.fromkeys(own, f"resources.options.{site.scheduler}")
    refuse_script(text, site.scheduler, f"template {name}", origins)
    return text


def render_fetch(spec: SweepSpec, site: Site, run_dir: Path, words: Sequence[str]) -> str:
    """Return the script of a job that fetches a model.

    Parameters
    ----------
    spec, site
        Resources and environment of the job, and how the site spells them.
    run_dir
        The folder for its log and exit file, absolute.
    words
        The arguments of ``jobkit models fetch``.
    """
    return render_errand(spec, site, run_dir, FETCH_BODY, {"fetch": words})


def render_errand(
    spec: SweepSpec, site: Site, run_dir: Path, body: str, values: Mapping[str, object], *, bare: bool = False
) -> str:
    """Return the script of a job that runs no point.

    Parameters
    ----------
    spec, site
        Resources and environment of the job, and how the site spells them.
    run_dir
        The folder for its log and files, absolute.
    body
        The template of what it does, and ``values`` what that takes beside the usual.
    bare
        Whether it is to be run here and now: then it has no header.
    """
    nothing = TextRef(path="", sha256="", size_bytes=0, name="")
    inputs = Inputs(run_id=run_dir.name, text=nothing, model=None, device="cpu")
    point = plan(spec, inputs)[0]
    _check_paths(run_dir, point)
    filled = _values(spec, site, point, run_dir) | {"body": body, **values}
    if bare:
        return fill(body, None, filled)
    _check_header_path(run_dir, site.scheduler)
    return _filled(spec.model_copy(update={"template": None}), site, filled)


def render_find(spec: SweepSpec, site: Site, point: Point, run_dir: Path) -> str:
    """Return the script of the job that follows a sweep and runs the batch that was predicted.

    Parameters
    ----------
    spec, site, point, run_dir
        As for `render`: the job asks for what a point asks for. Of the spec's own template the
        header counts; one that extends the body of a point by name has none to give.
    """
    values = _values(spec, site, point, run_dir) | {"body": FIND_BODY}
    if runs_here(site.scheduler):
        values["base"] = FIND_BODY
    text = _filled(spec, site, values)
    if FIND_MODULE in text:
        return text
    return _filled(spec.model_copy(update={"template": None}), site, values)


def render_follow(spec: SweepSpec, site: Site, point: Point, run_dir: Path) -> str:
    """Return the script of the job that follows a sweep and runs again what the policy says.

    Parameters
    ----------
    spec, site, point, run_dir
        As for `render`. It asks for next to nothing, on the site's queue for work without a GPU,
        and runs the Python that ran `jobkit sweep`, for that one has what a submission needs.
    """
    queue = site.cpu_queue or spec.resources.queue
    little = spec.resources.model_copy(update=FOLLOW_RESOURCES | {"queue": queue})
    bare = spec.model_copy(update={"resources": little, "template": None, "environment": Environment()})
    places = {name: os.environ[name] for name in PLACES if name in os.environ}
    values = _values(bare, site, point, run_dir)
    values |= {"body": FOLLOW_BODY, "warning_s": 0, "variables": places}
    return _filled(bare, site, values)


def _values(spec: SweepSpec, site: Site, point: Point, run_dir: Path) -> dict[str, object]:
    model = point.model
    warning_s = _warning_s(spec, site)
    return {
        "name": spec.name,
        "base": f"{site.scheduler}.sh.j2",
        "body": BODY,
        "run_id": point.run_id,
        "run_dir": str(run_dir),
        "logs": str(run_dir / "logs"),
        "directives": directives(spec.resources, site),
        "warning_s": warning_s,
        "soft_walltime": format_walltime(spec.resources.walltime - warning_s),
        "scratch": f'"{site.scratch}"' if site.scratch else '"${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"',
        "need_bytes": point.text.size_bytes + (model.size_bytes if model else 0) + SCRATCH_MARGIN_BYTES,
        "text_path": point.text.path,
        "model_parts": [str(Path(model.path) / part) for part in (model.name, *MODEL_FILES)] if model else [],
        "activation": activation(spec, site),
        "variables": variables(spec, site, point),
        "python": "python" if spec.environment.conda or spec.environment.venv else sys.executable,
        "sync_interval_s": site.sync_interval_s,
        "grace_s": (grace_s := max(1, site.kill_wait_s * 2 // 3)),
        "warning_grace_s": max(1, warning_s * 2 // 3) if warning_s else grace_s,
        "script": script_name(1),
        "round": 1,
        "pack": 1,
        "walltime_s": spec.resources.walltime,
        "gate": _gate(spec),
    }


def _warning_s(spec: SweepSpec, site: Site) -> int:
    return min(site.warning_s, spec.resources.walltime // 4)


def _gate(spec: SweepSpec) -> list[str]:
    """Return the words by which a task asks whether it is still worth running (`jobkit.run.gate`)."""
    prune = ["--prune"] if spec.policy.gpu_oom == "prune" else []
    return [*prune, "--stop-after", str(spec.policy.bug.stop_after)]


def activation(spec: SweepSpec, site: Site) -> list[str]:
    """Return the shell lines that make the environment ready, in order."""
    environment = spec.environment
    lines = list(site.setup)
    lines += [f"module load {shlex.quote(module)}" for module in environment.modules]
    if environment.conda:
        lines += ['eval "$(conda shell.bash hook)"', f"conda activate {shlex.quote(environment.conda)}"]
    if environment.venv:
        lines.append(f"source {shlex.quote(environment.venv + '/bin/activate')}")
    return [*lines, *environment.setup] or [":"]


def variables(spec: SweepSpec, site: Site, point: Point) -> dict[str, str]:
    """Return what is exported to the worker."""
    chosen = dict.fromkeys(ALLOCATOR_VARIABLES, point.allocator) if point.allocator else {}
    asked = {GPU_COUNT_VARIABLE: str(spec.resources.gpus)} if point.device == "cuda" else {}
    recorded = by_name(site.scheduler).RECORDED_VARIABLES
    if recorded:
        asked[MORE_VARIABLES] = " ".join(recorded)
    return {**{k: v for k, v in chosen.items() if v}, **asked, **spec.environment.variables}


def _check_header_path(run_dir: Path, scheduler: str) -> None:
    bad = sorted(set(by_name(scheduler).FORBIDDEN_PATH_CHARS) & set(str(run_dir)))
    if bad:
        raise JobkitError(
            f"run folder {run_dir}: {scheduler} cannot write logs to a path with {' '.join(bad)}",
            hint="choose another place with --runs-dir",
        )


def _check_paths(run_dir: Path, point: Point) -> None:
    for path in (str(run_dir), point.text.path, point.model.path if point.model else ""):
        if any(ord(char) < ord(" ") for char in path):
            raise JobkitError(
                f"{path!r}: a path with a control character cannot stand in a job script",
                hint="rename the folder",
            )
