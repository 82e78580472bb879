"""/v1/backup: the whole store at one revision as a stream of bytes, while writes go on.

The state is a read transaction of the store's file, opened after a read barrier (or where this node stands, with
`serializable`). One piece is read in a turn of the loop, about 4 ms, and then the loop has as long for everything
else. What breaks off after the first byte can't be said by a status any more: the stream then ends with a frame that
says why, or without its end; both are refused by whoever reads the backup.
"""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from metastore.backup import BackupEncoder, BackupHeader, header_of
from metastore.errors import InvalidRequest, StoreCorrupt
from metastore.snapshot import SnapshotReader
from metastore.store_errors import SnapshotGone
from node.http.body import a_flag, query_of
from node.http.streaming import endless
from node.service import Service
from node.version import VERSION
from raftgroup.errors import Unavailable

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/vnd.palisade.backup"
BACKUPS_MAX = 2
"""At a time: each keeps the file from using its free pages again."""
STALLED_S = 60.0
"""A client that takes nothing for so long is given up."""


class Backups:
    """`cluster` is the name of the cluster."""

    def __init__(self, service: Service, cluster: str) -> None:
        self._service = service
        self._cluster = cluster
        self._running = 0

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/backup", self.backup, allow_head=False)]

    async def backup(self, request: web.Request) -> web.StreamResponse:
        found = query_of(request, {"serializable": a_flag})
        if self._service.open_snapshot is None:
            raise InvalidRequest("this node keeps its state in memory only: there is nothing to back up")
        if self._running >= BACKUPS_MAX:
            raise Unavailable(f"{BACKUPS_MAX} backups of this node are under way: ask another node, or try again later")
        self._running += 1
        try:
            if not found.get("serializable", False):
                await self._service.barrier()
            reader = await self._service.open_snapshot()
            try:
                with endless(request):
                    return await self._send(request, reader)
            finally:
                reader.close()
        finally:
            self._running -= 1

    async def _send(self, request: web.Request, reader: SnapshotReader) -> web.StreamResponse:
        header = header_of(reader, cluster=self._cluster, created_by=VERSION, created_ms=int(time.time() * 1000))
        response = web.StreamResponse(headers=headers_of(header))
        await response.prepare(request)
        encoder, number = BackupEncoder(), 0
        await write(response, encoder.begin(header))
        log.info("backup of revision %d begins", header.revision)
        try:
            while True:
                began = time.perf_counter()
                piece = reader.chunk(number)
                if piece is None:
                    break
                data = encoder.piece(piece)
                took_s = time.perf_counter() - began
                await write(response, data)
                await asyncio.sleep(took_s)
                number += 1
        except (SnapshotGone, StoreCorrupt) as error:
            log.warning("backup of revision %d is broken off: %s", header.revision, error)
            await write(response, encoder.broken(str(error)))
            return response
        await write(response, encoder.end())
        log.info("backup of revision %d has been sent: %d pieces", header.revision, number)
        return response


async def write(response: web.StreamResponse, data: bytes) -> None:
    """Raises ConnectionResetError when the client takes nothing any more."""
    try:
        async with asyncio.timeout(STALLED_S):
            await response.write(data)
    except TimeoutError:
        raise ConnectionResetError(f"the client of a backup took nothing for {STALLED_S:g} s") from None


def headers_of(header: BackupHeader) -> dict[str, str]:
    name = f"{header.cluster}-{header.generation}-{header.revision}.backup"
    return {
        "Content-Type": CONTENT_TYPE,
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
        "Palisade-Revision": str(header.revision),
        "Palisade-Generation": str(header.generation),
    }
