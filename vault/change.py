"""One revision as bytes, as received from the metadata store, stored in the vault, and passed to listeners. Pure.

A *body* is one version of a key, or the tombstone that a delete leaves, exactly as the metadata store hashes it
(`metastore.record`: content, key, value). The vault computes the same leaf from it, so a node that passes a body on
cannot alter it undetected. The *entry* that the vault stores for a live key is the body.
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
"""Create revision and version, and their offset."""

FIRST_REVISION = 1
"""The revision of an empty metadata store, which has no events."""


class Revision(NamedTuple):
    """All changes of one revision, in order. `chain`: the cluster's digest after it; empty: not given."""

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
    """One change of one key. `item` is None for a delete at `mod_revision`.

    `previous` is known only if a difference is reported instead of single revisions (`Vault.difference`).
    """

    key: bytes
    mod_revision: int
    item: Item | None
    previous: Item | None = None


def events_of(revision: Revision) -> list[VaultEvent]:
    """The events of a revision for listeners."""
    number, found = revision.number, []
    for body in revision.bodies:
        mod, create, version, lease, key_bytes, _ = HEADER.unpack_from(body)
        end = HEADER_BYTES + key_bytes
        key = body[HEADER_BYTES:end]
        found.append(VaultEvent(key, number, Item(key, body[end:], create, mod, version, lease) if version else None))
    return found


def events_below(revision: Revision, prefixes: tuple[bytes, ...]) -> list[VaultEvent]:
    """The events of a revision whose keys begin with one of the prefixes."""
    bodies = [body for body in revision.bodies if key_of(body).startswith(prefixes)]
    return events_of(revision._replace(bodies=bodies)) if bodies else []


def key_of(body: bytes) -> bytes:
    return body[HEADER_BYTES : HEADER_BYTES + int.from_bytes(body[KEY_BYTES_AT : KEY_BYTES_AT + 2], "big")]


def with_key(body: bytes) -> tuple[bytes, bytes]:
    return key_of(body), body


def item_of(body: bytes) -> Item:
    mod, create, version, lease, key_bytes, _ = HEADER.unpack_from(body)
    end = HEADER_BYTES + key_bytes
    return Item(body[HEADER_BYTES:end], body[end:], create, mod, version, lease)


def is_body(body: bytes) -> bool:
    """Whether its lengths match its header."""
    if len(body) < HEADER_BYTES:
        return False
    *_, key_bytes, value_bytes = HEADER.unpack_from(body)
    return bool(key_bytes > 0 and len(body) == HEADER_BYTES + key_bytes + value_bytes)
