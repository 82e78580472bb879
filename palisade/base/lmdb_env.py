"""What journal, store and vault have in common as users of LMDB: which errors mean damage, growing, judging a file.

LMDB follows the pointers of a damaged page out of the file and aborts the process; py-lmdb's own checks catch most of
that, not all (seen: SIGBUS, a failed C assertion). So the structure of every page is walked first, in Python, by the
walker that comes with py-lmdb: about 5 s per GiB.

The newer of LMDB's two meta pages is told by a transaction number, which carries no checksum: a flipped bit in it
would silently bring back an older state, such as an older vote. The two numbers always follow each other, and that is
checked as well. One bit of the file stays in doubt, the second of that number: half of the time the wrong number could
stand there.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Any

import lmdb
from lmdb import verify as walker

DATA = "data.mdb"
DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.VersionMismatchError)
"""The errors that mean that the bytes are not what was written; any other lmdb.Error is of the disk or the system."""
_PAGE_SIZE = Struct("=40xI")
_TRANSACTION = Struct("=144xQ")


def double_room(env: Any) -> None:
    """The file takes only what is used of the map. No transaction of this process may be under way."""
    env.set_mapsize(env.info()["map_size"] * 2)


def used_bytes(env: Any) -> int:
    """What the file has grown to, free pages included."""
    pages: int = env.info()["last_pgno"] + 1
    return pages * int(env.stat()["psize"])


def room_for(directory: Path, map_bytes_min: int) -> int:
    """How much address space to open the file with: twice its size, but so much at least."""
    data = directory / DATA
    return max(map_bytes_min, 2 * data.stat().st_size if data.exists() else 0)


def problem_of(directory: Path, walked_bytes_max: int | None = None) -> str | None:
    """What is wrong with the file at rest in this directory; None when it is sound, or new.

    A file beyond `walked_bytes_max` is not walked. LMDB never sees the file.
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
