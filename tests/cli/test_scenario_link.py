"""The link between two processes of a scenario."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from palisade.cli.scenarios.link import Link
from tests.support.processes import free_port

SILENT_S = 0.05


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    """To a server that returns each line."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    link = Link(f"127.0.0.1:{free_port()}", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await link.start()
    yield link
    await link.close()
    server.close()


async def dial(link: Link) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = link.address.partition(":")
    return await asyncio.open_connection(host, int(port))


async def test_link_that_is_cut_carries_nothing_on_old_and_new_connections(link: Link) -> None:
    old = await dial(link)
    old[1].write(b"one\n")
    assert await old[0].readline() == b"one\n"
    link.cut()
    new = await dial(link)
    for reader, writer in (old, new):
        writer.write(b"two\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), SILENT_S)
    link.restore()
    for reader, writer in (old, new):
        assert await reader.readline() == b"", "it has ended"
        writer.close()
    reader, writer = await dial(link)
    writer.write(b"three\n")
    assert await reader.readline() == b"three\n"
    writer.close()


async def test_link_that_is_cut_does_not_show_whether_its_target_runs() -> None:
    link = Link(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}")
    await link.start()
    link.cut()
    reader, writer = await dial(link)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(), SILENT_S)
    link.restore()
    assert await reader.read() == b""
    writer.close()
    reader, writer = await dial(link)
    assert await reader.read() == b"", "there is no target"
    writer.close()
    await link.close()


async def test_end_of_the_target_is_not_seen_while_the_link_is_cut(link: Link) -> None:
    reader, writer = await dial(link)
    writer.write(b"one\n")
    await reader.readline()
    link.cut()
    writer.write_eof()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(), SILENT_S)
    writer.close()
