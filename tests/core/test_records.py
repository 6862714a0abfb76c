from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core import json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import Value
from jobkit.core.layout import Exit, read_exit
from jobkit.core.measurements import Metric, ShortcutCheck
from jobkit.core.records import PROFILED, SHARD, SWEPT, TIMED, TRIAL, Outcome, Record
from tests.support.builders import point, record

RECORD = replace(record(point()), inert=("batch_size",), metrics={"f1": Metric(value=0.91, unit="1")})
DATA: dict[str, Any] = json.loads(json_codec.to_json(RECORD))


def test_a_record_reads_back_as_it_was_and_of_an_earlier_jobkit_without_what_it_lacks() -> None:
    checked = replace(RECORD, check=ShortcutCheck(seconds=2.5, gpu_peak_bytes=3, rss_peak_bytes=4))
    data = json.loads(json_codec.to_json(checked))
    assert json_codec.from_dict(Record, data, where="x") == checked
    for name in ("needs", "failed_load", "retries", "metrics", "metrics_bad_lines", "check"):
        del data[name]
    for name in ("cap_bytes", "shortcuts"):
        del data["point"][name]
    assert json_codec.from_dict(Record, data, where="x") == replace(RECORD, metrics={})


def test_keys_of_a_later_jobkit_are_ignored_and_a_later_schema_is_not() -> None:
    assert json_codec.from_dict(Record, {**DATA, "later": 1}, where="x") == RECORD
    with pytest.raises(JobkitError, match="is newer than this"):
        json_codec.from_dict(Record, {**DATA, "schema": json_codec.SCHEMA + 1}, where="x")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outcome": "fine"}, "x: 'fine' is no Outcome"),
        ({"try_number": "1"}, "x: '1' where int is expected"),
        ({"metrics": []}, r"x: \[\] where dict is expected"),
        ({"metrics": {"f1": 0.9}}, "x: not a Metric: '0.9'"),
        ({"point": None}, "x: not a Point: 'None'"),
        ({"inert": "a"}, "x: 'a' where list is expected"),
        ({"memory": {"context_bytes": []}}, r"x: \[\] where int is expected"),
        ({"needs": [3]}, "x: not a Need: '3'"),
        ({"needs": [{"load": 3}]}, "x: not a Need: lacks allocated_bytes, reserved_bytes, passed_bytes,"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], said: str) -> None:
    with pytest.raises(JobkitError, match=said):
        json_codec.from_dict(Record, {**DATA, **change}, where="x")


json_scalars = st.none() | st.booleans() | st.integers() | st.text()
json_lists = st.lists(json_scalars) | st.dictionaries(st.text(), json_scalars)
# Two levels by hand: st.recursive warns in rare runs that it does not recurse.
json_values = json_scalars | json_lists | st.dictionaries(st.text(), json_lists)


@given(json_values)
def test_any_json_is_a_record_or_a_jobkit_error(value: object) -> None:
    with pytest.raises(JobkitError):
        json_codec.from_json(Record, json.dumps(value), where="x")


def test_an_exit_file(tmp_path: Path) -> None:
    path = tmp_path / "exit"
    path.write_text("status=1\nstage=stage_in\noutcome=stage_in\nsignal=\nmessage=a = b\nscratch=\nhost=n1\n")
    expected = Exit(status=1, stage="stage_in", outcome=Outcome.STAGE_IN, message="a = b", host="n1")
    assert read_exit(path) == expected


@pytest.mark.parametrize("text", ["", "status=\n", "stage=run\n", "status=0\noutcome=nonsense\n"])
def test_what_is_no_exit_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "exit"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(JobkitError, match="not an exit file"):
        read_exit(path)


@pytest.mark.parametrize(
    ("planned", "ran", "shortcuts", "added"),
    [
        (None, None, None, {}),
        ("off", "off", "off", {}),
        ("exact", None, "exact", {}),  # it ended before its first batch
        ("exact", "exact", "exact", {}),
        ("exact", "off: another version", "off: another version", {"shortcuts": "refused"}),
        ("exact", "exact, off: another version", "exact, off: another version", {"shortcuts": "refused"}),
        (None, "7", "7", {}),
    ],
)
def test_shortcuts_that_were_refused_are_a_setting_of_their_own(
    planned: str | None, ran: str | None, shortcuts: str | None, added: dict[str, str]
) -> None:
    effective = {} if ran is None else {"shortcuts": ran}
    size: dict[str, Value] = {"batch_size": 2}
    for params in (size, {**size, "shortcuts": planned or ""}):
        said = replace(RECORD, point=replace(point(), shortcuts=planned, params=params), effective=effective)
        assert (said.ran("shortcuts"), said.params) == (shortcuts, {**params, **added})
        assert said.point.params == params
        assert json_codec.from_json(Record, json_codec.to_json(said), where="x") == said


def test_what_a_point_is_for_follows_from_its_fields() -> None:
    swept = point()
    assert replace(swept, trial=True).kind is TRIAL
    assert replace(swept, profile="torch").kind is PROFILED
    assert replace(swept, phase="final").kind is TIMED
    assert replace(swept, shard=True).kind is SHARD
    assert swept.kind is SWEPT
    assert replace(swept, phase="memory").kind.measures_need
