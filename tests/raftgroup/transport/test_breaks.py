"""What ends a connection, and reconnection."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from palisade.base.frames import encode
from palisade.raftgroup.handshake import HELLO, PING, PONG
from palisade.raftgroup.peer_connection import TransportLimits
from tests.support.loopback import (
    HASTY,
    IGNORE_POLICY_WARNING,
    KIND,
    Start,
    address_of,
    connect,
    greeting_of,
    stranger_at,
)

pytestmark = IGNORE_POLICY_WARNING


async def test_member_that_dies_and_returns_is_connected_again(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    address = two.peers.address
    await two.peers.close()
    await one.recorder.until(lambda: one.recorder.disconnected == ["n2"])
    assert one.peers.connected() == frozenset()
    assert one.peers.send("n2", KIND, "lost") is False
    again = await start("n2", listen=address)
    again.peers.set_members({"n1": one.peers.address})
    await one.recorder.until(lambda: one.recorder.connected == ["n2", "n2"])
    await again.recorder.until(lambda: again.peers.connected() == {"n1"})
    assert one.peers.send("n2", KIND, "arrives")
    await again.recorder.until(lambda: again.recorder.messages == [("n1", KIND, "arrives")])


async def test_only_the_latest_connection_of_a_member_is_received_from(start: Start) -> None:
    one = await start("n1")
    async with stranger_at(one) as earlier, stranger_at(one) as later:
        earlier.writer.write(greeting_of("n2"))
        assert (await earlier.next_frame())[0] == HELLO
        later.writer.write(greeting_of("n2"))
        assert (await later.next_frame())[0] == HELLO
        earlier.writer.write(encode(KIND, "late"))
        later.writer.write(encode(KIND, "current"))
        assert await earlier.frames_until_closed() == []
        await one.recorder.until(lambda: bool(one.recorder.messages))
    assert one.recorder.messages == [("n2", KIND, "current")]


async def test_silent_connection_is_closed_and_a_pinging_one_is_not(start: Start) -> None:
    one = await start("n1", limits=HASTY)
    async with stranger_at(one) as pinging, stranger_at(one) as silent:
        pinging.writer.write(greeting_of("n2"))
        silent.writer.write(greeting_of("n3"))
        assert (await silent.next_frame())[0] == HELLO
        assert (await pinging.next_frame())[0] == HELLO
        end = asyncio.create_task(silent.frames_until_closed())
        pongs = 0
        while not end.done() or pongs < 10:
            pinging.writer.write(encode(PING, None))
            assert await pinging.next_frame() == (PONG, None)
            pongs += 1
            await asyncio.sleep(0.05)
        assert await end == []


async def test_idle_members_stay_connected(start: Start) -> None:
    one, two = await start("n1", limits=HASTY), await start("n2", limits=HASTY)
    await connect(one, two)
    loop = asyncio.get_running_loop()
    until = loop.time() + 4 * HASTY.idle_timeout_s
    await one.recorder.until(lambda: loop.time() > until)
    assert one.recorder.disconnected == two.recorder.disconnected == []


async def test_connection_with_unanswered_pings_is_closed(start: Start) -> None:
    """Half open: the other side accepts everything and sends nothing."""
    one = await start("n1", limits=HASTY)

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting_of("n2"))
        while await reader.read(1000):
            pass
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    one.peers.set_members({"n2": address_of(server.sockets[0])})
    await one.recorder.until(lambda: one.recorder.connected[:1] == ["n2"])
    while not one.recorder.disconnected:
        one.peers.send("n2", KIND, "traffic does not hide the silence")
        await asyncio.sleep(0.02)
    server.close()
    one.peers.set_members({})
    await one.recorder.until(lambda: one.peers.connected() == frozenset())


async def test_frozen_member_is_connected_but_not_answering(start: Start) -> None:
    """`palisade member list` showed it as connected until the idle timeout."""
    limits = replace(HASTY, idle_timeout_s=60.0)
    one, two = await start("n1", limits=limits), await start("n2", limits=limits)
    await connect(one, two)
    loop = asyncio.get_running_loop()
    until = loop.time() + 6 * limits.ping_interval_s
    await one.recorder.until(lambda: loop.time() > until)
    assert one.peers.answering() == {"n2"}
    for connection in two.peers._open:
        assert connection.transport is not None
        connection.transport.pause_reading()
        connection.tick = lambda now: None  # type: ignore[method-assign]
    await one.recorder.until(lambda: one.peers.answering() == frozenset())
    assert one.peers.connected() == {"n2"}
    for connection in two.peers._open:
        connection.transport.resume_reading()  # type: ignore[union-attr]
    await one.recorder.until(lambda: one.peers.answering() == {"n2"})


async def test_slow_line_with_progress_is_not_closed(start: Start) -> None:
    """The answer to a ping may have to wait behind a snapshot for longer than the idle timeout."""
    one = await start("n1", limits=HASTY)
    finished = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting_of("n2"))
        data = b"anything"
        while data:
            data, _ = await asyncio.gather(reader.read(100_000), asyncio.sleep(0.01))
        finished.set()
        writer.close()

    server = await asyncio.start_server(slow, "127.0.0.1", 0, limit=50_000)
    one.peers.set_members({"n2": address_of(server.sockets[0])})
    await one.recorder.until(lambda: bool(one.recorder.connected))
    one.peers.send("n2", KIND, b"x" * 20_000_000)
    loop = asyncio.get_running_loop()
    until = loop.time() + 2.5 * HASTY.idle_timeout_s
    await one.recorder.until(lambda: loop.time() > until)
    assert one.recorder.disconnected == []
    assert 0 < one.peers.queued_bytes("n2") < 19_000_000
    one.peers.set_members({})
    for connection in list(one.peers._open):
        connection.abort("the test is over")
    await finished.wait()
    server.close()


async def test_member_that_does_not_read_is_disconnected_at_the_limit(start: Start) -> None:
    limits = TransportLimits(queued_bytes_max=2_000_000, redial_min_s=10, redial_max_s=10)
    one = await start("n1", limits=limits)
    halt = asyncio.Event()

    async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting_of("n2"))
        await halt.wait()
        writer.close()

    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1000)
    one.peers.set_members({"n2": address_of(server.sockets[0])})
    await one.recorder.until(lambda: bool(one.recorder.connected))
    most = 0
    while one.peers.send("n2", KIND, b"x" * 100_000):
        most = max(most, one.peers.queued_bytes("n2"))
        await asyncio.sleep(0)
    assert 1_500_000 < most < 2_300_000
    assert one.peers.connected() == frozenset()
    await one.recorder.until(lambda: one.recorder.disconnected == ["n2"])
    assert one.peers.queued_bytes("n2") == 0
    halt.set()
    server.close()


async def test_pings_to_a_member_that_does_not_read_do_not_accumulate(start: Start) -> None:
    one = await start("n1", limits=TransportLimits(answers_bytes_max=10_000))
    async with stranger_at(one) as stranger:
        stranger.writer.write(greeting_of("n2"))
        assert (await stranger.next_frame())[0] == HELLO
        stranger.writer.transport.pause_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            while one.peers._incoming:
                stranger.writer.write(encode(PING, None) * 5_000)
                await stranger.writer.drain()
                await asyncio.sleep(0)
        assert one.peers._incoming == {}


async def test_own_pause_does_not_count_as_silence_of_others(start: Start) -> None:
    """A process that was stopped (SIGSTOP) finds all its timers due when it continues."""
    one, two = await start("n1", limits=HASTY), await start("n2", limits=HASTY)
    await connect(one, two)
    for connection in one.peers._open:
        connection.heard_at -= 100
    one.peers._tick_due -= 100
    one.peers._tick()
    assert one.peers.connected() == {"n2"}
    assert one.recorder.disconnected == []
    for connection in one.peers._open:
        connection.heard_at -= 100
    one.peers._tick()
    assert one.peers.connected() == frozenset()
