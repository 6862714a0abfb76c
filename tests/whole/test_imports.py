"""What is imported when: a heavy package costs time at every `jobkit --help`, and may not be on a node."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.archives import RECORDS
from jobkit.core.command_list import LISTED

SWEEP = RECORDS / "gpu" / "stanza-20261121-034558-42cc"

HEAVY = "pandas numpy jinja2 yaml pydantic rich submitit torch stanza matplotlib pyarrow"


def imported(code: str) -> set[str]:
    """Return the heavy packages that a fresh Python has after some code."""
    show = f"import sys; print('\\n' + ' '.join(name for name in {HEAVY.split()} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def asked_for(*arguments: str) -> str:
    """Return code that runs the command line in this process."""
    return f"from jobkit import cli\nassert cli._exit_code({list(arguments)}) == 0\n"


def test_help_imports_nothing_heavy() -> None:
    """One Python prints all of them: what any of them imports stays imported."""
    words = [("--help",), ("--version",), *((name, "--help") for name in LISTED)]
    assert imported("".join(asked_for(*arguments) for arguments in words)) == set()


NODE = (
    "jobkit.cli",
    "jobkit.extensions.corpus.readers",
    "jobkit.extensions.corpus.rows",
    "jobkit.extensions.corpus.vectors",
    "jobkit.extensions.corpus.winners",
    "jobkit.extensions.corpus.work",
    "jobkit.extensions.profile.work",
    "jobkit.answers.memory",
    "jobkit.extensions.tune.search",
    "jobkit.worker.__main__",
    "jobkit.worker.skip_check",
    "jobkit.worker.workloads.in_file",
    "jobkit.worker.workloads.stanza_ner",
)


def test_what_a_node_needs_is_light_and_so_is_loading_a_run_until_its_frame_is_asked_for() -> None:
    assert imported(f"import jobkit, {', '.join(NODE)}; jobkit.load") == set()


def test_a_recommendation_of_a_sweep_loads_no_extension() -> None:
    loaded = "[name for name in sys.modules if name.startswith('jobkit.extensions.')]"
    imported(f"{asked_for('recommend', str(SWEEP))}import sys\nassert not {loaded}, {loaded}")


@pytest.mark.parametrize("command", ["collect", "status"])
def test_a_table_of_a_sweep_reads_no_spec(command: str) -> None:
    """Only that of a search does, for the limit that its spec asks for, and of a run that tells its end."""
    assert "pydantic" not in imported(asked_for(command, str(SWEEP)))


def test_the_test_itself_sees_a_heavy_package() -> None:
    assert imported("import yaml") == {"yaml"}
