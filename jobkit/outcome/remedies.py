"""What to do about each outcome: commands to type, in order. The one table behind every hint. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from jobkit.core.records import Outcome
from jobkit.core.torch_build import cuda_install_command
from jobkit.run.failure import (
    CPU_BUILD,
    HANG,
    NO_DRIVER,
    NO_GPU_ASSIGNED,
    NO_GPU_REQUESTED,
    NO_MPS,
    NO_PROFILER,
    NO_SHORTCUTS,
    OLD_DRIVER,
)


class Kind(StrEnum):
    """What a step is for."""

    CHANGE = "change"
    """It changes the run: jobkit runs or cancels points, or the scheduler releases them."""
    FIX = "fix"
    """It fixes the cause: the points get what they lacked."""
    LOOK = "look"
    LOG = "log"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class Step:
    """A command to type, and what it does."""

    command: str
    does: str
    kind: Kind = Kind.CHANGE


RESUME = "jobkit resume {run}"
STATUS = "jobkit status {run} {point}"
"""`jobkit.status.needs` computes it."""
AGAIN = (Step(RESUME, "run it again"),)
LOG = Step("jobkit logs {run} {point}", "read its log", Kind.LOG)
FIXED = Step(f"{RESUME} {{point}}", "once it is fixed")
LOOK = Step("jobkit doctor --submit", "check from inside a job what is missing", Kind.LOOK)
CUDA = Step("nvidia-smi", "check there that the driver answers, and which CUDA it supports", Kind.LOOK)

REMEDIES: Mapping[Outcome, tuple[Step, ...]] = {
    Outcome.OK: (),
    Outcome.GPU_OOM: (),
    Outcome.PRUNED: (Step(f"{RESUME} {{point}}", "run it anyway"),),
    Outcome.RAM_OOM: (Step(STATUS, "how much memory it needs", Kind.LOOK),),
    Outcome.TIMEOUT: (Step(STATUS, "how much walltime it needs", Kind.LOOK),),
    **dict.fromkeys((Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.LOST), AGAIN),
    Outcome.GPU_BUSY: (Step(RESUME, "once no other process uses the GPU, run it again"),),
    Outcome.QUEUE_ERROR: (
        Step("jobkit cancel {run} {point}", "cancel its job, which cannot begin"),
        Step(RESUME, "once it is fixed"),
    ),
    Outcome.NO_GPU: (LOOK, Step(RESUME, "once a job gets a GPU")),
    Outcome.ENVIRONMENT: (
        LOG,
        Step(f"{RESUME} --set environment.venv=FOLDER", "in another environment", Kind.FIX),
        Step(RESUME, "or once this one is fixed"),
    ),
    Outcome.MODEL_MISSING: (LOG, Step(RESUME, "once the model is complete")),
    Outcome.SCRATCH_FULL: (
        Step(RESUME, "once there is room on the node, or `scratch` in the site file names another place"),
    ),
    Outcome.STAGE_IN: (LOG, Step(RESUME, "once text and model are restored")),
    Outcome.STAGE_OUT: (Step(RESUME, "once there is room in the run folder, run it again"),),
    Outcome.STOPPED: (Step(RESUME, "once what stopped the sweep is fixed"),),
    Outcome.BUG: (LOG, FIXED),
}
"""By outcome; ``{run}`` and ``{point}`` stand for the run folder and the point's number."""

NO_GPU = {
    NO_GPU_REQUESTED: (Step(f"{RESUME} --set resources.gpus=1", "again with a GPU", Kind.FIX),),
    NO_DRIVER: (
        CUDA,
        Step(f"{RESUME} --set resources.queue=NAME", "on nodes with an NVIDIA driver", Kind.FIX),
    ),
    NO_GPU_ASSIGNED: (LOOK, Step(RESUME, "once `requests.gpus` in the site file asks for one")),
}
"""The remedies of `Outcome.NO_GPU` by what its message holds."""
IN_CONTAINER, NO_IMAGE, NO_ENGINE = (
    "in the container",
    "there is no image",
    "neither apptainer nor singularity",
)
"""In the message of `Outcome.ENVIRONMENT` if the point has a container: the job script writes it."""
KEPT = "kept in "
"""In the message of `Outcome.STAGE_OUT` if the node's scratch still holds the results."""
BY_MESSAGE = {
    (Outcome.STAGE_OUT, KEPT): (
        Step(
            STATUS,
            "copy out/ from the folder that keeps them into the folder of the try, before the node cleans it",
            Kind.LOOK,
        ),
    ),
    (Outcome.ENVIRONMENT, IN_CONTAINER): (
        LOG,
        LOOK,
        Step(
            f"{RESUME} --set environment.container=IMAGE", "in another image, by its absolute path", Kind.FIX
        ),
        Step(RESUME, "or once this image has what it lacks"),
    ),
    (Outcome.ENVIRONMENT, NO_IMAGE): (
        LOOK,
        Step(f"{RESUME} --set environment.container=IMAGE", "in an image that the nodes see", Kind.FIX),
        Step(RESUME, "or once this one is there"),
    ),
    (Outcome.ENVIRONMENT, NO_ENGINE): (
        LOOK,
        Step(
            f"{RESUME} --set 'environment.modules=[apptainer]'",
            "with the module that has apptainer",
            Kind.FIX,
        ),
        Step(f"{RESUME} --set resources.queue=NAME", "or on nodes that have it", Kind.FIX),
    ),
    (Outcome.ENVIRONMENT, NO_MPS): (
        Step(
            f"{RESUME} --set resources.queue=NAME", "on nodes that can; or `mps: auto` in a new run", Kind.FIX
        ),
    ),
    (Outcome.ENVIRONMENT, NO_SHORTCUTS): (
        Step(
            f"{RESUME} --set environment.venv=FOLDER",
            "with another Stanza; or measure with `shortcuts: off`, and apply that run",
            Kind.FIX,
        ),
    ),
    (Outcome.ENVIRONMENT, NO_PROFILER): (
        Step("pip install 'jobkit[profile]'", "in the environment of the job", Kind.FIX),
        Step(RESUME, "then run it again"),
    ),
    (Outcome.TIMEOUT, HANG): (
        LOG,
        Step(
            f"{RESUME} {{point}}",
            "if its node was at fault; if a batch takes so long, start a new run with a larger `hang_s`",
        ),
    ),
}
"""The remedies of an outcome if its message holds these words."""


def remedy(outcome: Outcome, message: str, *, run: str, point: int, alone: bool = False) -> tuple[Step, ...]:
    """Return what to type about an outcome, in order.

    Parameters
    ----------
    message
        Of the outcome: it decides between several remedies.
    run
        The run folder, as a shell takes it.
    point
        The point's number.
    alone
        Whether to run only this point, and not all points that failed.
    """
    pairs = ((step, _of_point(step.command) if alone else step.command) for step in _steps(outcome, message))
    return tuple(replace(step, command=command.format(run=run, point=point)) for step, command in pairs)


def _of_point(command: str) -> str:
    """Return a command for one point, if it would run all points that failed."""
    return command if "{point}" in command else command.replace(RESUME, f"{RESUME} {{point}}")


def _steps(outcome: Outcome, message: str) -> tuple[Step, ...]:
    if outcome is not Outcome.NO_GPU:
        found = (steps for (of, words), steps in BY_MESSAGE.items() if of is outcome and words in message)
        return next(found, REMEDIES[outcome])
    if build := CPU_BUILD.search(message):
        new_torch = Step(_plain(cuda_install_command(build["python"])), "install a torch for CUDA", Kind.FIX)
        return (new_torch, Step(RESUME, "then run it again"))
    if OLD_DRIVER in message:
        return (
            CUDA,
            Step(_plain(cuda_install_command("python")), "a torch for that CUDA", Kind.FIX),
            Step(RESUME, "then run it again"),
        )
    return next((steps for words, steps in NO_GPU.items() if words in message), REMEDIES[outcome])


def _plain(command: str) -> str:
    """Return a command that `str.format` leaves as it is."""
    return command.replace("{", "{{").replace("}", "}}")
