"""Names of segments as data nodes use them, and the keys of their assignments. Pure.

    palisade/segments/assigned/<node>/<segment>      the node stores it: {"digest": ..., "size_bytes": ...}
    palisade/segments/assigned                       the last assignment: nodes, prefix

A name is that of `catalog/segment.py`, validated before use, because it becomes a file name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from palisade.base.key_text import key_text
from palisade.catalog.errors import BadField
from palisade.catalog.rows_digest import METHOD
from palisade.catalog.segment import ASSIGNED, DIGEST, Segment, parse_segment
from palisade.wire.segment_errors import BadSegment

ASSIGNMENTS = ASSIGNED
LAST_ASSIGNMENT = ASSIGNED[:-1]
SIZE_BYTES_MAX = 64 << 20
"""Limit for one segment, which is held in memory while it is checked."""
SHOWN = 80
ROWS = f"{METHOD}:"
TRASH = "trash/"
"""Subfolder for expired segments before their removal."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Digest and size of a segment's content: of the rows of a Parquet file (`catalog/rows_digest.py`), or of the
    bytes of another file."""

    digest: str
    size_bytes: int

    def __post_init__(self) -> None:
        """Raises BadSegment."""
        if type(self.digest) is not str or not DIGEST.fullmatch(self.digest):
            raise BadSegment(f"invalid digest {str(self.digest)[:SHOWN]!r}: expected <method>: and 64 hex digits")
        if type(self.size_bytes) is not int or not 0 <= self.size_bytes <= SIZE_BYTES_MAX:
            raise BadSegment(f"invalid size {str(self.size_bytes)[:SHOWN]}: expected 0 to {SIZE_BYTES_MAX} bytes")

    @property
    def is_of_rows(self) -> bool:
        return self.digest.startswith(ROWS)

    @property
    def file_bytes_max(self) -> int:
        """Limit for a file with this content."""
        return SIZE_BYTES_MAX if self.is_of_rows else self.size_bytes

    def to_value(self) -> bytes:
        return json.dumps({"digest": self.digest, "size_bytes": self.size_bytes}, separators=(",", ":")).encode()


@lru_cache(maxsize=10_000)
def segment_named(name: str) -> Segment:
    """The inverse of `str`. Raises BadSegment."""
    try:
        return parse_segment(name)
    except BadField as error:
        raise BadSegment(str(error)) from None


def checked_name(text: str) -> str:
    """Raises BadSegment."""
    return str(segment_named(text))


def own_prefix(node: str) -> bytes:
    """Prefix of the node's assignments."""
    return ASSIGNMENTS + node.encode() + b"/"


def assignment_key(node: str, name: str) -> bytes:
    return own_prefix(node) + name.encode()


def name_below(prefix: bytes, key: bytes) -> str:
    """The segment in a key below the prefix. Raises BadSegment."""
    return checked_name(key.removeprefix(prefix).decode("utf-8", "backslashreplace"))


def wanted_of(value: bytes) -> Wanted:
    """Parses an assignment, or the record of a segment. Raises BadSegment."""
    try:
        record = json.loads(value)
        return Wanted(record["digest"], record["size_bytes"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadSegment(f"{key_text(value)} has no valid digest and size_bytes: {error}") from None
