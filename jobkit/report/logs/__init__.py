"""What others wrote of a job: the log of a tagger before jobkit, and DCGM's report."""
