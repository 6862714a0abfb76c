"""Batch size, GPUs, time and scheduler request for a corpus."""
