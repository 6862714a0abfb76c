"""Read the report that NVIDIA's DCGM prints of a job: ``dcgmi stats --job ID --verbose``. Pure.

What each figure counts is in the function ``JobGetStats`` of DCGM (https://github.com/NVIDIA/DCGM,
dcgmlib/src/DcgmHostEngineHandler.cpp) and in the reference of ``dcgmi stats``
(https://docs.nvidia.com/datacenter/dcgm/latest/reference/command-line-reference/dcgmi/dcgmi-stats.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SUFFIX = ".gpu-report"
"""How the names of such files end at the site whose reports jobkit knows."""
_GPU = re.compile(r"^\|\s*GPU ID:\s*(\d+)\s*\|\s*$", re.MULTILINE)
_ROW = re.compile(r"^\|\s*(?:-\s+)?(\S.*?)\s*\|\s*(\S.*?)\s*\|\s*$")
_NUMBER = r"(-?\d{1,18}(?:\.\d{1,9})?)"
_SPREAD = re.compile(rf"Avg:\s*{_NUMBER}\s*,\s*Max:\s*{_NUMBER}\s*,\s*Min:\s*{_NUMBER}")


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean, the largest and the smallest of DCGM's samples."""

    mean: float
    most: float
    least: float

    @property
    def single(self) -> bool:
        """Whether all three are the same, as they are of one sample."""
        return self.most == self.least


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """What DCGM reports of one GPU during a job; ``None`` for what the report does not have.

    Attributes
    ----------
    gpu
        DCGM's number of the GPU.
    seconds
        From the start of the job to its end.
    processes
        That DCGM saw on the GPU.
    energy_j
        The difference of the GPU's energy counter between DCGM's first sample in the job and its last.
    power_w
        Of the GPU.
    memory_peak_bytes
        The largest peak of one process, by the driver's accounting of each process that DCGM saw.
    sm_percent
        "SM Utilization": NVML's utilisation, the share of time in which any kernel ran.
    """

    gpu: int
    seconds: float | None = None
    processes: int | None = None
    energy_j: float | None = None
    power_w: Spread | None = None
    memory_peak_bytes: int | None = None
    sm_percent: Spread | None = None

    @property
    def one_sample(self) -> bool:
        """Whether DCGM's figures are of one sample: power is never the same twice."""
        return self.power_w is not None and self.power_w.single


def is_gpu_report(text: str) -> bool:
    """Return whether a text is a DCGM report of a job."""
    return bool(_GPU.search(text))


def parse_report(text: str) -> tuple[GpuReport, ...]:
    """Return what a report has of each GPU; lines of any other shape are passed over."""
    return tuple(_parse(text))


def _parse(text: str) -> Iterator[GpuReport]:
    _, *parts = _GPU.split(text)
    for number, body in zip(parts[::2], parts[1::2], strict=True):
        rows: dict[str, str] = {}
        for line in body.splitlines():
            if row := _ROW.match(line):
                rows.setdefault(row[1], row[2])
        yield GpuReport(
            gpu=int(number),
            seconds=_number(rows.get("Total Execution Time (sec)")),
            processes=_whole(rows.get("No. of Processes")),
            energy_j=_number(rows.get("Energy Consumed (Joules)")),
            power_w=_spread(rows.get("Power Usage (Watts)")),
            memory_peak_bytes=_whole(rows.get("Max GPU Memory Used (bytes)")),
            sm_percent=_spread(rows.get("SM Utilization (%)")),
        )


def _number(cell: str | None) -> float | None:
    found = re.fullmatch(_NUMBER, cell or "")
    return float(found[1]) if found and float(found[1]) >= 0 else None


def _whole(cell: str | None) -> int | None:
    number = _number(cell)
    return None if number is None else int(number)


def _spread(cell: str | None) -> Spread | None:
    found = _SPREAD.fullmatch(cell or "")
    return Spread(*map(float, found.groups())) if found else None
