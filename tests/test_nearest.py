from __future__ import annotations

import pytest

from jobkit.nearest import advice, nearest


@pytest.mark.parametrize(
    ("word", "said", "whole"),
    [
        ("slrum", "did you mean 'slurm'?", "; did you mean 'slurm'?"),
        ("pbs", "", "; one of: slurm, sge"),
        ("", "", "; one of: slurm, sge"),
    ],
)
def test_the_closest_word_or_all_of_them(word: str, said: str, whole: str) -> None:
    words = ["slurm", "sge"]
    assert advice(word, words) == said
    assert nearest(word, words) == whole


def test_a_word_of_the_schedulers_is_known_by_its_meaning() -> None:
    assert advice("partition", ["options", "queue"]) == "did you mean 'queue'?"
    assert advice("partition", ["options"]) == "did you mean 'options'?"
