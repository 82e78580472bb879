"""What a batch of revisions changes in the vault: the state before in, entries, sums, chain and position out. Pure.

One pass reads the events, one look-up finds all versions that the batch replaces, a second pass applies them: 100,000
changes a second depend on it.
A body says which version of its key it is, and since when the key is there: the entry that the vault has must be the
one before; so the first change that does not fit is found where it is, and the vault stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from palisade.base.digest import BUCKETS, CHAIN_FACTOR, DIGEST_BYTES, SUM_MASK, Sums, content_after, leaf_of
from palisade.base.long_keys import PREFIX_BYTES, stored_key
from palisade.vault.change import CREATE_AT, CREATE_VERSION, FIRST_REVISION, HEADER, HEADER_BYTES, Revision
from palisade.vault.errors import RESET, VaultDiverged, VaultGap
from palisade.vault.position import VaultPosition

Old = tuple[int, int, int]
"""Of an entry: create revision, version, leaf. What is replaced may be large, and there may be much of it."""
Find = Callable[[Sequence[bytes]], dict[bytes, Old]]
"""Stored keys to what is there, of those that are."""


@dataclass(frozen=True, slots=True)
class Projection:
    """What to write. `buckets`: whose sums have changed."""

    position: VaultPosition
    entries: dict[bytes, bytes | None]
    sums: Sums
    buckets: set[int]


def project(revisions: Sequence[Revision], position: VaultPosition, sums: Sums, find: Find) -> Projection:
    """Raises VaultGap (not LV + 1, LV + 2 ...), VaultDiverged. Changes nothing it was given."""
    changes = _changes(revisions, position.revision)
    old = find([change[2] for change in changes if change[4] != 1])
    entries, chain, keys, after, buckets = _applied(changes, position, sums.copy(), old)
    revision = revisions[-1].number if revisions else position.revision
    content = content_after(position.content, sums, after, buckets)
    return Projection(VaultPosition(revision, _packed(chain), keys, content), entries, after, buckets)


_Change = tuple[int, bytes, bytes, int, int, bytes, bytes]
"""Of one event: revision, body, stored key, create revision, version, key, the chain digest after it (empty: not said).

A tuple: there are a hundred thousand a second.
"""


def _changes(revisions: Sequence[Revision], before: int) -> list[_Change]:
    """The events, each of them whole, of revisions without a gap."""
    found: list[_Change] = []
    add, unpack = found.append, HEADER.unpack_from
    for number, bodies, chain in revisions:
        if number != before + 1:
            raise VaultGap(f"revision {number} does not follow revision {before}, which the vault is at")
        before = number
        if not bodies and number != FIRST_REVISION:
            raise VaultDiverged(f"revision {number} came without its events")
        left = len(bodies)
        for body in bodies:
            left -= 1
            if len(body) <= HEADER_BYTES:
                raise _not_whole(number, len(bodies) - left - 1)
            mod, create, version, _, key_bytes, value_bytes = unpack(body)
            end = HEADER_BYTES + key_bytes
            if len(body) != end + value_bytes or mod != number or not key_bytes:
                raise _not_whole(number, len(bodies) - left - 1)
            key = body[HEADER_BYTES:end]
            stored = key if key_bytes <= PREFIX_BYTES else stored_key(key)
            add((number, body, stored, create, version, key, b"" if left else chain))
    return found


def _not_whole(number: int, sub: int) -> VaultDiverged:
    return VaultDiverged(f"event {sub} of revision {number} is not whole: ask for it again")


def _applied(
    changes: Sequence[_Change], position: VaultPosition, sums: Sums, old: dict[bytes, Old]
) -> tuple[dict[bytes, bytes | None], int, int, Sums, set[int]]:
    """Entries, chain, keys, `sums` as changed, and the buckets that have changed. One loop on plain variables."""
    entries: dict[bytes, bytes | None] = {}
    known: dict[bytes, Old | None] = {**old}
    buckets: set[int] = set()
    mark, leaf_of_body, hash_of, known_at = buckets.add, leaf_of, crc32, known.get
    chain, keys = int.from_bytes(position.chain, "big"), position.keys
    for number, body, stored, create, version, key, expected in changes:
        leaf = leaf_of_body(body)
        chain = (chain * CHAIN_FACTOR + leaf) & SUM_MASK
        if version == 1:
            change = leaf
            keys += 1
        else:
            before = known_at(stored)
            if before is None or (version and (before[0] != create or before[1] != version - 1)):
                raise replaces_unknown(key, number)
            if version:
                change = leaf - before[2]
            else:
                change = -before[2]
                keys -= 1
        known[stored] = (create, version, leaf) if version else None
        bucket = hash_of(key) & (BUCKETS - 1)
        sums[bucket] = (sums[bucket] + change) & SUM_MASK
        entries[stored] = body if version else None
        mark(bucket)
        if expected and expected != _packed(chain):
            raise VaultDiverged(
                f"with revision {number} the vault has another chain digest than the cluster: they do not share "
                f"their history up to there; {RESET}"
            )
    return entries, chain, keys, sums, buckets


def old_of(entry: bytes) -> Old:
    create, version = CREATE_VERSION.unpack_from(entry, CREATE_AT)
    return create, version, leaf_of(entry)


def _packed(chain: int) -> bytes:
    return chain.to_bytes(DIGEST_BYTES, "big")


def replaces_unknown(key: bytes, revision: int) -> VaultDiverged:
    return VaultDiverged(
        f"revision {revision} replaces a version of the key {key[:64]!r} that the vault does not have: they do not "
        f"share their history; {RESET}"
    )
