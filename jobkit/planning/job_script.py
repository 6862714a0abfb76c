"""From a spec, a site and the inputs to the text of a job script, by a template."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import jinja2
from jinja2.bccache import Bucket

from jobkit.core.errors import JobkitError
from jobkit.core.extensions import of_name
from jobkit.core.extras import EXTRAS
from jobkit.core.files import MOST_BYTES, read_text
from jobkit.core.frozen import keyed
from jobkit.core.knobs import CUDA
from jobkit.core.paths import config_folder, shipped_folder
from jobkit.core.records import FOLDER, Point
from jobkit.core.units import format_walltime
from jobkit.planning.workload_traits import JobPython
from jobkit.schedulers.lint import refuse_script
from jobkit.schedulers.protocol import FOLLOW_BYTES, FOLLOW_S
from jobkit.schedulers.registry import SCHEDULERS, brought_folders, by_name, runs_here
from jobkit.spec.axes import Repeats
from jobkit.spec.site import Site, directives
from jobkit.spec.sweep_spec import Environment, Resources, SweepSpec
from jobkit.worker import process
from jobkit.worker.workloads.base import EXTRA_OF
from jobkit.worker.workloads.model import RESOURCES_FILE


def fill(name: str, own: str | None, values: Mapping[str, object]) -> tuple[str, set[str]]:
    """Fill a template with values; return the text and the names of the templates that took part.

    ``own``: the path of the spec's own template, which is not searched for.
    """
    try:
        environment, used = _templates(own)
        return environment.get_template(name).render(values), used
    except RecursionError as error:
        hint = f'a template that stands in for a shipped one extends it as "shipped/{values["base"]}"'
        raise JobkitError(f"template {name}: extends itself", hint=hint) from error
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = str(error)
        if isinstance(error, jinja2.TemplateNotFound):
            why = f"there is no template {error.name!r} to extend"
        if isinstance(error, jinja2.TemplateSyntaxError):
            place = f"{error.filename or error.name}:{error.lineno}"
        else:  # the innermost frame of a template
            frames = reversed(traceback.extract_tb(error.__traceback__))
            ours = (one for one in frames if not one.filename.endswith(".py") and one.filename[:1] != "<")
            place = next((f"{one.filename}:{one.lineno}" for one in ours), name)
        raise JobkitError(
            f"template {place}: {why}",
            hint="jobkit help templates-and-sites lists the values that a template may use",
        ) from error


def find_template(name: str, base: Path) -> str:
    """Return the absolute path of a spec's own template; a relative name is in the folder of the spec."""
    path = (base / os.path.expanduser(name)).absolute()  # noqa: PTH111 - a Path forgets the ./ of ./~
    if not path.is_file():
        raise JobkitError(f"there is no template {path}", hint="write one that says {% extends base %}")
    return str(path)


class _Compiled(jinja2.BytecodeCache):
    """Keeps the code of templates, by their text: to compile them is most of the time that a script takes."""

    def __init__(self) -> None:
        self.code: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self.code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.code[bucket.key, bucket.checksum] = bucket.code


_COMPILED = _Compiled()


def _templates(own: str | None) -> tuple[jinja2.Environment, set[str]]:
    """Return the loader of templates, and the set to which it adds each template that it looks for.

    The spec's own template is found by its path; then come the user's, then the shipped ones.
    """
    used: set[str] = set()

    def own_source(name: str) -> tuple[str, str, Callable[[], bool]] | None:
        used.add(name)
        if name != own:
            return None
        try:
            return read_text(name, MOST_BYTES), name, lambda: True
        except OSError as error:
            hint = "see `template` in the spec"
            raise JobkitError(f"template {name}: {error.strerror}", hint=hint) from error

    shipped = jinja2.FileSystemLoader(shipped_folder("templates"))
    loaders = [
        jinja2.FunctionLoader(own_source),
        jinja2.FileSystemLoader([config_folder() / "templates", *brought_folders()]),
        shipped,
        jinja2.PrefixLoader({"shipped": shipped}),
    ]
    environment = jinja2.Environment(  # noqa: S701 - shell, not HTML: every value goes through a quoting filter
        loader=jinja2.ChoiceLoader(loaders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=_COMPILED,
    )
    environment.filters.update({name: scheduler.header_path for name, scheduler in SCHEDULERS.items()})
    environment.filters["q"] = shlex.quote
    return environment, used


PROGRAMS = ("df", "find", "stat", "sed", "mktemp", "timeout", "truncate")
COPIER = "rsync"
SCRATCH_MARGIN_BYTES = 64 * 2**20
"""The space required on scratch beyond the inputs: results are a few MiB."""

FETCH_BODY = "fetch.sh.j2"
FIND_BODY = "find.sh.j2"
PLACES = ("JOBKIT_CONFIG", "JOBKIT_CACHE", "JOBKIT_LEDGER")
"""Variables that the job that follows needs from the user's shell; Grid Engine exports none."""


@keyed
class PointScript:
    """What differs between the job scripts of kinds of points; the defaults are those of a sweep."""

    # the space that the text, or what is made of it, needs on scratch, in multiples of the text's size
    text_sizes: int = 1
    # how the first complete rows of a try become the rows that count; ``None`` if no rows need to be claimed.
    # ``module`` claims the rows once they are home; its arguments are the run folder, the point and the try.
    # A try with the file ``manifest`` has complete rows. ``folder``, in the run folder, has a file
    # ``POINT.json`` for each point whose rows are claimed.
    claim: Mapping[str, str] | None = None


def job_values(spec: SweepSpec, site: Site, run_dir: Path, point: Point | None = None) -> dict[str, Any]:
    """Return what the template of a job may use; `jobkit help templates-and-sites` explains each value.

    ``point``: any point of the run, for they share text, model and device; ``None`` for a job that runs none.
    """
    text, model = (point.text, point.model) if point else (None, None)
    paths = [text.path if text else "", model.path if model else ""]
    for path in (str(run_dir), *paths):
        if any(ord(char) < ord(" ") for char in path):
            message = f"{path!r}: a path with a control character cannot stand in a job script"
            raise JobkitError(message, hint="rename the folder")
    binds = [path for path in (point.workload_folder if point else None, *paths) if path]
    model_parts: tuple[str, ...] = ()  # rsync's words for the model
    if model and model.kind == FOLDER:  # in a folder of Hugging Face's cache the files are links
        model_parts = "--copy-links", "--exclude=.*", f"{model.path}/"
    elif model:
        model_parts = f"{model.path}/{model.name}", f"{model.path}/{RESOURCES_FILE}"
    if image := spec.environment.container:
        if "://" not in image and not os.path.isabs(image):  # noqa: PTH117 - as for a folder of the spec
            raise JobkitError(
                f"environment.container: {image!r}: here it must be an absolute path or a URI",
                hint=f'--set environment.container="$PWD/{image}"',
            )
        _check_binds(str(run_dir), *binds)
    packed = spec.resources.model_copy(update={"walltime": spec.resources.walltime * spec.pack})
    warning_s = min(site.warning_s, spec.resources.walltime // 4)
    grace_s = max(1, site.kill_wait_s * 2 // 3)
    own = (of_name(point.kind.extension).script() if point else None) or PointScript()
    text_bytes = text.size_bytes * own.text_sizes if text else 0
    inputs_bytes = text_bytes + (model.size_bytes if model else 0)
    if point and point.command:
        inputs_bytes += 2 * sum(file.size_bytes for file in point.files)  # each try has a copy of its own
    return {
        "name": spec.name,
        "base": f"{site.scheduler}.sh.j2",
        "run_id": point.run_id if point else run_dir.name,
        "run_dir": str(run_dir),
        "logs": str(run_dir / "logs"),
        "directives": directives(packed, site),
        "queue": "".join(f"${{{name}:-}}" for name in by_name(site.scheduler).RECORDED_VARIABLES[:1]),
        "warning_s": warning_s,
        "soft_walltime": format_walltime(packed.walltime - warning_s),
        "scratch": f'"{site.scratch}"' if site.scratch else '"${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"',
        "need_bytes": inputs_bytes + SCRATCH_MARGIN_BYTES,
        "text_path": point.text.path if point and point.kind.from_text else "",
        "claim": own.claim,
        "files": bool(point and point.files),
        "model_parts": model_parts,
        # to a command `python` is that of the worker
        "activation": [
            *['export PATH="${python%/*}:$PATH"'] * bool(spec.command and spec.environment.python is None),
            *activation(spec.environment, site),
        ]
        or [":"],
        "package": EXTRAS[EXTRA_OF[point.workload]][0] if point and point.workload in EXTRA_OF else "",
        "variables": variables(spec, site, point),
        "python": spec.environment.python or sys.executable,
        "run_python": '"${container[@]}" "$python"' if spec.environment.container else '"$python"',
        "container": spec.environment.container,
        "gpus": spec.resources.gpus if point is None or point.device == CUDA else 0,
        "binds": binds,
        "sync_interval_s": site.sync_interval_s,
        "grace_s": grace_s,
        "warning_grace_s": max(1, warning_s * 2 // 3) if warning_s else grace_s,
        "walltime_s": spec.resources.walltime,
        "gate": _gate(spec),
        "pack": spec.pack,
        "fork": spec.fork,
        "body": "job.sh.j2",
        "script": "job.sh",
        "round": 1,
    }


def render(
    spec: SweepSpec,
    site: Site,
    point: Point,
    run_dir: Path,
    *,
    round_: int = 1,
    places: Sequence[str] = (),
) -> str:
    """Return the job script of a run.

    ``round_``: which submission of the run it is for: 1 is the sweep, later ones are `jobkit resume`.
    ``places``: folders besides text and model that a container must see.
    """
    spec = mailing_once(spec.model_copy(update={"resources": spec.resources.of(point)}), site)
    values = job_values(spec, site, run_dir, point)
    if places and spec.environment.container:
        _check_binds(*places)
        values["binds"] += places
    return _filled(spec, site, values | {"script": script_name(round_), "round": round_})


def check_programs() -> None:
    if absent := [name for name in PROGRAMS if not shutil.which(name)]:
        raise JobkitError(
            f"not on PATH: {', '.join(absent)}; a job script needs {'it' if len(absent) == 1 else 'them'}",
            hint="echo $PATH shows where they must be; on Debian: apt install coreutils findutils sed",
        )


def script_name(round_: int) -> str:
    return "job.sh" if round_ == 1 else f"job-{round_}.sh"


def _filled(spec: SweepSpec, site: Site, values: dict[str, Any]) -> str:
    if bad := sorted({*by_name(site.scheduler).FORBIDDEN_PATH_CHARS} & {*values["run_dir"]}):
        raise JobkitError(
            f"run folder {values['run_dir']}: {site.scheduler} cannot write logs to a path with "
            f"{' '.join(bad)}",
            hint="choose another place with --runs-dir",
        )
    name = spec.template or values["base"]
    text, templates = fill(name, spec.template, values)
    if spec.template and values["body"] == FIND_BODY and FIND_BODY not in templates:
        # The spec's own template names the body of a point, so it has no header for another body.
        return _filled(spec.model_copy(update={"template": None}), site, values)
    own = spec.resources.options.get(site.scheduler, [])
    origins = dict.fromkeys(directives(spec.resources, site), f"site {site.name!r}")
    origins |= dict.fromkeys(own, f"resources.options.{site.scheduler}")
    refuse_script(text, site.scheduler, f"template {name}", origins)
    return text


def render_errand(spec: SweepSpec, site: Site, run_dir: Path, body: str, **more: object) -> str:
    """Return the script of a job that runs no point, by the scheduler's own template.

    ``body``: the template of its work. ``more``: values of that template, added to those of `job_values` or
    replacing them.
    """
    plain = spec.model_copy(update={"template": None, "pack": 1})
    return _filled(plain, site, job_values(plain, site, run_dir) | {"body": body} | more)


def render_find(spec: SweepSpec, site: Site, point: Point, run_dir: Path) -> str:
    """Return the script of the job that runs the batch predicted by a sweep, with the request of a point."""
    find_purpose = "predicts the largest batch and tests it, with three batches at most."
    purpose = f"Runs after the sweep {spec.name}: {find_purpose}"
    asking = spec.model_copy(update={"resources": spec.resources.of(point)})
    return render_search(asking, site, point, run_dir, "jobkit.answers.search", purpose=purpose)


def render_search(
    spec: SweepSpec, site: Site, point: Point, run_dir: Path, module: str, **more: object
) -> str:
    """Return the script of a job that chooses its points itself, with the resources of the spec.

    It takes the header of the spec's own template, unless that template extends the body of a point by name.
    ``module`` prints the number of the next point; ``more`` has the values of `render_errand`, and as
    ``limit_s`` the walltime of a point if it has one.
    """
    spec = spec.model_copy(update={"pack": 1})
    values = job_values(spec, site, run_dir, point)
    values |= {"body": FIND_BODY, "module": module, "limit_s": 0} | more
    return _filled(spec, site, values | {"base": FIND_BODY} if runs_here(site.scheduler) else values)


def render_follow(spec: SweepSpec, site: Site, point: Point, run_dir: Path) -> str:
    """Return the script of the job that follows a sweep and runs points again as the policy says.

    It requests next to nothing, and runs the Python that ran `jobkit sweep`, which has all that a submission
    needs.
    """
    follow_purpose = "submits points again as its policy says, or records what a person must do."
    purpose = f"Runs after the sweep {spec.name}: {follow_purpose}"
    mail = spec.resources.mail if by_name(site.scheduler).MAILS_EACH_TASK else None
    resources = little(spec, site).model_copy(update={"mail": mail})
    return render_resume(spec, site, point, run_dir, resources, purpose)


def mailing_once(spec: SweepSpec, site: Site) -> SweepSpec:
    """Return the spec of points without their mail if each would send one, and `render_follow` sends it."""
    if not (by_name(site.scheduler).MAILS_EACH_TASK and spec.policy.follow_up):
        return spec
    return spec.model_copy(update={"resources": spec.resources.model_copy(update={"mail": None})})


def little(spec: SweepSpec, site: Site, **more: int) -> Resources:
    """Return the resources of a job that runs no point, on the site's queue for work without a GPU.

    ``more``: ``cpus``, ``memory`` (bytes), ``walltime`` (seconds), if it needs more than the least.
    """
    queue = site.cpu_queue or spec.resources.queue
    # Resources of the job that follows a sweep: it reads records, asks the scheduler and submits
    follow_resources = {
        "gpus": 0,
        "gpu_type": None,
        "cpus": 1,
        "memory": FOLLOW_BYTES,
        "walltime": FOLLOW_S,
        "constraint": None,
        "mail": None,
        "exclusive": False,
    }
    return spec.resources.model_copy(update=follow_resources | {"queue": queue} | more)


def render_resume(
    spec: SweepSpec, site: Site, point: Point, run_dir: Path, resources: Resources, purpose: str
) -> str:
    """Return the script of a job that runs ``jobkit resume`` on a node, by the Python that runs now."""
    changes = {"resources": resources, "template": None, "environment": Environment(), "pack": 1}
    bare = spec.model_copy(update=changes)
    places = {name: os.environ[name] for name in PLACES if name in os.environ}
    values = job_values(bare, site, run_dir, point)
    return _filled(
        bare, site, values | {"body": "follow.sh.j2", "warning_s": 0, "variables": places, "purpose": purpose}
    )


def _gate(spec: SweepSpec) -> list[str]:
    """Return the arguments of `jobkit.worker.skip_check`, which skips a task that is not worth running."""
    words = ["--prune"] if spec.policy.gpu_oom == "prune" else []
    words += ["--stop-after", str(spec.policy.bug.stop_after)]
    if isinstance(repeats := spec.repeats, Repeats):
        words += ["--share", f"{repeats.share:g}", "--repeats", str(repeats.least), str(repeats.most)]
    return words


def activation(environment: Environment, site: Site) -> list[str]:
    lines = [*site.setup, *(f"module load {shlex.quote(module)}" for module in environment.modules)]
    if environment.conda:
        lines += ['eval "$(conda shell.bash hook)"', f"conda activate {shlex.quote(environment.conda)}"]
    if environment.venv:
        lines.append(f"source {shlex.quote(environment.venv + '/bin/activate')}")
    lines += environment.setup
    checked = [re.sub(r"^(module|ml) ", r"checked \g<0>", line) for line in lines]
    # Modules 5 ends with 1 if a sticky module stays, as the site wants it.
    return [re.sub(r" purge$", r"\g<0> || [[ $why == *sticky* ]]", line) for line in checked]


def job_python(environment: Environment, site: Site) -> JobPython:
    """Return how the Python of the jobs starts on this machine, which runs no image."""
    if environment.python is None:
        return JobPython()
    lines = [f"{line} || exit" for line in activation(environment, site)]
    if environment.container:
        lines = [f"echo {shlex.quote(f'it is in {environment.container}')} >&2", "exit 1"]
    return JobPython("\n".join(['checked() { "$@"; }', *lines]), tuple(environment.variables.items()))


def variables(spec: SweepSpec, site: Site, point: Point | None) -> dict[str, str]:
    chosen = {}
    if point and point.allocator:
        chosen = dict.fromkeys(process.ALLOCATOR_VARIABLES, point.allocator)
    if point and point.device == "cuda":
        chosen[process.GPU_COUNT_VARIABLE] = str(spec.resources.gpus)
    if spec.resources.gpus and not by_name(site.scheduler).NAMES_GPUS:
        chosen[process.GPUS_BY_VARIABLE] = site.gpus or ""
    if point:
        chosen[process.MEMORY_VARIABLE] = str(spec.resources.memory)
    if point and point.kind.quarantines:
        limit = spec.policy.quarantine
        chosen[process.QUARANTINE_VARIABLE] = f"{limit.most:g} {limit.least}"
    recorded = by_name(site.scheduler).RECORDED_VARIABLES
    # Singularity and Apptainer set it inside a container (apptainer.org/docs/user, appendix)
    recorded += ("SINGULARITY_CONTAINER",) if spec.environment.container else ()
    if spec.environment.modules:
        recorded += (process.LOADED_VARIABLE,)
        chosen[process.MODULES_VARIABLE] = ":".join(spec.environment.modules)
    if point and recorded:
        chosen[process.MORE_VARIABLES] = " ".join(recorded)
    if point and point.command:
        chosen[process.GRACE_VARIABLE] = str(max(1, site.kill_wait_s * 2 // 3))
    return chosen | spec.environment.variables


def _check_binds(*paths: str) -> None:
    for path in paths:
        if {",", ":"} & set(path):
            raise JobkitError(
                f"{path}: a path with a comma or a colon cannot be bound into a container",
                hint="rename the folder; for the run folder, choose another place with --runs-dir",
            )
