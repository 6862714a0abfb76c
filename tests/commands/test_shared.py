"""The commands together: the same thing has the same name, kind and help in each."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click
import pytest

from jobkit import cli
from jobkit.commands import change
from jobkit.extensions.profile import rerun
from jobkit.launch import resume as launch_resume
from tests.support.builders import grid, write_points
from tests.support.command_reference import commands
from tests.support.commands import called

OF_ITS_OWN = {
    "--install": "jobkit on a host, or the packages of a practice cluster",
    "--only": "what is written, or which points run again",
    "--all": "of status points or runs, of doctor findings",
    "--format": "of a table, or of the rows of a corpus",
    "--scheduler": "init reads no spec",
    "--wait": "profile and apply print no table",
    "--output": "of a merge there is a default",
    "--corpus": "of recommend it may be a number",
    "--gpu-memory": "one kind of value; its use depends on the command",
}


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
        kinds = set()
        for one in holders.values():
            choices = str(getattr(one.type, "choices", ""))
            kinds.add((one.name, type(one.type), choices, one.multiple, one.is_flag, one.metavar, one.help))
        assert len(kinds) == 1 or name in OF_ITS_OWN, f"{name}: {kinds}"
        defaults = {str(holder.default) for holder in holders.values()}
        assert len(defaults) == 1 or name in OF_ITS_OWN


@pytest.mark.parametrize("name", ["resume", "cancel", "verify"])
def test_a_command_that_changes_a_run_says_which_is_the_latest(name: str, here: Path) -> None:
    command = dict(commands())[f"jobkit {name}"]
    with pytest.raises(click.UsageError, match=r"Missing argument 'RUN'\. No run of jobkit sweep is"):
        command.main(args=[], prog_name=name, standalone_mode=False)
    write_points(here / "runs" / "old-20260102-101530-3f9a", grid([10]))
    write_points(here / "runs" / "new-20260103-101530-3f9a", grid([10]))
    with pytest.raises(click.UsageError, match=f"jobkit {name} runs/new-20260103-101530-3f9a$"):
        command.main(args=[], prog_name=name, standalone_mode=False)


def test_a_removed_command_says_what_does_it_now(capsys: pytest.CaptureFixture[str]) -> None:
    for words, now in {
        "throttle runs/old 2": "ArrayTaskThrottle=2",
        "--on hec throttle --help": "qalter -tc N JOB",
        "shell first.yaml --point 3 --go": "bash job.sh 3",
        "models list --json": "jobkit models does it",
        "models path en --size tiny": "jobkit models prints name",
        "doctor gone.sh --all": "jobkit lint gone.sh",
        "doctor ./tagger.py:tag": "check ./tagger.py:tag does",
        "doctor stanza-ner --json": "check stanza-ner does",
        "help throttle": "ArrayTaskThrottle=N",
    }.items():
        assert cli._exit_code(words.split()) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert " is removed: " in said
        assert now in said


def test_the_words_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done with them: tests/launch/test_verify.py, tests/extensions/profile/test_rerun.py."""
    found: list[object] = []

    def takes(*arguments: object, **options: object) -> int:
        found.append((arguments, options))
        return 4

    monkeypatch.setattr(launch_resume, "verify", takes)
    monkeypatch.setattr(rerun, "profile", takes)
    monkeypatch.chdir(tmp_path)
    run = write_points(tmp_path / "run", grid((10,)))
    assert called(change.verify, "run") == 4
    assert called(change.verify, "run", "--gpu-memory", "device", "--stand-in") == 4
    assert called(change.profile, "run") == 4
    words = "3 --with python --again --wait --set resources.walltime=1h"
    assert called(change.profile, "run", *words.split()) == 4
    assert found == [
        ((run,), {"memory": None, "stand_in": False}),
        ((run,), {"memory": "device", "stand_in": True}),
        ((run, None, None, ()), {"again": False, "wait": False}),
        ((run, "3", "python", ("resources.walltime=1h",)), {"again": True, "wait": True}),
    ]
