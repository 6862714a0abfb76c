from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.shell import Completed
from jobkit.schedulers.parsing import bytes_of, expand_tasks, refusal, seconds_of, task_ranges

TASKS = st.lists(st.integers(1, 10_000), min_size=1, unique=True).map(sorted)


@given(TASKS, st.sampled_from(["", "%2", "%50"]))
def test_a_whole_list_comes_back_whole(tasks: list[int], throttle: str) -> None:
    text = "[" + ",".join(map(str, tasks)) + throttle + "]"

    assert list(expand_tasks(text)) == tasks


@given(TASKS, st.data())
def test_a_list_cut_off_anywhere_never_invents_a_task(tasks: list[int], data: st.DataObject) -> None:
    text = "[" + ",".join(map(str, tasks)) + "]"
    cut = text[: data.draw(st.integers(1, len(text) - 1))]

    assert set(expand_tasks(cut)) <= set(tasks)


LISTS = {
    "1,3-9:2,11-12:2,13-13:1": (1, 3, 5, 7, 9, 11, 13),
    "[1,4,...%2]": (1, 4),
    "[1,4,5...%2]": (1, 4),
    "[1,4,28,": (1, 4, 28),
    "undefined": (),
}


def test_lists_as_the_schedulers_print_them() -> None:
    assert {text: expand_tasks(text) for text in LISTS} == LISTS


@given(TASKS)
def test_ranges_are_read_back_and_as_few_as_can_be(tasks: list[int]) -> None:
    ranges = task_ranges(reversed(tasks))

    assert list(expand_tasks(",".join(ranges))) == tasks
    assert len(ranges) == sum(task - 1 not in tasks for task in tasks)


def test_what_a_command_refused() -> None:
    over = re.compile("gone")
    assert refusal(Completed(("kill",), 0, "", "a warning"), over) is None
    assert refusal(Completed(("kill",), 1, "3 is gone\n", "4 is yours?\n"), over) == "4 is yours?"
    assert refusal(Completed(("kill",), 1, "3 is gone\n", ""), over) is None
    assert refusal(Completed(("kill",), 3, "", ""), over) == "kill ended with status 3"


SIZES = {
    "323760K": 323760 * 1024, "50M": 50 * 2**20, "2G": 2**31, "0.000B": 0, "4.5KB": 4608, "12345": 12345,
    "1g": 10**9, "1.5m": 1_500_000, "2k": 2000, "": None, "NONE": None, "12Q": None,
}  # fmt: skip
SECONDS = {
    "90": 90, "0.5s": 0.5, "10:00": 600, "1:00:00": 3600, "2-00:00:00": 172800, "infinite": None, "": None,
}  # fmt: skip


def test_sizes_and_durations() -> None:
    assert {text: bytes_of(text) for text in SIZES} == SIZES
    assert {text: seconds_of(text) for text in SECONDS} == SECONDS
