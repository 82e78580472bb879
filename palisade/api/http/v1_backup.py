"""/v1/backup: the whole store at one revision as a stream of bytes, while writes go on.

The state is a read transaction of the store's file, opened after a read barrier (with `serializable`, without one).
Each turn of the event loop reads one piece, about 4 ms; then the loop has as much time for everything else. An error
after the first byte cannot be reported by a status any more: the stream then ends with a frame that names the error, or
without its end frame. Readers of backups refuse both.
"""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from palisade.api.backups import OpenBackup, open_backup
from palisade.api.http.open_streams import endless
from palisade.api.http.request_body import a_flag, query_of
from palisade.api.services import NodeServices
from palisade.base.snapshots import SnapshotGone
from palisade.metastore.backup import BackupHeader
from palisade.metastore.errors import StoreCorrupt
from palisade.raftgroup.errors import Unavailable

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/vnd.palisade.backup"
BACKUPS_MAX = 2
"""Concurrent backups: each prevents the file from reusing its free pages."""
STALLED_S = 60.0
"""A client that accepts no data for this time is disconnected."""


class Backups:
    """`cluster` is the name of the cluster."""

    def __init__(self, services: NodeServices, cluster: str) -> None:
        self._services = services
        self._cluster = cluster
        self._running = 0

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/backup", self.backup, allow_head=False)]

    async def backup(self, request: web.Request) -> web.StreamResponse:
        found = query_of(request, {"serializable": a_flag})
        if self._running >= BACKUPS_MAX:
            raise Unavailable(f"this node already sends {BACKUPS_MAX} backups: use another node, or retry later")
        self._running += 1
        try:
            serializable = found.get("serializable", False)
            opened = await open_backup(
                self._services, self._cluster, int(time.time() * 1000), serializable=serializable
            )
            try:
                with endless(request):
                    return await self._send(request, opened)
            finally:
                opened.close()
        finally:
            self._running -= 1

    async def _send(self, request: web.Request, opened: OpenBackup) -> web.StreamResponse:
        header = opened.header
        response = web.StreamResponse(headers=headers_of(header))
        await response.prepare(request)
        log.info("backup started: revision=%d", header.revision)
        began = time.perf_counter()
        try:
            for data in opened.frames:
                took_s = time.perf_counter() - began
                await write(response, data)
                await asyncio.sleep(took_s)
                began = time.perf_counter()
        except (SnapshotGone, StoreCorrupt) as error:
            log.warning("backup failed: revision=%d error=%s", header.revision, error)
            return response
        log.info("backup completed: revision=%d", header.revision)
        return response


async def write(response: web.StreamResponse, data: bytes) -> None:
    """Raises ConnectionResetError if the client accepts no more data."""
    try:
        async with asyncio.timeout(STALLED_S):
            await response.write(data)
    except TimeoutError:
        raise ConnectionResetError(f"the client of a backup accepted no data for {STALLED_S:g} s") from None


def headers_of(header: BackupHeader) -> dict[str, str]:
    name = f"{header.cluster}-{header.generation}-{header.revision}.backup"
    return {
        "Content-Type": CONTENT_TYPE,
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
        "Palisade-Revision": str(header.revision),
        "Palisade-Generation": str(header.generation),
    }
