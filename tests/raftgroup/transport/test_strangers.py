"""Which peers are accepted, and the treatment of others (scenarios.md, "Everywhere")."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import tracemalloc
from typing import Any

import pytest

from palisade.base.frames import encode
from palisade.raftgroup.handshake import HELLO, PING, PROTOCOL_VERSION, REFUSE
from palisade.raftgroup.peer_connection import TransportLimits
from tests.support.loopback import (
    HASTY,
    IGNORE_POLICY_WARNING,
    KIND,
    Start,
    connect,
    greeting_of,
    introduce,
    stranger_at,
)

pytestmark = IGNORE_POLICY_WARNING


async def test_other_cluster_is_refused_with_the_reason_on_both_sides(start: Start) -> None:
    one, two = await start("n1", cluster="a"), await start("n2", cluster="b")
    introduce(one, two)
    await one.recorder.until(lambda: len(one.recorder.refused) > 1)
    await two.recorder.until(lambda: len(two.recorder.refused) > 1)
    assert one.recorder.refused[0] == ("n2", "this is cluster b, not a")
    assert two.recorder.refused[0] == ("n1", "this is cluster a, not b")
    assert one.recorder.connected == two.recorder.connected == []
    assert one.peers.send("n2", KIND, 1) is False


async def test_other_protocol_version_is_refused_with_the_remedy(start: Start) -> None:
    one = await start("n1")
    async with stranger_at(one) as stranger:
        stranger.writer.write(encode(HELLO, ["palisade-peer", 99, {"cluster": "c1", "member": "n2"}, "new field"]))
        ((kind, reason),) = await stranger.frames_until_closed()
    assert kind == REFUSE
    assert "version 99" in reason
    assert "same release" in reason
    assert one.recorder.greetings == []


async def test_dialler_refuses_the_wrong_member_at_an_address(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    one, two = await start("n1"), await start("n2")
    one.peers.set_members({"n3": two.peers.address})
    await two.recorder.until(lambda: bool(two.recorder.refused))
    assert two.recorder.refused[0] == ("n1", "n2 answers at the address of n3: check the addresses of both")
    assert one.recorder.connected == []


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "palisade-peer",
        ["something else", 1, {"member": "n2"}],
        ["palisade-peer", PROTOCOL_VERSION],
        ["palisade-peer", PROTOCOL_VERSION, ["member", "n2"]],
        ["palisade-peer", PROTOCOL_VERSION, {"cluster": "c1"}],
        ["palisade-peer", PROTOCOL_VERSION, {"cluster": "c1", "member": ""}],
        ["palisade-peer", PROTOCOL_VERSION, {"cluster": "c1", "member": ["n2"]}],
        ["palisade-peer", ["x" * 1000], {}],
    ],
)
async def test_malformed_greeting_is_refused(start: Start, body: Any) -> None:
    one = await start("n1")
    async with stranger_at(one) as stranger:
        stranger.writer.write(encode(HELLO, body))
        ((kind, reason),) = await stranger.frames_until_closed()
    assert kind == REFUSE
    assert 10 < len(reason) < 300


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(random.Random(5).randbytes(5000), id="random bytes"),
        pytest.param(struct.pack(">IBI", 2**31, 1, 0), id="two gibibytes announced"),
        pytest.param(struct.pack(">IBI", 65 * 1024, 1, 0), id="first frame too large"),
        pytest.param(struct.pack(">IBI", 6, 1, 0) + b"\xc0", id="wrong checksum"),
        pytest.param(encode(KIND, "message first"), id="no greeting first"),
        pytest.param(encode(PING, None), id="ping first"),
        pytest.param(greeting_of("n2") + greeting_of("n2"), id="two greetings"),
        pytest.param(greeting_of("n2") + encode(9, None), id="unknown kind"),
        pytest.param(encode(1, [[[[]]]] * 9000), id="large nested greeting"),
    ],
)
async def test_hostile_bytes_end_only_their_connection(
    start: Start, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    one = await start("n1")
    async with stranger_at(one) as stranger:
        stranger.writer.write(data)
        await stranger.frames_until_closed()
        port = stranger.writer.get_extra_info("sockname")[1]
    await one.recorder.until(lambda: f"127.0.0.1:{port}" in caplog.text)
    assert one.recorder.messages == []
    assert all(record.exc_info is None for record in caplog.records)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"use the HTTP API port", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 50, b"has no TLS", id="tls hello"),
        pytest.param(
            encode(1, {"protocol": 1, "client": "palisade-python/1"}), b"use the stream port", id="client of the stream"
        ),
    ],
)
async def test_client_of_another_port_receives_the_right_port_and_nothing_else_happens(
    start: Start, data: bytes, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 16."""
    one = await start("n1")
    host, _, port = one.peers.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    assert answer in await reader.read()
    port = writer.get_extra_info("sockname")[1]
    writer.close()
    await one.recorder.until(lambda: f"127.0.0.1:{port}" in caplog.text)
    assert one.recorder.messages == []
    assert all(record.exc_info is None for record in caplog.records)
    assert len(caplog.records) == 1


async def test_half_a_frame_before_the_end_is_harmless(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    async with stranger_at(one) as stranger:
        stranger.writer.write(greeting_of("n9") + encode(KIND, "whole") + encode(KIND, "cut short")[:-3])
        assert (await stranger.next_frame())[0] == HELLO
    await connect(one, two)
    assert one.recorder.messages == [("n9", KIND, "whole")]


async def test_announced_gigabyte_costs_no_memory(start: Start) -> None:
    one = await start("n1")
    async with stranger_at(one) as stranger:
        stranger.writer.write(greeting_of("n2"))
        assert (await stranger.next_frame())[0] == HELLO
        tracemalloc.start()
        stranger.writer.write(struct.pack(">IBI", 2**31, KIND, 0) + b"x" * 100_000)
        await stranger.frames_until_closed()
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes < 5_000_000


async def test_slow_greeting_is_cut_off(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Slow loris: a byte now and then is not a greeting."""
    one = await start("n1", limits=HASTY)
    async with stranger_at(one) as stranger:

        async def drip() -> None:
            with contextlib.suppress(ConnectionError):
                for byte in greeting_of("n2"):
                    stranger.writer.write(bytes((byte,)))
                    await stranger.writer.drain()
                    await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert await stranger.frames_until_closed() == []
        dripping.cancel()
        await asyncio.wait([dripping])
    await one.recorder.until(lambda: "no greeting within 0.3 s" in caplog.text)


async def test_connections_beyond_the_limit_are_refused_and_members_still_connect(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    loop, sockets = asyncio.get_running_loop(), []
    for _ in range(300):
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", one.port))
        sockets.append(sock)
    await one.recorder.until(lambda: len(one.peers._strangers) == 256)
    await one.recorder.until(lambda: sum(map(is_cut_off, sockets)) == 44)
    for sock in sockets:
        sock.close()
    await one.recorder.until(lambda: not one.peers._strangers)
    await connect(one, two)


def is_cut_off(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def test_greeted_connection_does_not_count_as_a_stranger(start: Start) -> None:
    limits = TransportLimits(strangers_max=1)
    one = await start("n1", limits=limits)
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(stranger_at(one))
        first.writer.write(greeting_of("n2"))
        assert (await first.next_frame())[0] == HELLO
        second = await stack.enter_async_context(stranger_at(one))
        second.writer.write(greeting_of("n3"))
        assert (await second.next_frame())[0] == HELLO
