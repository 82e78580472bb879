"""A member's vault gets its revisions from apply; from the store only if they are not in memory (issue 15)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from palisade.base.digest import unpack_sums
from palisade.metastore.changes import AppliedEntry, StoreListener
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.requests import DeleteRange, LeaseGrant, LeaseRevoke, Put
from palisade.metastore.state_machine import MetaStore
from palisade.recovery import applied_revisions
from palisade.recovery.applied_revisions import AppliedRevisions
from palisade.vault.change import Revision
from palisade.vault.errors import VaultDiverged
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver
from tests.support.meta_workload import Workload
from tests.support.vault_feed import write_some


class Member(StoreListener):
    """A store, its applied revisions, and the number of reads of the store for them."""

    def __init__(self) -> None:
        self.tables = MemoryStore("member")
        self.driver = Driver(self.tables)
        self.store: MetaStore = self.driver.store
        self.read: list[int] = []
        self.entries: list[AppliedEntry] = []
        self.revisions = AppliedRevisions(self.store, self)
        self.store.listen(self, self.revisions)
        self.vault = Vault(MemoryBackend())

    def applied(self, changes: AppliedEntry) -> None:
        self.entries.append(changes)

    async def changes(self, first: int, last: int) -> Sequence[Revision]:
        self.read.append(first)
        return self.store.feed.changes(first, last, 1 << 20)

    async def step(self, batch: int = 1_000) -> None:
        lv = self.vault.revision
        self.vault.apply(await self.revisions.changes(lv + 1, lv + batch))

    def assert_equal(self) -> None:
        digest = self.store.digest()
        assert (self.vault.revision, self.vault.chain) == (digest.revision, digest.chain)
        assert self.vault.sums == unpack_sums(digest.buckets)
        assert self.vault.key_count == self.store.key_count


@pytest.fixture
async def member() -> Member:
    """The store was read once, as after a start."""
    member = Member()
    member.driver.do(Put(b"first"))
    await member.step()
    member.read.clear()
    return member


@pytest.mark.parametrize("seed", range(8))
def test_applied_revisions_are_those_of_the_feed(seed: int) -> None:
    member, load, compared = Member(), Workload(seed), 0
    for _ in range(80):
        load.revision, load.clock_ms = member.store.revision, member.driver.clock_ms
        member.driver.batch(*(load.encoded() for _ in range(load.dice.randrange(1, 8))))
        entries, member.entries = member.entries, []
        for entry in entries:
            if entry.before >= member.store.minimal_revision:
                compared += entry.revision - entry.before
                found = [each._replace(bodies=tuple(each.bodies)) for each in entry.revisions()]
                assert found == stored(member, entry)
    assert compared > 50


def stored(member: Member, entry: AppliedEntry) -> list[Revision]:
    """The same revisions, read from the store."""
    found = member.store.feed.changes(entry.before + 1, entry.revision, 1 << 30)
    assert found[-1].number == entry.revision
    return [each._replace(bodies=tuple(each.bodies)) for each in found]


async def test_vault_takes_what_is_applied_without_reading_the_store(member: Member) -> None:
    for seed in range(5):
        write_some(member.driver, random.Random(seed), 40)
        member.driver.do(LeaseGrant(60_000, 7))
        member.driver.all(Put(b"leased", b"1", 7), Put(b"leased too", b"2", 7), Put(b"x", b"%d" % seed))
        member.driver.do(LeaseRevoke(7))
        member.driver.do(DeleteRange(b"x"))
        while member.vault.revision < member.store.revision:
            await member.step(batch=7)
    member.assert_equal()
    assert member.read == []


async def test_revisions_stay_until_the_vault_has_them(member: Member) -> None:
    member.driver.all(Put(b"a"), Put(b"b"), Put(b"c"))
    first = member.vault.revision + 1
    lost = await member.revisions.changes(first, first + 1)
    again = await member.revisions.changes(first, first + 9)
    assert [each.number for each in lost] == [first, first + 1]
    assert [each.number for each in again] == [first, first + 1, first + 2]
    member.vault.apply(again[:1])
    assert list(await member.revisions.changes(first + 1, first + 9)) == list(again[1:])
    assert member.read == []


async def test_part_of_an_entry_has_the_chain_digest_at_its_end(member: Member) -> None:
    member.driver.all(Put(b"a"), Put(b"b"), Put(b"c"))
    first = member.vault.revision + 1
    (found,) = await member.revisions.changes(first, first)
    assert found.chain == member.store.chain_at(first)


async def test_vault_reads_the_store_after_too_many_revisions_and_then_no_more(member: Member) -> None:
    for number in range(applied_revisions.REVISIONS_MAX + 1):
        member.driver.do(Put(b"k", b"%d" % number))
    assert not member.revisions._waiting
    await member.step(batch=10_000)
    assert len(member.read) == 1
    member.driver.do(Put(b"k", b"more"))
    await member.step()
    assert len(member.read) == 1
    member.assert_equal()


async def test_overflowed_window_stays_empty_until_it_is_read(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applied_revisions, "BYTES_MAX", 5_000)
    for _ in range(9):
        member.driver.do(Put(b"k", bytes(1_000)))
    assert (len(member.revisions._waiting), member.revisions._bytes) == (0, 0)
    await member.step()
    member.assert_equal()


async def test_revisions_during_catch_up_from_the_store_are_not_lost(member: Member) -> None:
    for number in range(applied_revisions.REVISIONS_MAX + 1):
        member.driver.do(Put(b"k%d" % (number % 9), b"%d" % number))
    while member.vault.revision < member.store.revision:
        if len(member.read) < 3:
            member.driver.do(Put(b"new%d" % len(member.read)))
        await member.step(batch=400)
    member.assert_equal()
    assert len(member.read) == 3


async def test_snapshot_of_the_group_empties_the_window(member: Member) -> None:
    leader = Driver(MemoryStore("leader"))
    leader.do(Put(b"first"))
    for number in range(30):
        leader.do(Put(b"k%d" % (number % 9), b"leader"))
    for number in range(5):
        member.driver.do(Put(b"k%d" % (number % 9), b"leader"))
    member.tables.installed(leader.tables.content())
    assert not member.revisions._waiting
    member.driver.do(Put(b"after"))
    assert not member.revisions._waiting
    while member.vault.revision < member.store.revision:
        await member.step()
    member.assert_equal()
    assert member.read


def test_listeners_are_named_once_and_before_the_first_entry() -> None:
    store = Driver().store
    store.listen()
    with pytest.raises(RuntimeError, match="name all listeners first"):
        store.listen(StoreListener())
    driver = Driver()
    driver.do(Put(b"a"))
    with pytest.raises(RuntimeError, match="name all listeners first"):
        driver.store.listen(StoreListener())


def test_map_has_one_state_machine() -> None:
    driver = Driver()
    with pytest.raises(RuntimeError, match="already has a state machine"):
        MetaStore(driver.tables)


@pytest.mark.parametrize("fault", [lambda bodies: bodies[::-1], lambda bodies: bodies[:-1]], ids=["order", "loss"])
async def test_checker_detects_a_fault_in_the_passed_revisions(
    member: Member, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Sequence[bytes]], Sequence[bytes]]
) -> None:
    def spoiled(entry: AppliedEntry) -> Iterator[Revision]:
        (first, bodies, single), *_ = entry.runs
        return revisions(entry._replace(runs=[(first, fault(bodies), single)]))

    revisions = AppliedEntry.revisions
    monkeypatch.setattr(AppliedEntry, "revisions", spoiled)
    member.driver.all(Put(b"a"), Put(b"b"), Put(b"c"))
    found = await member.revisions.changes(member.vault.revision + 1, member.store.revision)
    assert found != stored(member, member.entries[-1])
    if found[-1].number == member.store.revision:
        with pytest.raises(VaultDiverged):
            member.vault.apply(found)
