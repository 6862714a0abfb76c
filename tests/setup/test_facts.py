from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobkit.setup.findings import Facts, read_facts


def test_what_the_script_said_and_what_python_found() -> None:
    facts = read_facts(
        "host=n1\nscratch.free= 1024\nworker=124\nactivation.said=a=b\n", '{"python": "3.11.7"}\n'
    )

    assert facts.said["host"] == "n1"
    assert facts.said["activation.said"] == "a=b"
    assert facts.number("scratch.free") == 1024
    assert facts.number("host") is None
    assert facts.number("nothing") is None
    assert facts.hung("worker")
    assert not facts.hung("examine")
    assert facts.python == {"python": "3.11.7"}


def test_what_is_cut_short_says_less() -> None:
    assert read_facts("host=n1\nscra", "") == Facts(said={"host": "n1"})
    assert read_facts("", '{"python": "3.1') == Facts()
    assert read_facts("", "[1]") == Facts()


@given(st.text(), st.text())
def test_nothing_is_too_odd_to_read(answer: str, examined: str) -> None:
    facts = read_facts(answer, examined)

    assert all("\n" not in key for key in facts.said)
    facts.number("worker")
