"""Tasks of a pipeline that read the vaults of real nodes while writes continue, and while their node dies (issue
18)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from palisade.client import Client
from palisade.client.sync_client import SyncClient
from palisade.pipeline import local_vault
from palisade.pipeline.cluster import Pinned, fix, network_pages, pages
from palisade.pipeline.options import ReadOptions, read_options
from palisade.pipeline.partitions import ReadPart
from tests.support.processes import LONGEST_WAIT_S, Cluster, NodeProcess
from tests.support.row_pages import page_bytes

pytestmark = pytest.mark.e2e

KEYS = 30_000
PAUSE_S = 0.01


async def test_vault_of_each_node_has_the_rows_of_the_revision_while_writes_go_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member's vault follows its store in leaps, so it may be older or newer than the revision. After the many writes
    of `filled` a node may recover for a while."""
    monkeypatch.setattr(local_vault, "PATIENCE_S", LONGEST_WAIT_S)
    async with Client(cluster.endpoints) as client:
        await filled(client)
        writing = asyncio.create_task(write(client))
        try:
            for node in cluster.nodes:
                assert await asyncio.to_thread(same_rows, cluster, node)
        finally:
            writing.cancel()


async def test_read_continues_over_the_network_when_the_node_of_its_vault_dies(cluster: Cluster) -> None:
    async with Client(cluster.endpoints) as client:
        await filled(client)
        node = cluster.nodes[2]
        options = read_options({"endpoints": ",".join(cluster.endpoints), "vaults": str(node.data_dir / "vault")})
        pinned, part = await asyncio.to_thread(chosen, cluster.endpoints, options)
        reading = pages(options, pinned, part)
        found: list[Any] = [await asyncio.to_thread(next, reading)]
        node.kill()
        await client.put("s/after", "x")
        found += await asyncio.to_thread(list, reading)
        wanted = await asyncio.to_thread(list, network_pages(options, pinned, part))
        assert b"".join(map(page_bytes, found)) == b"".join(wanted)


def same_rows(cluster: Cluster, node: NodeProcess) -> bool:
    vault = str(node.data_dir / "vault")
    options = read_options({"endpoints": ",".join(cluster.endpoints), "vaults": vault, "vaultOnly": "true"})
    pinned, part = chosen(cluster.endpoints, options)
    found = b"".join(map(page_bytes, pages(options, pinned, part)))
    return len(found) > KEYS and found == b"".join(network_pages(options, pinned, part))


def chosen(endpoints: list[str], options: ReadOptions) -> tuple[Pinned, ReadPart]:
    with SyncClient(endpoints) as client:
        pinned = fix(client, options, "test")
    return pinned, ReadPart(b"\0", b"\0", 0, pinned.revision, tuple(endpoints))


async def filled(client: Client) -> None:
    await client.put_many((f"s/{number:05d}", "v" * 100) for number in range(KEYS))


async def write(client: Client) -> None:
    """Puts, deletes and re-creations."""
    rng = random.Random(5)
    while True:
        await client.put_many((f"s/{rng.randrange(KEYS):05d}", "w" * rng.randrange(200)) for _ in range(50))
        await asyncio.gather(*(client.delete(f"s/{rng.randrange(KEYS):05d}") for _ in range(10)))
        await asyncio.sleep(PAUSE_S)
