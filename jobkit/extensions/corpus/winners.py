"""Which try of a shard counts: the first whose rows are complete, claimed once. Standard library only.

``python -m jobkit.extensions.corpus.winners RUN POINT TRY`` claims for the job script.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from uuid import uuid4

from jobkit.core import layout
from jobkit.core.errors import JobkitError, file_error, name_file_in_errors
from jobkit.core.files import (
    open_regular,
    parse_object,
    read_lines,
    read_text,
    sync_folder,
    write_atomically,
)
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.records import Point
from jobkit.extensions.corpus.plan import (
    MANIFEST_FILE,
    ROWS_FILE,
    Part,
    Quarantined,
    Rows,
    Winner,
    files_of,
    parts_of,
    read_planned,
)

WITHDRAWN = 0  # the number of the try in the claim of a withdrawn shard; tries count from 1


def winner_path(run_dir: Path, point_id: str) -> Path:
    return run_dir / layout.WINNERS_FOLDER / f"{point_id}.json"


def has_rows(home: str, folder: str) -> bool:
    """Return whether the rows of a shard are home: another try has won already, or these are whole.

    Their digest is compared when the winner is chosen; a try whose rows failed that has `BAD_ROWS`, and one
    whose rows were gone has `GONE_ROWS`.
    """
    if os.path.exists(f"{Path(home).parents[1]}/{layout.WINNERS_FOLDER}/{Path(home).name}.json"):  # noqa: PTH110 - quick
        return True
    try:
        rows = parse_object(read_text(f"{folder}/{MANIFEST_FILE}"), MANIFEST_FILE)
        parts = rows.get("parts") or [{"file": ROWS_FILE, "size_bytes": rows["size_bytes"]}]
        parts = [*parts, *filter(None, [rows.get("quarantine")])]
        sizes = ((os.stat(f"{folder}/{part['file']}").st_size, int(part["size_bytes"])) for part in parts)  # noqa: PTH116 - as above
        whole = all(found == size for found, size in sizes)
    except (OSError, JobkitError, KeyError, TypeError, ValueError):
        return False
    marks = (f"{folder}/{name}" for name in (layout.BAD_ROWS, layout.GONE_ROWS))
    return whole and not any(map(os.path.exists, marks))


def claim(run_dir: Path, point: Point, try_number: int) -> Winner | None:
    """Make a try the winner of its shard if its rows are complete and there is no winner yet.

    The winner is returned, whichever try it is; ``None`` if there is none, because the rows are not complete.
    """
    path = winner_path(run_dir, point.point_id)
    if read_claim(path):
        return _won(path)
    folder = Path(layout.try_folder(run_dir, point.point_id, try_number))
    rows = _complete(folder, read_planned(run_dir, point.index).paragraphs)
    if rows is None:
        return None
    values = {one.name: getattr(rows, one.name) for one in fields(Rows)}
    winner = Winner(index=point.index, point_id=point.point_id, try_number=try_number, **values)
    _publish(path, to_json(winner).encode() + b"\n")
    return _won(path)


def withdraw(run_dir: Path, point: Point) -> Winner | None:
    """Close a shard whose pieces another shard gets, so that no try of it can win any more.

    It is the same claim as that of a winner: either a try has won, or the shard is withdrawn, never both,
    also if a job that was believed dead ends at this moment. If a winner is returned, the shard is done and
    its pieces must not be planned again.
    """
    path = winner_path(run_dir, point.point_id)
    closed = Winner(
        index=point.index,
        point_id=point.point_id,
        try_number=WITHDRAWN,
        rows=0,
        paragraphs=0,
        size_bytes=0,
        sha256="",
    )
    _publish(path, to_json(closed).encode() + b"\n")
    return _won(path)


def _won(path: Path) -> Winner | None:
    winner = read_claim(path)
    return None if winner is None or winner.try_number == WITHDRAWN else winner


def _complete(folder: Path, paragraphs: int) -> Rows | None:
    """Return the manifest of a try if each part is as it says and they are the shard, after syncing them."""
    if (folder / layout.GONE_ROWS).exists():
        return None
    try:
        rows = from_json(Rows, read_text(folder / MANIFEST_FILE), where=str(folder / MANIFEST_FILE))
        parts = files_of(rows)
        found = [digest(folder / part.file, sync=True) for part in parts]
    except (OSError, JobkitError):
        return None
    whole = found == [(part.size_bytes, part.sha256) for part in parts] and not rows.fault(paragraphs)
    return rows if whole else None


def digest(path: Path, *, sync: bool = False) -> tuple[int, str]:
    """Return the size and the SHA-256 of a file; ``sync`` waits until it is on disk."""
    found = hashlib.sha256()
    size = 0
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        if sync:
            os.fsync(file.fileno())
        while block := file.read(2**20):
            found.update(block)
            size += len(block)
    return size, found.hexdigest()


def part_files(run_dir: Path, winner: Winner) -> list[tuple[Path, Part]]:
    """Return the parts of a result and their files."""
    return _located(run_dir, winner, parts_of(winner))


def _located(run_dir: Path, winner: Winner, parts: Iterable[Part]) -> list[tuple[Path, Part]]:
    folder = layout.try_folder(run_dir, winner.point_id, winner.try_number)
    return [(Path(os.path.normpath(f"{folder}/{part.file}")), part) for part in parts]


def read_quarantine(run_dir: Path, winner: Winner) -> list[Quarantined]:
    """Return the paragraphs of a shard that are in quarantine, in corpus order."""
    files = _located(run_dir, winner, filter(None, [winner.quarantine]))
    lines = ((path, number, line) for path, _ in files for number, line in read_lines(path))
    return [from_json(Quarantined, line, where=f"{path}:{number}") for path, number, line in lines]


def lacks_rows(run_dir: Path, winner: Winner, *, read: bool = False) -> bool:
    """Return whether rows that count are gone or have another size, and, if ``read``, another SHA-256."""
    for path, part in _located(run_dir, winner, files_of(winner)):
        try:
            found = digest(path) if read else (path.stat().st_size, part.sha256)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as error:  # a file server that does not answer has not lost them
            raise file_error(error, path) from error
        if found != (part.size_bytes, part.sha256):
            return True
    return False


def retire(run_dir: Path, winner: Winner) -> None:
    """Let the rows of a winner never count again, so that another try can win.

    A kill leaves the winner, or none; the folder that may have decided goes before the file that is its copy.
    """
    path = winner_path(run_dir, winner.point_id)
    folder = Path(layout.try_folder(run_dir, winner.point_id, winner.try_number))
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / layout.GONE_ROWS, to_json(winner) + "\n")
    with suppress(FileNotFoundError):
        shutil.rmtree(path.with_suffix(".claim"))
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def _publish(path: Path, content: bytes) -> None:
    """Claim a shard with a file that has its whole content before its name: one of many claims succeeds."""
    if read_claim(path):
        return
    path.parent.mkdir(exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    # Errors of link(2) on a file system without hard links
    no_links = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EINVAL})
    try:
        _write(part, content)
        try:
            os.link(part, path)
        except OSError as error:
            if error.errno not in {*no_links, errno.EEXIST}:
                raise
            if read_claim(path) is None:
                _claim_folder(part, path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _claim_folder(part: Path, path: Path) -> None:
    """Claim without links: a folder is renamed, which a folder that is not empty prevents (rename(2)).

    What the claimed folder holds is then copied to the name under which others look for it; a file of that
    name without its content, which a kill left, decides nothing.
    """
    folder, claimed = part.with_suffix(".new"), path.with_suffix(".claim")
    folder.mkdir()
    try:
        part.rename(folder / path.name)
        folder.rename(claimed)
    except OSError:
        if not claimed.is_dir():
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sync_folder(path.parent)
    with suppress(FileExistsError):
        _write(path, (claimed / path.name).read_bytes())


def _write(path: Path, content: bytes) -> None:
    """Create a file, which must not exist, and sync it."""
    with name_file_in_errors(path), path.open("xb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())


def read_claim(path: Path) -> Winner | None:
    for place in (path, path.with_suffix(".claim") / path.name):
        try:
            return from_json(Winner, read_text(place), where=str(place))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise file_error(error, place) from error
        except (JobkitError, RecursionError):  # its claimer has not written it yet, or was killed before
            continue
    return None


def read_winners(run_dir: Path) -> dict[int, Winner]:
    """Return the winners by the index of their point, without the shards that are withdrawn."""
    folder = run_dir / layout.WINNERS_FOLDER
    paths = sorted({(folder / name).with_suffix(".json") for name in layout.names(folder)})
    found = [winner for path in paths if (winner := _won(path))]
    return {winner.index: winner for winner in found}


def claim_all(run_dir: Path, points: Iterable[Point]) -> dict[int, Winner]:
    """Claim for every shard without a winner but with a complete try; return all winners by index."""
    winners = read_winners(run_dir)
    for point in points:
        if point.index in winners:
            continue
        for number in reversed(layout.try_numbers(f"{run_dir}/results/{point.point_id}")):
            if winner := claim(run_dir, point, number):
                winners[point.index] = winner
                break
    return winners


def _point(run_dir: Path, name: str) -> Point:
    path = run_dir / layout.POINTS_FILE
    for number, line in read_lines(path):
        if name == str(number) or f'"{name}"' in line:
            point = from_json(Point, line, where=f"{path}:{number}")
            if name in {str(number), point.point_id}:
                return point
    raise JobkitError(f"{path}: no point {name}")


def main(arguments: list[str]) -> int:
    """Claim for ``RUN POINT TRY``; return 0 if the shard has a winner, else 1."""
    try:
        run, name, number = arguments
        winner = claim(Path(run), _point(Path(run), name), int(number))
    except ValueError:
        sys.stderr.write("usage: python -m jobkit.extensions.corpus.winners RUN POINT TRY\n")
        return 2
    except (JobkitError, OSError) as error:
        sys.stderr.write(f"jobkit: {error}\n")
        return 1
    if winner is None:
        sys.stderr.write(f"jobkit: the rows of try {number} of {name} are not complete\n")
    return 0 if winner else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
