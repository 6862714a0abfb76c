"""The one error of jobkit."""

from __future__ import annotations


class JobkitError(Exception):
    """Something that the user can mend.

    Parameters
    ----------
    message
        What is wrong, with which value, and where (``file:line`` where there is one).
    hint
        The next command to type or the key to change. Empty only where nothing helps.
    exit_code
        What the process ends with: 2 for bad usage or a bad spec, 3 where the scheduler refused.
    """

    def __init__(self, message: str, *, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        """Return the message with its hint on a line of its own."""
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message
