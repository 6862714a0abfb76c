"""The worker: the job script calls ``python -m jobkit.worker`` for each try.

If its environment names an owner of a parent process, it is the client of that (see
`jobkit.worker.parent`), and imports nothing else.
"""

from __future__ import annotations

import os
import sys

from jobkit.worker import parent


def main() -> int:
    words = sys.argv[1:]
    owner = os.environ.get(parent.VARIABLE, "")
    status = parent.run_in_child(owner, words) if owner else None
    if status is not None:
        return status
    from jobkit.worker import work  # a client does without

    return work.main(words)


if __name__ == "__main__":
    sys.exit(main())
