"""The state of every point of a run now: asks the scheduler, and prints the answer."""
