"""A request above the node's limit is refused by the client; sent, it would end the connection for all others."""

from __future__ import annotations

import asyncio

import pytest

from palisade.api.stream.server import StreamServer
from palisade.client import Client
from palisade.client.operations import Put
from palisade.client.sync_client import SyncClient
from palisade.metastore.errors import RequestTooLarge
from tests.support.fake_group import FakeGroup

TOO_LARGE = b"v" * (4 << 20)
LIMITS = r"4194\d+ bytes; the cluster accepts 2097152 per request and 1048576 per value\. It was not sent"


async def test_large_put_is_refused_at_once_and_the_puts_beside_it_are_done(client: Client, group: FakeGroup) -> None:
    """It stalled the whole client until its deadline, and ended as `outcome unknown` (issue 16, 3)."""
    loop = asyncio.get_running_loop()
    await client.ping()
    began = loop.time()
    small = [asyncio.ensure_future(client.put(f"small/{number}", "1")) for number in range(4)]
    with pytest.raises(RequestTooLarge, match=LIMITS):
        await client.put("large", TOO_LARGE)
    await asyncio.gather(*small)
    assert loop.time() - began < 1
    assert group.store.key_count == 4


async def test_large_request_of_any_kind_is_refused(client: Client, group: FakeGroup) -> None:
    with pytest.raises(RequestTooLarge, match=LIMITS):
        await client.txn([], [Put("a", TOO_LARGE)])
    with pytest.raises(RequestTooLarge, match=LIMITS):
        await client.put("a", TOO_LARGE, prev_kv=True)
    with pytest.raises(RequestTooLarge, match=LIMITS):
        await client.put_many([("a", "1"), ("b", TOO_LARGE)])
    with pytest.raises(RequestTooLarge, match="per request"):
        await client.get(TOO_LARGE)
    with pytest.raises(RequestTooLarge, match="per request"):
        await client.catalog_do("create-database", {"database": TOO_LARGE.decode()}, procedure="p")
    assert (await client.put("c", "1")).revision > 1
    assert await client.get("b") is None


async def test_large_put_from_before_the_connection_is_refused_when_the_limit_is_known(stream: StreamServer) -> None:
    async with Client([f"127.0.0.1:{stream.port}"], follow_leader=False) as client:
        large, small = client.put("large", TOO_LARGE), client.put("small", "1")
        refused, done = await asyncio.gather(large, small, return_exceptions=True)
    assert isinstance(refused, RequestTooLarge)
    assert not isinstance(done, BaseException)


def test_sync_client_refuses_a_large_put(blocking: SyncClient) -> None:
    with pytest.raises(RequestTooLarge, match=LIMITS):
        blocking.put("large", TOO_LARGE)
    blocking.put("small", "1")
