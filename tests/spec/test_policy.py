from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from jobkit.spec.policy import Policy


@pytest.mark.parametrize("factor", ["1.5", "x", "x1", "x0.5", "x101", "xnan", "xinf", "2x", 2, None])
def test_a_factor_that_is_none(factor: object) -> None:
    with pytest.raises(ValidationError, match=r"a factor is written like x1\.5, and is more than 1"):
        Policy.model_validate({"ram_oom": {"memory": factor}})


@given(st.integers(101, 10_000))
def test_a_factor_is_written_as_it_is_read(hundredths: int) -> None:
    text = f"x{hundredths / 100:g}"
    dumped = Policy.model_validate({"timeout": {"walltime": text}}).model_dump(mode="json")
    assert dumped["timeout"]["walltime"] == text
