"""No point and no row was lost in the soaks of docs/measurements.md."""

from __future__ import annotations

from benchmarks.soak_page import APPLY_RAW, reports


def test_every_point_ended_once_with_an_outcome() -> None:
    found = reports()
    assert [(one["scheduler"], one["points"]) for one in found] == [("slurm", 500), ("sge", 200)]
    for one in found:
        assert (one["lost_points"], one["twice"], one["without_outcome"]) == (0, 0, 0)
        assert one["rounds"][-1] == {"ok": one["points"]}
        assert {"client", "worker", "job script"} <= one["kills"].keys()
        assert one["kills"].keys() & {"slurmd", "node down", "execd"}


def test_every_row_of_a_corpus_is_there_once() -> None:
    found = reports(APPLY_RAW)
    assert [(one["scheduler"], one["shards"]) for one in found] == [("slurm", 500), ("sge", 200)]
    for one in found:
        assert (one["lost"], one["doubled"], one["byte_equal"]) == (0, 0, True)
        assert {"client", "worker", "job script", "disk filled"} <= one["kills"].keys()
        assert one["kills"].keys() & {"slurmd", "node down", "execd"}
        assert one["superseded"]
