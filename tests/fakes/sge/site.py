"""The cluster that the fake plays: the practice cluster."""

from __future__ import annotations

HOST = "localhost"
QUEUES = ("gpu.q", "serial.q")
SLOTS = 8
"""Of each queue."""
OFFERED = {"ngpus": 2, "ncpus": 8}
"""Consumables of the host, with how much of them there is."""
PES = ("smp",)
MAX_TASKS = 75_000
PORT = 6444
