"""Find ids that more than one document has, in little memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AT_ONCE = 2**22
"""Hashes that are sorted together."""
_BYTES = 8


class Ids:
    """Hashes of ids, part by part, on disk."""

    def __init__(self) -> None:
        self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 - closed by `close`
        self._numbers: list[int] = []

    def add(self, hashes: bytes | bytearray) -> None:
        """Add the hashes of a part."""
        self._file.write(hashes)
        self._numbers.append(len(hashes) // _BYTES)

    def repeated(self) -> set[bytes]:
        """Return the hashes that were added more than once."""
        import numpy as np

        shares = sum(self._numbers) // _AT_ONCE + 1
        found: set[bytes] = set()
        for share in range(shares):
            hashes = np.sort(self._share(share, shares))
            again = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
            found.update(value.tobytes() for value in again)
        return found

    def _share(self, share: int, shares: int) -> NDArray[np.uint64]:
        """Return the hashes whose remainder is ``share``."""
        import numpy as np

        self._file.seek(0)
        parts = [np.empty(0, np.uint64)]
        while block := self._file.read(_AT_ONCE * _BYTES):
            hashes = np.frombuffer(block, np.uint64)
            parts.append(hashes[hashes % np.uint64(shares) == share])
        return np.concatenate(parts)

    def parts_with(self, hashes: set[bytes]) -> Iterator[int]:
        """Yield the number of each part that has one of some hashes, from 0."""
        import numpy as np

        sought = np.frombuffer(b"".join(sorted(hashes)), np.uint64)
        self._file.seek(0)
        for number, size in enumerate(self._numbers):
            if np.isin(np.frombuffer(self._file.read(size * _BYTES), np.uint64), sought).any():
                yield number

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
