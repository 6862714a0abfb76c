"""What a program may have of each kind of GPU: data, with the report that each figure is from.

A GPU holds less than its name says: the driver keeps a part, and on some GPUs error correction
another. What is left is what CUDA reports (the "total capacity" of torch's out-of-memory message) or,
if no such report was available, what nvidia-smi of a driver before 510 reports, which leaves the
driver's part out too. Drivers differ by up to 2 percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from jobkit.core.errors import JobkitError
from jobkit.core.frozen import keyed
from jobkit.core.terminal import suggest
from jobkit.core.units import GIB

MIG_A100 = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html"
MIG_H100 = "https://jbarrow.ai/field_notes/nvidia-mig/"


@keyed
class GpuKind:
    name: str  # as a user types it
    usable_bytes: int  # what CUDA has on it, the context included
    nvml_name: str = ""  # A part of its name as NVML reports it; empty for a part of a GPU
    link: str = ""  # if the figure is from


def _gib(name: str, usable_gib: float, nvml_name: str, link: str) -> GpuKind:
    return GpuKind(name=name, usable_bytes=int(usable_gib * GIB), nvml_name=nvml_name, link=link)


GPUS: dict[str, GpuKind] = {
    gpu.name: gpu
    for gpu in (
        # MIG: the column Memory of `nvidia-smi mig -lgip`; the profiles are those of the guide.
        _gib("mig-1g.5gb", 4.75, "", MIG_A100),
        _gib("mig-2g.10gb", 9.75, "", MIG_A100),
        _gib("mig-1g.10gb", 9.75, "", MIG_H100),
        _gib(
            "rtx2080ti",
            10_989 / 1024,
            "2080 Ti",
            "https://github.com/karfly/learnable-triangulation-pytorch/issues/80",
        ),
        _gib("t4", 14.56, "T4", "https://github.com/Zheng-Chong/CatVTON/issues/133"),
        _gib("v100-16", 16_130 / 1024, "V100", "https://github.com/yangjianxin1/GPT2-chitchat/issues/19"),
        _gib("p100", 16_280 / 1024, "P100", "https://dnascent.readthedocs.io/en/latest/workflows.html"),
        _gib("mig-3g.20gb", 19.62, "", MIG_A100),
        _gib("mig-4g.20gb", 19.62, "", MIG_A100),
        _gib("mig-1g.20gb", 19.62, "", MIG_H100),
        _gib("mig-2g.20gb", 19.62, "", MIG_H100),
        _gib("l4", 21.96, "L4", "https://github.com/vllm-project/vllm/issues/12539"),
        _gib("a10", 21.99, "A10", "https://github.com/zai-org/CogVLM/issues/236"),
        _gib("rtx4090", 23.52, "4090", "https://github.com/Soul-AILab/SoulX-FlashTalk/issues/5"),
        _gib("a30", 23.53, "A30", "https://github.com/google/RB-Modulation/issues/5"),
        _gib("rtx3090", 23.56, "3090", "https://github.com/noonghunna/club-3090/issues/58"),
        _gib("v100-32", 32_480 / 1024, "V100", "https://github.com/godweiyang/GrabGPU/issues/5"),
        _gib("a100-40", 39.50, "A100", "https://github.com/TianheWu/CoSeR/issues/10"),
        _gib("mig-3g.40gb", 39.50, "", MIG_H100),
        _gib("mig-4g.40gb", 39.50, "", MIG_H100),
        # of an L40; an L40S reported 44.53 GiB
        _gib("l40s", 44.40, "L40", "https://github.com/QwenLM/Qwen3-VL/issues/2097"),
        _gib("h100", 79.11, "H100", "https://github.com/vllm-project/vllm/issues/27508"),
        _gib("a100-80", 79.14, "A100", "https://github.com/lianqi1008/Control-GIC/issues/6"),
        # NVML's total of 140.40 GiB less the reserve of 0.601 GiB that it reports on an idle GPU
        _gib("h200", 139.79, "H200", "docs/what-is-measured.md"),
    )
}

COMMON_GPUS = (
    "rtx2080ti",
    "mig-2g.10gb",
    "t4",
    "v100-16",
    "rtx3090",
    "v100-32",
    "a100-40",
    "a100-80",
    "h100",
    "h200",
)


def gpu_kind(name: str) -> GpuKind:
    key = name.strip().lower()
    if key not in GPUS:
        hint = "for any other GPU give its memory: --gpu-memory 48GiB"
        sizes = [kind for kind in GPUS if key and kind.startswith(f"{key}-")]
        meant = f"; which one: {', '.join(sizes)}?" if sizes else suggest(key, list(GPUS))
        raise JobkitError(f"--gpu {name.strip()!r}: no such GPU{meant}", hint=hint)
    return GPUS[key]


def gpu_kinds(names: str) -> tuple[GpuKind, ...]:
    """Return the GPUs of names with commas between, each once; ``all`` for every GPU of the table."""
    named = [name.strip() for name in names.split(",") if name.strip()]
    if not named:
        raise JobkitError(f"--gpu {names!r} names no GPU", hint="for instance --gpu v100-32,a100-40, or all")
    kinds = (GPUS.values() if name.lower() == "all" else [gpu_kind(name)] for name in named)
    return tuple(dict.fromkeys(chain.from_iterable(kinds)))


def common_gpus() -> Sequence[GpuKind]:
    return sorted(map(gpu_kind, COMMON_GPUS), key=lambda kind: kind.usable_bytes)


def usable_bytes(nvml_name: str | None, total_bytes: int) -> int:
    """Return the bytes that CUDA has of NVML's total; that total if the GPU is not in the table."""
    same = (
        kind.usable_bytes
        for kind in GPUS.values()
        if kind.nvml_name
        and kind.nvml_name in (nvml_name or "")
        # a GPU of the table has between this share and all of NVML's total
        and 0.95 * total_bytes <= kind.usable_bytes <= total_bytes
    )
    return max(same, default=total_bytes)
