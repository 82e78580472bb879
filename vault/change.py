"""One revision as bytes, as it comes from the meta storage, goes into the vault, and is told to listeners. Pure.

A *body* is one version of a key, or the tombstone that a delete leaves, exactly as the meta storage hashes it
(`metastore.record`: content, key, value): so the vault computes the same leaf from it, and whoever passes it on can't
change it unseen. What the vault keeps of a live key, its *entry*, is the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

HEADER = Struct(">QQQQHI")
"""Mod revision, create revision, version (0: a tombstone), lease, key bytes, value bytes."""
HEADER_BYTES = HEADER.size
KEY_BYTES_AT = HEADER_BYTES - 6
CREATE_VERSION, CREATE_AT = Struct(">QQ"), 8
"""These two of them, and where they are."""

FIRST_REVISION = 1
"""Of an empty meta storage; it has no events."""


class Revision(NamedTuple):
    """Everything that one revision changed, in order. `chain`: the cluster's digest after it; empty: not said."""

    number: int
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


class VaultEvent(NamedTuple):
    """One change of one key. `item` is None for a delete, which `mod_revision` is the revision of.

    `previous` is known only where a difference is told instead of single revisions (`Vault.difference`).
    """

    key: bytes
    mod_revision: int
    item: Item | None
    previous: Item | None = None


def events_of(revision: Revision) -> list[VaultEvent]:
    """What a listener is told of it."""
    number, found = revision.number, []
    for body in revision.bodies:
        mod, create, version, lease, key_bytes, _ = HEADER.unpack_from(body)
        end = HEADER_BYTES + key_bytes
        key = body[HEADER_BYTES:end]
        found.append(VaultEvent(key, number, Item(key, body[end:], create, mod, version, lease) if version else None))
    return found


def key_of(body: bytes) -> bytes:
    return body[HEADER_BYTES : HEADER_BYTES + int.from_bytes(body[KEY_BYTES_AT : KEY_BYTES_AT + 2], "big")]


def with_key(body: bytes) -> tuple[bytes, bytes]:
    return key_of(body), body


def item_of(body: bytes) -> Item:
    mod, create, version, lease, key_bytes, _ = HEADER.unpack_from(body)
    end = HEADER_BYTES + key_bytes
    return Item(body[HEADER_BYTES:end], body[end:], create, mod, version, lease)


def is_body(body: bytes) -> bool:
    """Whether its lengths are those that its header says."""
    if len(body) < HEADER_BYTES:
        return False
    *_, key_bytes, value_bytes = HEADER.unpack_from(body)
    return bool(key_bytes > 0 and len(body) == HEADER_BYTES + key_bytes + value_bytes)
