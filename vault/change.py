"""One revision as bytes, as it comes from the meta storage, goes into the vault, and is told to listeners. Pure.

A *body* is header, key and value of one event, exactly as the meta storage hashed it: so the vault computes the same
leaf from it, and whoever passes it on can't change it unseen. A *pointer* is (revision, number in that revision).
An *entry* is what the vault keeps of a live key: pointer, leaf, body.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from vault.digest import DIGEST_BYTES

PUT, DELETE = 0, 1

POINTER = Struct(">QI")
HEADER = Struct(">BHIQQQQI")
"""Kind, key bytes, value bytes, create revision, version, lease, pointer of the version it replaced (0: none)."""
TIMES = Struct(">QQQI")
"""Wall and lease clock in ms, garbage, number of events: what the chain covers beside the events of a revision."""

FIRST_REVISION = 1
"""Of an empty meta storage; it has no events."""
POINTER_BYTES, HEADER_BYTES = POINTER.size, HEADER.size
BODY_AT = POINTER_BYTES + DIGEST_BYTES
LEAF = slice(POINTER_BYTES, BODY_AT)


class Revision(NamedTuple):
    """Everything that one revision changed, in order. `chain`: the cluster's digest after it; empty: not said."""

    number: int
    times: bytes
    bodies: Sequence[bytes]
    chain: bytes = b""


class Item(NamedTuple):
    """A live version of a key."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


class Event(NamedTuple):
    """One change of one key. `item` is None for a delete, which `mod_revision` is the revision of.

    `previous` is known only where a difference is told instead of single revisions (`Vault.difference`).
    """

    key: bytes
    mod_revision: int
    item: Item | None
    previous: Item | None = None


def events_of(revision: Revision) -> Iterator[Event]:
    """What a listener is told of it."""
    number = revision.number
    for body in revision.bodies:
        kind, key_bytes, _, create, version, lease, _, _ = HEADER.unpack_from(body)
        end = HEADER_BYTES + key_bytes
        key = body[HEADER_BYTES:end]
        if kind == DELETE:
            yield Event(key, number, None)
        else:
            yield Event(key, number, Item(key, body[end:], create, number, version, lease))


def key_of_body(body: bytes) -> bytes:
    return body[HEADER_BYTES : HEADER_BYTES + int.from_bytes(body[1:3], "big")]


def key_of_entry(entry: bytes) -> bytes:
    start = BODY_AT + HEADER_BYTES
    return entry[start : start + int.from_bytes(entry[BODY_AT + 1 : BODY_AT + 3], "big")]


def item_of(entry: bytes) -> Item:
    _, key_bytes, _, create, version, lease, _, _ = HEADER.unpack_from(entry, BODY_AT)
    start = BODY_AT + HEADER_BYTES
    end = start + key_bytes
    return Item(entry[start:end], entry[end:], create, int.from_bytes(entry[:8], "big"), version, lease)


def is_body(body: bytes) -> bool:
    """Whether its lengths are those that its header says."""
    if len(body) < HEADER_BYTES:
        return False
    kind, key_bytes, value_bytes, *_ = HEADER.unpack_from(body)
    return kind in (PUT, DELETE) and key_bytes > 0 and len(body) == HEADER_BYTES + key_bytes + value_bytes
