"""Recomputes the digests from the stored bytes, and reports the differences (M7).

Reads everything once, changes nothing. Each finding names the revision, key or bucket and the remedy. Without findings,
every live value, every retained event and every readable superseded version equals, bit for bit, what was applied. (The
target of a row's jump below MM is not checked: it is never followed.)
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from palisade.base.digest import BUCKETS, SUM_MASK, bucket_of, leaf_of
from palisade.base.key_text import key_text
from palisade.metastore.digest import read_sums
from palisade.metastore.history import HEADER, History, HistoryBlock, is_tombstone, mod_of
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.record import LINK_BYTES, POINTER, ROW, StoredRow, row_size, unpack_row
from palisade.metastore.state import StoreState

REMEDY = "stop this node, delete its data and let it copy the state from another replica"


class DigestPart(enum.Enum):
    """The recomputed part."""

    VALUE = "value"
    KEY = "key"
    BUCKET = "bucket"
    REVISION = "revision"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Divergence:
    part: DigestPart
    key: bytes | None
    bucket: int | None
    revision: int | None
    message: str


def verify(tables: OrderedMap) -> Iterator[Divergence]:
    """Every place where the stored bytes differ from what was applied."""
    yield from verify_keys(tables)
    sound = True
    for finding in verify_blocks(tables):
        sound = False
        yield finding
    if sound:
        yield from verify_events(tables)


def verify_keys(tables: OrderedMap) -> Iterator[Divergence]:
    """Each row against its own format, and the sums of the leaves against the buckets."""
    state = StoreState(tables)
    sums = [0] * BUCKETS
    for key, packed in tables.scan(Table.KEY, b"", None):
        message = row_fault(key, packed, state)
        if message:
            yield Divergence(DigestPart.KEY, key, bucket_of(key), None, f"{message}: {REMEDY}")
        elif not is_tombstone(packed):
            sums[bucket_of(key)] += leaf_of(packed[LINK_BYTES:])
    for number, stored in enumerate(read_sums(tables)):
        if stored != sums[number] & SUM_MASK:
            text = f"the sum of bucket {number} does not match: a key in it is lost, added or changed: {REMEDY}"
            yield Divergence(DigestPart.BUCKET, None, number, None, text)


def row_fault(key: bytes, packed: bytes, state: StoreState) -> str | None:
    if len(packed) < ROW.size or row_size(packed) != len(packed):
        return f"the row of the key {key_text(key)} is torn"
    row = unpack_row(packed)
    if row.key != key:
        return f"the row of the key {key_text(key)} belongs to another key"
    if not 1 < row.mod_revision <= state.revision or row.create_revision > row.mod_revision:
        return f"the row of the key {key_text(key)} has impossible revisions"
    if not row.version and (row.create_revision or row.lease or row.value):
        return f"the tombstone of the key {key_text(key)} was altered"
    return None


def verify_blocks(tables: OrderedMap) -> Iterator[Divergence]:
    """Each block complete, events consecutive, and the chain from the first event to that of the store."""
    state = StoreState(tables)
    after: tuple[int, int] | None = None
    chain = garbage = None
    revision = 0
    for pointer, packed in tables.scan(Table.REVISION, b"", None):
        last = POINTER.unpack(pointer)
        block = HistoryBlock(packed) if len(packed) >= HEADER.size else None
        if block is None or not block.is_whole():
            text = f"the block of events up to {last[0]}.{last[1]} was altered: {REMEDY}"
            yield Divergence(DigestPart.REVISION, None, None, last[0], text)
            return
        first = (block.first_revision, block.first_sub)
        if (after is None and first > (max(2, state.compacted), 0)) or (
            after is not None and not follows(after, first)
        ):
            yield Divergence(
                DigestPart.REVISION, None, None, first[0], f"events before {first[0]} are missing: {REMEDY}"
            )
            return
        if chain is not None and (block.chain_before, block.garbage_before) != (chain, garbage):
            text = f"revision {first[0]} does not match the digest chain: {REMEDY}"
            yield Divergence(DigestPart.REVISION, None, None, first[0], text)
        chain, garbage = block.until(last[0])
        after, revision = last, last[0]
    expected = (state.revision, state.chain, state.garbage)
    if state.revision >= 2 and (revision, chain, garbage) != expected:
        text = f"the last revision {state.revision} and the store have different chain digests: {REMEDY}"
        yield Divergence(DigestPart.REVISION, None, None, state.revision, text)


def follows(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Whether one pointer may directly follow the other."""
    return after in ((before[0], before[1] + 1), (before[0] + 1, 0))


def verify_events(tables: OrderedMap) -> Iterator[Divergence]:
    """Whether KEY, and later events, agree with each retained event."""
    state = StoreState(tables)
    history = History(tables, state)
    for revision, events in history.revisions(state.minimal_revision, state.revision):
        for packed, replaced in events:
            row = unpack_row(packed)
            message = event_fault(tables, history, state, row, packed, replaced)
            if message:
                yield Divergence(DigestPart.HISTORY, row.key, bucket_of(row.key), revision, f"{message}: {REMEDY}")


def event_fault(
    tables: OrderedMap, history: History, state: StoreState, row: StoredRow, packed: bytes, replaced: bytes
) -> str | None:
    latest = tables.get(Table.KEY, row.key)
    if latest is None or mod_of(latest) < row.mod_revision:
        return f"the key {key_text(row.key)} was written at revision {row.mod_revision}, but its row is older"
    if mod_of(latest) == row.mod_revision and latest != packed:
        return f"the row of the key {key_text(row.key)} differs from its event at {row.mod_revision}"
    if not replaced:
        return None
    old = unpack_row(replaced)
    if old.key != row.key or old.mod_revision >= row.mod_revision:
        return f"the event of the key {key_text(row.key)} at {row.mod_revision} replaces an impossible version"
    if old.mod_revision >= state.minimal_revision and history.event(old.mod_revision, old.sub)[0] != replaced:
        key = key_text(row.key)
        return f"the version of the key {key} that revision {row.mod_revision} replaced is not the previous one"
    return None
