"""Arrays that wait until a test releases them."""

from __future__ import annotations

HOLD = {"slurm": "--hold", "sge": "-h"}
RELEASE = {"slurm": ("scontrol", "release"), "sge": ("qrls",)}
"""What releases a job, or some of its tasks."""


def held_by(scheduler: str) -> str:
    """Return the value of ``resources.options`` with which an array waits to be released."""
    return f'{{{scheduler}: ["{HOLD[scheduler]}"]}}'
