"""The transport on real loopback sockets: who may speak, what ends a connection, what comes back (scenarios.md)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

from raftgroup.connection import TransportLimits
from raftgroup.frames import FrameParser, encode
from raftgroup.handshake import HELLO, PING, PONG, REFUSE, hello
from raftgroup.transport import CannotListen, TcpPeers
from tests.support.recorder import PATIENCE_S, Recorder

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy. fixture")

KIND = 20
LOOPBACK = "127.0.0.1:0"
QUICK = TransportLimits(redial_min_s=0.01, redial_max_s=0.05)
HASTY = TransportLimits(
    handshake_timeout_s=0.3, idle_timeout_s=0.4, ping_interval_s=0.1, redial_min_s=0.01, redial_max_s=0.05
)


class Member:
    """A transport and what it told its receiver."""

    def __init__(self, recorder: Recorder, peers: TcpPeers) -> None:
        self.recorder = recorder
        self.peers = peers

    @property
    def id(self) -> str:
        return self.recorder.member

    @property
    def port(self) -> int:
        return int(self.peers.address.rpartition(":")[2])


Start = Callable[..., Awaitable[Member]]


@pytest.fixture(
    params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"], scope="module"
)
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    policy: asyncio.AbstractEventLoopPolicy = request.param()
    return policy


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts members; afterwards none of them may leave a task or a socket behind."""
    members: list[Member] = []

    async def start_one(member: str, *, cluster: str = "c1", listen: str = LOOPBACK, **options: Any) -> Member:
        options.setdefault("limits", QUICK)
        made = Member(Recorder(member, cluster), TcpPeers(listen, random.Random(1), **options))
        await made.peers.start(made.recorder)
        members.append(made)
        return made

    yield start_one
    for member in members:
        await member.peers.close()
    left = {task.get_name() for task in asyncio.all_tasks()}
    assert not {name for name in left if name.startswith("dial ")}
    assert not any(member.peers._open for member in members)


def address_of(sock: Any) -> str:
    host, port = sock.getsockname()
    return f"{host}:{port}"


def introduce(*members: Member) -> None:
    addresses = {member.id: member.peers.address for member in members}
    for member in members:
        member.peers.set_members(addresses)


async def connect(*members: Member) -> None:
    introduce(*members)
    everybody = {member.id for member in members}
    for member in members:
        others = everybody - {member.id}
        await member.recorder.until(lambda member=member, others=others: member.peers.connected() == others)


class Stranger:
    """A raw socket that speaks to a member's port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def frames_until_closed(self) -> list[tuple[int, Any]]:
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                return FrameParser().feed(await self.reader.read())
            return []

    async def next_frame(self) -> tuple[int, Any]:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readexactly(4)
            rest = await self.reader.readexactly(struct.unpack(">I", head)[0])
        (frame,) = FrameParser().feed(head + rest)
        return frame


@contextlib.asynccontextmanager
async def stranger_at(member: Member) -> AsyncIterator[Stranger]:
    reader, writer = await asyncio.open_connection("127.0.0.1", member.port)
    try:
        yield Stranger(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def greeting_of(member: str, cluster: str = "c1") -> bytes:
    return encode(HELLO, hello({"cluster": cluster, "member": member, "incarnation": "i1"}))


# Talking.


async def test_three_members_find_each_other_and_talk(start: Start) -> None:
    members = [await start(name) for name in ("n1", "n2", "n3")]
    await connect(*members)
    for sender in members:
        for target in members:
            assert sender.peers.send(target.id, KIND, [sender.id, b"\x00\xff", None]) is (sender is not target)
    for member in members:
        await member.recorder.until(lambda member=member: len(member.recorder.messages) == 2)
        others = sorted(other.id for other in members if other is not member)
        assert sorted(member.recorder.messages) == [(other, KIND, [other, b"\x00\xff", None]) for other in others]


async def test_messages_arrive_in_the_order_in_which_they_were_sent(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    for number in range(5_000):
        assert one.peers.send("n2", KIND, [number, b"x" * (number % 700)])
    await two.recorder.until(lambda: len(two.recorder.messages) == 5_000)
    assert [body[0] for _, _, body in two.recorder.messages] == list(range(5_000))


async def test_a_frame_of_many_mebibytes_arrives_whole(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    data = random.Random(3).randbytes(20 * 1024 * 1024)
    assert one.peers.send("n2", KIND, data)
    assert one.peers.queued_bytes("n2") > len(data)
    await two.recorder.until(lambda: bool(two.recorder.messages))
    assert two.recorder.messages == [("n2".replace("2", "1"), KIND, data)]
    await one.recorder.until(lambda: one.peers.queued_bytes("n2") == 0)


async def test_what_is_sent_in_one_turn_leaves_in_one_write(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    transport = one.peers._outgoing["n2"].transport
    assert transport is not None
    writes: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(transport, name)

        def writelines(self, frames: list[bytes]) -> None:
            writes.append(len(frames))
            transport.writelines(frames)

    one.peers._outgoing["n2"].transport = Counting()  # type: ignore[assignment]
    for number in range(100):
        one.peers.send("n2", KIND, number)
    await two.recorder.until(lambda: len(two.recorder.messages) == 100)
    assert writes == [100]


async def test_nothing_can_be_sent_to_whom_is_not_connected(start: Start) -> None:
    one = await start("n1")
    assert one.peers.send("n2", KIND, "hello") is False
    assert one.peers.queued_bytes("n2") == 0
    assert one.peers.connected() == frozenset()


async def test_a_kind_of_the_transports_own_is_a_fault_of_the_caller(start: Start) -> None:
    one = await start("n1")
    with pytest.raises(ValueError, match="begin at 16"):
        one.peers.send("n2", PING, None)


async def test_a_message_beyond_the_frame_limit_is_not_sent_and_harms_nothing(start: Start) -> None:
    limits = TransportLimits(frame_bytes_max=100_000)
    one, two = await start("n1", limits=limits), await start("n2", limits=limits)
    await connect(one, two)
    assert one.peers.send("n2", KIND, b"x" * 200_000) is False
    assert one.peers.send("n2", KIND, "small") is True
    await two.recorder.until(lambda: two.recorder.messages == [("n1", KIND, "small")])


# Who may speak.


async def test_another_cluster_is_refused_with_the_reason_on_both_sides(start: Start) -> None:
    one, two = await start("n1", cluster="a"), await start("n2", cluster="b")
    introduce(one, two)
    await one.recorder.until(lambda: len(one.recorder.refused) > 1)
    await two.recorder.until(lambda: len(two.recorder.refused) > 1)
    assert one.recorder.refused[0] == ("n2", "this is cluster b, not a")
    assert two.recorder.refused[0] == ("n1", "this is cluster a, not b")
    assert one.recorder.connected == two.recorder.connected == []
    assert one.peers.send("n2", KIND, 1) is False


async def test_another_protocol_version_is_refused_with_the_remedy(start: Start) -> None:
    one = await start("n1")
    async with stranger_at(one) as stranger:
        stranger.writer.write(encode(HELLO, ["palisade-peer", 99, {"cluster": "c1", "member": "n2"}, "new field"]))
        ((kind, reason),) = await stranger.frames_until_closed()
    assert kind == REFUSE
    assert "version 99" in reason
    assert "same release" in reason
    assert one.recorder.greetings == []


async def test_a_dialler_refuses_the_wrong_member_at_an_address(start: Start, caplog: pytest.LogCaptureFixture) -> None:
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
        ["palisade-peer", 1],
        ["palisade-peer", 1, ["member", "n2"]],
        ["palisade-peer", 1, {"cluster": "c1"}],
        ["palisade-peer", 1, {"cluster": "c1", "member": ""}],
        ["palisade-peer", 1, {"cluster": "c1", "member": ["n2"]}],
        ["palisade-peer", ["x" * 1000], {}],
    ],
)
async def test_a_greeting_that_is_none_is_refused(start: Start, body: Any) -> None:
    one = await start("n1")
    async with stranger_at(one) as stranger:
        stranger.writer.write(encode(HELLO, body))
        ((kind, reason),) = await stranger.frames_until_closed()
    assert kind == REFUSE
    assert 10 < len(reason) < 300


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 50, id="tls hello"),
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
async def test_hostile_bytes_end_the_connection_and_nothing_else(
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


async def test_half_a_frame_then_the_end_is_no_trouble(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    async with stranger_at(one) as stranger:
        stranger.writer.write(greeting_of("n9") + encode(KIND, "whole") + encode(KIND, "cut short")[:-3])
        assert (await stranger.next_frame())[0] == HELLO
    await connect(one, two)
    assert one.recorder.messages == [("n9", KIND, "whole")]


async def test_an_announced_gigabyte_costs_no_memory(start: Start) -> None:
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


async def test_a_greeting_that_takes_too_long_is_cut_off(start: Start, caplog: pytest.LogCaptureFixture) -> None:
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


async def test_connections_beyond_the_limit_are_refused_and_members_still_get_in(start: Start) -> None:
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


async def test_whoever_greeted_does_not_count_as_a_stranger(start: Start) -> None:
    limits = TransportLimits(strangers_max=1)
    one = await start("n1", limits=limits)
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(stranger_at(one))
        first.writer.write(greeting_of("n2"))
        assert (await first.next_frame())[0] == HELLO
        second = await stack.enter_async_context(stranger_at(one))
        second.writer.write(greeting_of("n3"))
        assert (await second.next_frame())[0] == HELLO


# Breaking and coming back.


async def test_a_member_that_dies_and_returns_is_connected_again(start: Start) -> None:
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


async def test_only_the_latest_connection_of_a_member_is_listened_to(start: Start) -> None:
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


async def test_a_silent_connection_is_closed_and_a_pinging_one_is_not(start: Start) -> None:
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


async def test_members_that_have_nothing_to_say_stay_connected(start: Start) -> None:
    one, two = await start("n1", limits=HASTY), await start("n2", limits=HASTY)
    await connect(one, two)
    loop = asyncio.get_running_loop()
    until = loop.time() + 4 * HASTY.idle_timeout_s
    await one.recorder.until(lambda: loop.time() > until)
    assert one.recorder.disconnected == two.recorder.disconnected == []


async def test_a_connection_whose_pings_are_not_answered_is_given_up(start: Start) -> None:
    """Half open: the other side takes everything and says nothing."""
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


async def test_a_member_that_does_not_read_is_disconnected_at_the_limit(start: Start) -> None:
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


async def test_pings_of_one_who_never_reads_the_answers_do_not_pile_up(start: Start) -> None:
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


async def test_an_own_pause_is_not_taken_for_the_silence_of_others(start: Start) -> None:
    """A process that was stopped (SIGSTOP) finds all its timers due when it goes on."""
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


# Members come and go.


async def test_who_is_no_longer_listed_is_disconnected(start: Start) -> None:
    members = [await start(name) for name in ("n1", "n2", "n3")]
    await connect(*members)
    one = members[0]
    one.peers.send("n3", KIND, "last words")
    one.peers.set_members({"n1": one.peers.address, "n2": members[1].peers.address})
    assert one.peers.connected() == {"n2"}
    await one.recorder.until(lambda: one.recorder.disconnected == ["n3"])
    await members[2].recorder.until(lambda: members[2].recorder.messages == [("n1", KIND, "last words")])


async def test_a_changed_address_is_dialled_anew(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    elsewhere = await start("n2")
    one.peers.set_members({"n2": elsewhere.peers.address})
    await one.recorder.until(lambda: one.recorder.connected == ["n2", "n2"])
    await one.recorder.until(lambda: one.peers.send("n2", KIND, "moved"))
    await elsewhere.recorder.until(lambda: bool(elsewhere.recorder.messages))
    assert two.recorder.messages == []


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:", "127.0.0.1:99999", ":1", "a" * 300 + ":7501"])
async def test_an_address_that_is_none_is_logged_and_retried(
    start: Start, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await start("n1"), await start("n2")
    one.peers.set_members({"n3": address, "n2": two.peers.address})
    await one.recorder.until(lambda: one.peers.connected() == {"n2"})
    await one.recorder.until(lambda: "no connection to n3" in caplog.text)


async def test_a_member_that_is_down_is_logged_once_not_at_every_attempt(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one = await start("n1")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        one.peers.set_members({"n2": address_of(sock)})
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.5
        await one.recorder.until(lambda: loop.time() > until)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


# Starting and stopping.


async def test_a_port_in_use_is_named_with_the_remedy(start: Start) -> None:
    one = await start("n1")
    peers = TcpPeers(one.peers.address, random.Random(1))
    with pytest.raises(CannotListen, match=rf"port {one.port} .* is in use: stop the process .* another peer port"):
        await peers.start(Recorder("n2"))
    await peers.close()


async def test_a_foreign_address_can_not_be_listened_on() -> None:
    peers = TcpPeers("203.0.113.7:7501", random.Random(1))
    with pytest.raises(CannotListen, match="correct this node's peer address"):
        await peers.start(Recorder("n1"))


async def test_closing_lets_the_last_messages_out_and_tells_nothing_more(start: Start) -> None:
    one, two = await start("n1"), await start("n2")
    await connect(one, two)
    two.peers.send("n1", KIND, "to one who closes")
    one.peers.send("n2", KIND, "farewell")
    await one.peers.close()
    heard = list(one.recorder.messages)
    await two.recorder.until(lambda: two.recorder.messages == [("n1", KIND, "farewell")])
    await two.recorder.until(lambda: two.recorder.disconnected == ["n1"])
    assert one.recorder.disconnected == []
    assert one.recorder.messages == heard
    assert one.peers.send("n2", KIND, "too late") is False
    await one.peers.close()


async def test_closing_does_not_wait_for_one_who_never_reads(start: Start) -> None:
    one = await start("n1", limits=TransportLimits(close_timeout_s=0.1))
    halt = asyncio.Event()

    async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting_of("n2"))
        await halt.wait()
        writer.close()

    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1000)
    one.peers.set_members({"n2": address_of(server.sockets[0])})
    await one.recorder.until(lambda: bool(one.recorder.connected))
    one.peers.send("n2", KIND, b"x" * 30_000_000)
    async with asyncio.timeout(PATIENCE_S):
        await one.peers.close()
    halt.set()
    server.close()
