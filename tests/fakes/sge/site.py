"""The cluster that the fake plays: the practice cluster."""

from __future__ import annotations

HOST = "localhost"
QUEUES = ("gpu.q", "serial.q")
SLOTS = 8
"""Of each queue."""
PES = ("smp",)
PORT = 6444
