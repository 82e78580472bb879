"""The strict log of a member: which changes wait for a release, and which a holder lacks (design.md, "Released
revision")."""

from __future__ import annotations

import pytest

from palisade.fencing.messages import GrantMessage, HolderId, HolderPhase, Renew, Row
from palisade.fencing.release import Registration, Releases
from palisade.fencing.timing import FenceTiming
from palisade.metastore.changes import AppliedEntry, StoreListener
from palisade.metastore.limits import Limits
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.requests import Command, Compact, DeleteRange, LeaseGrant, LeaseRevoke, Put, Txn
from palisade.metastore.state_machine import MetaStore
from palisade.service import strict_changes as strict_log
from palisade.service.regions import regions_of
from palisade.service.strict_changes import StrictBatch, StrictLog
from palisade.vault.change import item_of
from palisade.vault.regions import Mode, Policy, Region, pack_region, region_key
from tests.support.fake_group import FakeGroup

STRICT = Region("s", b"s/", Mode.STRICT, Policy.FAIL_CLOSED)


class World(StoreListener):
    """A store and the log over it; `batches` as the log created them."""

    def __init__(self, released: int | None = 1) -> None:
        self.store = MetaStore(MemoryMap(), Limits())
        self.group = FakeGroup(self.store)
        self.log = StrictLog(self.store.bodies, lambda: regions_of(self.store), lambda: self.store.revision)
        self.batches: list[StrictBatch] = []
        self.store.listen(self)
        if released is not None:
            self.log.release(released)
            self.do(Put(region_key("s"), pack_region(STRICT)))
            self.log.release(self.store.revision)

    def applied(self, changes: AppliedEntry) -> None:
        self.batches.append(self.log.applied(changes.keys, changes.before, changes.revision))

    def do(self, *commands: Command) -> StrictBatch:
        from palisade.metastore.command_codec import encode_command

        self.group.apply([encode_command(command) for command in commands])
        return self.batches[-1]

    def rows(self, after: int) -> list[Row]:
        rows = self.log.since(after)
        assert rows is not None
        return rows


def value_of(row: Row) -> bytes:
    return item_of(row[2] or b"").value


def test_strict_batch_has_each_strict_key_once() -> None:
    world = World()
    first = world.store.revision + 1
    batch = world.do(Put(b"e", b"1"), Put(b"s/a", b"1"), Put(b"s/b", b"1"), Put(b"s/a", b"2"), Put(b"sx", b"1"))
    assert sorted(batch.keys) == [b"s/a", b"s/b"]
    assert [(revision, key) for revision, key, _ in world.rows(batch.after)] == [
        (first + 2, b"s/b"),
        (first + 3, b"s/a"),
    ]
    assert value_of(world.rows(batch.after)[1]) == b"2"
    assert (batch.after, batch.upto) == (first - 1, first + 4)


def test_strict_key_is_pending_and_eventual_key_is_not() -> None:
    world = World()
    world.do(Put(b"e", b"1"))
    assert world.log.settled
    assert world.log.point == world.store.revision
    batch = world.do(Put(b"s/a", b"1"))
    assert world.log.point == batch.upto - 1
    assert world.log.is_pending(b"s/a", b"")
    assert world.log.is_pending(b"a", b"z")
    assert world.log.is_pending(b"a", b"\0")
    assert not world.log.is_pending(b"s/b", b"")
    assert not world.log.is_pending(b"e", b"f")
    world.do(Put(b"e", b"2"))
    assert world.log.point == batch.upto - 1
    world.log.release(batch.upto)
    assert world.log.settled
    assert world.log.point == world.store.revision


def test_deletes_transactions_and_expired_leases_are_strict_changes() -> None:
    world = World()
    world.do(LeaseGrant(60_000, 7))
    world.do(Put(b"s/leased", b"1", lease=7), Put(b"s/b", b"1"))
    assert world.do(DeleteRange(b"s/b")).keys == (b"s/b",)
    assert world.rows(world.store.revision - 1) == [(world.store.revision, b"s/b", None)]
    assert world.do(LeaseRevoke(7)).keys == (b"s/leased",)
    assert world.do(Txn(success=(Put(b"s/t", b""), Put(b"e", b"")))).keys == (b"s/t",)


def test_batches_of_one_key_are_released_in_order() -> None:
    world = World()
    one, two = world.do(Put(b"s/a", b"1")), world.do(Put(b"s/a", b"2"))
    world.log.release(one.upto)
    assert world.log.is_pending(b"s/a", b"")
    world.log.release(two.upto + 10)
    assert world.log.settled
    assert not world.log.is_pending(b"s/a", b"")


def test_started_member_treats_all_changes_as_unreleased() -> None:
    """Unknown must never look like released."""
    world = World(released=None)
    assert world.log.point == 0
    assert world.log.is_pending(b"palisade/x", b"")
    assert world.log.is_pending(b"a", b"\0")
    assert not world.log.is_pending(b"e", b"")
    world.log.release(world.store.revision)
    assert world.log.settled


def test_change_released_before_it_is_applied_is_not_pending() -> None:
    """A starting member receives RR from the leader first, and applies the end of its own log afterwards."""
    world = World()
    world.log.release(world.store.revision + 3)
    world.do(Put(b"s/a", b"1"))
    region = Region("t", b"t/", Mode.STRICT, Policy.DENY)
    world.do(Put(region_key("t"), pack_region(region)))
    assert world.log.settled
    world.do(DeleteRange(region_key("t")))
    assert world.log.settled
    assert world.do(Put(b"t/a", b"1")).keys == ()


def test_snapshot_resets_the_strict_log() -> None:
    world = World()
    world.do(Put(b"s/a", b"1"))
    world.do(Put(b"e", b"1"))
    world.log.reset()
    assert world.log.is_pending(b"s/anything", b"")
    assert world.log.since(world.store.revision - 1) is None
    world.log.release(world.store.revision)
    assert world.log.settled


def test_strict_log_returns_the_latest_change_of_each_key() -> None:
    world = World()
    begin = world.store.revision
    world.do(Put(b"s/a", b"1"), Put(b"s/b", b"1"))
    middle = world.store.revision
    world.do(Put(b"s/a", b"2"), Put(b"e", b"1"))
    assert [(row[1], value_of(row)) for row in world.rows(begin)] == [(b"s/b", b"1"), (b"s/a", b"2")]
    assert [key for _, key, _ in world.rows(begin + 1)] == [b"s/b", b"s/a"], "from the middle of an entry"
    assert [key for _, key, _ in world.rows(middle)] == [b"s/a"]
    assert world.rows(middle + 1) == []


def test_strict_log_returns_none_below_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_log, "KEPT_CHANGES_MAX", 3)
    world = World()
    begin = world.store.revision
    for number in range(5):
        world.do(Put(b"s/%d" % number, b""))
    assert world.log.since(begin) is None
    assert len(world.rows(world.store.revision - 3)) == 3


def test_prefix_is_strict_at_once_and_eventual_only_after_release() -> None:
    world = World()
    batch = world.do(Put(region_key("t"), pack_region(Region("t", b"t/", Mode.STRICT, Policy.DENY))), Put(b"t/a", b"1"))
    assert batch.keys == (region_key("t"), b"t/a")
    world.log.release(batch.upto)
    gone = world.do(DeleteRange(region_key("t")))
    assert world.do(Put(b"t/a", b"2")).keys == (b"t/a",)
    world.log.release(gone.upto)
    assert world.do(Put(b"t/a", b"3")).keys == ()


def test_eventual_region_inside_a_strict_one_is_eventual() -> None:
    world = World()
    hole = Region("hole", b"s/hole/", Mode.EVENTUAL, Policy.FAIL_CLOSED)
    world.log.release(world.do(Put(region_key("hole"), pack_region(hole))).upto)
    assert world.do(Put(b"s/hole/a", b"1")).keys == ()
    assert world.do(Put(b"s/a", b"1")).keys == (b"s/a",)


def test_removed_tombstone_counts_at_the_latest_revision() -> None:
    world = World()
    world.do(Put(b"s/a", b"1"))
    batch = world.do(DeleteRange(b"s/a"), Put(b"e", b"1"), Compact(world.store.revision + 2))
    while world.store.collect():
        pass
    assert batch.keys == (b"s/a",)
    ((revision, key, body),) = world.rows(batch.after)
    assert (key, body) == (b"s/a", None)
    assert revision <= world.store.revision


def test_version_replaced_in_its_entry_is_not_released_earlier() -> None:
    """Two clients write one key in one entry. The first is acknowledged at its own revision, which no holder is staged:
    if it were released before the rest of the entry, a holder would still serve the value that it replaced."""
    world = World()
    before = world.store.revision
    batch = world.do(Put(b"s/a", b"1"), Put(b"s/a", b"2"))
    assert batch.strict == (before + 1, before + 2)
    assert world.log.point == before
    releases = Releases(FenceTiming())
    releases.begin_term(1, 0.0, [Registration("n1", "v", 3.0, proceed_s=3.31)], before)
    releases.staged(HolderId("n1", "v", 1), before, 0.0)
    assert releases.advance(0.0) == before
    renew = Renew(0.0, before, HolderPhase.ACTIVE, True, 3.0, 3.31)
    assert isinstance(releases.renew(HolderId("n1", "v", 1), renew, 0.0, quorum_lease=True), GrantMessage)
    releases.committed(batch.upto, 0.0, batch.strict)
    assert not releases.visible(before + 1)


def test_release_inside_an_entry_survives_its_application() -> None:
    """RR moves within an entry, and a vault may wait for just that part of it (found by a random walk)."""
    world = World()
    between = world.store.revision + 1
    world.log.release(between)
    world.do(Put(b"s/a", b"1"), Put(b"s/b", b"1"))
    assert world.log.point == between
    assert not world.log.settled
