"""The setting that works through a corpus, from a run or from a spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.extensions.corpus.setting import MOST_WINDOW, AppliedSetting, find_setting
from jobkit.planning.resolve import Options
from jobkit.runs.results import read_run
from tests.support.applied import SPEC, measured_run
from tests.support.builders import ITEMS, with_shortcuts, write_record


def found(word: Path, *overrides: str, **options: str) -> AppliedSetting:
    return find_setting(word, Options(overrides=overrides, **options), build=False, say=lambda _: None)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return measured_run(tmp_path / "run")


def test_a_run_gives_what_recommend_names_and_what_was_measured(run: Path) -> None:
    setting = found(run)
    assert (setting.words, setting.point.params) == ("batch_size 50", {"batch_size": 50})
    assert setting.speed
    assert setting.speed.repeats == 3
    assert setting.peak_bytes
    assert setting.point.shard
    assert not setting.point.kind.swept
    assert setting.point.sort_window == setting.spec.sort_window == min(MOST_WINDOW, ITEMS)
    assert (setting.spec.repeats, setting.spec.find_max, setting.spec.pack) == (1, None, 1)


def test_a_request_that_changes_leaves_the_setting_as_it_was_measured(run: Path) -> None:
    setting = found(run, "resources.cpus=4", "resources.memory=2GiB")
    assert (setting.spec.resources.cpus, setting.point.threads) == (4, 1)
    assert setting.given == ("resources.cpus", "resources.memory")


def test_a_setting_whose_shortcuts_were_refused_has_none(run: Path) -> None:
    """With them its shards would end at once."""
    for result in read_run(run).points:
        assert result.record
        write_record(run, with_shortcuts(result.record, "another version"))
    setting = found(run)
    assert (setting.point.shortcuts, setting.spec.shortcuts) == ("off", "off")
    assert setting.speed
    assert setting.speed.repeats == 3
    assert setting.peak_bytes
    assert "refused" not in setting.words


@pytest.mark.parametrize("word", ["workers=2", "sweep.batch_size=[7]", "order=sorted", "text=a.txt"])
def test_a_key_of_the_setting_is_refused(run: Path, word: str) -> None:
    with pytest.raises(JobkitError, match="belongs to the setting"):
        found(run, word)


def test_the_setting_that_tune_wrote_goes_before_what_recommend_names(run: Path) -> None:
    (run / "setting.yaml").write_text("workers: 2\nsweep:\n  batch_size: [10]\n", encoding="utf-8")
    setting = found(run)
    assert (setting.point.params, setting.point.workers) == ({"batch_size": 10}, 2)


def test_a_scheduler_is_chosen_by_set_or_by_its_option(run: Path) -> None:
    assert found(run).spec.scheduler == "local"
    for setting in (found(run, "scheduler=slurm"), found(run, scheduler="slurm")):
        assert (setting.spec.scheduler, setting.site.scheduler) == ("slurm", "slurm")


def test_a_spec_with_several_settings_lists_them(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    with pytest.raises(JobkitError, match="2 settings") as refused:
        found(path)
    assert "\n  batch_size 10\n  batch_size 50" in refused.value.message
    path.write_text(SPEC.replace("[10, 50]", "[10]"), encoding="utf-8")
    setting = found(path)
    assert (setting.point.params, setting.speed) == ({"batch_size": 10}, None)


def test_what_is_neither_run_nor_spec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="neither a run folder nor a spec"):
        found(tmp_path)
