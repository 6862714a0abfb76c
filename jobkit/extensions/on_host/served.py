"""The request of a laptop that this process serves: which run it has begun, and with which files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line
from jobkit.extensions.on_host.protocol import mark


@dataclass(slots=True)
class Served:
    """What the kernel asks of the request; of a command that is typed on this machine all is empty."""

    note: Path | None = None  # the file that gets the run folder before anything is submitted
    begun: Path | None = None  # the run folder that the same request has begun before
    # what the files are that the laptop has sent (see `mark`), by absolute path
    sent: Mapping[str, str] = field(default_factory=dict)

    def note_begun(self, run_dir: Path) -> None:
        """Note the run folder, as `jobkit.core.host.note_begun`."""
        self.refuse_other()
        if self.note:
            append_line(self.note, str(run_dir.absolute()))

    def refuse_other(self) -> None:
        """Refuse files that are not those that the laptop has sent."""
        for name, what in self.sent.items():
            file = Path(name)
            if not file.is_file() or mark(file, by_time=" " in what) != what:
                raise JobkitError(
                    f"{file}: another machine, or another terminal, has just sent another file of this name",
                    hint="type the same command again; if two people work at the same time, "
                    "each needs a folder: --on HOST:FOLDER",
                )


SERVED = Served()
