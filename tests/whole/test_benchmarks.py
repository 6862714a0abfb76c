"""The raw data of jobkit's own speed is complete, and the statistics are right."""

from __future__ import annotations

import math
import re
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import archives, intervals, measurements, past_jobs_public
from benchmarks.__main__ import NAMES
from tests.support.surveys import DATA


def test_every_benchmark_has_raw_data() -> None:
    assert {path.stem for path in archives.RECORDS.glob("*.json")} >= {*NAMES, *measurements.SHOWN}


@pytest.mark.parametrize("without", ["", "Submit"])
def test_an_export_of_sacct_is_replayed_in_the_order_of_its_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], without: str
) -> None:
    """The jobs of a real Slurm: an export without the time of submission has that of the start."""
    rows = [line.split("|", 23) for line in (DATA / "slurm/export-practice.txt").read_text().splitlines()]
    kept = [place for place, column in enumerate(rows[0]) if column != without]
    export = "\n".join("|".join(row[place] for place in kept) for row in rows)
    (tmp_path / "lab.txt").write_text(export + "\n", encoding="utf-8")
    past_jobs_public.main([str(tmp_path)])
    said = capsys.readouterr().out
    assert "40 tasks; they used 0.002577 GiB-hours" in said
    killed = {line[:33].strip(): float(line[33:].split()[0]) for line in said.splitlines()[2:]}
    assert (killed["as asked"], killed["jobkit"]) == (0, 0)
    assert killed["the largest so far"] > 0, "the jobs of a name of its own each are one group that grows"


def test_an_export_without_the_columns_is_refused_with_those_that_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lab.txt").write_text("JobID|JobName|State\n1|fit|COMPLETED\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        past_jobs_public.main([str(tmp_path)])
    assert "--format=JobID,User" in capsys.readouterr().err


@pytest.mark.parametrize("repeats", ["3", "auto"])
def test_the_interval_of_a_time_holds_or_a_warning_is_printed(repeats: str) -> None:
    """The same simulation with fewer cases: the functions of jobkit decide."""
    chance = 2.5 * math.sqrt(0.95 * 0.05 / 200)
    normal, skewed = intervals.SCATTERS[1], intervals.SCATTERS[-1]
    assert intervals.simulate_mean(normal, repeats, 200).held >= 0.95 - chance
    for place in intervals.PLACES[:4]:
        cell = intervals.simulate(normal, place, repeats, 200)
        assert cell.held >= 0.95 - chance
        assert not cell.warnings
    assert all(intervals.simulate(skewed, place, repeats, 5).warnings for place in intervals.PLACES)
    assert all(intervals.simulate(normal, place, repeats, 5).warnings for place in intervals.PLACES[4:])


def test_an_archive_that_several_unpack_at_once_is_unpacked_whole(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        (folder,) = set(pool.map(lambda _: archives.group("cpu", tmp_path), range(4)))
    files = {str(path.relative_to(folder.parent)) for path in folder.rglob("*") if path.is_file()}
    assert list(tmp_path.iterdir()) == [folder.parent]
    with tarfile.open(archives.RECORDS / "cpu.tar.xz") as packed:
        assert files == set(packed.getnames())


def test_an_archive_has_no_trace_of_who_made_it_and_when() -> None:
    for path in archives.RECORDS.glob("*.tar.xz"):
        with tarfile.open(path) as packed:
            files = packed.getmembers()
        assert [file.name for file in files] == sorted(file.name for file in files), path
        traces = {(file.uid, file.gid, file.uname, file.gname, file.mtime, file.mode) for file in files}
        assert traces == {(0, 0, "", "", 0, 0o644)}, path


def test_every_fault_on_purpose_still_applies() -> None:
    """A commit that moves such a line rewrites the patch: ``python -m benchmarks.mutants``."""
    patches = sorted((archives.RECORDS.parent / "mutants").glob("*.patch"))
    assert len(patches) == 20
    for patch in patches:
        text = patch.read_text(encoding="utf-8")
        (file,) = re.findall(r"^--- a/(\S+)$", text, re.MULTILINE)
        now = (archives.RECORDS.parents[1] / file).read_text(encoding="utf-8")
        for hunk in re.split(r"^@@.*\n", text, flags=re.MULTILINE)[1:]:
            before = "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] in " -")
            assert before in now, f"{patch.name}: {file} has changed there"
