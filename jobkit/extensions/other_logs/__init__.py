"""Logs that jobkit did not write: of the taggers before it, and DCGM's reports of jobs."""
