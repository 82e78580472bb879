"""The effect of a batch of revisions on the vault: previous state in; entries, sums, chain and position out. Pure.

One pass reads the events, one look-up finds all versions that the batch replaces, a second pass applies the events.
This allows 100,000 changes per second. A body names the version of its key and its create revision, so the vault's
entry must be the previous version. The first change that does not fit is therefore detected, and the vault stays
unchanged.
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
"""Of an entry: create revision, version, leaf. Entries may be large and many, so they are not kept whole."""
Find = Callable[[Sequence[bytes]], dict[bytes, Old]]
"""Returns the existing entries of stored keys."""


@dataclass(frozen=True, slots=True)
class Projection:
    """What to write. `buckets`: those whose sums change."""

    position: VaultPosition
    entries: dict[bytes, bytes | None]
    sums: Sums
    buckets: set[int]


def project(revisions: Sequence[Revision], position: VaultPosition, sums: Sums, find: Find) -> Projection:
    """Raises VaultGap (not LV + 1, LV + 2 ...), VaultDiverged. Does not change its arguments."""
    changes = _changes(revisions, position.revision)
    old = find([change[2] for change in changes if change[4] != 1])
    entries, chain, keys, after, buckets = _applied(changes, position, sums.copy(), old)
    revision = revisions[-1].number if revisions else position.revision
    content = content_after(position.content, sums, after, buckets)
    return Projection(VaultPosition(revision, _packed(chain), keys, content), entries, after, buckets)


_Change = tuple[int, bytes, bytes, int, int, bytes, bytes]
"""Of one event: revision, body, stored key, create revision, version, key, the chain digest after it (empty: not
given).

A tuple for speed: 100,000 per second.
"""


def _changes(revisions: Sequence[Revision], before: int) -> list[_Change]:
    """The events of consecutive revisions, each verified to be well-formed."""
    found: list[_Change] = []
    add, unpack = found.append, HEADER.unpack_from
    for number, bodies, chain in revisions:
        if number != before + 1:
            raise VaultGap(f"revision {number} does not follow revision {before}, the revision of the vault")
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
    return VaultDiverged(f"event {sub} of revision {number} is malformed: request it again")


def _applied(
    changes: Sequence[_Change], position: VaultPosition, sums: Sums, old: dict[bytes, Old]
) -> tuple[dict[bytes, bytes | None], int, int, Sums, set[int]]:
    """Entries, chain, number of keys, the changed `sums` and buckets. One loop over plain variables, for speed."""
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
                f"at revision {number} the chain digests of vault and cluster differ: they have different histories; "
                f"{RESET}"
            )
    return entries, chain, keys, sums, buckets


def old_of(entry: bytes) -> Old:
    create, version = CREATE_VERSION.unpack_from(entry, CREATE_AT)
    return create, version, leaf_of(entry)


def _packed(chain: int) -> bytes:
    return chain.to_bytes(DIGEST_BYTES, "big")


def replaces_unknown(key: bytes, revision: int) -> VaultDiverged:
    return VaultDiverged(
        f"revision {revision} replaces a version of the key {key[:64]!r} that the vault does not have: vault and "
        f"cluster have different histories; {RESET}"
    )
