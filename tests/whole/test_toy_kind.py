"""A kind of run that jobkit does not have, added from outside: the kernel shows it without a change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.commands.change import resume
from jobkit.commands.status import status
from jobkit.core.extensions import EXTENSIONS, Extension, Part
from jobkit.launch.resume import Asked, Resumption
from jobkit.runs.status import NextStep, RunKind, RunStatus
from tests.support.builders import grid, record, write_points, write_record

MARK, PRIZE = "tombola.json", "prize.txt"


class Tombola(RunKind):
    """A run of which each point is a ticket, and the first is drawn once all are sold."""

    noun = "ticket"

    def title(self, run: RunStatus) -> str:
        return f"tombola {run.name}"

    def settle(self, folder: Path) -> str:
        (folder / PRIZE).write_text("a cake", encoding="utf-8")
        return "the prize is a cake"

    def status_lines(self, run: RunStatus) -> Iterator[str]:
        yield f"{len(run.points)} tickets are sold"

    def status_data(self, run: RunStatus) -> Mapping[str, object]:
        return {"tombola": {"sold": len(run.points)}}

    def looks(self, run: RunStatus, typed: str) -> Iterator[NextStep]:
        yield f"cat {typed}/{PRIZE}", "what there is to win"
        yield from super().looks(run, typed)


class DrawAgain(Resumption):
    """A tombola draws, and runs no ticket again."""

    def resume(self, run_dir: Path, asked: Asked) -> int:
        del asked
        print(f"drawn in {run_dir.name}")  # noqa: T201 - what a person sees
        return 0


TOMBOLA, DRAW = Tombola(), DrawAgain()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run of two points that are done, which a file marks as a tombola."""
    tombola = Extension(marks=(MARK,), run=Part(f"{__name__}:TOMBOLA"), resume=Part(f"{__name__}:DRAW"))
    monkeypatch.setitem(EXTENSIONS, "tombola", tombola)
    points = [replace(point, run_id="spring") for point in grid([50, 100])]
    folder = write_points(tmp_path / "runs" / "spring", points)
    for point in points:
        write_record(folder, record(point))
    (folder / MARK).touch()
    return folder


def test_status_shows_its_lines_its_data_its_steps_and_its_end(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status.main([str(run)], standalone_mode=False) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "tombola spring: 2 points: 2 done"
    assert "2 tickets are sold" in told
    assert f"next: cat {run}/{PRIZE}   # what there is to win" in told
    assert told[-1] == "the prize is a cake"
    assert (run / PRIZE).is_file()
    assert status.main([str(run), "--json"], standalone_mode=False) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["tombola"] == {"sold": 2}
    assert [step["command"] for step in found["next"]] == [f"cat {run}/{PRIZE}", f"jobkit collect {run}"]


def test_it_is_one_of_the_other_runs_by_its_noun_and_resume_goes_on_as_it_says(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parents[1])
    write_points(run.with_name("summer"), [replace(point, run_id="summer") for point in grid([50])])
    status.main([], standalone_mode=False)
    assert "  runs/spring  2 tickets, all begun" in capsys.readouterr().out
    assert resume.main([str(run)], standalone_mode=False) == 0
    assert capsys.readouterr().out == "drawn in spring\n"
