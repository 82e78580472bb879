"""Each revision of a store, as soon as it is applied, even if the same entry compacts it (many 306)."""

from __future__ import annotations

from collections.abc import Callable

from palisade.metastore.compaction import Compactor
from palisade.metastore.requests import FROM_KEY, WatchRequest
from palisade.metastore.results import RevisionEvents
from palisade.metastore.state_machine import MetaStore

MANY = 1000
BYTES = 1 << 24


class Committing:
    """`known`: the latest reported revision; `report` is called for later ones."""

    def __init__(self, store: MetaStore, known: Callable[[], int], report: Callable[[RevisionEvents], None]) -> None:
        self._store, self._known, self._report = store, known, report
        look = self.look

        class Looking(Compactor):
            __slots__ = ()

            def compact(self, revision: int) -> None:
                look()
                super().compact(revision)

        store._compactor.__class__ = Looking

    def look(self) -> None:
        """After each entry."""
        if self._store.revision <= self._known():
            return
        watcher = self._store.watches.open(WatchRequest(b"\0", FROM_KEY, self._known() + 1), lambda: None)
        try:
            while events := watcher.poll(MANY, BYTES):
                for each in events:
                    self._report(each)
        finally:
            watcher.close()
