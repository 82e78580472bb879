"""LMDB files of journal, store and vault: opened, errors that mean damage, growth, verification of a file.

LMDB follows pointers of a damaged page beyond the file and aborts the process; py-lmdb's own checks detect most
such damage, but not all (seen: SIGBUS, a failed C assertion). Thus the structure of every page is verified first, in
Python, by the walker that comes with py-lmdb: about 5 s per GiB.

The newer one of LMDB's two meta pages is determined by a transaction number without checksum: a flipped bit in it would
silently restore an older state, such as an older vote. The two numbers are always consecutive, and this is checked as
well. A flip of the second-lowest bit keeps them consecutive in half of the cases, and is not detected.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import Any

import lmdb
from lmdb import verify as walker

DATA = "data.mdb"
DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.VersionMismatchError)
"""The errors that mean damaged bytes; any other lmdb.Error comes from the disk or the system."""
OPENS_MAX = 100
"""How often a file is opened until it counts as damaged. An attempt fails if another process lets the file grow beyond
the map between two steps of LMDB, microseconds apart; each one fails if a damaged page names a size that no map has."""
_PAGE_SIZE = Struct("=40xI")
_TRANSACTION = Struct("=144xQ")


def open_env(
    directory: Path,
    tables_max: int,
    map_bytes: int,
    *,
    damaged: Callable[[Exception], Exception],
    unusable: Callable[[str], Exception],
    **options: Any,
) -> Any:
    """The LMDB environment in this directory; a file that it creates is readable by its owner alone. Meanwhile another
    process may let the file grow beyond `map_bytes`. Raises what `damaged` makes of an error in `DAMAGE`, or of a size
    that no map has, and what `unusable` makes of the text of any other."""
    try:
        return _opened(directory, max_dbs=tables_max, map_size=map_bytes, mode=0o600, **options)
    except (*DAMAGE, lmdb.MapResizedError) as error:
        raise damaged(error) from error
    except (lmdb.Error, OSError) as error:
        raise unusable(
            f"{directory / DATA} can't be opened: {error}. Make it writable, or choose another directory"
        ) from error


def _opened(directory: Path, **options: Any) -> Any:
    for _ in range(OPENS_MAX - 1):
        with suppress(lmdb.MapResizedError):
            return lmdb.open(str(directory), **options)
    return lmdb.open(str(directory), **options)


@contextmanager
def closed_on_error(env: Any, failure: Callable[[BaseException], Exception]) -> Iterator[None]:
    """Its body opens and checks the tables of a new environment. Raises what `failure` makes of errors of LMDB."""
    try:
        yield
    except lmdb.Error as error:
        env.close()
        raise failure(error) from error
    except BaseException:
        env.close()
        raise


def double_room(env: Any) -> None:
    """The file occupies only the used part of the map. Requires that no transaction of this process is open."""
    env.set_mapsize(env.info()["map_size"] * 2)


def used_bytes(env: Any) -> int:
    """The size that the file has reached, free pages included."""
    pages: int = env.info()["last_pgno"] + 1
    return pages * int(env.stat()["psize"])


@contextmanager
def raw_pages(directory: Path) -> Iterator[Callable[[int], bytes]]:
    """Reads pages of the file by their number. A page that a transaction reaches stays as it is until the transaction
    ends, also in the file. Raises OSError."""
    with (directory / DATA).open("rb", buffering=0) as file:
        head = os.pread(file.fileno(), _PAGE_SIZE.size, 0)
        size: int = _PAGE_SIZE.unpack(head)[0] if len(head) == _PAGE_SIZE.size else 0
        yield lambda number: os.pread(file.fileno(), size, number * size)


def room_for(directory: Path, map_bytes_min: int) -> int:
    """The map size for opening the file: twice its size, at least `map_bytes_min`."""
    data = directory / DATA
    return max(map_bytes_min, 2 * data.stat().st_size if data.exists() else 0)


def problem_of(directory: Path, walked_bytes_max: int | None = None) -> str | None:
    """The fault of the file at rest in this directory; None if it is sound or new.

    A file larger than `walked_bytes_max` is not walked. LMDB does not open the file.
    """
    data = directory / DATA
    size = data.stat().st_size if data.exists() else 0
    if size == 0:
        return None
    try:
        problem = _meta_problem(data)
        if problem is None and (walked_bytes_max is None or size <= walked_bytes_max):
            problems: list[str] = walker.verify(str(directory))  # type: ignore[no-untyped-call]
            problem = problems[0] if problems else None
    except (walker.VerifyError, OSError) as error:
        problem = str(error)
    return problem


def _meta_problem(data: Path) -> str | None:
    with data.open("rb") as stream:
        head = stream.read(_TRANSACTION.size)
        page_bytes = _PAGE_SIZE.unpack_from(head)[0] if len(head) == _TRANSACTION.size else 0
        stream.seek(page_bytes)
        second = stream.read(_TRANSACTION.size)
    if page_bytes == 0 or len(second) < _TRANSACTION.size:
        return "the file is too short, or no LMDB file"
    older, newer = sorted(_TRANSACTION.unpack(page)[0] for page in (head, second))
    if newer - older != 1 and newer != 0:
        return f"its meta pages are of transactions {older} and {newer}, which do not follow each other"
    return None
