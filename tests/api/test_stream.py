"""The stream port under invalid input and misbehaving clients: a clear refusal, no change, no other client stalled."""

from __future__ import annotations

import asyncio
import gc
import struct
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import pytest

from palisade.api.stream.server import StreamServer
from palisade.base.frames import FrameParser, encode
from palisade.client import Client
from palisade.metastore.command_codec import encode_command, operation_fields
from palisade.metastore.put_series import SERIES_PUTS_MAX, encode_series
from palisade.metastore.requests import (
    BeginGeneration,
    Command,
    Compact,
    EvictResults,
    FoundCluster,
    LeaseExpire,
    Put,
    Range,
    RequestId,
    Tick,
)
from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.proposals import Proposal
from palisade.wire.stream_frames import IN_FLIGHT_MAX, ITEMS_MAX, PROTOCOL, FrameKind
from tests.support.fake_group import HOST, FakeGroup
from tests.support.waiting import until


class Raw:
    """A connection that sends arbitrary bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._parser = FrameParser()
        self._frames: list[tuple[int, Any]] = []

    def send(self, kind: int, body: Any) -> None:
        self.writer.write(encode(kind, body))

    async def frame(self) -> tuple[int, Any]:
        """The next frame; (-1, None) when the node has closed the connection."""
        async with asyncio.timeout(5):
            while not self._frames:
                try:
                    data = await self.reader.read(65536)
                except ConnectionError:
                    data = b""
                if not data:
                    return -1, None
                self._frames += self._parser.feed(data)
        return self._frames.pop(0)

    async def refusal(self) -> str:
        """The reason in the REFUSED frame that ends the connection; the client of a journal copy, which greets with a
        list, gets a list."""
        kind, body = await self.frame()
        assert kind == FrameKind.REFUSED
        assert (await self.frame())[0] == -1
        return str(body["reason"] if isinstance(body, dict) else body[2])


@asynccontextmanager
async def raw(stream: StreamServer, greet: bool = True) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", stream.port)
    connection = Raw(reader, writer)
    if greet:
        connection.send(FrameKind.HELLO, {"protocol": PROTOCOL, "client": "test"})
        assert (await connection.frame())[0] == FrameKind.WELCOME
    try:
        yield connection
    finally:
        writer.close()


async def test_welcome_names_the_cluster_and_its_leader(stream: StreamServer) -> None:
    async with raw(stream, greet=False) as connection:
        connection.send(FrameKind.HELLO, {"protocol": PROTOCOL, "client": "test"})
        _, welcome = await connection.frame()
    assert welcome == {
        "protocol": PROTOCOL,
        "cluster": "demo",
        "member": "n1",
        "leader": "n1",
        "streams": {"n1": f"{HOST}:7601"},
        "limits": {"request_bytes": 2 * 1024 * 1024, "value_bytes": 1024 * 1024},
    }


async def test_unknown_protocol_is_refused_naming_the_supported_one(stream: StreamServer) -> None:
    async with raw(stream, greet=False) as connection:
        connection.send(FrameKind.HELLO, {"protocol": 99})
        assert f"99 is not supported, this node speaks {PROTOCOL}" in await connection.refusal()


async def test_request_before_hello_is_refused(stream: StreamServer, group: FakeGroup) -> None:
    async with raw(stream, greet=False) as connection:
        connection.send(FrameKind.WRITES, [1, encode_command(Put(b"a", b"1"))])
        assert "HELLO" in await connection.refusal()
    assert group.store.revision == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 64,
        struct.pack(">IBI", 2 << 30, 4, 0),
        struct.pack(">IBI", 10, 1, 12345) + b"12345",
        encode(FrameKind.HELLO, [1, 2]),
        encode(200, None),
    ],
    ids=["zeros", "2 GiB announced", "wrong checksum", "no map", "unknown kind"],
)
async def test_garbage_is_refused_and_the_connection_ends(stream: StreamServer, client: Client, garbage: bytes) -> None:
    async with raw(stream, greet=False) as connection:
        connection.writer.write(garbage)
        assert await connection.refusal()
    assert (await client.put("a", "1")).revision == 2


async def test_announced_two_gibibytes_are_not_allocated(stream: StreamServer) -> None:
    async with raw(stream) as connection:
        connection.writer.write(struct.pack(">I", (2 << 30)))
        assert "announces 2147483648 bytes" in await connection.refusal()


async def test_connection_without_hello_is_closed(stream: StreamServer) -> None:
    async with raw(stream, greet=False) as connection:
        connection.writer.write(b"\0")
        assert "no HELLO came within" in await connection.refusal()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FrameKind.WRITES, {}),
        (FrameKind.WRITES, [1]),
        (FrameKind.WRITES, ["1", b""]),
        (FrameKind.WRITES, [-1, b""]),
        (FrameKind.WRITES, [1, b""] * (ITEMS_MAX + 1)),
        (FrameKind.READS, [None, []]),
        (FrameKind.CALL, [1]),
        (FrameKind.WATCH, [1, "text", b"", 0, False, [], 0, 8]),
        (FrameKind.WATCH, [1, b"a", b"", 0, False, [], 0, -1]),
        (FrameKind.MORE, [1, -5]),
        (FrameKind.MORE, 7),
        (FrameKind.UNWATCH, []),
        (FrameKind.WELCOME, None),
        (99, None),
    ],
)
async def test_malformed_frame_ends_the_connection_with_a_reason(
    stream: StreamServer, group: FakeGroup, kind: int, body: Any
) -> None:
    async with raw(stream) as connection:
        connection.send(kind, body)
        assert await connection.refusal()
    assert group.store.revision == 1


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (b"", "invalid-request"),
        (b"\xc1garbage", "invalid-request"),
        ("text", "invalid-request"),
        (encode_command(Tick()), "invalid-request"),
        (encode_command(LeaseExpire((1,))), "invalid-request"),
        (encode_command(EvictResults(1)), "invalid-request"),
        (encode_command(Put(b"", b"1")), "key-empty"),
        (encode_command(Put(b"k" * 5000, b"1")), "key-too-large"),
        (encode_command(Put(b"k", b"v" * (1 << 20) + b"v")), "value-too-large"),
        (encode_command(Put(b"k", b"v"), RequestId("", 1)), "invalid-request"),
        (encode_command(Put(b"k", b"v"), RequestId("c" * 500, 1)), "invalid-request"),
        (encode_command(Put(b"k", b"v"), RequestId("c", -1)), "invalid-request"),
        (encode_command(Compact(99)), "future-revision"),
    ],
)
async def test_bad_command_is_refused_and_the_others_go_on(
    stream: StreamServer, group: FakeGroup, command: Any, code: str
) -> None:
    async with raw(stream) as connection:
        connection.send(FrameKind.WRITES, [1, command, 2, encode_command(Put(b"good", b"1"))])
        answers = dict([await connection.frame(), *([await connection.frame()] if code != "future-revision" else [])])
    results = answers[FrameKind.RESULTS]
    found = dict(zip(results[::2], results[1::2], strict=True))
    assert found[2][1] == 2
    shown = found[1][1] if code == "future-revision" else answers[FrameKind.FAILURES][1][0]
    assert shown == code
    assert group.store.revision == 2


async def test_stopped_node_refuses_every_write_of_a_frame(
    stream: StreamServer, group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise NodeFailed("this node has stopped")

    monkeypatch.setattr(group, "submit", stopped)
    async with raw(stream) as connection:
        connection.send(FrameKind.WRITES, [1, encode_command(Put(b"a", b"")), 2, encode_command(Put(b"b", b""))])
        kind, failures = await connection.frame()
    assert kind == FrameKind.FAILURES
    assert [(number, code) for number, (code, _, _) in zip(failures[::2], failures[1::2], strict=True)] == [
        (1, "node-failed"),
        (2, "node-failed"),
    ]


def pairs(flat: list[Any]) -> list[tuple[int, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


async def test_bad_put_of_a_series_is_refused_alone(stream: StreamServer, group: FakeGroup) -> None:
    contents = [b"a", b"1", b"k" * 5000, b"2", b"c", b"3"]
    async with raw(stream) as connection:
        connection.send(FrameKind.WRITES, [7, encode_series(("c", 1), contents)])
        answers = dict([await connection.frame(), await connection.frame()])
    assert [(number, code) for number, (code, _, _) in pairs(answers[FrameKind.FAILURES])] == [(8, "key-too-large")]
    assert [number for number, _ in pairs(answers[FrameKind.RESULTS])] == [7, 9]
    assert group.store.key_count == 2


async def test_series_without_outcome_fails_each_of_its_puts(stream: StreamServer, group: FakeGroup) -> None:
    group.leading = False
    async with raw(stream) as connection:
        connection.send(FrameKind.WRITES, [7, encode_series(None, [b"a", b"1", b"b", b"2"])])
        kind, failures = await connection.frame()
    assert kind == FrameKind.FAILURES
    assert [(number, code) for number, (code, _, _) in pairs(failures)] == [(7, "unavailable"), (8, "unavailable")]


@pytest.mark.parametrize("operation", [True, 1.0])
async def test_value_that_only_equals_the_number_of_a_put_is_refused(stream: StreamServer, operation: object) -> None:
    async with raw(stream) as connection:
        connection.send(FrameKind.WRITES, [1, msgpack.packb([operation, None, b"k", b"v"])])
        kind, failures = await connection.frame()
    assert (kind, failures[1][0]) == (FrameKind.FAILURES, "invalid-request")


@pytest.mark.parametrize("key", [b"k", b""])
async def test_frame_with_too_many_puts_is_refused(stream: StreamServer, group: FakeGroup, key: bytes) -> None:
    """Otherwise a frame of 2 MiB holds 400,000 puts, applied in one turn, or as many refusals in 37 MB (R5)."""
    series = encode_series(None, [key, b""] * SERIES_PUTS_MAX)
    few = ITEMS_MAX // SERIES_PUTS_MAX
    frames = [
        [part for number in range(count) for part in (number * SERIES_PUTS_MAX, series)] for count in (few, few + 1)
    ]
    async with raw(stream) as connection:
        connection.send(FrameKind.WRITES, frames[0])
        assert (await connection.frame())[0] == (FrameKind.RESULTS if key else FrameKind.FAILURES)
        connection.send(FrameKind.WRITES, frames[1])
        assert f"up to {ITEMS_MAX} puts" in await connection.refusal()
    assert group.store.revision == 1 + (ITEMS_MAX if key else 0)


async def test_consecutive_puts_are_sent_as_a_series(
    client: Client, group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other writes in between keep their place."""
    await client.put("first", "1")
    seen: list[int] = []
    original = group.submit

    def counted(proposal: Proposal) -> None:
        seen.append(len(proposal.commands))
        original(proposal)

    monkeypatch.setattr(group, "submit", counted)
    puts = [client.put(f"k{n}", b"v") for n in range(600)]
    results = await asyncio.gather(*puts, client.delete("k1"), client.put("k1", "again"))
    assert [result.revision for result in results] == list(range(3, 605))
    assert sum(seen) == 5
    found = await client.get("k1")
    assert found is not None
    assert (found.value, found.version) == (b"again", 1)


async def test_bad_range_and_an_unknown_call_are_refused(stream: StreamServer) -> None:
    async with raw(stream) as connection:
        connection.send(FrameKind.READS, [1, [4, b"a"], 2, "nonsense", 3, [1, b"a", b"b"]])
        _, failures = await connection.frame()
        assert [failure[0] for failure in failures[1::2]] == ["invalid-request"] * 3
        for call in ("no-such-call", None, "lease_info"):
            connection.send(FrameKind.CALL, [4, call, []])
            _, (number, failure) = await connection.frame()
            assert (number, failure[0]) == (4, "invalid-request")


async def test_requests_in_flight_are_bounded(stream: StreamServer, group: FakeGroup) -> None:
    """Beyond the bound the node stops reading; it continues when there is room, and every request gets its result."""
    group.held = True
    frame = [each for number in range(512) for each in (number, encode_command(Put(b"k", b"v" * 1000)))]
    async with raw(stream) as connection:
        for _ in range(40):
            connection.send(FrameKind.WRITES, frame)
        await until(lambda: group.submitted >= IN_FLIGHT_MAX)
        await asyncio.sleep(0.05)
        assert group.submitted <= IN_FLIGHT_MAX + 512
        group.release()
        answered = 0
        while answered < 40 * 512:
            kind, body = await connection.frame()
            assert kind == FrameKind.RESULTS
            answered += len(body) // 2
    assert group.store.revision == 1 + 40 * 512


async def test_client_that_does_not_read_stalls_no_other(
    stream: StreamServer, client: Client, group: FakeGroup
) -> None:
    await client.put("big", b"v" * 500_000)
    async with raw(stream) as greedy:
        for number in range(2000):
            greedy.send(FrameKind.READS, [number, list(operation_fields(Range(b"big")))])
        async with asyncio.timeout(5):
            for number in range(100):
                await client.put("a", str(number))
        kept = sum(
            connection._transport.get_write_buffer_size()
            for connection in stream.connections
            if connection._transport is not None
        )
    assert kept < 16 << 20


async def test_incomplete_frame_is_waited_for(stream: StreamServer) -> None:
    async with raw(stream) as connection:
        whole = encode(FrameKind.WRITES, [1, encode_command(Put(b"a", b"1"))])
        for at in range(0, len(whole), 5):
            connection.writer.write(whole[at : at + 5])
            await connection.writer.drain()
        kind, body = await connection.frame()
    assert (kind, body) == (FrameKind.RESULTS, [1, [1, 2]])


async def test_close_finishes_pending_requests(stream: StreamServer, client: Client, group: FakeGroup) -> None:
    group.held = True
    answers = [asyncio.ensure_future(client.put(f"k{n}", b"v")) for n in range(50)]
    await until(lambda: group.submitted == 50)
    closing = asyncio.ensure_future(stream.close())
    await asyncio.sleep(0)
    group.release()
    await closing
    assert len({(await answer).revision for answer in answers}) == 50


@pytest.mark.parametrize("call", ["lease_info", "member_promote", "member_remove", "transfer"])
@pytest.mark.parametrize("wrong", [b"k" * 5000, [7], True, 1.5, {}])
async def test_invalid_id_is_refused_in_one_line(stream: StreamServer, call: str, wrong: Any) -> None:
    """The id was looked up and quoted in the refusal, whatever its size (docs/bugs-found.md)."""
    async with raw(stream) as connection:
        connection.send(FrameKind.CALL, [1, call, [wrong]])
        kind, body = await connection.frame()
    assert kind == FrameKind.FAILURES
    assert (body[1][0], len(body[1][1]) < 200) == ("invalid-request", True)


@pytest.mark.parametrize(
    "frame",
    [
        (FrameKind.CALL, [1, "digest", []]),
        (FrameKind.READS, [1, list(operation_fields(Range(b"a")))]),
        (FrameKind.WRITES, [1, encode_command(Put(b"a", b"1"))]),
        (FrameKind.WATCH, [1, b"a", b"", 1, False, [], 100, 2]),
        (FrameKind.CALL, [1, "nothing", []]),
        (FrameKind.CALL, "refused"),
    ],
    ids=["digest", "reads", "writes", "watch", "failure", "refused"],
)
async def test_closed_connection_is_freed_at_once(stream: StreamServer, frame: tuple[FrameKind, Any]) -> None:
    """A node collects cycles rarely: the memory of closed connections, such as the buffer of a large result, added up
    to hundreds of megabytes (docs/bugs-found.md)."""
    async with raw(stream) as connection:
        (seen,) = map(weakref.ref, stream.connections)
        connection.send(*frame)
        await connection.frame()
        gc.collect()
        gc.disable()
    try:
        await until(lambda: not stream.connections)
        await until(lambda: seen() is None)
    finally:
        gc.enable()


async def test_watch_reports_a_new_history_of_its_node(stream: StreamServer, group: FakeGroup) -> None:
    """Restores 3 and 4: a member that had just joined had no history yet, so a watch that a client had moved there from
    a lost history continued in the next one. The new history is sent before its events."""

    def apply(*commands: Command) -> None:
        for command in commands:
            group.apply([encode_command(command)])

    async with raw(stream) as connection:
        connection.send(FrameKind.WATCH, [1, b"a", b"", 0, False, [], 0, 8])
        assert await connection.frame() == (FrameKind.WATCHING, [1, 2, None])
        apply(FoundCluster("id-1"), Put(b"a", b"1"))
        assert await connection.frame() == (FrameKind.WATCHING, [1, 2, ["id-1", 1]])
        assert (await connection.frame())[0] == FrameKind.EVENTS
        apply(Put(b"a", b"2"))
        assert (await connection.frame())[0] == FrameKind.EVENTS
        apply(BeginGeneration(2), Put(b"a", b"3"))
        assert await connection.frame() == (FrameKind.WATCHING, [1, 4, ["id-1", 2]])
        assert (await connection.frame())[0] == FrameKind.EVENTS


async def test_watch_at_a_survivor_reports_the_new_history_first(stream: StreamServer, group: FakeGroup) -> None:
    """Its log has a newer generation; its state reaches that generation after the entries that it alone may have
    had."""
    group.apply([encode_command(FoundCluster("id-1"))])
    group.belongs_to(group.members.alone(group.member, 2))
    async with raw(stream) as connection:
        connection.send(FrameKind.WATCH, [1, b"a", b"", 0, False, [], 0, 8])
        assert await connection.frame() == (FrameKind.WATCHING, [1, 2, ["id-1", 2]])


async def test_watch_at_a_member_that_joins_a_survivor_reports_the_new_history_first(
    stream: StreamServer, group: FakeGroup
) -> None:
    """Its own log, as far as it has been received, is still of the earlier generation."""
    group.apply([encode_command(FoundCluster("id-1"))])
    group.joins = 2
    async with raw(stream) as connection:
        connection.send(FrameKind.WATCH, [1, b"a", b"", 0, False, [], 0, 8])
        assert await connection.frame() == (FrameKind.WATCHING, [1, 2, ["id-1", 2]])
