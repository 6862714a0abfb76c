"""Search for the fastest setting: `jobkit tune`."""
