"""Requests that waited for a connection: the node refuses them before their client gives them up (issue 16)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palisade.api.stream.request_timeout import RequestTimeout
from palisade.api.stream.server import StreamServer
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import Put, Txn
from palisade.service.key_values import KeyValues
from palisade.wire.stream_frames import PROTOCOL, FrameKind
from tests.api.test_stream import raw
from tests.support.fake_group import FakeGroup


async def test_requests_that_waited_for_a_connection_have_what_is_left_of_their_time(
    stream: StreamServer, group: FakeGroup
) -> None:
    """Their client gave them up before the node refused them, and could not know that they were refused (issue 16).
    Later requests have the whole time."""
    group.leading = False
    put, loop = encode_command(Put(b"k", b"v")), asyncio.get_running_loop()
    async with raw(stream, greet=False) as connection:
        connection.send(FrameKind.HELLO, {"protocol": PROTOCOL, "timeout_ms": 1_000, "waited_ms": 900})
        assert (await connection.frame())[0] == FrameKind.WELCOME
        took = []
        for number, pause_s in ((1, 0.0), (2, 0.15)):
            await asyncio.sleep(pause_s)
            began = loop.time()
            connection.send(FrameKind.WRITES, [number, put])
            kind, body = await connection.frame()
            took.append(loop.time() - began)
            assert (kind, body[0], body[1][0]) == (FrameKind.FAILURES, number, "unavailable")
    assert took[0] < 0.5 * took[1]


@pytest.mark.parametrize(
    "call",
    [
        ["region_delete", ["r"]],
        ["segments_txn", [encode_command(Txn((), (), ()))]],
        ["segments_lease", [0, 1000]],
        ["pin", [b"a", b"b", "p", 1, 1000]],
        ["unpin", [b"a", b"b", "p"]],
    ],
    ids=lambda call: str(call[0]),
)
async def test_change_by_a_call_is_refused_before_its_client_gives_it_up(
    stream: StreamServer, service: KeyValues, group: FakeGroup, monkeypatch: pytest.MonkeyPatch, call: list[Any]
) -> None:
    """Those of segments and pins took the deadline of the node, and their outcome was unknown (issue 16)."""
    group.leading = False
    monkeypatch.setattr(service, "deadline_s", 60.0)
    async with raw(stream, greet=False) as connection:
        connection.send(FrameKind.HELLO, {"protocol": PROTOCOL, "timeout_ms": 100})
        assert (await connection.frame())[0] == FrameKind.WELCOME
        connection.send(FrameKind.CALL, [1, *call])
        async with asyncio.timeout(3):
            kind, body = await connection.frame()
    assert (kind, body[0], body[1][0]) == (FrameKind.FAILURES, 1, "unavailable")


@pytest.mark.parametrize(
    ("hello", "seconds"),
    [
        ({"timeout_ms": 5000, "waited_ms": 1000}, 3.6),
        ({"timeout_ms": 5000, "waited_ms": 0}, 4.5),
        ({"timeout_ms": 5000, "waited_ms": 5000}, 4.5),
        ({"timeout_ms": 5000, "waited_ms": "x"}, 4.5),
        ({"waited_ms": 1000}, 4.5),
        ({"timeout_ms": 60_000}, 5.0),
    ],
)
async def test_timeout_is_a_part_of_the_time_that_is_left(hello: dict[str, Any], seconds: float) -> None:
    timeout = RequestTimeout(5.0)
    timeout.begin(hello)
    assert timeout.seconds == seconds


async def test_ended_connection_keeps_no_timer() -> None:
    timeout, kept = RequestTimeout(5.0), RequestTimeout(5.0)
    for each in (timeout, kept):
        each.begin({"timeout_ms": 1000, "waited_ms": 990})
    left_s = timeout.seconds
    timeout.close()
    await asyncio.sleep(0.05)
    assert timeout.seconds == left_s < kept.seconds
