"""The reports that DCGM prints of jobs.

What each figure counts is in the function ``JobGetStats`` of DCGM (https://github.com/NVIDIA/DCGM,
dcgmlib/src/DcgmHostEngineHandler.cpp) and in the reference of ``dcgmi stats``
(https://docs.nvidia.com/datacenter/dcgm/latest/reference/command-line-reference/dcgmi/dcgmi-stats.html).
"""

from __future__ import annotations

import re

from jobkit.core.frozen import frozen, keyed

SUFFIX = ".gpu-report"
"""How the names of such files end at the site whose reports jobkit knows."""
_GPU = re.compile(r"^\|\s*GPU ID:\s*(\d+)\s*\|\s*$", re.MULTILINE)
_NUMBER = r"(-?\d{1,18}(?:\.\d{1,9})?)"


@frozen
class Spread:
    mean: float
    most: float
    least: float


@keyed
class GpuReport:
    """DCGM's report on one GPU during a job; ``None`` for what the report does not have."""

    gpu: int  # DCGM's number of the GPU
    seconds: float | None = None  # from the start of the job to its end
    processes: int | None = None  # the number of processes that DCGM saw on the GPU
    # the difference of the GPU's energy counter between DCGM's first sample in the job and its last
    energy_j: float | None = None
    power_w: Spread | None = None
    # the largest peak of one process, by the driver's accounting of each process that DCGM saw
    memory_peak_bytes: int | None = None
    # "SM Utilization": NVML's utilisation, the share of time in which any kernel ran
    sm_percent: Spread | None = None

    @property
    def one_sample(self) -> bool:
        """Whether DCGM's figures come from one sample: power never repeats."""
        return self.power_w is not None and self.power_w.most == self.power_w.least


def is_gpu_report(text: str) -> bool:
    return bool(_GPU.search(text))


def parse_report(text: str) -> list[GpuReport]:
    found, (_, *parts) = list[GpuReport](), _GPU.split(text)
    for number, body in zip(parts[::2], parts[1::2], strict=True):
        rows: dict[str, str] = {}
        for line in body.splitlines():
            if row := re.match(r"^\|\s*(?:-\s+)?(\S.*?)\s*\|\s*(\S.*?)\s*\|\s*$", line):
                rows.setdefault(row[1], row[2])
        report = GpuReport(
            gpu=int(number),
            seconds=_number(rows.get("Total Execution Time (sec)")),
            processes=_whole(rows.get("No. of Processes")),
            energy_j=_number(rows.get("Energy Consumed (Joules)")),
            power_w=_spread(rows.get("Power Usage (Watts)")),
            memory_peak_bytes=_whole(rows.get("Max GPU Memory Used (bytes)")),
            sm_percent=_spread(rows.get("SM Utilization (%)")),
        )
        found.append(report)
    return found


def _number(cell: str | None) -> float | None:
    number = re.fullmatch(_NUMBER, cell or "")
    return float(number[1]) if number and float(number[1]) >= 0 else None


def _whole(cell: str | None) -> int | None:
    number = _number(cell)
    return None if number is None else int(number)


def _spread(cell: str | None) -> Spread | None:
    spread = re.fullmatch(rf"Avg:\s*{_NUMBER}\s*,\s*Max:\s*{_NUMBER}\s*,\s*Min:\s*{_NUMBER}", cell or "")
    return Spread(*map(float, spread.groups())) if spread else None
