"""What is to be done about each outcome, and at the end: the spec's ``policy`` and ``on_end``. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, PlainSerializer, model_validator

from jobkit.spec.axes import Percent
from jobkit.spec.fields import STRICT, number_written

Factor = Annotated[
    float,
    *number_written(
        r"^x\d+(\.\d+)?$",
        lambda factor: 1 < factor <= 100,
        "a factor is written like x1.5, and is more than 1",
    ),
    PlainSerializer(lambda value: f"x{value:g}"),
]
"""How many times as much: ``x1.5``."""

Tries = Annotated[int, Field(ge=0, le=10)]
"""How often a point is run again for one outcome; 0 for never."""


class _Part(BaseModel):
    model_config = STRICT


class RamOom(_Part):
    """Again with more memory.

    Attributes
    ----------
    memory
        How many times as much as the try before had.
    tries
        How often.
    """

    memory: Factor = 1.5
    tries: Tries = 2


class Timeout(_Part):
    """Again with a longer walltime; with the same if a batch hung.

    Attributes
    ----------
    walltime
        How many times as long as the try before had.
    tries
        How often.
    """

    walltime: Factor = 2.0
    tries: Tries = 1


class Again(_Part):
    """Again as it was.

    Attributes
    ----------
    tries
        How often.
    """

    tries: Tries = 2


class Bug(_Part):
    """When to give the sweep up.

    Attributes
    ----------
    stop_after
        How many points must fail the same way before those still to come end at once as
        ``stopped``; 0 for never.
    """

    stop_after: Annotated[int, Field(ge=0)] = 2


class Quarantine(_Part):
    """How many paragraphs of a corpus may go to quarantine before its shards end as ``bug``.

    Attributes
    ----------
    most
        The share of the paragraphs.
    least
        How many may in any case.
    """

    most: Percent = 0.001
    least: Annotated[int, Field(ge=0)] = 10


class Policy(_Part):
    """What is done about each outcome.

    Attributes
    ----------
    gpu_oom
        ``prune`` leaves larger loads on the same kind of GPU out; ``keep`` runs them all the same.
    ram_oom
        Again with more memory.
    timeout
        Again with a longer walltime; with the same if a batch hung.
    preempted, node_fail
        Again as it was, unless the scheduler does so by itself; after ``node_fail`` without that node.
    bug
        When to give the sweep up: also for ``environment``, ``model_missing`` and ``no_gpu``.
    quarantine
        How many paragraphs of a corpus may fail alone before the workload counts as broken.
    follow_up
        Whether a small job waits for the sweep to end and does all this, so that no one need be
        logged in. Without it `jobkit resume` does it.
    """

    gpu_oom: Literal["prune", "keep"] = "prune"
    ram_oom: RamOom = RamOom()
    timeout: Timeout = Timeout()
    preempted: Again = Again()
    node_fail: Again = Again()
    bug: Bug = Bug()
    quarantine: Quarantine = Quarantine()
    follow_up: bool = True


class Webhook(_Part):
    """An address to which the message is posted, by its variable or its file: a spec never has it.

    Attributes
    ----------
    env
        The variable that has the address.
    file
        The file that has it, which only you can read.
    format
        ``text`` is what Slack and Mattermost show, ``teams`` a card.
    """

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    file: Annotated[str, Field(min_length=1)] | None = None
    format: Literal["text", "teams"] = "text"

    @model_validator(mode="after")
    def _has_a_source(self) -> Webhook:
        if bool(self.env) == bool(self.file):
            raise ValueError("should have env or file, the variable or the file that has the address")
        return self


class OnEnd(_Part):
    """Who is told, once a run, that it has ended, has failed or needs you.

    Attributes
    ----------
    command
        A program and its arguments, which gets the message as JSON; no shell reads them.
    webhook
        An address that gets it.
    """

    command: Annotated[list[str], Field(min_length=1)] | None = None
    webhook: Webhook | None = None

    @property
    def outlets(self) -> dict[str, Webhook | list[str]]:
        given = {"command": self.command, "webhook": self.webhook}
        return {name: outlet for name, outlet in given.items() if outlet}

    def of_folder(self, folder: Path) -> OnEnd:
        """Return it with program and file as seen from anywhere, for a spec in this folder."""
        command, webhook = self.command, self.webhook
        if command and "/" in command[0]:
            command = [str(folder.absolute() / Path(command[0]).expanduser()), *command[1:]]
        if webhook and webhook.file:
            path = folder.absolute() / Path(webhook.file).expanduser()
            webhook = webhook.model_copy(update={"file": str(path)})
        return OnEnd(command=command, webhook=webhook)
