"""The checksums of the store's rows, and the error for a mismatch. Pure."""

from __future__ import annotations

from palisade.base.checksums import RowChecksums
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.ordered_map import Table

REMEDY = (
    "This node's copy of the store cannot be trusted: stop the node, remove its data directory, and start it "
    "with --join, so that it joins as a new member and copies the state from the others. If no majority of "
    "healthy nodes is left, restore a backup"
)


def _damaged(table: int, key: bytes) -> StoreCorrupt:
    return StoreCorrupt(
        f"the value of key {key[:64]!r} in table {Table(table).name} is not what was written (checksum). {REMEDY}"
    )


CHECKSUMS = RowChecksums(b"", Table, _damaged)
