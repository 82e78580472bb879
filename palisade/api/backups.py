"""The backup stream of `/v1/backup`: the whole store at one revision, read while writes go on.

The backup is linearizable: the state is opened after a read barrier, so it contains every write that was acknowledged
before the request. With `serializable` it is the state of this node, without a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator

from palisade.api.services import NodeServices
from palisade.base.version import VERSION
from palisade.metastore.backup import BackupHeader, frames_of, header_of
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.snapshot import StoreSnapshotReader


class OpenBackup:
    """`frames`: the bytes of the backup, read piece by piece on demand; raises as `frames_of`. Must be closed."""

    def __init__(self, reader: StoreSnapshotReader, cluster: str, now_ms: int) -> None:
        self._reader = reader
        self.header: BackupHeader = header_of(reader, cluster=cluster, created_by=VERSION, created_ms=now_ms)
        self.frames: Iterator[bytes] = frames_of(reader, self.header)

    def close(self) -> None:
        self._reader.close()


async def open_backup(services: NodeServices, cluster: str, now_ms: int, *, serializable: bool = False) -> OpenBackup:
    """`cluster`: its name; `now_ms`: wall clock. Raises InvalidRequest, and the errors of the read barrier and the
    store."""
    if services.open_snapshot is None:
        raise InvalidRequest("this node keeps its state in memory only and cannot be backed up")
    if not serializable:
        await services.key_values.barrier()
    reader = await services.open_snapshot()
    try:
        return OpenBackup(reader, cluster, now_ms)
    except BaseException:
        reader.close()
        raise
