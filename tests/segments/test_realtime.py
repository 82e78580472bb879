"""Realtime segments: no lookup has a gap or an overlap, whatever dies (seed 003, issue 17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from palisade.catalog.publication import Manifest
from palisade.catalog.realtime import given_up, opening, published
from palisade.metastore.requests import Put
from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.segments.names import Wanted
from palisade.segments.realtime import Held
from palisade.segments.realtime_handoff import RealtimeHandOff
from palisade.segments.realtime_step import RealtimeState, RealtimeStep, Situation, next_step, state_of
from palisade.wire.segment_errors import NotIngesting, RealtimeRefused
from tests.support.realtime_world import COLUMNS, DAY, SOURCE, IngestingNode, LogFiles, RealtimeWorld, Violation

SEEDS = range(20)
GROWING = opening(Manifest(SOURCE), {}, DAY, "a", 1)[1]
PUBLISHED = published(GROWING, 5, 50, "rows-sha256:" + "0" * 64)
GIVEN_UP = given_up(GROWING, "ann", "lost", 1)[0]
UNUSED = GIVEN_UP.marked_unused()


@pytest.mark.parametrize(
    ("now", "step", "state"),
    [
        (Situation(None, 0, False), RealtimeStep.FORGET, RealtimeState.OPENING),
        (Situation(None, 5, False), RealtimeStep.WAIT, RealtimeState.OPENING),
        (Situation(GROWING, 5, False), RealtimeStep.WAIT, RealtimeState.REALTIME),
        (Situation(GROWING, 5, True), RealtimeStep.PUBLISH, RealtimeState.PUBLISHING),
        (Situation(GIVEN_UP, 5, True), RealtimeStep.WAIT, RealtimeState.GIVEN_UP),
        (Situation(UNUSED, 5, True), RealtimeStep.DROP, RealtimeState.GIVEN_UP),
        (Situation(PUBLISHED, 5, True), RealtimeStep.STORE, RealtimeState.HANDING_OFF),
        (Situation(PUBLISHED, 5, True, stored=True), RealtimeStep.WAIT, RealtimeState.HANDING_OFF),
        (Situation(PUBLISHED, 5, True, expired=True), RealtimeStep.WAIT, RealtimeState.HANDING_OFF),
        (Situation(PUBLISHED, 5, True, assigned=True), RealtimeStep.STORE, RealtimeState.HANDING_OFF),
        (Situation(PUBLISHED, 5, True, stored=True, assigned=True), RealtimeStep.DROP, RealtimeState.HANDING_OFF),
        (Situation(PUBLISHED, 5, True, handed_off=True), RealtimeStep.DROP, RealtimeState.HANDING_OFF),
        (Situation(PUBLISHED.with_replicas(0), 5, True), RealtimeStep.WAIT, RealtimeState.HANDING_OFF),
    ],
)
def test_step_and_state_of_each_situation(now: Situation, step: RealtimeStep, state: RealtimeState) -> None:
    assert (next_step(now), state_of(now)) == (step, state)


async def started(seed: int = 1) -> tuple[RealtimeWorld, IngestingNode]:
    world = RealtimeWorld(seed)
    for node in world.nodes.values():
        await node.start()
        await world.finished(node.own.renew())
    world.deliver_all()
    return world, world.nodes["a"]


async def opened(world: RealtimeWorld, node: IngestingNode, writer: str = "") -> Held:
    held: Held = await world.finished(node.ingester.open(SOURCE, DAY, COLUMNS, 1, writer))
    world.deliver_all()
    return held


async def test_batch_that_is_sent_again_is_stored_once() -> None:
    world, node = await started()
    held = await opened(world, node)
    ingester = node.ingester
    assert await ingester.append(held.name, [[1], [2]], 0) == 2
    assert await ingester.append(held.name, [[1], [2]], 0) == 2
    assert await ingester.append(held.name, [[2], [3]], 1) == 3
    assert await held.log.values() == [[1], [2], [3]]


@pytest.mark.parametrize(("rows", "position"), [([[9]], 0), ([[1]], 0), ([[4]], 4), ([[4]], -1)])
async def test_batch_that_does_not_continue_the_rows_is_refused(rows: list[list[int]], position: int) -> None:
    world, node = await started()
    held = await opened(world, node)
    await node.ingester.append(held.name, [[1], [2]], 0)
    with pytest.raises(RealtimeRefused, match="has 2 rows"):
        await node.ingester.append(held.name, rows, position)
    assert held.log.rows == 2


async def test_writer_gets_its_open_segment_again() -> None:
    world, node = await started()
    held = await opened(world, node, "w1")
    assert await opened(world, node, "w1") is held
    assert await opened(world, node, "w2") is not held
    await world.finished(node.ingester.close_segment(held.name))
    assert await opened(world, node, "w1") is not held


async def test_restart_resumes_with_the_acknowledged_rows_before_any_renewal() -> None:
    world, node = await started()
    held = await opened(world, node)
    await node.ingester.append(held.name, [[1], [2]], 0)
    world.kill("a", {})
    await world.restart("a")
    again = world.nodes["a"]
    assert again.rows(held.name) == 2
    with pytest.raises(NotIngesting):
        await again.ingester.append(held.name, [[3]], 2)
    await world.finished(again.own.renew())
    await world.finished(again.announcer.announce())
    assert await again.ingester.append(held.name, [[3]], 2) == 3


async def test_node_that_lost_its_log_never_announces_the_segment() -> None:
    world, node = await started()
    held = await opened(world, node)
    await node.ingester.append(held.name, [[1]], 0)
    world.kill("a", {})
    world.expire("a")
    node.logs.directories.clear()
    await world.restart("a")
    again = world.nodes["a"]
    await world.finished(again.own.renew())
    await world.finished(again.announcer.announce())
    world.deliver_all()
    assert world.brokers["x"].nodes_of(held.name) == set()
    await world.count()
    assert world.unavailable == 1


async def test_hand_off_is_completed_and_the_log_removed_once_the_assigned_nodes_announce() -> None:
    world, node = await started()
    held = await opened(world, node)
    await node.ingester.append(held.name, [[1], [2]], 0)
    world.sent[held.name] = world.acknowledged[held.name] = 2
    await world.heal()
    record = world.stored(held.name)
    assert record is not None
    assert (record.rows, record.is_growing) == (2, False)
    assert not node.logs.directories
    assigned = {name for name, each in world.nodes.items() if held.name in each.holder.wanted}
    assert len(assigned) == 1
    assert world.brokers["x"].nodes_of(held.name) == assigned
    await world.finished(world.count())
    assert world.counts == 1


async def test_empty_segment_is_handed_off_too() -> None:
    world, node = await started()
    held = await opened(world, node)
    await world.heal()
    record = world.stored(held.name)
    assert record is not None
    assert (record.rows, record.is_growing) == (0, False)


async def walked(seed: int, *, with_deaths: bool) -> RealtimeWorld:
    world = RealtimeWorld(seed)
    await world.run(with_deaths=with_deaths)
    return world


async def test_random_schedules_never_count_a_wrong_number_and_never_fail_while_every_node_is_up() -> None:
    counts = 0
    for seed in SEEDS:
        world = await walked(seed, with_deaths=False)
        counts += world.counts
        assert not world.unavailable
        await world.heal()
        await world.finished(world.count())
        for name in world.sent:
            record = world.stored(name)
            assert record is not None, name
            assert record.rows >= world.acknowledged[name], name
        assert not any(node.logs.directories for node in world.nodes.values())
    assert counts > 200


async def test_random_schedules_with_deaths_and_lost_leases_never_count_a_wrong_number() -> None:
    counts = unavailable = given = 0
    for seed in SEEDS:
        world = await walked(seed, with_deaths=True)
        counts, unavailable, given = counts + world.counts, unavailable + world.unavailable, given + world.given_up
        await world.heal()
        before = world.counts
        await world.finished(world.count())
        assert world.counts == before + 1, seed
    assert min(counts / 100, unavailable / 10, given) >= 1, (counts, unavailable, given)


# Planted faults.


async def unsynced(self: LogFiles, name: str) -> None:
    """Acknowledged before it is synced: the tail is lost in a restart."""


async def publish_first(self: RealtimeHandOff, held: Held) -> Wanted:
    """The record is changed before this node has the copy: a hand-off before it can be queried."""
    from palisade.segments.realtime_handoff import parquet
    from palisade.segments.verification import version_of

    return version_of(parquet(held.log.header.columns, await held.log.values()))


def drops_at_once(now: Situation) -> RealtimeStep:
    step = next_step(now)
    return RealtimeStep.DROP if now.closed and step is RealtimeStep.PUBLISH else step


publish = RealtimeHandOff._publish


async def in_two_transactions(self: RealtimeHandOff, held: Held) -> None:
    """The growing segment ends in one transaction, and the published one begins in the next."""
    if (record := self._ingester.record(held.name)) is not None:
        await self._ingester.writes.write((), [Put(record.segment.key, record.marked_unused().to_bytes())])
        await self._ingester.writes.write((), [Put(record.segment.key, record.to_bytes())])
    await publish(self, held)


def always(self: LeasedAnnouncements, name: str) -> bool:
    return True


FAULTS: dict[str, tuple[Any, str, Callable[..., Any], bool]] = {
    "the tail is lost in a restart": (LogFiles, "sync", unsynced, True),
    "handed off before it can be queried": (RealtimeHandOff, "_store", publish_first, False),
    "replaced in two transactions": (RealtimeHandOff, "_publish", in_two_transactions, False),
    "acknowledged without an announcement": (LeasedAnnouncements, "is_announced", always, True),
}


async def is_seen(with_deaths: bool, seeds: range = range(60), fault: str = "") -> bool:
    for seed in seeds:
        world = RealtimeWorld(seed, fault)
        try:
            await world.run(with_deaths=with_deaths)
            await world.heal()
            await world.finished(world.count())
        except Violation:
            return True
    return False


@pytest.mark.parametrize("fault", FAULTS)
async def test_planted_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, planted, with_deaths = FAULTS[fault]
    monkeypatch.setattr(owner, name, planted)
    assert await is_seen(with_deaths)


async def test_planted_removal_before_the_withdrawal_is_released_is_seen() -> None:
    assert await is_seen(False, fault="answered_at_commit")


async def test_planted_log_that_is_dropped_when_it_is_closed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.segments.realtime_handoff.next_step", drops_at_once)
    assert await is_seen(False)
