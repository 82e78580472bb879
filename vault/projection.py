"""What a batch of revisions changes in the vault: the state before in, entries, sums, chain and position out. Pure.

One pass over the events, one look-up for all versions that the batch replaces: 100,000 changes a second depend on it.
A body says which version of its key it is, and since when the key is there: the entry that the vault has must be the
one before; so the first change that does not fit is found where it is, and the vault stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from vault.change import FIRST_REVISION, HEADER, HEADER_BYTES, Revision
from vault.digest import BUCKETS, CHAIN_FACTOR, DIGEST_BYTES, SUM_MASK, Sums, leaf_of
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
    work = _Work(position, sums, find(_replaced(revisions)))
    for revision in revisions:
        work.add(revision)
    return work.done()


def _replaced(revisions: Sequence[Revision]) -> list[bytes]:
    """The stored keys of the versions that the batch replaces; some may be its own."""
    found: list[bytes] = []
    unpack, size = HEADER.unpack_from, HEADER.size
    for revision in revisions:
        for body in revision.bodies:
            if len(body) < size:
                raise VaultDiverged(f"revision {revision.number} has an event of {len(body)} bytes: it was cut off")
            _, _, version, _, key_bytes, _ = unpack(body)
            if version != 1:
                found.append(stored_key(body[HEADER_BYTES : HEADER_BYTES + key_bytes]))
    return found


class _Work:
    def __init__(self, position: Position, sums: Sums, old: dict[bytes, bytes]) -> None:
        self._revision, self._keys = position.revision, position.keys
        self._chain = int.from_bytes(position.chain, "big")
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
        if not revision.bodies:
            raise VaultDiverged(f"revision {number} came without its events")
        self._add_events(number, revision.bodies)
        if revision.chain and revision.chain != self._packed_chain():
            raise VaultDiverged(
                f"with revision {number} the vault has another chain digest than the cluster: they do not share "
                f"their history up to there; {RESET}"
            )

    def _add_events(self, number: int, bodies: Sequence[bytes]) -> None:
        entries, sums, mark, old, chain = self._entries, self._sums, self._buckets.add, self._old, self._chain
        for sub, body in enumerate(bodies):
            mod, create, version, _, key_bytes, value_bytes = HEADER.unpack_from(body)
            key = body[HEADER_BYTES : HEADER_BYTES + key_bytes]
            if len(body) != HEADER_BYTES + key_bytes + value_bytes or mod != number or not key_bytes:
                raise VaultDiverged(f"event {sub} of revision {number} is not whole: ask for it again")
            leaf = leaf_of(body)
            chain = (chain * CHAIN_FACTOR + leaf) & SUM_MASK
            stored = key if key_bytes <= PREFIX_BYTES else stored_key(key)
            change = leaf if version else 0
            if version == 1:
                self._keys += 1
            else:
                before = entries[stored] if stored in entries else old.get(stored)
                if before is None or (version and HEADER.unpack_from(before)[1:3] != (create, version - 1)):
                    raise replaces_unknown(key, number)
                change -= leaf_of(before)
                self._keys -= not version
            bucket = crc32(key) & (BUCKETS - 1)
            sums[bucket] = (sums[bucket] + change) & SUM_MASK
            entries[stored] = body if version else None
            mark(bucket)
        self._chain = chain

    def _packed_chain(self) -> bytes:
        return self._chain.to_bytes(DIGEST_BYTES, "big")

    def done(self) -> Projection:
        return Projection(
            Position(self._revision, self._packed_chain(), self._keys), self._entries, self._sums, self._buckets
        )


def replaces_unknown(key: bytes, revision: int) -> VaultDiverged:
    return VaultDiverged(
        f"revision {revision} replaces a version of the key {key[:64]!r} that the vault does not have: they do not "
        f"share their history; {RESET}"
    )
