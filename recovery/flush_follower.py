"""The vault of a member of the group: it follows the flushes of the member's own store.

A member applies every revision anyway; applying each one again to its vault would double the cost of a write on every
member. A flush of the store contains the row of every key that has changed since the previous flush. With these rows,
and the digests of the store when the flush began, the vault moves from any revision in between to that of the flush in
one commit: a *leap*. A leap does not report single revisions; listeners of a prefix receive its changed keys as one
difference. If a component needs every revision, or if only a few are missing, the vault applies them one by one, as on
other nodes (`follower.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from palisade.base.digest import Sums
from palisade.base.long_keys import stored_key
from palisade.metastore.changes import Rows
from palisade.metastore.history import is_tombstone
from palisade.metastore.record import LINK_BYTES
from palisade.metastore.state import FIRST_REVISION
from palisade.metastore.state_machine import MetaStore
from palisade.recovery.applied_revisions import AppliedRevisions
from palisade.recovery.apply_gate import ApplyGate, OpenGate
from palisade.recovery.follower import Follower
from palisade.recovery.ports import RecoveryTime, RevisionSource
from palisade.vault.errors import RESET, VaultDiverged
from palisade.vault.position import VaultPosition
from palisade.vault.tables import Pause
from palisade.vault.vault import Vault

FEW_REVISIONS = 200
LOOK_S = 0.2
"""How often it checks for new revisions. A commit of few revisions costs hardly less than one of many."""
HELD_S = 0.05
"""How long a leap waits for the gate before the permitted revisions are applied without it."""
LEAPS_MAX = 4
"""How many flushes may wait for the vault. Beyond that the vault reads what it has missed."""
SLICE_ROWS = 2_000
"""About three milliseconds. With less, a leap on a busy loop takes longer than the time between two flushes."""


@dataclass(frozen=True, slots=True)
class FlushBatch:
    """To `position`, from any revision at or after `first`."""

    first: int
    position: VaultPosition
    sums: Sums
    keys: Sequence[bytes]
    rows: Rows


Leaping = Callable[[FlushBatch, Callable[[], Awaitable[None]]], Awaitable[None]]


class FlushFollower(AppliedRevisions):
    """The source of a member's vault: the revisions that its store applies, and its flushes.

    One of the store's listeners; `follow` raises RuntimeError otherwise. `stored` reads from the store.
    """

    def __init__(self, store: MetaStore, stored: RevisionSource) -> None:
        super().__init__(store, stored)
        self._known_from = store.revision if store.revision > FIRST_REVISION else 0
        self._mark: tuple[VaultPosition, Sums] | None = None
        self._leaps: deque[FlushBatch] = deque(maxlen=LEAPS_MAX)

    def reach(self) -> int:
        """How far below LM a vault may be for the next leap to update it."""
        return self._store.revision - self._known_from

    def saving(self) -> None:
        digest = self._store.digest()
        self._mark = VaultPosition(digest.revision, digest.chain, self._store.key_count), self._store.bucket_sums()

    def flushed(self, keys: Sequence[bytes], rows: Rows) -> None:
        mark, self._mark = self._mark, None
        if mark is None:
            return
        position, sums = mark
        if position.revision > self._known_from:
            self._leaps.append(FlushBatch(self._known_from, position, sums, keys, rows))
        self._known_from = position.revision

    def reloaded(self) -> None:
        """The snapshot does not contain what has changed: the next leap begins at its revision, not before."""
        super().reloaded()
        self._leaps.clear()
        self._mark = None
        self._known_from = self._store.revision

    async def follow(
        self,
        follower: Follower,
        vault: Vault,
        clock: RecoveryTime,
        listens: Callable[[], bool],
        pause: Pause,
        gate: ApplyGate | None = None,
        leaping: Leaping | None = None,
    ) -> None:
        """Until cancelled, as `Follower.follow`. `listens`: whether a component needs every single revision. `leaping`
        executes a leap and notifies the listeners of prefixes.

        `pause` only yields to other tasks: a leap that takes too long falls behind the flushes. A leap that the gate
        does not admit is not joined with the next one, because it would have to wait longer.
        """
        if not self._store.calls(self):
            raise RuntimeError("this vault's feed is not a listener of the store: name it in MetaStore.listen")
        held: FlushBatch | None = None
        gate = gate or OpenGate()
        while True:
            if listens():
                self._leaps.clear()
                held = None
            if held is None or held.position.revision <= vault.revision or held.first > vault.revision:
                held = self._next_leap(vault.revision)
            behind = self._store.revision - vault.revision
            if held is not None:
                self._check(vault)
                if gate.enter_leap(held.position.revision):
                    try:
                        taking = partial(take, held, vault, pause)
                        await (taking() if leaping is None else leaping(held, taking))
                    finally:
                        gate.leave()
                else:
                    await self._wait_for(gate, follower, vault)
            elif behind and (listens() or behind <= FEW_REVISIONS or vault.revision < self._known_from):
                await follower.step()
            else:
                await clock.sleep(LOOK_S)
                await follower.look()

    async def _wait_for(self, gate: ApplyGate, follower: Follower, vault: Vault) -> None:
        """Applies the permitted revisions one by one if the rest takes long: others may wait for exactly these."""
        await gate.changed(HELD_S)
        allowed = gate.allowed()
        if allowed is not None and vault.revision < allowed:
            await follower.step()

    def _check(self, vault: Vault) -> None:
        """A leap contains the digests: it must not make a vault of another history look correct."""
        chain = self._store.chain_at(vault.revision)
        if chain is not None and chain != vault.chain:
            raise VaultDiverged(
                f"the chain digests of the vault and of this node's store differ at revision {vault.revision}: {RESET}"
            )

    def _next_leap(self, revision: int) -> FlushBatch | None:
        """From `revision` over all waiting flushes, joined; earlier ones are dropped."""
        found: FlushBatch | None = None
        while self._leaps and self._leaps[0].first <= max(revision, found.position.revision if found else 0):
            leap = self._leaps.popleft()
            if leap.position.revision > revision:
                found = leap if found is None else joined(found, leap)
        return found


def joined(one: FlushBatch, other: FlushBatch) -> FlushBatch:
    """Joins two consecutive batches. A key changed in both is written once."""
    rows = {**one.rows, **other.rows}
    return FlushBatch(one.first, other.position, other.sums, list(rows), rows)


async def take(leap: FlushBatch, vault: Vault, pause: Pause) -> None:
    await vault.leap(lambda: entries_of(leap), leap.position, leap.sums, pause)


def entries_of(leap: FlushBatch) -> Iterator[dict[bytes, bytes | None]]:
    rows = leap.rows
    for start in range(0, len(leap.keys), SLICE_ROWS):
        keys = leap.keys[start : start + SLICE_ROWS]
        yield {stored_key(key): body_of(rows[key]) for key in keys}


def body_of(row: bytes | None) -> bytes | None:
    return None if row is None or is_tombstone(row) else row[LINK_BYTES:]
