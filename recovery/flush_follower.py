"""The vault of a member of the group: it moves with the member's own store, flush by flush.

A member applies every revision anyway; to do it all again for its vault, one by one, would double what a write costs on
every member. What the store flushes is the row of every key that has changed since the flush before. So with these
rows, and with what the store said of itself when the flush began, the vault goes from any revision in between to that
one, in one commit: a *leap*. A leap tells nobody of single revisions. Where somebody listens, and while there are
only few, the vault takes them one by one, as everywhere else (`follower.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
"""How often it is looked for news. A commit of few revisions costs hardly less than one of many."""
HELD_S = 0.05
"""How long a leap waits for the gate before what may enter goes without it."""
LEAPS_MAX = 4
"""How many flushes may wait for the vault. Beyond that it finds out by itself what it has missed."""
SLICE_ROWS = 2_000
"""Three milliseconds or so. With less a busy loop takes longer for a leap than its store between two flushes."""


@dataclass(frozen=True, slots=True)
class FlushBatch:
    """To `position`, from any revision that is not before `first`."""

    first: int
    position: VaultPosition
    sums: Sums
    keys: Sequence[bytes]
    rows: Rows


class FlushFollower(AppliedRevisions):
    """What a member's vault is fed from: what its store applies, and what it flushes.

    One of the store's listeners: `follow` raises RuntimeError where it is not. `stored` reads from the store.
    """

    def __init__(self, store: MetaStore, stored: RevisionSource) -> None:
        super().__init__(store, stored)
        self._known_from = store.revision if store.revision > FIRST_REVISION else 0
        self._mark: tuple[VaultPosition, Sums] | None = None
        self._leaps: deque[FlushBatch] = deque(maxlen=LEAPS_MAX)

    def reach(self) -> int:
        """How far a vault may be behind LM for the next leap to bring it along."""
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
        """The snapshot does not say what has changed: the next leap begins at its revision, not before."""
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
    ) -> None:
        """For ever, as `Follower.follow`. `listens`: whether anybody wants to hear of every revision.

        `pause` lets others have a turn, and no more: a leap that takes its time falls behind the flushes. A leap that
        the gate does not let in stays as it is: joined with the next one it would have to wait for more.
        """
        if not self._store.calls(self):
            raise RuntimeError("the store does not call this vault's feed: name it in MetaStore.listen")
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
                        await take(held, vault, pause)
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
        """What may enter does so one by one, if the rest takes long: others may wait for just that."""
        await gate.changed(HELD_S)
        allowed = gate.allowed()
        if allowed is not None and vault.revision < allowed:
            await follower.step()

    def _check(self, vault: Vault) -> None:
        """A leap brings the digests with it: a vault of another history must not be made to look right by them."""
        chain = self._store.chain_at(vault.revision)
        if chain is not None and chain != vault.chain:
            raise VaultDiverged(
                f"the vault has another chain digest at revision {vault.revision} than the store of this node: {RESET}"
            )

    def _next_leap(self, revision: int) -> FlushBatch | None:
        """From `revision` over all flushes that wait, as one; those before it are of no use any more."""
        found: FlushBatch | None = None
        while self._leaps and self._leaps[0].first <= max(revision, found.position.revision if found else 0):
            leap = self._leaps.popleft()
            if leap.position.revision > revision:
                found = leap if found is None else joined(found, leap)
        return found


def joined(one: FlushBatch, other: FlushBatch) -> FlushBatch:
    """Two that follow each other. What both have changed is written once."""
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
