"""What `/v1/backup` sends: the whole store at one revision, read while writes go on.

It is linearizable: whatever was acknowledged before it was asked for is in it, since the state is opened behind a read
barrier; with `serializable` it is what this node has, whoever leads.
"""

from __future__ import annotations

from collections.abc import Iterator

from palisade.api.services import NodeServices
from palisade.base.version import VERSION
from palisade.metastore.backup import BackupHeader, frames_of, header_of
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.snapshot import StoreSnapshotReader


class OpenBackup:
    """`frames`: its bytes, read piece by piece as they are asked for; raises as `frames_of`. To be closed."""

    def __init__(self, reader: StoreSnapshotReader, cluster: str, now_ms: int) -> None:
        self._reader = reader
        self.header: BackupHeader = header_of(reader, cluster=cluster, created_by=VERSION, created_ms=now_ms)
        self.frames: Iterator[bytes] = frames_of(reader, self.header)

    def close(self) -> None:
        self._reader.close()


async def open_backup(services: NodeServices, cluster: str, now_ms: int, *, serializable: bool = False) -> OpenBackup:
    """`cluster`: its name; `now_ms`: wall clock. Raises InvalidRequest, and what a read barrier and the store raise."""
    if services.open_snapshot is None:
        raise InvalidRequest("this node keeps its state in memory only: there is nothing to back up")
    if not serializable:
        await services.key_values.barrier()
    reader = await services.open_snapshot()
    try:
        return OpenBackup(reader, cluster, now_ms)
    except BaseException:
        reader.close()
        raise
