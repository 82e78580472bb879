"""The rows of one segment, from any node that serves it, or from the file in its record; verified by their digest.

When a copy moves, its new node announces it before the old one removes it. Thus the broker is queried again after all
known nodes have failed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

import pyarrow as pa

from palisade.base.counted import counted
from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.catalog.errors import BadRows
from palisade.catalog.parquet_rows import inspect_table, read_table
from palisade.client.node_addresses import addresses_in
from palisade.client.sync_client import SyncClient
from palisade.pipeline.cluster import connect, credentials_of
from palisade.pipeline.errors import PipelineError
from palisade.pipeline.options import ClusterAccess
from palisade.pipeline.segment_read import ReadableSegment, TableUnavailable
from palisade.segments.file_source import FileSource
from palisade.segments.names import Wanted
from palisade.segments.sources import SourceFailed
from palisade.wire.credentials import Credentials, header_of
from palisade.wire.segment_errors import SegmentError

log = logging.getLogger(__name__)

ATTEMPTS, PAUSE_S = 6, 0.3


class RowsNotThere(PipelineError):
    """The node or file does not have the rows."""

    code = "not-there"
    retry = True


def fetch(part: ReadableSegment, access: ClusterAccess, pause: Callable[[float], None] = time.sleep) -> pa.Table:
    """Raises TableUnavailable with the segment."""
    credentials, nodes, reasons = credentials_of(access), part.nodes, dict[str, str]()
    with connect(access) as client:
        for attempt in range(1, ATTEMPTS + 1):
            addresses = addresses_in(client.topology()) if nodes else {}
            places = [addresses[node] for node in random.sample(nodes, len(nodes)) if node in addresses]
            for place in [*places, *([part.url] if part.url else [])]:
                try:
                    return verified(part, _content(part, place, access, credentials))
                except (RowsNotThere, NoAnswer, SourceFailed) as error:
                    reasons[place] = str(error) if place in str(error) else f"{place}: {error}"
                    log.info("segment not read: segment=%s place=%s reason=%s", part.segment, place, error)
            if attempt < ATTEMPTS:
                pause(PAUSE_S * attempt)
                nodes = _servers(client, part)
    raise TableUnavailable([part.segment], "; ".join(reasons.values()))


def verified(part: ReadableSegment, content: bytes) -> pa.Table:
    """Raises NotThere for other rows than those of the record."""
    try:
        table = read_table(content)
        found = inspect_table(table)
    except BadRows as error:
        raise RowsNotThere(str(error)) from error
    if (found.digest, found.rows) != (part.digest, part.rows):
        raise RowsNotThere(
            f"{counted(found.rows, 'row')} with {found.digest}, the record has {part.rows} with {part.digest}"
        )
    return table


def _servers(client: SyncClient, part: ReadableSegment) -> tuple[str, ...]:
    try:
        return tuple(client.segment(part.segment)["nodes"])
    except SegmentError:
        return ()


def _content(part: ReadableSegment, place: str, access: ClusterAccess, credentials: Credentials | None) -> bytes:
    """`place`: the URL of the record, or the HTTP address of a node. Raises NotThere, NoAnswer, SourceFailed."""
    if place == part.url:
        return asyncio.run(FileSource(place).get(part.segment, Wanted(part.digest, 0)))
    return asyncio.run(_download(part, place, access, credentials))


async def _download(
    part: ReadableSegment, address: str, access: ClusterAccess, credentials: Credentials | None
) -> bytes:
    path = f"/v1/segments/{part.segment}/file"
    async with (
        HttpRequests(header_of(credentials), timeout_s=access.timeout_s) as requests,
        requests.open(address, path, params={"digest": part.digest}) as response,
    ):
        if response.status != 200:
            raise RowsNotThere(f"HTTP {response.status}")
        return bytes(await response.read())
