"""The revisions that a member applies, for its own vault: as they come, not read back from the store.

`MetaStore.apply` has each event in its hand. Here the latest revisions wait in memory, without a gap, until the vault
has them. The wait is bounded. When too many wait, all are dropped, and the vault reads what it needs from the store, as
after a start, a recovery and a snapshot of the group. That first read opens the window again for what is applied next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from metastore.changes import AppliedEntry, StoreListener
from metastore.machine import MetaStore
from recovery.ports import RevisionSource
from vault.change import Revision

REVISIONS_MAX = 1_000
"""Where no component listens, a vault that lacks more than `beside.FEW_REVISIONS` waits for the next flush anyway."""
BYTES_MAX = 4 << 20
"""Each body is a second copy of what the store keeps."""
TAKEN_BYTES = 512 * 1024
"""So many bytes are enough for one answer, as from the store (`store_source.CHUNK_BYTES`)."""


class AppliedRevisions(StoreListener):
    """`RevisionSource` for the vault of this member. `stored` reads them from its store."""

    def __init__(self, store: MetaStore, stored: RevisionSource) -> None:
        self._store, self._stored = store, stored
        self._waiting: deque[Revision] = deque()
        self._bytes = 0
        self._next: int | None = None
        """The revision that comes next; None: the window is closed, and nothing is kept."""
        self.read_from_store = 0
        """How often the store had to be read."""

    async def changes(self, first: int, last: int) -> Sequence[Revision]:
        """As every source. What lies before `first` is in the vault, and is dropped; the rest stays until then."""
        found = self._taken(first, last)
        if found:
            return found
        self.read_from_store += 1
        if self._next is None:
            self._next = self._store.revision + 1
        return await self._stored.changes(first, last)

    def _taken(self, first: int, last: int) -> list[Revision]:
        """Whole revisions without a gap from `first` on; none where the first one is not here."""
        waiting = self._waiting
        while waiting and waiting[0].number < first:
            self._bytes -= size_of(waiting.popleft())
        found, size = list[Revision](), 0
        if not waiting or waiting[0].number != first:
            return found
        for revision in islice(waiting, max(0, last - first + 1)):
            found.append(revision)
            size += size_of(revision)
            if size >= TAKEN_BYTES:
                break
        if found and not found[-1].chain:
            found[-1] = found[-1]._replace(chain=self._store.chain_at(found[-1].number) or b"")
        return found

    def applied(self, changes: AppliedEntry) -> None:
        if self._next is None:
            return
        if changes.before + 1 != self._next or len(self._waiting) + changes.revision - changes.before > REVISIONS_MAX:
            self._close()
            return
        for revision in changes.revisions():
            self._waiting.append(revision)
            self._bytes += size_of(revision)
        self._next = changes.revision + 1
        if self._bytes > BYTES_MAX:
            self._close()

    def reloaded(self) -> None:
        """What waits is of the state before the snapshot."""
        self._close()

    def _close(self) -> None:
        self._waiting.clear()
        self._bytes, self._next = 0, None


def size_of(revision: Revision) -> int:
    return sum(map(len, revision.bodies))
