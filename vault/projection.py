"""What a batch of revisions changes in the vault: the state before in, entries, sums, chain and position out. Pure.

One pass over the events, one look-up for all versions that the batch replaces: 100,000 changes a second depend on it.
The pointer that a body has to the version it replaced must be that of the entry which the vault has; so the first
change that does not fit is found where it is, and the vault stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

from vault.change import (
    DELETE,
    FIRST_REVISION,
    HEADER,
    HEADER_BYTES,
    LEAF,
    POINTER,
    POINTER_BYTES,
    PUT,
    TIMES,
    Revision,
)
from vault.digest import BUCKETS, DIGEST_BYTES, SUM_MASK, Sums, next_chain
from vault.errors import RESET, VaultDiverged, VaultGap
from vault.position import Position
from vault.stored_key import PREFIX_BYTES, stored_key

Find = Callable[[Sequence[bytes]], dict[bytes, bytes]]
"""Stored keys to the entries of those that are there."""


@dataclass(frozen=True, slots=True)
class Projection:
    """What to write. `buckets`: whose sums have changed."""

    position: Position
    entries: dict[bytes, bytes | None]
    sums: Sums
    buckets: set[int]


def project(revisions: Sequence[Revision], position: Position, sums: Sums, find: Find) -> Projection:
    """Raises VaultGap (not LV + 1, LV + 2 ...), VaultDiverged. Changes nothing it was given."""
    work = _Work(position, sums, find(_replaced(revisions, position.revision)))
    for revision in revisions:
        work.add(revision)
    return work.done()


def _replaced(revisions: Sequence[Revision], base: int) -> list[bytes]:
    """The stored keys of the versions at or below `base` that the batch replaces."""
    found: list[bytes] = []
    unpack, size = HEADER.unpack_from, HEADER.size
    for revision in revisions:
        for body in revision.bodies:
            if len(body) < size:
                raise VaultDiverged(f"revision {revision.number} has an event of {len(body)} bytes: it was cut off")
            _, key_bytes, _, _, _, _, previous, _ = unpack(body)
            if 0 < previous <= base:
                found.append(stored_key(body[HEADER_BYTES : HEADER_BYTES + key_bytes]))
    return found


class _Work:
    def __init__(self, position: Position, sums: Sums, old: dict[bytes, bytes]) -> None:
        self._revision, self._chain, self._keys = position.revision, position.chain, position.keys
        self._sums = sums.copy()
        self._old = old
        self._entries: dict[bytes, bytes | None] = {}
        self._buckets: set[int] = set()

    def add(self, revision: Revision) -> None:
        number = revision.number
        if number != self._revision + 1:
            raise VaultGap(f"revision {number} does not follow revision {self._revision}, which the vault is at")
        self._revision = number
        if number == FIRST_REVISION and not revision.bodies:
            return
        if not revision.bodies or len(revision.times) != TIMES.size:
            raise VaultDiverged(f"revision {number} came without its events or its times")
        leaves = self._add_events(number, revision.bodies)
        self._chain = next_chain(self._chain, revision.times, leaves)
        if revision.chain and revision.chain != self._chain:
            raise VaultDiverged(
                f"with revision {number} the vault has another chain digest than the cluster: they do not share "
                f"their history up to there; {RESET}"
            )

    def _add_events(self, number: int, bodies: Sequence[bytes]) -> bytes:
        """The leaves, one after the other."""
        entries, sums, mark, old = self._entries, self._sums, self._buckets.add, self._old
        leaves = []
        for sub, body in enumerate(bodies):
            kind, key_bytes, value_bytes, _, _, _, previous, previous_sub = HEADER.unpack_from(body)
            key = body[HEADER_BYTES : HEADER_BYTES + key_bytes]
            if len(body) != HEADER_BYTES + key_bytes + value_bytes or kind > DELETE or not key_bytes:
                raise VaultDiverged(f"event {sub} of revision {number} is not whole: ask for it again")
            pointer = POINTER.pack(number, sub)
            leaf = blake2b(pointer + body, digest_size=DIGEST_BYTES).digest()
            leaves.append(leaf)
            stored = key if key_bytes <= PREFIX_BYTES else stored_key(key)
            change = 0
            if previous:
                before = entries.get(stored) or old.get(stored)
                if before is None or before[:POINTER_BYTES] != POINTER.pack(previous, previous_sub):
                    raise replaces_unknown(key, number, previous)
                change = int.from_bytes(before[LEAF], "big")
                self._keys -= 1
            bucket = crc32(key) & (BUCKETS - 1)
            if kind == PUT:
                entries[stored] = pointer + leaf + body
                sums[bucket] = (sums[bucket] + int.from_bytes(leaf, "big") - change) & SUM_MASK
                self._keys += 1
            else:
                entries[stored] = None
                sums[bucket] = (sums[bucket] - change) & SUM_MASK
            mark(bucket)
        return b"".join(leaves)

    def done(self) -> Projection:
        return Projection(Position(self._revision, self._chain, self._keys), self._entries, self._sums, self._buckets)


def replaces_unknown(key: bytes, revision: int, previous: int) -> VaultDiverged:
    return VaultDiverged(
        f"revision {revision} replaces the version {previous} of the key {key[:64]!r}, which the vault does not have: "
        f"they do not share their history; {RESET}"
    )
