"""The records of batches that are larger than one transaction, and what they mean for readers. Pure.

A batch is *open* from the revision that wrote its manifest, `pipeline/batches/open/NAME`, until its rows are at their
keys: the last transaction deletes the manifest and writes `pipeline/batches/closed/NAME`. Both records name the ranges
of keys that the batch writes. Between the two revisions the store has a part of the rows, so a reader of these ranges
chooses a revision outside: that of the manifest or an earlier one (no row), the closing one or a later one (all rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from palisade.metastore.requests import FROM_KEY

BATCHES = b"pipeline/batches/"
OPEN, CLOSED = BATCHES + b"open/", BATCHES + b"closed/"
ATTEMPTS_MAX = 20_000
"""Of one batch: the names of its attempts have to fit into its manifest."""


class BadBatchRecord(ValueError):
    """A record that no writer of batches has written."""


class KeySpan(NamedTuple):
    """The keys of [key, range_end)."""

    key: bytes
    range_end: bytes

    def overlaps(self, other: KeySpan) -> bool:
        return before_end(self.key, other.range_end) and before_end(other.key, self.range_end)


class Window(NamedTuple):
    """Revisions of an open batch. `closed` 0: it is still open."""

    opened: int
    closed: int

    def splits(self, revision: int) -> bool:
        """Whether the state at `revision` may have a part of the batch."""
        return self.opened < revision and not 0 < self.closed <= revision


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """`attempts`: the tasks whose staged chunks belong to the batch. `opened` 0: in a manifest, where it is the create
    revision of the key."""

    name: str
    spans: tuple[KeySpan, ...]
    attempts: tuple[str, ...] = ()
    opened: int = 0

    def overlaps(self, spans: Iterable[KeySpan]) -> bool:
        return any(own.overlaps(other) for own in self.spans for other in spans)

    def to_bytes(self) -> bytes:
        packed: bytes = msgpack.packb([list(map(list, self.spans)), list(self.attempts), self.opened])
        return packed

    @staticmethod
    def from_bytes(name: str, packed: bytes) -> BatchRecord:
        """Raises BadBatchRecord."""
        try:
            spans, attempts, opened = msgpack.unpackb(packed)
            found = BatchRecord(name, tuple(_span(each) for each in spans), tuple(attempts), opened)
        except MemoryError:
            raise
        except Exception as error:
            raise BadBatchRecord(f"the record of batch {name} is malformed: {error}") from None
        if not found.spans or any(type(each) is not str for each in attempts) or type(opened) is not int:
            raise BadBatchRecord(f"the record of batch {name} is malformed")
        return found


def before_end(key: bytes, range_end: bytes) -> bool:
    return range_end == FROM_KEY or key < range_end


def window_of(key: bytes, value: bytes, create_revision: int, span: KeySpan) -> Window | None:
    """Of one key below `BATCHES`; None if its batch writes no key of `span`. A malformed record opens nothing: no
    writer copies its rows."""
    is_open = key.startswith(OPEN)
    try:
        record = BatchRecord.from_bytes(key.rpartition(b"/")[2].decode("utf-8", "replace"), value)
    except BadBatchRecord:
        return None
    if not record.overlaps((span,)):
        return None
    return Window(create_revision, 0) if is_open else Window(record.opened, create_revision)


def _span(value: Sequence[Any]) -> KeySpan:
    key, range_end = value
    if type(key) is not bytes or type(range_end) is not bytes or not key or not range_end:
        raise ValueError("a range is two byte strings")
    return KeySpan(key, range_end)
