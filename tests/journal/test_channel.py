"""The inbox of a channel, and channels over TCP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palisade.journal.channel import WAITING_BYTES_MAX, Inbox, TcpChannel, TcpNetwork
from palisade.journal.errors import ReplicaRefused
from palisade.journal.messages import check_hello

TAKEN, KEPT = 1, 2


def take(kind: int, _body: Any) -> bool:
    return kind == TAKEN


async def test_inbox_returns_what_is_not_taken_at_once_in_order() -> None:
    inbox, taken = Inbox(), list[Any]()

    def at_once(kind: int, body: Any) -> bool:
        if kind == TAKEN:
            taken.append(body)
        return kind == TAKEN

    receiving = asyncio.ensure_future(inbox.receive(at_once))
    await asyncio.sleep(0)
    inbox.put([(TAKEN, 1), (KEPT, 2), (TAKEN, 3)])
    assert taken == [1]
    assert await receiving == (KEPT, 2)
    assert taken == [1]  # 3 waits until 2 has been handled
    inbox.end()
    assert await inbox.receive(at_once) is None
    assert taken == [1, 3]


async def test_inbox_raises_at_its_reader_what_a_handler_raises() -> None:
    inbox = Inbox()

    def fails(_kind: int, _body: Any) -> bool:
        raise ValueError("bad")

    receiving = asyncio.ensure_future(inbox.receive(fails))
    await asyncio.sleep(0)
    inbox.put([(TAKEN, 1), (TAKEN, 2)])
    with pytest.raises(ValueError, match="bad"):
        await receiving
    assert await inbox.receive() == (TAKEN, 2)


async def test_inbox_keeps_messages_while_its_reader_is_cancelled() -> None:
    inbox = Inbox()
    receiving = asyncio.ensure_future(inbox.receive(take))
    await asyncio.sleep(0)
    inbox.put([(KEPT, 1)])
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    inbox.put([(TAKEN, 2)])
    assert [await inbox.receive(), await inbox.receive()] == [(KEPT, 1), (TAKEN, 2)]


async def test_channel_is_not_read_while_too_much_waits() -> None:
    served: list[TcpChannel] = []
    server = await asyncio.get_running_loop().create_server(lambda: TcpChannel(served.append), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    channel = await TcpNetwork().dial(f"127.0.0.1:{port}")
    size, count = 1 << 18, 200
    for number in range(count):
        channel.send(KEPT, [number, bytes(size)])
    writing = asyncio.ensure_future(channel.drain())
    await asyncio.sleep(0.2)
    assert not writing.done()  # 50 MiB do not fit the buffers of the sockets
    far = served[0]
    assert len(far._inbox) * size <= 2 * WAITING_BYTES_MAX
    for number in range(count):
        message = await far.receive()
        assert message is not None
        assert message[1][0] == number
    await writing
    channel.close()
    assert await far.receive() is None
    server.close()


async def test_channel_ends_at_an_invalid_frame() -> None:
    loop = asyncio.get_running_loop()
    served: asyncio.Future[TcpChannel] = loop.create_future()
    server = await loop.create_server(lambda: TcpChannel(served.set_result), "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    assert await (await served).receive() is None
    writer.close()
    server.close()


@pytest.mark.parametrize("body", [None, {"a": 1}, [1], [1, "orders", 3], "ab"])
def test_first_message_that_is_no_hello_is_refused_without_python(body: Any) -> None:
    """The refusal had "too many values to unpack (expected 2)"."""
    with pytest.raises(ReplicaRefused, match=r"not the HELLO \[format, role\]"):
        check_hello(body, "orders")
