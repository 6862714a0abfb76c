"""Debian's chromium, headless: tests that use it have the mark ``program(BROWSER)``."""

from __future__ import annotations

import subprocess
from pathlib import Path

BROWSER = "chromium"
DEADLINE_S = 180
A4 = "--window-size=718,1000"
"""A window as wide as what is printed on a sheet, 190 mm."""


def visit(folder: Path, address: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Open an address with a profile in a folder; the browser gets no network but this machine."""
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile")
    offline = ("--proxy-server=127.0.0.1:9", "--enable-logging=stderr", "--virtual-time-budget=8000")
    argv = [BROWSER, *fixed, *offline, *options, address]
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
