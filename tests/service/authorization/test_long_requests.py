"""Requests that go on for long, or wait for their client, are executed by the rights that it has then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import ClientSession

from palisade.api.stream.server import StreamServer
from palisade.metastore.command_codec import operation_fields
from palisade.metastore.requests import LeaseGrant, Put, Range
from palisade.service.callers import UNRESTRICTED
from palisade.service.key_values import KeyValues
from palisade.wire.credentials import to_hello
from palisade.wire.stream_frames import FrameKind
from tests.service.authorization.test_gate import login, next_line
from tests.service.authorization.test_stream import ALICE, raw
from tests.support.hand_clock import Clock
from tests.support.permission_world import Users
from tests.support.waiting import until

READS = 60
BIG = 500_000


async def test_read_that_waited_for_its_client_needs_the_right_when_it_is_executed(
    stream: StreamServer, service: KeyValues, users: Users
) -> None:
    """Else a client would keep reads in store, and get by them what is written after its rights were revoked."""
    await service.write(Put(b"/a/k", b"v" * BIG), caller=UNRESTRICTED)
    async with raw(stream, to_hello(ALICE)) as connection:
        for number in range(READS):
            connection.send(FrameKind.READS, [number, list(operation_fields(Range(b"/a/k")))])
        (serving,) = stream.connections
        await until(lambda: not serving._writable.is_set() and serving._in_flight > 0)
        await users.regrant("alice")
        await service.write(Put(b"/a/k", b"secret"), caller=UNRESTRICTED)
        results, refusals = [], []
        while len(results) + len(refusals) < READS:
            kind, body = await connection.frame()
            if kind == FrameKind.RESULTS:
                results += body[1::2]
            else:
                assert kind == FrameKind.FAILURES
                refusals += body[1::2]
    assert not [row for _, _, rows, *_ in results for row in rows if row[1] == b"secret"]
    assert refusals
    assert {refusal[0] for refusal in refusals} == {"permission-denied"}


async def test_token_that_runs_out_ends_its_stream_of_keep_alives(
    http: ClientSession, service: KeyValues, clock: Clock
) -> None:
    """Each message is a write: it keeps the keys of the lease."""
    await service.write(LeaseGrant(6_000_000, 77), caller=UNRESTRICTED)
    await service.write(Put(b"/a/x/leased", b"", 77), caller=UNRESTRICTED)
    messages: asyncio.Queue[bytes] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        for _ in range(2):
            yield await messages.get()

    headers = {"Authorization": (await login(http, ttl_s=60))["token"]}
    messages.put_nowait(b'{"ID": "77"}')
    async with http.post("/v3/lease/keepalive", data=body(), headers=headers) as answer:
        assert (await next_line(answer))["result"]["TTL"] == "6000"
        clock.advance(60)
        messages.put_nowait(b'{"ID": "77"}')
        assert (await next_line(answer))["error"]["code"] == 16
