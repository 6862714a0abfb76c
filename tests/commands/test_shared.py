"""The commands together: the same thing has the same name, kind and help in each."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click
import pytest

from jobkit.commands import collect, init, resume, verify
from jobkit.core.errors import JobkitError
from tests.support.builders import grid, write_points
from tests.support.command_reference import commands

READING = ("status", "collect", "recommend", "preflight", "doctor", "lint", "models list", "models path")
OF_ITS_OWN = {
    "--only": "what is written, or which points run again",
    "--dry-run": "apply prints its plan",
    "--format": "of a table, or of the rows of a corpus",
    "--scheduler": "init reads no spec",
    "--wait": "profile and apply print no table",
    "--output": "of a merge there is a default",
    "--corpus": "of recommend it may be a number",
    "--gpu-memory": "one kind of value; its use depends on the command",
}
DEFAULTS_DIFFER = {"--size": "tiny is built quickly; a spec that names no size means full"}


def options() -> dict[str, dict[str, click.Option]]:
    """Return by name of option the commands that have it."""
    found: dict[str, dict[str, click.Option]] = defaultdict(dict)
    for name, command in commands():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                for option in parameter.opts:
                    found[option][name] = parameter
    return found


def test_an_option_of_several_commands_is_the_same_in_each() -> None:
    for name, holders in options().items():
        kinds = {
            (
                holder.name,
                type(holder.type),
                str(getattr(holder.type, "choices", "")),
                holder.multiple,
                holder.is_flag,
                holder.metavar,
                holder.help,
            )
            for holder in holders.values()
        }
        assert len(kinds) == 1 or name in OF_ITS_OWN, f"{name}: {kinds}"
        assert len({str(holder.default) for holder in holders.values()}) == 1 or name in {
            *DEFAULTS_DIFFER,
            *OF_ITS_OWN,
        }


def test_an_argument_of_several_commands_has_one_name_and_kind() -> None:
    shown = defaultdict(set)
    for name, command in commands():
        for parameter in command.params:
            if isinstance(parameter, click.Argument):
                metavar = parameter.make_metavar(click.Context(command)).strip("[].")
                shown[metavar].add(name)
    assert {"jobkit resume", "jobkit cancel", "jobkit throttle", "jobkit verify"} <= shown["RUN"]
    assert {"jobkit resume", "jobkit cancel"} <= shown["POINT"]
    assert {"jobkit sweep", "jobkit preflight"} <= shown["SPEC"]


@pytest.mark.parametrize("name", READING)
def test_every_command_that_reads_has_json(name: str) -> None:
    assert f"jobkit {name}" in options()["--json"]


@pytest.mark.parametrize("name", ["resume", "cancel", "throttle", "verify"])
def test_a_command_that_changes_a_run_says_which_is_the_latest(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = dict(commands())[f"jobkit {name}"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError, match=r"Missing argument 'RUN'\.$"):
        command.main(args=[], prog_name=name, standalone_mode=False)
    write_points(tmp_path / "runs" / "old-20260102-101530-3f9a", grid([10]))
    write_points(tmp_path / "runs" / "new-20260103-101530-3f9a", grid([10]))
    with pytest.raises(click.UsageError, match=f"jobkit {name} runs/new-20260103-101530-3f9a$"):
        command.main(args=[], prog_name=name, standalone_mode=False)


def test_old_names_work_and_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command, old, value in (
        (verify.verify, "--memory", "16"),
        (init.init, "--site", str(tmp_path)),
        (collect.collect, "--format", "json"),
        (resume.resume, "--only", "1"),
    ):
        assert f"{old} " not in command.get_help(click.Context(command)) or old in OF_ITS_OWN
        with pytest.raises((JobkitError, click.UsageError)) as caught:
            command.main(
                args=[*(["no-run"] if command is not init.init else []), old, value], standalone_mode=False
            )
        assert "No such option" not in str(caught.value)
