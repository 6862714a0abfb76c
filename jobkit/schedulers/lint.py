"""What a job script holds that its scheduler ignores, or takes for something else. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from jobkit.core.errors import JobkitError
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.script import Finding, IsFolder, read_script

PLACED = "late"
"""The rule about where a line stands, which is the template's doing, whatever the line says."""


@dataclass(frozen=True, slots=True)
class Linted:
    """A script that was looked through.

    Attributes
    ----------
    name
        What to call it.
    found
        What was found, by the schedulers that its directives are for, in the order of lines.
    """

    name: str
    found: Mapping[str, tuple[Finding, ...]]

    @property
    def findings(self) -> list[tuple[str, Finding]]:
        """All that was found, by line, each with its scheduler."""
        pairs = [(scheduler, one) for scheduler, some in self.found.items() for one in some]
        return sorted(pairs, key=lambda pair: pair[1].line)

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        findings = [{"scheduler": scheduler, **asdict(one)} for scheduler, one in self.findings]
        return {"script": self.name, "schedulers": list(self.found), "findings": findings}

    def lines(self) -> list[str]:
        """Return it for a person: each finding with its place, what comes of it, and the mend."""
        told = []
        for scheduler, one in self.findings:
            of = f" ({SCHEDULERS[scheduler].TITLE})" if len(self.found) > 1 else ""
            told.append(f"{self.name}:{one.line}: {one.text.strip()}")
            told.append(f"    {one.effect}{of}: {one.told}")
            told.append(f"    {one.mend}")
        return told


def lint(text: str, name: str = "job script", is_folder: IsFolder | None = None) -> Linted:
    """Look through a job script.

    Parameters
    ----------
    text
        The script. Its directives tell which schedulers it is for: one, several or none.
    name
        What to call it.
    is_folder
        Tells of a path whether it is a folder, from where the script is submitted; ``None`` where
        folders are not to be looked for. The path may begin with ``~``, and hold ``$HOME`` and ``$USER``.
    """
    script = read_script(text, is_folder)
    results = ((name, scheduler.lint(script)) for name, scheduler in SCHEDULERS.items())
    return Linted(name, {scheduler: found for scheduler, found in results if found is not None})


def refuse_script(text: str, scheduler: str, template: str, origins: Mapping[str, str]) -> None:
    """Raise where a rendered script holds what its scheduler would ignore, or take for something else.

    Parameters
    ----------
    text
        The script. Its log folder is made when it is submitted, so folders are not looked for.
    scheduler
        The one that gets it.
    template
        What the script was made from.
    origins
        Of header lines without their prefix: where they come from.

    Raises
    ------
    JobkitError
        With all that was found, and how to mend the first.
    """
    found = lint(text).found.get(scheduler, ())
    if found:
        told = []
        for one in found:
            origin = "" if one.rule == PLACED else origins.get(one.text.partition(" ")[2], "")
            told.append(f"{origin + ': ' if origin else ''}{one.text.strip()}: {one.told}")
        raise JobkitError("\n  ".join([f"{template}: {told[0]}", *told[1:]]), hint=found[0].mend)


def summary(scripts: Sequence[Linted]) -> str:
    """Return in a line what came of looking through some scripts."""
    found = sum(len(script.findings) for script in scripts)
    what = f"{found} finding{'' if found == 1 else 's'}" if found else "nothing found"
    return f"{what} in {len(scripts)} script{'' if len(scripts) == 1 else 's'}"
