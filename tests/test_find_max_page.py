"""docs/find-max.md is held to the run folders that it quotes."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.evidence import gather
from jobkit.predict import predict
from jobkit.run_folder import read_run
from jobkit.run_loads import loads_of, read_lengths
from jobkit.trials import said, trials

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "find-max.md").read_text(encoding="utf-8")
RUNS = sorted((ROOT / "docs" / "benchmarks" / "find-max").iterdir())


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_what_was_tried_stands_on_the_page(run: Path) -> None:
    told = said(trials(run))
    assert told
    for line in told:
        assert f"`{line}`" in PAGE


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_todays_bound_would_have_held_or_is_below_what_did_not(run: Path) -> None:
    results = [one for one in read_run(run).points if not one.point.point_id.endswith("-verify")]
    evidence = gather([one.chosen.record for one in results if one.chosen and one.chosen.record])
    assert not isinstance(evidence, str)
    loads = loads_of(read_lengths(run), [one.point for one in results])
    tried = trials(run)
    found = predict(evidence, tried[0].capacity_bytes, loads)
    failed = [one.batch_size for one in tried if not one.held]
    assert found.safe_batch < min(failed, default=found.safe_batch + 1)
    if failed:
        assert f"it names {found.safe_batch:,}." in PAGE
