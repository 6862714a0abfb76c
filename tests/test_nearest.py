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
