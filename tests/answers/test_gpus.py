from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobkit.answers.gpus import COMMON_GPUS, GPUS, common_gpus, gpu_kind, gpu_kinds, usable_bytes
from jobkit.core.errors import JobkitError
from jobkit.core.units import GIB

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "recommend.md").read_text(encoding="utf-8")


def test_every_card_has_its_source_and_they_stand_in_ascending_memory() -> None:
    sizes = [one.usable_bytes for one in GPUS.values()]
    assert sizes == sorted(sizes)
    for one in GPUS.values():
        assert one.link.startswith("https://") or (ROOT / one.link).is_file()
    assert [gpu.name for gpu in common_gpus()] == sorted(
        COMMON_GPUS, key=lambda name: GPUS[name].usable_bytes
    )


def test_the_page_has_every_card_with_its_memory_and_its_source() -> None:
    told = re.findall(r"^\| `([\w.-]+)` \| ([\d.]+) \| \[[^]]+\]\((\S+)\) \|$", PAGE, re.MULTILINE)
    assert told == [
        (one.name, f"{one.usable_bytes / GIB:.2f}", one.link.removeprefix("docs/")) for one in GPUS.values()
    ]


def test_a_card_holds_less_than_its_name_says() -> None:
    for one in GPUS.values():
        if named := re.search(r"-(?:\dg\.)?(\d+)(?:gb)?$", one.name):
            assert 0.94 * int(named[1]) < one.usable_bytes / GIB < int(named[1])


def test_an_unknown_card_is_refused_with_the_nearest() -> None:
    for name, told in (("v100-23", "did you mean 'v100-32'?"), ("v100", "which one: v100-16, v100-32?")):
        with pytest.raises(JobkitError, match=re.escape(f"no such GPU; {told}")) as caught:
            gpu_kind(name)
        assert "--gpu-memory" in (caught.value.hint or "")


def test_what_nvml_tells_holds_the_drivers_reserve() -> None:
    assert usable_bytes("NVIDIA H200", 150_754_820_096) == GPUS["h200"].usable_bytes
    assert usable_bytes("Tesla V100-SXM2-32GB", 32 * GIB) == GPUS["v100-32"].usable_bytes
    assert usable_bytes("NVIDIA H200", 40 * GIB) == 40 * GIB, "a part of that card"
    assert usable_bytes("Another card", 140 * GIB) == 140 * GIB
    assert usable_bytes(None, GIB) == GIB


def test_names_in_any_case_with_commas_or_all_are_each_card_once() -> None:
    assert [kind.name for kind in gpu_kinds("V100-32, mig-2g.10gb,v100-32,")] == ["v100-32", "mig-2g.10gb"]
    assert gpu_kinds("all") == tuple(GPUS.values())
    assert set(gpu_kinds("all,h100")) == set(GPUS.values())
    for nothing in ("", " , "):
        with pytest.raises(JobkitError, match="names no GPU"):
            gpu_kinds(nothing)
