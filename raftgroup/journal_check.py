"""Whether the file of a journal is sound, before LMDB sees it.

LMDB follows the pointers of a damaged page out of the file and aborts the process; py-lmdb's own checks catch most of
that, not all (seen: SIGBUS, a failed C assertion). So the structure of every page is walked first, in Python, by the
walker that comes with py-lmdb: about 5 s per GiB. A log that is kept as short as `LogRetention` says takes a tenth of
a second; a file beyond `CHECKED_BYTES_MAX` is not walked, so that a node is not kept from starting.

The newer of LMDB's two meta pages is told by a transaction number, which carries no checksum: a flipped bit in it
would silently bring back an older log, and an older vote. The two numbers always follow each other: checked as well.
One bit of the file stays in doubt, the second of that number: half of the time the wrong number could stand there.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from lmdb import verify as walker

CHECKED_BYTES_MAX = 256 * 1024 * 1024
_PAGE_SIZE = Struct("=40xI")
_TRANSACTION = Struct("=144xQ")


def problem_of(directory: Path) -> str | None:
    """What is wrong with the file at rest in this directory; None when it is sound, or new."""
    data = directory / "data.mdb"
    size = data.stat().st_size if data.exists() else 0
    if size == 0:
        return None
    try:
        problem = _meta_problem(data)
        if problem is None and size <= CHECKED_BYTES_MAX:
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
