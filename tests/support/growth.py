"""How a calculation grows with its input: a limit in seconds would depend on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def growth(task: Callable[[int], object], few: int, many: int) -> float:
    """Return how many times the CPU time of few a task takes of many: the least of four attempts."""

    def takes_s(number: int) -> float:
        begin = time.process_time()
        task(number)
        return time.process_time() - begin

    takes_s(few)
    return min(takes_s(many) / takes_s(few) for _ in range(4))
