"""The version of a segment's content: verified rows of a Parquet file, or the bytes of another file.

Guarantees, and why they hold:
- The version of a Parquet file is the digest over its rows (`catalog/rows_digest.py`), which are decoded; every other
  file is identified by the SHA-256 of its bytes, and has no rows.
- A file is decoded once. The result is cached under the SHA-256 of its bytes, so it holds for every equal file,
  independent of name and age. The cache is stored in a file with a checksum; if that is missing or damaged, all files
  are decoded again.
- The event loop is not blocked: `run` executes the decoding, on a node in a thread.

pyarrow is imported when the first Parquet file is read.
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
"""The file of the cache, in the folder of the segments."""

Run = Callable[[Callable[[], "Verified"]], Awaitable["Verified"]]


class Verified(NamedTuple):
    """`file`: the SHA-256 of the bytes. `rows`: None if the file is not a Parquet file."""

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
        """Whether the cache has changed since `load` and `remembered`."""

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

    # The file of the cache.

    def load(self, stored: bytes) -> None:
        """Ignores a damaged file."""
        try:
            check, _, text = stored.partition(b"\n")
            if hashlib.sha256(text).hexdigest().encode() != check:
                raise ValueError("wrong checksum")
            for file, digest, size_bytes, rows in json.loads(text):
                self._keep(Verified(file, Wanted(digest, size_bytes), rows))
        except (ValueError, TypeError, BadSegment) as error:
            log.warning("list of verified files damaged, verifying all files: error=%s", error)

    def remembered(self, digests: Iterable[str]) -> bytes:
        """The content of the cache file, for `load`: the results for files of these versions. Drops all others."""
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
