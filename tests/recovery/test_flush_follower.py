"""The vault of a member follows its store by whole flushes, and then equals the store (issue 3, R1)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from palisade.base.digest import unpack_sums
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import Put
from palisade.metastore.state_machine import MetaStore
from palisade.recovery.flush_follower import FEW_REVISIONS, FlushFollower, take
from palisade.vault.change import Revision
from palisade.vault.errors import VaultDiverged, VaultGap
from palisade.vault.lmdb_tables import LmdbBackend
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.position import VaultPosition
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver
from tests.support.recovery_world import Node, Shelf, SimulatedClock, founded
from tests.support.vault_feed import full, items_of, state_of, write_some


class Stored:
    """Reads from the store, as a `StoreSource` does."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.asked: list[int] = []

    async def changes(self, first: int, last: int) -> Sequence[Revision]:
        self.asked.append(first)
        return self._driver.store.feed.changes(first, last, 1 << 20)


class Member:
    """A store on disk, driven as by the log, and the vault that follows it."""

    def __init__(self, path: Path) -> None:
        self.disk = LmdbStore(path / "store")
        self.driver = Driver.__new__(Driver)
        self.driver.tables = self.disk  # type: ignore[assignment]
        self.driver.store = MetaStore(self.disk)
        self.driver.clock_ms, self.driver.log = 0, []
        self.beside = FlushFollower(self.driver.store, Stored(self.driver))
        self.driver.store.listen(self.beside)
        self.backend = LmdbBackend(path / "vault")
        self.vault = Vault(self.backend)
        self.pauses = 0

    async def pause(self) -> None:
        self.pauses += 1
        await asyncio.sleep(0)

    async def leap(self) -> bool:
        leap = self.beside._next_leap(self.vault.revision)
        if leap is not None:
            await take(leap, self.vault, self.pause)
        return leap is not None

    def assert_equal(self) -> None:
        store, vault = self.driver.store, self.vault
        digest = store.digest()
        assert (vault.revision, vault.chain, vault.key_count) == (digest.revision, digest.chain, store.key_count)
        assert vault.sums == unpack_sums(digest.buckets)
        assert items_of(vault) == state_of(self.driver)


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[Member]:
    made = Member(tmp_path)
    yield made
    made.vault.close()
    made.disk.close()


@pytest.mark.parametrize("seed", range(5))
async def test_vault_equals_the_store_after_each_flush(member: Member, seed: int) -> None:
    rng = random.Random(seed)
    member.beside._known_from = 0
    for _ in range(6):
        write_some(member.driver, rng, rng.randrange(1, 300))
        await member.disk.flush()
        assert await member.leap()
        member.assert_equal()
    assert member.pauses > 0


async def test_writes_during_a_flush_come_with_the_next_one(member: Member) -> None:
    member.beside._known_from = 0
    write_some(member.driver, random.Random(1), 300)
    flush = asyncio.ensure_future(member.disk.flush())
    while not flush.done():
        write_some(member.driver, random.Random(2), 3)
        await asyncio.sleep(0)
    assert await member.leap()
    assert member.vault.revision < member.driver.store.revision
    await member.disk.flush()
    assert await member.leap()
    member.assert_equal()


async def test_waiting_flushes_are_joined_into_one_leap(member: Member) -> None:
    member.beside._known_from = 0
    for seed in range(3):
        write_some(member.driver, random.Random(seed), 100)
        await member.disk.flush()
    assert await member.leap()
    member.assert_equal()
    assert not member.beside._leaps


async def test_vault_that_missed_a_flush_does_not_leap(member: Member) -> None:
    member.driver.do(Put(b"before", b"1"))
    member.beside._known_from = member.driver.store.revision
    member.driver.do(Put(b"after", b"1"))
    await member.disk.flush()
    assert not await member.leap()
    assert member.vault.revision == 0


async def install(sender: MemoryStore, receiver: LmdbStore) -> None:
    """A snapshot of the group, as it is sent."""
    reader = await sender.open_snapshot()
    meta = reader.meta
    writer = receiver.receive_snapshot(meta)
    number = 0
    while (piece := reader.chunk(number)) is not None:
        writer.write(number, piece)
        number += 1
    await writer.finish()


async def test_leap_never_begins_before_a_snapshot_of_the_group(member: Member) -> None:
    """Later flushes do not contain its changes. A leap from before would still pass the digest checks."""
    member.beside._known_from = 0
    leader = Driver(MemoryStore("leader"))
    for number in range(20):
        member.driver.do(Put(b"k%d" % number, b"before"))
        leader.do(Put(b"k%d" % number, b"before"))
    await member.disk.flush()
    assert await member.leap()
    lv = member.vault.revision
    for number in range(15):
        leader.do(Put(b"k%d" % number, b"in the snapshot"))
    member.driver.do(Put(b"k0", b"in the snapshot"))
    await install(leader.tables, member.disk)
    assert member.driver.store.revision == leader.store.revision > lv
    member.driver.do(Put(b"k1", b"after"))
    await member.disk.flush()
    assert not await member.leap()
    assert member.vault.revision == lv
    feed = member.driver.store.feed
    member.vault.apply(feed.changes(lv + 1, leader.store.revision, 1 << 20))
    assert await member.leap()
    member.assert_equal()


async def test_flush_before_a_snapshot_of_the_group_gives_no_leap(member: Member) -> None:
    member.beside._known_from = 0
    leader = Driver(MemoryStore("leader"))
    for number in range(9):
        leader.do(Put(b"k%d" % number, b"in the snapshot"))
    member.driver.do(Put(b"k1", b"before"))
    await member.disk.flush()
    await install(leader.tables, member.disk)
    assert not await member.leap()
    assert member.vault.revision == 0


async def test_flush_that_a_snapshot_of_the_group_interrupts_gives_no_leap(member: Member) -> None:
    """What it was about to write is of the state before, and the snapshot has replaced the store meanwhile."""
    member.beside._known_from = 0
    member.driver.do(Put(b"k1", b"before"))
    member.beside.saving()
    member.beside.reloaded()
    member.beside.flushed([b"k1"], {b"k1": None})
    assert not await member.leap()


async def test_leap_after_an_interrupted_flush_does_not_begin_before_the_snapshot_of_the_group(member: Member) -> None:
    """The interrupted flush began at LV; the changes of the snapshot are in no later flush."""
    member.beside._known_from = 0
    leader = Driver(MemoryStore("leader"))
    for driver in (member.driver, leader):
        driver.do(Put(b"k1", b"before"))
    await member.disk.flush()
    assert await member.leap()
    leader.do(Put(b"k2", b"in the snapshot"))
    member.beside.saving()
    await install(leader.tables, member.disk)
    member.beside.flushed([], {})
    member.driver.do(Put(b"k1", b"after"))
    await member.disk.flush()
    assert not await member.leap()


@pytest.mark.parametrize("leaps_before", [False, True])
async def test_planted_a_leap_from_before_a_snapshot_of_the_group_makes_the_vault_wrong(
    member: Member, monkeypatch: pytest.MonkeyPatch, leaps_before: bool
) -> None:
    """Its digests are right, so no check would notice (issue 16)."""
    reloaded = FlushFollower.reloaded

    def claims_to_know(self: FlushFollower) -> None:
        known_from = self._known_from
        reloaded(self)
        self._known_from = known_from

    monkeypatch.setattr(FlushFollower, "reloaded", claims_to_know)
    member.beside._known_from = 0
    if leaps_before:
        member.driver.do(Put(b"k0", b"before"))
        await member.disk.flush()
        assert await member.leap()
    leader = Driver(MemoryStore("leader"))
    for number in range(9):
        leader.do(Put(b"k%d" % number, b"in the snapshot"))
    await install(leader.tables, member.disk)
    member.driver.do(Put(b"k1", b"after"))
    await member.disk.flush()
    assert await member.leap()
    digest = member.driver.store.digest()
    assert (member.vault.chain, member.vault.sums) == (digest.chain, unpack_sums(digest.buckets))
    assert items_of(member.vault) != state_of(member.driver)


async def test_readers_see_the_previous_revision_until_the_leap_is_done(member: Member) -> None:
    member.beside._known_from = 0
    write_some(member.driver, random.Random(3), 300)
    await member.disk.flush()
    seen: list[int] = []

    async def look() -> None:
        seen.append(len(items_of(member.vault)) + member.vault.revision)
        await asyncio.sleep(0)

    leap = member.beside._next_leap(0)
    assert leap is not None
    await take(leap, member.vault, look)
    assert set(seen) == {0}
    member.assert_equal()


async def test_cancelled_leap_changes_nothing(member: Member) -> None:
    member.beside._known_from = 0
    write_some(member.driver, random.Random(3), 300)
    await member.disk.flush()
    leap = member.beside._next_leap(0)
    assert leap is not None
    going = asyncio.ensure_future(take(leap, member.vault, member.pause))
    await asyncio.sleep(0)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    assert (member.vault.revision, items_of(member.vault)) == (0, [])
    await take(leap, member.vault, member.pause)
    member.assert_equal()


async def test_leap_never_goes_back(member: Member) -> None:
    with pytest.raises(VaultGap, match="is not after revision 0"):
        await member.vault.leap(lambda: iter(()), VaultPosition(0, bytes(16), 0), [0] * 4096, member.pause)


async def test_checker_detects_a_leap_over_a_missed_flush(member: Member) -> None:
    write_some(member.driver, random.Random(1), 50)
    await member.disk.flush()
    member.beside._leaps.clear()
    write_some(member.driver, random.Random(2), 50)
    member.beside._known_from = 0
    await member.disk.flush()
    assert await member.leap()
    with pytest.raises(AssertionError):
        member.assert_equal()


# What it does when.


class Following:
    """A follower of a store whose flushes are simulated."""

    def __init__(self, *, listens: bool) -> None:
        self.cluster = founded(full((b"/k/%02d" % n, b"") for n in range(30))).restarted()
        self.stored = Stored(self.cluster)
        self.beside = FlushFollower(self.cluster.store, self.stored)
        self.cluster.store.listen(self.beside)
        self.node = Node(self.cluster, MemoryBackend(), Shelf(), applied=self.beside)
        self.listens = listens
        self.task: asyncio.Task[None] | None = None

    async def pause(self) -> None:
        await asyncio.sleep(0)

    async def __aenter__(self) -> Following:
        await self.node.recover()
        clock = SimulatedClock()
        following = self.beside.follow(self.node.follower, self.node.vault, clock, lambda: self.listens, self.pause)
        self.task = asyncio.create_task(following)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def turns(self, count: int = 50) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def put(self, count: int) -> None:
        for number in range(count):
            self.cluster.do(Put(b"/k/%02d" % (number % 35), b"%d" % number))

    def flush(self) -> None:
        self.cluster.store.saving()
        rows = dict(self.cluster.tables.scan(Table.KEY, b"", None))
        self.cluster.store.flushed(sorted(rows), rows)


async def test_few_revisions_are_applied_at_once_one_by_one() -> None:
    async with Following(listens=False) as following:
        following.put(20)
        await following.turns()
        following.node.check()
        assert following.node.vault.revision == following.cluster.store.revision
        assert len(following.node.recorded.revisions) >= 20


async def test_many_revisions_wait_for_the_flush_and_are_skipped() -> None:
    async with Following(listens=False) as following:
        await following.turns()
        lv = following.node.vault.revision
        following.put(FEW_REVISIONS + 1)
        await following.turns()
        assert following.node.vault.revision == lv
        following.flush()
        await following.turns()
        assert following.node.vault.revision == following.cluster.store.revision
        assert items_of(following.node.vault) == state_of(following.cluster)
        assert max(following.node.recorded.revisions, default=0) <= lv


async def test_vault_of_another_history_does_not_leap() -> None:
    """Its digests would be correct afterwards, but entries that the leap did not write would not."""
    async with Following(listens=False) as following:
        await following.turns()
        vault = following.node.vault
        vault.position = VaultPosition(vault.revision, bytes(16), vault.key_count)
        following.put(FEW_REVISIONS + 1)
        following.flush()
        await following.turns()
        assert following.task is not None
        assert following.task.done()
        with pytest.raises(VaultDiverged, match="the chain digests of the vault and of this node"):
            following.task.result()


async def test_listeners_receive_every_revision() -> None:
    async with Following(listens=True) as following:
        following.put(FEW_REVISIONS + 100)
        following.flush()
        await following.turns(200)
        following.node.check()
        assert following.node.recorded.revisions[-FEW_REVISIONS:] == list(
            range(following.cluster.store.revision - FEW_REVISIONS + 1, following.cluster.store.revision + 1)
        )


async def test_flushes_are_not_kept_while_components_listen() -> None:
    """Four of them are several hundred MB of rows that would never be used."""
    async with Following(listens=True) as following:
        for _ in range(3):
            following.put(FEW_REVISIONS)
            following.flush()
        await following.turns(200)
        assert not following.beside._leaps
        following.listens = False
        following.put(FEW_REVISIONS + 1)
        following.flush()
        await following.turns(200)
        assert following.node.vault.revision == following.cluster.store.revision
        assert items_of(following.node.vault) == state_of(following.cluster)
