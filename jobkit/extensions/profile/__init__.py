"""Run a point again with a profiler: `jobkit profile`."""
