from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobkit.setup import findings
from jobkit.setup.findings import Facts, Finding, Status, fine, missing, warning

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
MISSING = missing("partition", "the cluster has no partition 'gqu'", "change `queue` in site.yaml")


def test_a_command_and_a_long_path_are_never_folded() -> None:
    command = "/env/bin/python -m pip install --force-reinstall torch --index-url https://a.org/whl/cu126"
    *_, words, pasted = findings.lines(missing("torch", "a CPU build", f"another build:\n{command}"), 60)
    assert (words.strip(), pasted.strip()) == ("-> another build:", command)
    path = "/" + "a-b/" * 60
    found = findings.lines(warning("cache", f"{path} is on ext4", f"export JOBKIT_CACHE={path}"))
    assert [path in line for line in found].count(True) == 2


@pytest.mark.parametrize("told", [[], [fine("a", ""), warning("b", "said", "hint"), fine("c", ""), MISSING]])
def test_the_json_holds_all_of_it_and_counts_each_status(told: list[Finding]) -> None:
    said = json.loads(json.dumps(findings.as_json(told)))

    assert said["schema"] == 1
    found = [Finding(**row | {"status": Status(row["status"])}) for row in said["findings"]]
    assert found == told
    assert said["counts"] == {status: sum(one.status is status for one in told) for status in Status}


def read(folder: Path, answer: str, examined: str) -> Facts:
    (folder / findings.ANSWER_FILE).write_text(answer, encoding="utf-8")
    (folder / findings.EXAMINED_FILE).write_text(examined, encoding="utf-8")
    return findings.read_facts(folder)


def test_what_the_script_said_and_what_python_found(tmp_path: Path) -> None:
    said = "host=n1\nscratch.free= 1024\nworker=124\nactivation.said=a=b\n"
    facts = read(tmp_path, said, '{"python": "3.11.7"}\n')
    assert (facts.said["host"], facts.said["activation.said"]) == ("n1", "a=b")
    numbers = [facts.number(key) for key in ("scratch.free", "host", "nothing")]
    assert numbers == [1024, None, None]
    assert (facts.hung("worker"), facts.hung("examine")) == (True, False)
    assert facts.python == {"python": "3.11.7"}
    assert read(tmp_path, "host=n1\nscra", "") == Facts({"host": "n1"}, {}), "what is cut short says less"
    assert read(tmp_path, "", '{"python": "3.1') == read(tmp_path, "", "[1]") == Facts({}, {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXT, TEXT)
def test_nothing_is_too_odd_to_read(tmp_path: Path, answer: str, examined: str) -> None:
    assert all("\n" not in key for key in read(tmp_path, answer, examined).said)
