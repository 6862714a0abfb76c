"""jobkit: which batch size, what to request from the scheduler, how long the corpus takes."""
