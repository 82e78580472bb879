"""The state at a revision, read from the vault of a member by the code of Spark's tasks (`pipeline.local_vault`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from palisade.metastore.lineage import Lineage
from palisade.metastore.state_machine import MetaStore
from palisade.pipeline.local_vault import vault_pages
from palisade.pipeline.partitions import ReadPart
from palisade.vault.errors import Fenced
from palisade.vault.read_policies import Unreachable
from palisade.vault.snapshot_reads import VaultSnapshot
from palisade.wire.batch_records import KeySpan
from palisade.wire.scan_pages import ChangePosition, pack_change, rows_of
from tests.support.row_pages import page_bytes

T = TypeVar("T")


class _OneLook:
    """The reader of a node, without a wait for its lease."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def trusted(self, read: Callable[[VaultSnapshot], T]) -> T:
        found: T | Unreachable = self._reader.trusted(read)
        if isinstance(found, Unreachable):
            raise Fenced(found.reason)
        return found


class _Changes:
    """The change feed of a store, as `SyncClient.scan_changes` returns it."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    def scan_changes(
        self, key: bytes, range_end: bytes, first: ChangePosition, last: int, lineage: Lineage, *, values: bool
    ) -> tuple[bytes, None]:
        found = self._store.feed.dated_changes(first.revision, first.sub, last)
        page = [pack_change(wall, sub, row, old) for wall, _, sub, name, row, old in found if key <= name < range_end]
        return b"".join(page), None


def slice_at(node: Any, span: KeySpan, revision: int, seen: Callable[[int], None]) -> dict[bytes, bytes]:
    """Raises VaultNotRead, and the errors of the change feed. `seen`: called with the revision of the vault."""
    store, reader = node.key_values.store, node.fencing.part.reads._open()
    part = ReadPart(*span, first=0, last=revision, endpoints=())
    sources: tuple[Any, Any] = _OneLook(reader), _Changes(store)
    seen(reader.applied())
    pages = vault_pages(*sources, part, store.lineage, lambda: None)
    return {row.key: row.value for rows, _ in pages for row in rows_of(page_bytes(rows))}
