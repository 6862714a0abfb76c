"""Ask a controller again that is busy: it said so, so nothing was done."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from jobkit.core import shell

PAUSES_S = (0.5, 1.5, 4.0, 8.0)
"""Before the second try, the third, ...: longer and longer, as slurmctld's own clients wait."""


def patiently(argv: Sequence[str], busy: re.Pattern[str], env: Mapping[str, str]) -> shell.Completed:
    """Return what a command answered, asked again for a while as long as the controller is busy.

    Parameters
    ----------
    argv
        The command.
    busy
        Words of an answer that mean: nothing was done, come again.
    env
        Its whole environment.
    """
    done = shell.run(argv, env=env)
    for pause_s in PAUSES_S:
        if done.ok or not busy.search(done.said):
            break
        time.sleep(pause_s)
        done = shell.run(argv, env=env)
    return done
