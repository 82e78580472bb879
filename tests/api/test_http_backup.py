"""GET /v1/backup: one revision under concurrent writes, and an unmistakable end (issue 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import ClientSession

from palisade.api.http import v1_backup
from palisade.api.http.server import HttpServer
from palisade.api.services import NodeServices
from palisade.base.snapshots import SnapshotGone
from palisade.metastore.backup import BackupCheck, BackupHeader
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.requests import Put
from palisade.metastore.snapshot import StoreSnapshotReader
from palisade.metastore.store_errors import BackupInvalid
from palisade.service.callers import UNRESTRICTED
from palisade.service.key_values import KeyValues
from tests.support.fake_group import FakeGroup


class Spy:
    """The store's state as of each call, in small pieces; `before_piece` is called before each of them."""

    def __init__(self, service: KeyValues) -> None:
        self.service = service
        self.before_piece: Callable[[int], Any] = lambda number: None
        self.closed = 0
        self.open = self.open_snapshot

    async def open_snapshot(self) -> Any:
        disk = MemoryStore("copy")
        disk.replace_content(self.service.store._tables.content())  # type: ignore[attr-defined]
        reader = await disk.open_snapshot()
        spied, chunk, close = self, reader.chunk, reader.close

        class Reader(StoreSnapshotReader):
            def chunk(self, number: int) -> bytes | None:
                spied.before_piece(number)
                return chunk(number)

            def close(self) -> None:
                spied.closed += 1
                close()

        reader.__class__ = Reader
        return reader


@pytest.fixture
async def spied(service: KeyValues) -> Spy:
    return Spy(service)


@pytest.fixture
async def services(spied: Spy) -> NodeServices:
    return NodeServices(spied.service, open_snapshot=lambda: spied.open())


@pytest.fixture
async def spy(service: KeyValues, spied: Spy) -> Spy:
    for number in range(30):
        await service.write(Put(b"key/%d" % number, b"v" * 60_000), caller=UNRESTRICTED)
    return spied


def checked(data: bytes) -> BackupHeader:
    check = BackupCheck("the answer")
    check.feed(data)
    return check.finish()[0]


async def test_backup_is_of_one_revision_despite_concurrent_writes(
    http: ClientSession, service: KeyValues, spy: Spy
) -> None:
    revision = service.store.revision
    writes: list[Any] = []
    spy.before_piece = lambda number: writes.append(
        asyncio.ensure_future(service.write(Put(b"during", b"x"), caller=UNRESTRICTED))
    )
    async with http.get("/v1/backup") as answer:
        assert answer.headers["Palisade-Revision"] == str(revision)
        assert answer.headers["Palisade-Generation"] == "1"
        header = checked(await answer.read())
    await asyncio.gather(*writes)
    assert (header.revision, header.keys, header.cluster) == (revision, 30, "demo")
    assert service.store.revision == revision + len(writes) > revision + 2
    assert spy.closed == 1


async def test_event_loop_turns_between_two_pieces_of_a_backup(http: ClientSession, spy: Spy) -> None:
    turns = 0
    seen: list[int] = []

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.ensure_future(turn())
    spy.before_piece = lambda number: seen.append(turns)
    async with http.get("/v1/backup") as answer:
        checked(await answer.read())
    turning.cancel()
    assert len(seen) > 3
    assert all(later > earlier for earlier, later in pairwise(seen))


async def test_aborted_backup_ends_with_its_error_and_is_rejected(http: ClientSession, spy: Spy) -> None:
    def gone(number: int) -> None:
        if number == 2:
            raise SnapshotGone("the file has grown by 1 GiB")

    spy.before_piece = gone
    async with http.get("/v1/backup") as answer:
        data = await answer.read()
    with pytest.raises(BackupInvalid, match="the file has grown by 1 GiB"):
        checked(data)
    assert spy.closed == 1


async def test_backup_without_majority_requires_serializable(http: ClientSession, group: FakeGroup, spy: Spy) -> None:
    group.majority = False
    async with http.get("/v1/backup") as answer:
        assert (answer.status, (await answer.json())["code"]) == (503, "unavailable")
    async with http.get("/v1/backup?serializable=true") as answer:
        checked(await answer.read())


async def test_third_concurrent_backup_is_refused_until_one_ends(
    http: ClientSession, spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(v1_backup, "BACKUPS_MAX", 1)
    begun, go_on = asyncio.Event(), asyncio.Event()
    opened = spy.open_snapshot

    async def slowly() -> Any:
        begun.set()
        await go_on.wait()
        return await opened()

    spy.open = slowly
    first = asyncio.ensure_future(http.get("/v1/backup"))
    await begun.wait()
    async with http.get("/v1/backup") as answer:
        assert (answer.status, (await answer.json())["code"]) == (503, "unavailable")
    go_on.set()
    async with await first as answer:
        checked(await answer.read())
    async with http.get("/v1/backup") as answer:
        checked(await answer.read())


async def test_node_without_a_disk_rejects_a_backup(service: KeyValues) -> None:
    server = HttpServer(NodeServices(service), "demo", "n1")
    await server.start("127.0.0.1", 0)
    try:
        async with ClientSession(f"http://127.0.0.1:{server.port}") as http, http.get("/v1/backup") as answer:
            assert (answer.status, (await answer.json())["code"]) == (400, "invalid-request")
    finally:
        await server.close()


async def test_unknown_parameter_is_refused(http: ClientSession, spy: Spy) -> None:
    async with http.get("/v1/backup?consistent=1") as answer:
        assert answer.status == 400
