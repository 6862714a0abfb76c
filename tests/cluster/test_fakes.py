"""What the fakes of tests/fakes are held to is what the real daemons show."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.contract import expected, observe


def test_the_real_one_shows_what_the_fake_is_held_to(scheduler: str, tmp_path: Path) -> None:
    seen, kept = observe(scheduler, tmp_path), expected(scheduler)
    for key in kept:
        assert seen[key] == kept[key], key
