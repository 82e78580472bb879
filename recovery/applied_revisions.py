"""The revisions that a member applies, passed directly to its own vault instead of read back from the store.

`MetaStore.apply` has each event in memory. Here the latest revisions wait in memory, without a gap, until the vault has
them. The window is bounded. If too many wait, all are dropped, and the vault reads what it needs from the store, as
after a start, a recovery and a snapshot of the group. That first read opens the window again for later revisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain

from palisade.metastore.changes import AppliedEntry, StoreListener
from palisade.metastore.state_machine import MetaStore
from palisade.recovery.ports import RevisionSource
from palisade.vault.change import Revision

REVISIONS_MAX = 1_000
"""Without listeners, a vault that lacks more than `flush_follower.FEW_REVISIONS` waits for the next flush anyway."""
BYTES_MAX = 4 << 20
"""Each body is a second copy of data in the store."""
TAKEN_BYTES = 512 * 1024
"""Maximum bytes of one answer, as from the store (`store_source.CHUNK_BYTES`)."""


class AppliedRevisions(StoreListener):
    """A `RevisionSource` for the vault of this member. `stored` reads from its store."""

    def __init__(self, store: MetaStore, stored: RevisionSource) -> None:
        self._store, self._stored = store, stored
        self._waiting: deque[AppliedEntry] = deque()
        self._bytes = 0
        self._next: int | None = None
        """The next revision; None: the window is closed, and nothing is kept."""

    async def changes(self, first: int, last: int) -> Sequence[Revision]:
        """Drops revisions before `first`: the vault has them. Keeps the rest, because an answer may be lost."""
        found = self._taken(first, last)
        if found:
            return found
        if self._next is None:
            self._next = self._store.revision + 1
        return await self._stored.changes(first, last)

    def _taken(self, first: int, last: int) -> list[Revision]:
        """Whole revisions without a gap from `first` on; none if the first one is not here."""
        waiting = self._waiting
        while waiting and waiting[0].revision < first:
            dropped = waiting.popleft()
            self._bytes -= sum([sum(map(len, bodies)) for _, bodies, _ in dropped.runs])
        found, size = list[Revision](), 0
        if not waiting or waiting[0].before >= first:
            return found
        for revision in chain.from_iterable(entry.revisions() for entry in waiting):
            if revision.number > last or size >= TAKEN_BYTES:
                break
            if revision.number >= first:
                found.append(revision)
                size += sum(map(len, revision.bodies))
        if found and not found[-1].chain:
            found[-1] = found[-1]._replace(chain=self._store.chain_at(found[-1].number) or b"")
        return found

    def applied(self, changes: AppliedEntry) -> None:
        if self._next is None:
            return
        self._waiting.append(changes)
        self._bytes += sum([sum(map(len, bodies)) for _, bodies, _ in changes.runs])
        too_many = changes.revision - self._waiting[0].before > REVISIONS_MAX or self._bytes > BYTES_MAX
        if too_many or changes.before + 1 != self._next:
            self._close()
        else:
            self._next = changes.revision + 1

    def reloaded(self) -> None:
        """The waiting revisions are of the state before the snapshot."""
        self._close()

    def _close(self) -> None:
        self._waiting.clear()
        self._bytes, self._next = 0, None
