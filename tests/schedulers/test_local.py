from __future__ import annotations

import json

import pytest

from jobkit.core.shell import Completed
from jobkit.schedulers import local

ROW = {"job_id": "7", "task": 2, "evidence": "process finished", "host": "n1", "elapsed_s": 1.5}


def test_the_driver_accounts_for_its_points() -> None:
    (one,) = local.parse_accounting(Completed((), 0, json.dumps(ROW) + "\n\n", "")) or ()
    assert (one.job_id, one.task, one.ended, one.outcome) == ("7", 2, True, None)
    assert (one.node, one.elapsed_s) == ("n1", 1.5)


@pytest.mark.parametrize("text", ["{", "[]", '{"job_id": 7}'])
def test_what_is_no_accounting_is_unknown(text: str) -> None:
    assert local.parse_accounting(Completed((), 0, text, "")) is None
