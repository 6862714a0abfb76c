"""Find what a scheduler ignores in a job script, or reads differently. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from jobkit.core.errors import JobkitError
from jobkit.core.frozen import frozen
from jobkit.core.units import format_count
from jobkit.schedulers.parsed_script import IsFolder, LintFinding, read_script
from jobkit.schedulers.registry import SCHEDULERS


@frozen
class Linted:
    name: str  # its name
    found: Mapping[str, tuple[LintFinding, ...]]  # by scheduler, in the order of lines

    @property
    def findings(self) -> list[tuple[str, LintFinding]]:
        pairs = [(scheduler, finding) for scheduler, some in self.found.items() for finding in some]
        return sorted(pairs, key=lambda pair: pair[1].line)

    def as_json(self) -> dict[str, object]:
        findings = [{"scheduler": scheduler} | asdict(finding) for scheduler, finding in self.findings]
        return {"script": self.name, "schedulers": list(self.found), "findings": findings}

    def lines(self) -> list[str]:
        """Return the findings for a person: each with its place, its effect, and the fix."""
        rows = []
        for scheduler, finding in self.findings:
            of = f" ({SCHEDULERS[scheduler].TITLE})" if len(self.found) > 1 else ""
            rows.append(f"{self.name}:{finding.line}: {finding.text.strip()}")
            rows.append(f"    {finding.effect}{of}: {finding.message}")
            rows.append(f"    {finding.hint}")
        return rows


def lint(text: str, name: str = "job script", is_folder: IsFolder | None = None) -> Linted:
    """Return the findings in a job script; its directives decide for which schedulers: one, several or none.

    ``is_folder`` sees from the folder of the submission; ``None`` to check no folders. The path may begin
    with ``~``, and hold ``$HOME`` and ``$USER``.
    """
    script = read_script(text, is_folder)
    results = ((name, scheduler.lint(script)) for name, scheduler in SCHEDULERS.items())
    return Linted(name, {scheduler: found for scheduler, found in results if found is not None})


def refuse_script(text: str, scheduler: str, template: str, origins: Mapping[str, str]) -> None:
    """Raise if the scheduler would ignore something in a rendered script, or read it differently.

    Folders are not checked: the submission makes the log folder. ``origins`` are of the header lines, by the
    line without its prefix.
    """
    found = lint(text).found.get(scheduler, ())
    if found:
        rows = []
        for finding in found:
            # The rule about the place of a line, for which the template is responsible
            origin = "" if finding.rule == "late" else origins.get(finding.text.partition(" ")[2], "")
            rows.append(f"{origin + ': ' if origin else ''}{finding.text.strip()}: {finding.message}")
        raise JobkitError("\n  ".join([f"{template}: {rows[0]}", *rows[1:]]), hint=found[0].hint)


def summary(scripts: Sequence[Linted]) -> str:
    found = sum(len(script.findings) for script in scripts)
    what = format_count(found, "finding") if found else "nothing found"
    return f"{what} in {format_count(len(scripts), 'script')}"
