"""The gate of this node's vault: while the node serves, no strict change enters the vault before it is released.

A member knows by its strict log which revisions those are; a follower checks the keys of each change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from palisade.fencing.holder_state import Holder
from palisade.service.strict_changes import StrictLog
from palisade.vault.change import Revision, key_of
from palisade.vault.vault import Vault


class GatedHolder(Protocol):
    """The lease client of this node (`node.fencing.lease_client`), which makes its gate."""

    @property
    def core(self) -> Holder: ...
    @property
    def vault(self) -> Vault: ...
    def settle(self) -> None: ...


class VaultGate:
    """A `recovery.apply_gate.ApplyGate`. `log`: of a member of the group; None on a follower."""

    def __init__(self, holder: GatedHolder, log: StrictLog | None) -> None:
        self._holder, self._log = holder, log
        self._opened = asyncio.Event()
        self.busy = False
        """A change is entering the vault."""

    def enter(self, revisions: Sequence[Revision]) -> int:
        self._holder.settle()
        free = self._free(revisions) if self._holder.core.gated else len(revisions)
        self.busy = free > 0
        return free

    def _free(self, revisions: Sequence[Revision]) -> int:
        released = self._holder.core.released
        if revisions[-1].number <= released:
            return len(revisions)
        staging = self._holder.vault.staging
        first, is_strict = staging.pending.first_after(released), staging.is_strict_at
        for place, revision in enumerate(revisions):
            number = revision.number
            if number > released:
                if first is not None and number >= first:
                    return place
                if any(is_strict(key_of(body), number) for body in revision.bodies):
                    return place
        return len(revisions)

    def enter_leap(self, revision: int) -> bool:
        self._holder.settle()
        allowed = self.allowed()
        self.busy = allowed is None or revision <= allowed
        return self.busy

    def allowed(self) -> int | None:
        if not self._holder.core.gated:
            return None
        released = self._holder.core.released
        if self._log is None:
            return released
        first = self._holder.vault.staging.pending.first_after(released)
        return self._log.point if first is None else min(self._log.point, first - 1)

    def leave(self) -> None:
        self.busy = False
        self._holder.settle()

    def wake(self) -> None:
        """More changes may enter than before."""
        self._opened.set()

    async def changed(self, timeout_s: float) -> None:
        self._opened.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._opened.wait()
        except TimeoutError:
            return
