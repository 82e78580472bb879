"""Recomputes what the digests say, from the stored bytes, and names what differs (M7).

Reads everything once, changes nothing. Each finding names the revision, key or bucket and what to do about it; no
finding means: every live value, every retained event and every superseded version that can still be read is, bit for
bit, what was applied.
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
    NO_DIGEST,
    POINTER,
    POINTER_BYTES,
    REVISION,
    body_size,
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
        meta = unpack_meta(packed)
        bucket = bucket_of(key)
        if not meta.version:
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
    return (meta.create_revision, meta.version, meta.lease) == (record.create_revision, record.version, record.lease)


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
    if first is None:
        return None, None
    size = body_size(first)
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
    """Each superseded version that has not been collected yet against its leaf."""
    for name, packed in tables.scan(Table.HISTORY, b"", None):
        (revision,) = REVISION.unpack(name[-REVISION.size :])
        sub, end, leaf = HISTORY_VALUE.unpack(packed)
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
