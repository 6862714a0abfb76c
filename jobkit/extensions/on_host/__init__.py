"""``jobkit --on HOST``: a command typed here that runs on a cluster behind ssh."""
