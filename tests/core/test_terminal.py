from __future__ import annotations

import pytest

from jobkit.core.terminal import did_you_mean, suggest, suggest_key


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
    assert did_you_mean(word, words) == said
    assert suggest(word, words) == whole


WORDS = {"partition": "resources.queue", "job_name": "name", "G": "resources.gpus", "nodes": "one node only"}


@pytest.mark.parametrize(
    ("names", "keys", "said"),
    [
        (["resources", "partition"], ["gpus", "queue"], "; did you mean 'queue'?"),
        (["resources", "--partition"], ["gpus", "queue"], "; did you mean 'queue'?"),
        (["partition"], ["name"], "; did you mean 'resources.queue'?"),
        (["Partition"], ["name"], "; did you mean 'resources.queue'?"),
        (["resources", "job-name"], ["gpus"], "; did you mean 'name', at the top?"),
        (["job_name"], ["name"], "; did you mean 'name'?"),
        (["resources", "G"], ["gpus"], "; did you mean 'gpus'?"),
        (["resources", "g"], ["gpus"], ""),
        (["resources", "nodes"], ["gpus"], "; one node only"),
        (["quue"], ["name"], ""),
        (["include", 0], [], ""),
    ],
)
def test_another_programs_word_names_the_key(names: list[int | str], keys: list[str], said: str) -> None:
    assert suggest_key(names, WORDS, keys) == said
