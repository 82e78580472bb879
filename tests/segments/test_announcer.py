"""A data node announces complete copies only, and removes one only after brokers have another (issue 17, S2, S5)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from palisade.catalog.segment import ANNOUNCED
from palisade.metastore.requests import Compare, DeleteRange, Put, Txn
from palisade.metastore.results import TxnResult
from palisade.recovery.listeners import Notification
from palisade.segments.announcer import Announcer
from palisade.segments.holder import SegmentHolder
from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.segments.names import Wanted, assignment_key
from palisade.segments.readers import Readers
from palisade.segments.segment_store import SegmentStore, file_of
from palisade.wire.segment_errors import NoSuchSegment, NotFetched
from tests.support.announcing_world import DAYS, AnnouncingWorld, WorldStore, planted
from tests.support.segment_names import segment

SEEDS = range(30)


async def settled(assigned: Collection[str] = ("a",)) -> AnnouncingWorld:
    """Every node has what is assigned to it."""
    world = AnnouncingWorld(1)
    for node in world.nodes.values():
        await node.start()
    world.assign(1, set(assigned))
    await world.calm()
    return world


def announcing(world: AnnouncingWorld, day: int = 1) -> set[str]:
    return world.brokers["x"].nodes_of(str(segment(day)))


async def test_random_schedules_of_moves_never_leave_a_segment_without_a_server() -> None:
    removals = 0
    for seed in SEEDS:
        world = AnnouncingWorld(seed)
        await world.run()
        removals += world.removals
    assert removals > 20


async def test_random_schedules_with_lost_leases_end_with_every_copy_announced() -> None:
    for seed in SEEDS[:12]:
        world = AnnouncingWorld(seed)
        await world.run(with_expiry=True)
        await world.calm()
        for day in DAYS:
            assigned = {name for name, node in world.nodes.items() if str(segment(day)) in node.holder.wanted}
            assert announcing(world, day) == assigned, (seed, day)
            assert all(world.is_whole(node, str(segment(day))) for node in assigned)


async def test_random_schedules_with_lost_replies_end_with_every_copy_announced() -> None:
    """A write whose reply is lost may have been made, or may be made again."""
    for seed in SEEDS[:12]:
        world = AnnouncingWorld(seed)
        world.lost_share = 0.3
        await world.run()
        world.lost_share = 0.0
        await world.calm()
        for day in DAYS:
            assigned = {name for name, node in world.nodes.items() if str(segment(day)) in node.holder.wanted}
            assert announcing(world, day) == assigned, (seed, day)


async def test_random_schedules_with_full_and_read_only_disks_lose_no_copy_and_end_with_every_copy_announced() -> None:
    """Seed 003, issue 17: a data node without disk announces nothing new, and keeps what it has."""
    troubles = 0
    for seed in SEEDS[:6]:
        world = AnnouncingWorld(seed)
        world.disk_trouble = True
        await world.run()
        troubles += sum(bool(node.holder.tally.trouble) for node in world.nodes.values())
        world.heal_disks()
        await world.calm()
        for day in DAYS:
            assigned = {name for name, node in world.nodes.items() if str(segment(day)) in node.holder.wanted}
            assert announcing(world, day) == assigned, (seed, day)
    assert troubles > 2


async def test_planted_removal_before_the_withdrawal_is_released_is_seen() -> None:
    assert await planted("answered_at_commit")


async def test_planted_withdrawal_without_a_compare_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeasedAnnouncements, "_guard", lambda self, name, vault: ())
    assert await planted()


async def test_planted_removal_without_a_withdrawal_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def withdraw(self: LeasedAnnouncements, name: str, vault: Any, *, even_if_needed: bool) -> bool:
        return True

    monkeypatch.setattr(LeasedAnnouncements, "withdraw", withdraw)
    assert await planted()


async def test_planted_announcement_before_the_copy_is_stored_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def put(self: SegmentStore, name: str, wanted: Wanted, content: bytes, **_: bool) -> None:
        self.held[name] = wanted
        await self.disk.write(file_of(name), content)

    monkeypatch.setattr(SegmentStore, "put", put)
    assert await planted()


async def test_planted_copy_that_counts_as_stored_on_a_full_disk_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    put = SegmentStore.put

    async def ignoring(self: SegmentStore, name: str, wanted: Wanted, content: bytes, **_: bool) -> None:
        try:
            await put(self, name, wanted, content)
        except NotFetched:
            self.held[name] = wanted

    monkeypatch.setattr(SegmentStore, "put", ignoring)
    assert await planted(disk_trouble=True)


async def test_planted_removal_that_makes_room_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full node may not drop copies that queries count on."""
    put = SegmentStore.put

    async def clearing(self: SegmentStore, name: str, wanted: Wanted, content: bytes, **_: bool) -> None:
        try:
            await put(self, name, wanted, content)
        except NotFetched:
            for other in list(self.held):
                await self.drop(other)
            raise

    monkeypatch.setattr(SegmentStore, "put", clearing)
    assert await planted(disk_trouble=True)


async def test_segment_is_moved_once_the_other_node_announces_it() -> None:
    world = await settled()
    world.assign(1, {"b"})
    await world.calm()
    assert announcing(world) == {"b"}
    assert not world.is_whole("a", str(segment(1)))


async def test_copy_stays_if_the_other_node_drops_its_own_before_the_withdrawal() -> None:
    """Seed 003: a drop on B between its load acknowledgement and A's drop. A has not received B's drop yet."""
    world = await settled()
    a, b, name = world.nodes["a"], world.nodes["b"], str(segment(1))
    world.assign(1, {"b"})
    world.deliver_all()
    await world.finished(b.holder._settle())
    await world.finished(b.announcer.announce())
    world.deliver_all()
    assert announcing(world) == {"a", "b"}
    world.write(Txn((), (DeleteRange(segment(1).announcement_key("b")),)))
    moving = asyncio.ensure_future(a.holder._settle())
    for _ in range(200):
        await asyncio.sleep(0)
    world.deliver_all()
    assert announcing(world) == {"a"}
    assert world.is_whole("a", name)
    await world.finished(moving)
    await world.calm()
    assert announcing(world) == {"b"}, "B announces its copy again, then A removes its own"


async def test_planted_withdrawal_without_a_compare_loses_the_last_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeasedAnnouncements, "_guard", lambda self, name, vault: ())
    with pytest.raises(AssertionError):
        await test_copy_stays_if_the_other_node_drops_its_own_before_the_withdrawal()


async def test_file_stays_while_a_query_reads_it() -> None:
    world = await settled()
    node, name = world.nodes["a"], str(segment(1))
    with node.holder.readers.reading(name):
        world.assign(1, {"b"})
        world.deliver_all()
        await world.finished(world.nodes["b"].holder._settle())
        await world.finished(world.nodes["b"].announcer.announce())
        moving = asyncio.ensure_future(node.holder._settle())
        for _ in range(200):
            world.deliver_all()
            await asyncio.sleep(0)
        assert announcing(world) == {"b"}
        assert world.is_whole("a", name)
        assert (await node.holder.read(name, None))[0] == world.stock.content[name]
    await moving
    assert not world.is_whole("a", name)


async def test_planted_removal_under_a_running_query_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def until_none(self: Readers, name: str) -> None: ...

    monkeypatch.setattr(Readers, "until_none", until_none)
    with pytest.raises(AssertionError):
        await test_file_stays_while_a_query_reads_it()


async def test_last_copy_stays_while_its_new_node_has_none() -> None:
    world = await settled()
    content = world.stock.content
    world.assign(1, {"b"})
    world.stock.content = {}
    await world.calm()
    world.stock.content = content
    assert announcing(world) == {"a"}
    assert world.is_whole("a", str(segment(1)))


async def test_copy_of_an_unused_segment_is_withdrawn_and_removed() -> None:
    world = await settled()
    record = world.nodes["a"].holder.record(str(segment(1)))
    assert record is not None
    world.write(Txn((), (Put(segment(1).key, record.marked_unused().to_bytes()),)))
    world.assign(1, set())
    world.expired = True
    await world.calm()
    assert announcing(world) == set()
    assert not world.is_whole("a", str(segment(1)))


async def test_segment_without_a_record_is_not_announced() -> None:
    world = await settled()
    world.write(Txn((), (DeleteRange(segment(1).key),)))
    await world.calm()
    assert announcing(world) == set()


async def test_announcement_of_a_segment_that_lost_its_record_meanwhile_is_refused() -> None:
    world = AnnouncingWorld(1)
    node = world.nodes["a"]
    await node.start()
    world.deliver_all()
    await world.finished(node.holder._settle())
    await world.finished(node.own.renew())
    world.cluster.do(Txn((), (DeleteRange(segment(1).key),)))
    await world.finished(node.announcer.announce())
    announced = {key for key in world._before if key.startswith(ANNOUNCED)}
    assert announced == {segment(day).announcement_key("a") for day in DAYS[1:]}


async def test_damaged_copy_is_withdrawn_and_announced_again_once_fetched() -> None:
    world = await settled()
    node, name = world.nodes["a"], str(segment(1))
    node.files.content[file_of(name)] = b"damaged"
    with pytest.raises(NoSuchSegment):
        await node.holder.read(name, None)
    await world.finished(node.announcer.announce())
    assert announcing(world) == set()
    await world.calm()
    assert announcing(world) == {"a"}


async def test_removal_waits_for_readers() -> None:
    readers = Readers()
    with readers.reading("x"), readers.reading("y"):
        waiting = asyncio.ensure_future(readers.until_none("x"))
        with readers.reading("x"):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


async def test_copy_is_announced_again_after_a_withdrawal_whose_reply_was_lost() -> None:
    world = await settled()
    world.assign(1, {"b"})
    world.deliver_all()
    await world.finished(world.nodes["b"].holder._settle())
    await world.finished(world.nodes["b"].announcer.announce())
    world.lost_next = 1
    await world.finished(world.nodes["a"].holder._settle())
    assert announcing(world) == {"b"}
    world.assign(1, {"a"})
    await world.calm()
    assert announcing(world) == {"a"}


async def test_copy_is_announced_again_after_a_removal_of_its_key_whose_reply_was_lost() -> None:
    world = await settled()
    node, name = world.nodes["a"], str(segment(1))
    node.own.removing.add(name)
    world.lost_next = 1
    assert not await node_announces(world, "a")
    assert announcing(world) == set()
    node.own.removed(name)
    assert await node_announces(world, "a")
    assert announcing(world) == {"a"}


async def node_announces(world: AnnouncingWorld, node: str) -> bool:
    return bool(await world.finished(world.nodes[node].announcer.announce()))


async def test_copy_is_announced_again_after_its_key_was_deleted() -> None:
    """By an operator, say."""
    world = await settled()
    world.write(Txn((), (DeleteRange(segment(1).announcement_key("a")),)))
    world.deliver_all()
    assert announcing(world) == set()
    assert await node_announces(world, "a")
    assert announcing(world) == {"a"}


async def test_announcement_that_the_vault_does_not_have_yet_is_not_written_again() -> None:
    world = AnnouncingWorld(1, "answered_at_commit")
    node = world.nodes["a"]
    await node.start()
    world.deliver_all()
    await world.finished(node.holder._settle())
    await node.own.renew()
    assert await node.announcer.announce()
    written = world.cluster.store.revision
    assert await node.announcer.announce()
    assert node.replica.revision < written
    assert world.cluster.store.revision == written


class LateReplies(WorldStore):
    """The lease ends, and the node gets another one, before the first reply to a write arrives."""

    def __init__(self, world: AnnouncingWorld, node: str) -> None:
        super().__init__(world, node)
        self.late = 1

    async def announce(self, compare: Iterable[Compare], writes: Iterable[Put | DeleteRange]) -> TxnResult:
        result = await super().announce(compare, writes)
        if self.late:
            self.late = 0
            self._world.expire(self._node)
            own = self._world.nodes[self._node].own
            while not await own.renew():
                pass
        return result


async def test_reply_to_a_write_under_the_lease_before_leaves_the_copy_to_be_announced() -> None:
    world = AnnouncingWorld(1)
    node = world.nodes["a"]
    node.own._store = LateReplies(world, "a")
    await node.start()
    world.deliver_all()
    await world.finished(node.holder._settle())
    await world.finished(node.own.renew())
    await node_announces(world, "a")
    assert announcing(world) == set()
    assert not node.own.announced
    assert await node_announces(world, "a")
    assert announcing(world) == {"a"}


async def test_copy_torn_by_a_power_loss_is_not_announced_until_it_was_fetched_again() -> None:
    """Its announcement under the earlier lease is withdrawn, although no other node has a copy (S5)."""
    world = await settled()
    node, name = world.nodes["a"], str(segment(1))
    content, world.stock.content = world.stock.content, {}
    for torn in (b"", content[name][:3]):
        node.files.content[file_of(name)] = torn
        await node.holder.local()
        await world.calm()
        assert announcing(world) == set()
    world.stock.content = content
    await world.calm()
    assert announcing(world) == {"a"}


@pytest.mark.parametrize("newer", [False, True], ids=["damaged", "of a newer version"])
async def test_unreadable_record_keeps_no_other_copy_from_being_announced(newer: bool) -> None:
    """And its own copy is neither withdrawn nor removed."""
    world = await settled()
    key = segment(1).key
    packed = world._before[key].value
    unreadable = packed[:-1] + b',"format":2}' if newer else b"damaged"
    world.write(Txn((), (Put(key, unreadable), DeleteRange(segment(2).announcement_key("a")))))
    world.deliver_all()
    assert await node_announces(world, "a")
    assert announcing(world, 2) == {"a"}
    assert announcing(world, 1) == {"a"}, "such a record withdraws nothing"
    assert str(segment(1)) in world.nodes["a"].holder.segment_store.held
    world.write(Txn((), (Put(key, packed),)))
    await world.calm()
    assert announcing(world, 1) == {"a"}


async def test_planted_announcement_of_any_readable_copy_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentHolder, "may_count", lambda self, name: self.segment_store.is_whole(name))
    with pytest.raises(AssertionError):
        await test_copy_torn_by_a_power_loss_is_not_announced_until_it_was_fetched_again()


async def test_planted_trust_in_announcements_that_are_gone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Announcer, "_confirmed", lambda self, stored: set(self.own.announced))
    with pytest.raises(AssertionError):
        await test_copy_is_announced_again_after_its_key_was_deleted()


async def test_only_changes_that_concern_a_local_copy_cause_a_pass() -> None:
    """A pass visits every copy, and every announcement in the cluster is a change (issue 17)."""
    world = await settled()
    node, awake = world.nodes["a"], world.nodes["a"].own.wakeup

    def wakes(*writes: Put | DeleteRange) -> bool:
        awake.clear()
        node.holder._wakeup.clear()
        world.write(Txn((), writes))
        world.deliver_all()
        return awake.is_set()

    record, lease = world._before[segment(1).key].value, node.own.lease
    assert not wakes(Put(segment(9).key, record), Put(segment(9).announcement_key("b")))
    assert not wakes(Put(segment(1).announcement_key("b")))
    assert not wakes(Put(segment(1).announcement_key("a"), lease=lease))
    assert not node.holder._wakeup.is_set()
    assert wakes(Put(segment(1).key, record))
    assert wakes(DeleteRange(segment(1).announcement_key("a")))
    assert wakes(Put(segment(1).announcement_key("a")))
    assert wakes(Put(segment(9).announcement_key("a"), lease=lease)), "there is no such copy"
    assert not wakes(DeleteRange(assignment_key("a", str(segment(2)))))
    assert node.holder._wakeup.is_set()
    assert not wakes(Put(segment(2).announcement_key("c")))
    assert node.holder._wakeup.is_set(), "another node announces a copy that is not assigned here"


async def test_pass_before_the_vault_has_what_was_notified_is_repeated() -> None:
    world = await settled()
    node = world.nodes["a"]
    assert await node_announces(world, "a")
    node.announcer._on_change(Notification(node.replica.revision + 1, []))
    assert not await node.announcer.announce()
    node.replica.revision += 1
    assert await node.announcer.announce()
