"""Fenced reads in the node itself: what its vault may tell now, without a hop to the leader and without a round.

The order makes it true: the value is read first, and behind that it is looked whether the lease holds. So a process
that was paused in between finds its lease run out and says so. What is pending is waited for, not guessed. Between a
staged row and the entry it is decided as for readers in other processes (`vault/reading.py`): a row counts above LV.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from node.fencing.errors import NotServing, ReadPending
from node.fencing.holder import VaultHolder
from vault.change import Item, item_of
from vault.pending import body_of, check_pending
from vault.stored_key import stored_key
from vault.tables import Table

WAIT_S = 1.0


class FencedReads:
    """`holder`: None while the vault is not open."""

    def __init__(self, holder: Callable[[], VaultHolder | None]) -> None:
        self._holder = holder
        self.fenced = self.pending = 0

    def get(self, key: bytes) -> tuple[int, Item | None]:
        """(RR, what the key is). Raises NotServing, ReadPending: the latter may pass in a moment."""
        holder = self._serving()
        staging, released = holder.vault.staging, holder.core.released
        revision = staging.pending.revision_of(key)
        if revision is None or revision <= min(released, holder.vault.revision):
            entry = holder.vault.entry(key)
        elif revision <= released:
            entry = self._staged(holder, key)
        else:
            entry = None
        self._still(holder)
        if revision is not None and revision > released:
            raise ReadPending(f"{key[:64]!r} has a change at revision {revision} that is not released yet: read again")
        return released, None if entry is None else item_of(entry)

    @staticmethod
    def _staged(holder: VaultHolder, key: bytes) -> bytes | None:
        stored = stored_key(key)
        packed = holder.vault.backend.get(Table.PENDING, stored)
        if packed is None:
            return holder.vault.entry(key)
        check_pending(stored, packed)
        return body_of(packed)

    def _serving(self) -> VaultHolder:
        holder = self._holder()
        if holder is None or not holder.serves:
            self.fenced += 1
            why = "its vault is not open" if holder is None else holder.why or "its lease has run out"
            raise NotServing(f"this node is fenced ({why}): ask another one, or read linearizably with /v1/kv")
        return holder

    def _still(self, holder: VaultHolder) -> None:
        if not holder.serves:
            self.fenced += 1
            raise NotServing("the lease of this node has run out while it read: ask another one, or read with /v1/kv")

    async def wait_and_get(self, key: bytes, timeout_s: float = WAIT_S) -> tuple[int, Item | None]:
        """As `get`; what is pending is waited for. Raises NotServing, ReadPending."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            try:
                return self.get(key)
            except ReadPending:
                self.pending += 1
                left = until - loop.time()
                holder = self._holder()
                if left <= 0 or holder is None:
                    raise
                await holder.changed(left)
