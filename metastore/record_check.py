"""The checksums of the store's rows, and the error of a row that fails its own. Pure."""

from __future__ import annotations

from palisade.base.checksums import RowChecksums
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.ordered_map import Table

REMEDY = (
    "This node's copy of the store can't be trusted any more: stop the node, remove its data directory, and start it "
    "with --join, so that it comes back as a new member and gets everything from the others. If no majority of "
    "healthy nodes is left, restore a backup"
)


def _damaged(table: int, key: bytes) -> StoreCorrupt:
    return StoreCorrupt(
        f"the value of key {key[:64]!r} in table {Table(table).name} is not what was written (checksum). {REMEDY}"
    )


CHECKSUMS = RowChecksums(b"", Table, _damaged)
