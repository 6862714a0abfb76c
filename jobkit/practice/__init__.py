"""A real scheduler on this one machine, to learn with and to test against."""
