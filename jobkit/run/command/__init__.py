"""A program of the user's as a workload: its words, the process that keeps it, and one try of it."""
