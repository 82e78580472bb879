"""Recomputes what the digests say, from the stored bytes, and names what differs (M7).

Reads everything once, changes nothing. Each finding names the revision, key or bucket and what to do about it; no
finding means: every live value, every retained event and every superseded version that can still be read is, bit for
bit, what was applied. (The trailer of a revision below MM is not looked at: nothing reads it any more.)
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from metastore.digest import BUCKETS, SUM_MASK, BucketSums, bucket_of, next_chain, trailer_times
from metastore.ordered_map import OrderedMap, Table
from metastore.record import (
    DELETE,
    HISTORY_VALUE,
    META,
    NO_DIGEST,
    POINTER,
    POINTER_BYTES,
    REVISION,
    TRAILER,
    Record,
    body_size,
    cost_of,
    key_hash,
    leaf_of,
    unpack_meta,
    unpack_record,
    unpack_trailer,
)
from metastore.state import State

REMEDY = "stop this node, wipe its data and let it come back from another replica"


class Part(enum.Enum):
    """What was recomputed."""

    VALUE = "value"
    KEY = "key"
    BUCKET = "bucket"
    REVISION = "revision"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Divergence:
    part: Part
    key: bytes | None
    bucket: int | None
    revision: int | None
    message: str


def verify(tables: OrderedMap) -> Iterator[Divergence]:
    """Every place where the stored bytes are not what was applied."""
    yield from verify_keys(tables)
    yield from verify_revisions(tables)
    yield from verify_history(tables)


def verify_keys(tables: OrderedMap) -> Iterator[Divergence]:
    """Each live value against the leaf in its meta, and the sums of these leaves against the buckets."""
    sums = [0] * BUCKETS
    for key, packed in tables.scan(Table.KEY, b"", None):
        bucket = bucket_of(key)
        if len(packed) != META.size:
            yield Divergence(Part.KEY, key, bucket, None, f"the meta of the key {key!r} is torn: {REMEDY}")
            continue
        meta = unpack_meta(packed)
        if not meta.version:
            yield from verify_tombstone(tables, key, packed)
            continue
        sums[bucket] = (sums[bucket] + int.from_bytes(meta.leaf, "big")) & SUM_MASK
        record = tables.get(Table.REVISION, packed[:POINTER_BYTES])
        message = value_fault(key, packed[:POINTER_BYTES], record, meta.leaf)
        if message:
            yield Divergence(Part.VALUE, key, bucket, meta.mod_revision, f"{message}: {REMEDY}")
        elif record is not None and not matches(packed, record):
            text = f"the meta of the key {key!r} differs from its record at {meta.mod_revision}: {REMEDY}"
            yield Divergence(Part.KEY, key, bucket, meta.mod_revision, text)
    for number, stored in enumerate(BucketSums(tables).sums):
        if stored != sums[number]:
            text = f"bucket {number} does not add up: a key in it is lost, added or changed: {REMEDY}"
            yield Divergence(Part.BUCKET, None, number, None, text)


def verify_tombstone(tables: OrderedMap, key: bytes, packed: bytes) -> Iterator[Divergence]:
    """It says nothing but where it is, and there a delete of its key is."""
    record = tables.get(Table.REVISION, packed[:POINTER_BYTES])
    empty = META.pack(0, 0, 0, 0, 0, 0, NO_DIGEST)[POINTER_BYTES:]
    if record is None or record[0] != DELETE or unpack_record(record).key != key or packed[POINTER_BYTES:] != empty:
        text = f"the tombstone of the key {key!r} is not what was written: {REMEDY}"
        yield Divergence(Part.KEY, key, bucket_of(key), REVISION.unpack_from(packed)[0], text)


def value_fault(key: bytes, pointer: bytes, record: bytes | None, leaf: bytes) -> str | None:
    revision, sub = POINTER.unpack(pointer)
    if record is None:
        return f"the record {revision}.{sub} of the key {key!r} is missing"
    if len(record) < body_size(record) or leaf_of(pointer, record[: body_size(record)]) != leaf:
        return f"the record {revision}.{sub} of the key {key!r} is not what was written"
    if unpack_record(record).key != key:
        return f"the record {revision}.{sub} belongs to another key than {key!r}"
    return None


def matches(packed_meta: bytes, packed_record: bytes) -> bool:
    meta, record = unpack_meta(packed_meta), unpack_record(packed_record)
    expected = (record.create_revision, record.version, record.lease, cost_of(record.key, record.value))
    return (meta.create_revision, meta.version, meta.lease, meta.cost) == expected


def verify_revisions(tables: OrderedMap) -> Iterator[Divergence]:
    """Each retained revision against its link of the chain, up to the chain digest of the store."""
    state = State(tables)
    chain = state.base_chain
    for revision in range(max(2, state.compacted), state.revision + 1):
        stored, computed = link(tables, chain, revision)
        if stored is None or stored != computed:
            text = f"revision {revision} is not what the chain of digests says: {REMEDY}"
            yield Divergence(Part.REVISION, None, None, revision, text)
        chain = stored or NO_DIGEST
    if state.revision >= 2 and chain != state.chain:
        text = f"the last revision {state.revision} has another chain digest than the store: {REMEDY}"
        yield Divergence(Part.REVISION, None, None, state.revision, text)


def link(tables: OrderedMap, chain: bytes, revision: int) -> tuple[bytes | None, bytes | None]:
    """(the chain digest stored for the revision, the one that its events give); None where events are missing."""
    first = tables.get(Table.REVISION, POINTER.pack(revision, 0))
    size = body_size(first) if first is not None else 0
    if first is None or len(first) != size + TRAILER.size:
        return None, None
    trailer = unpack_trailer(first)
    leaves: list[bytes] = []
    for sub in range(trailer.events):
        pointer = POINTER.pack(revision, sub)
        record = tables.get(Table.REVISION, pointer)
        if record is None:
            return trailer.chain, None
        leaves.append(leaf_of(pointer, record[: body_size(record)]))
    return trailer.chain, next_chain(chain, trailer_times(first[size:]), b"".join(leaves))


def verify_history(tables: OrderedMap) -> Iterator[Divergence]:
    """Each superseded version that has not been collected yet against its leaf, and against what superseded it."""
    state = State(tables)
    ended = 0
    for name, packed in tables.scan(Table.HISTORY, b"", None):
        (revision,) = REVISION.unpack(name[-REVISION.size :])
        sub, end, leaf = HISTORY_VALUE.unpack(packed)
        ended += end > state.compacted
        pointer = POINTER.pack(revision, sub)
        record = tables.get(Table.REVISION, pointer)
        fault = None
        if record is None:
            fault = "is missing"
        elif leaf_of(pointer, record[: body_size(record)]) != leaf:
            fault = "is not what was written"
        elif key_hash(unpack_record(record).key) != name[: -REVISION.size] or record[0] == DELETE:
            fault = "belongs to another key"
        if fault:
            text = f"the version {revision}.{sub}, superseded at {end}, {fault}: {REMEDY}"
            yield Divergence(Part.HISTORY, None, None, revision, text)
    superseding = 0
    for revision, event in retained_events(tables, state):
        superseding += event.previous is not None and revision > state.compacted
        message = event_fault(tables, state, revision, event)
        if message:
            yield Divergence(Part.HISTORY, event.key, bucket_of(event.key), revision, f"{message}: {REMEDY}")
    if superseding != ended:
        text = f"{ended} versions ended after revision {state.compacted}, but {superseding} events ended one: {REMEDY}"
        yield Divergence(Part.HISTORY, None, None, None, text)


def event_fault(tables: OrderedMap, state: State, revision: int, event: Record) -> str | None:
    """What KEY and HISTORY must know of an event of a retained revision."""
    meta = tables.get(Table.KEY, event.key)
    if meta is None or REVISION.unpack_from(meta)[0] < revision:
        return f"the key {event.key!r} was written at revision {revision}, and its meta does not know"
    if event.previous is None or revision <= state.compacted:
        return None
    entry = tables.get(Table.HISTORY, key_hash(event.key) + event.previous[: REVISION.size])
    if entry is None or HISTORY_VALUE.unpack(entry)[1] != revision:
        return f"the history of the key {event.key!r} does not say that revision {revision} ended a version"
    return None


def retained_events(tables: OrderedMap, state: State) -> Iterator[tuple[int, Record]]:
    """Every event from MM on, with its revision."""
    for pointer, packed in tables.scan(Table.REVISION, POINTER.pack(state.minimal_revision, 0), None):
        yield REVISION.unpack_from(pointer)[0], unpack_record(packed)
