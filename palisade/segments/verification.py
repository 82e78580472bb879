"""The version of a segment's content: verified rows of a Parquet file, or the bytes of another file.

Guarantees, and why they hold:
- The version of a Parquet file is the digest over its rows (`catalog/rows_digest.py`), which are decoded; every other
  file is identified by the SHA-256 of its bytes, and has no rows.
- A file is decoded once: what is known is kept by the SHA-256 of its bytes, so it holds for every equal file, whatever
  its name or age. It survives a restart in a file of its own with a checksum; without that file, or if it is damaged,
  files are decoded again.
- The event loop is not blocked: `run` gets the work, in a node a thread.

pyarrow is imported when the first Parquet file is seen.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from palisade.catalog.errors import BadRows
from palisade.segments.names import Wanted
from palisade.wire.segment_errors import BadSegment

log = logging.getLogger(__name__)

PARQUET = b"PAR1"
REMEMBERED = ".verified"
"""The file with what is known, beside the segments."""

Run = Callable[[Callable[[], "Verified"]], Awaitable["Verified"]]


class Verified(NamedTuple):
    """`file`: the SHA-256 of the bytes. `rows`: None of a file that is no Parquet file."""

    file: str
    wanted: Wanted
    rows: int | None


async def at_once(work: Callable[[], Verified]) -> Verified:
    return work()


class Verifier:
    def __init__(self, run: Run = at_once) -> None:
        self._run = run
        self._known: dict[str, Verified] = {}
        self._rows: dict[str, int] = {}
        self.is_changed = False
        """Whether more is known than `loaded` and `remembered` have seen."""

    async def of(self, content: bytes) -> Wanted:
        """Raises BadSegment."""
        found = await self._run(lambda: self._verified(content))
        if found.rows is not None and found.file not in self._known:
            self._keep(found)
            self.is_changed = True
        return found.wanted

    def _verified(self, content: bytes) -> Verified:
        if not content.startswith(PARQUET):
            return Verified("", version_of(content), None)
        file = hashlib.sha256(content).hexdigest()
        return self._known.get(file) or decoded(file, content)

    def _keep(self, found: Verified) -> None:
        self._known[found.file] = found
        if found.rows is not None:
            self._rows[found.wanted.digest] = found.rows

    def rows(self, digest: str) -> int | None:
        """The number of rows of a verified version; None if it has none, or was not verified here."""
        return self._rows.get(digest)

    # The file with what is known.

    def load(self, stored: bytes) -> None:
        """Ignores a damaged file."""
        try:
            check, _, text = stored.partition(b"\n")
            if hashlib.sha256(text).hexdigest().encode() != check:
                raise ValueError("wrong checksum")
            for file, digest, size_bytes, rows in json.loads(text):
                self._keep(Verified(file, Wanted(digest, size_bytes), rows))
        except (ValueError, TypeError, BadSegment) as error:
            log.warning("verified files not remembered, verifying them again: error=%s", error)

    def remembered(self, digests: Iterable[str]) -> bytes:
        """The input of `load`: the results for the files of these versions. All others are dropped."""
        kept = set(digests)
        self._known = {file: found for file, found in self._known.items() if found.wanted.digest in kept}
        self._rows = {found.wanted.digest: found.rows for found in self._known.values() if found.rows is not None}
        self.is_changed = False
        known = [(each.file, each.wanted.digest, each.wanted.size_bytes, each.rows) for each in self._known.values()]
        text = json.dumps(known, separators=(",", ":")).encode()
        return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def version_of(content: bytes) -> Wanted:
    """Decodes the rows of a Parquet file. Raises BadSegment for content that is too large, or a damaged one."""
    if content.startswith(PARQUET):
        return decoded("", content).wanted
    return Wanted(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))


def decoded(file: str, content: bytes) -> Verified:
    """Raises BadSegment."""
    found = inspected(content)
    return Verified(file, Wanted(found.digest, found.size_bytes), found.rows)


def inspected(content: bytes) -> Any:
    """A `catalog.parquet_rows.SegmentContent`. Raises BadSegment."""
    from palisade.catalog.parquet_rows import inspect_segment

    try:
        return inspect_segment(content)
    except BadRows as error:
        raise BadSegment(str(error)) from error
