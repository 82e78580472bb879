"""Realtime segments: no lookup has a gap or an overlap, whatever dies (seed 003, issue 17)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import pytest

from palisade.catalog.publication import Manifest
from palisade.catalog.realtime import given_up, opening, published
from palisade.metastore.requests import Put, Txn
from palisade.raftgroup.errors import OutcomeUnknown
from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.segments.names import Wanted
from palisade.segments.realtime_handoff import FORGET_S, RealtimeHandOff
from palisade.segments.realtime_held import Held, HeldSegments
from palisade.segments.realtime_log import LogHeader
from palisade.segments.realtime_step import RealtimeState, RealtimeStep, Situation, next_step, state_of
from palisade.segments.segment_store import file_of
from palisade.wire.segment_errors import NotIngesting, RealtimeNotStored, RealtimeRefused
from tests.support.realtime_disk import LogFiles, LogFolder
from tests.support.realtime_world import COLUMNS, DAY, SOURCE, IngestingNode, RealtimeWorld, Violation

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


@pytest.mark.parametrize("turns", range(1, 12))
async def test_opening_is_completed_although_its_client_disconnects(turns: int) -> None:
    world, node = await started()
    request = asyncio.create_task(node.ingester.open(SOURCE, DAY, COLUMNS, 1, "w1"))
    for _ in range(turns):
        await asyncio.sleep(0)
    request.cancel()
    with suppress(asyncio.CancelledError):
        await request
    held = await opened(world, node, "w1")
    assert list(node.logs.directories) == [file_of(held.name)]
    assert await node.ingester.append(held.name, [[1]], 0) == 1


class FullDisk(LogFolder):
    """It has no room. `keeps`: and removes nothing."""

    keeps = False

    def files(self, name: str) -> LogFiles:
        files = super().files(name)
        files.create = self._refused  # type: ignore[assignment,method-assign]
        return files

    async def _refused(self, name: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    async def remove(self, name: str) -> None:
        if self.keeps:
            raise OSError(errno.EROFS, "read-only file system")
        await super().remove(name)


async def test_opening_that_fails_on_the_disk_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world, node = await started()
    with monkeypatch.context() as patch:
        patch.setattr(node.ingester.logs, "_folder", FullDisk(world, node, node.logs))
        with pytest.raises(RealtimeNotStored, match="no space"):
            await world.finished(node.ingester.open(SOURCE, DAY, COLUMNS, 1))
        assert not node.logs.directories
    assert await node.ingester.append((await opened(world, node)).name, [[1]], 0) == 1


async def test_directory_that_could_not_be_removed_is_not_used_before_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, node = await started()
    disk = FullDisk(world, node, node.logs)
    disk.keeps = True
    with monkeypatch.context() as patch:
        patch.setattr(node.ingester.logs, "_folder", disk)
        with pytest.raises(RealtimeNotStored, match="read-only"):
            await world.finished(node.ingester.open(SOURCE, DAY, COLUMNS, 1))
    with pytest.raises(RealtimeNotStored, match="start the node again"):
        await world.finished(node.ingester.open(SOURCE, DAY, COLUMNS, 1))
    world.kill("a", {})
    await world.restart("a")
    again = world.nodes["a"]
    assert not again.logs.directories
    await world.finished(again.own.renew())
    assert await again.ingester.append((await opened(world, again)).name, [[1]], 0) == 1


async def test_log_is_never_written_into_a_directory_that_another_process_made() -> None:
    """It would have the rows of two segments."""
    world, node = await started()
    held = await opened(world, node)
    await node.ingester.append(held.name, [[1]], 0)
    logs = HeldSegments(LogFolder(world, node, node.logs), world.now)
    with pytest.raises(RealtimeNotStored, match="did not make it"):
        await logs.create(held.log.header)
    assert await held.log.values() == [[1]]


async def test_segment_whose_lease_is_lost_while_it_is_opened_is_opened_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, node = await started()
    world.expire("a")
    monkeypatch.setattr(node.own, "_now", lambda: 0.0)
    with pytest.raises(NotIngesting, match="lost its lease"):
        await opened(world, node, "w1")
    assert not node.logs.directories
    await world.finished(node.own.renew())
    await world.finished(node.own.renew())
    assert (await opened(world, node, "w1")).opened


async def test_log_of_an_opening_that_another_node_won_is_not_served_and_soon_removed() -> None:
    """The outcome was unknown: the node answered with no rows for the other's segment (simulator, segments 3)."""
    world, node = await started()
    held = await opened(world, node)
    await node.ingester.append(held.name, [[1], [2]], 0)
    other = world.nodes["b"]
    lost = await other.ingester.logs.create(LogHeader(held.log.header.segment, COLUMNS))
    lost.opening = True
    assert other.ingester.served(held.name) is None
    await world.finished(other.hand_off.work())
    assert not other.ingester.held
    assert node.rows(held.name) == 2


async def test_log_of_an_opening_that_the_vault_does_not_have_yet_is_kept() -> None:
    """The outcome was unknown, and the node was cut off for longer than `FORGET_S` (simulator, segments 7)."""
    world, node = await started()
    world.lost_next = 1
    with pytest.raises(OutcomeUnknown):
        await opening_of(world, node)
    world.cluster.wait(int(2_000 * FORGET_S))
    await released_to_brokers(world, node.hand_off.work())
    (held,) = node.ingester.held.values()
    world.deliver_all()
    assert node.ingester.growing() == {held.name}


async def test_log_of_an_opening_that_was_never_committed_is_removed() -> None:
    world, node = await started()
    await node.ingester.logs.create(LogHeader(GROWING.segment, COLUMNS))
    await world.finished(node.hand_off.work())
    assert node.ingester.held
    world.cluster.wait(int(2_000 * FORGET_S))
    await world.finished(node.hand_off.work())
    assert not node.ingester.held


async def opening_of(world: RealtimeWorld, node: IngestingNode) -> Held:
    held: Held = await released_to_brokers(world, node.ingester.open(SOURCE, DAY, COLUMNS, 1))
    return held


async def released_to_brokers(world: RealtimeWorld, work: Coroutine[Any, Any, Any]) -> Any:
    """The vaults of data nodes receive nothing."""
    task = asyncio.ensure_future(work)
    while not task.done():
        for broker in world.brokers.values():
            for _ in world.log:
                world.deliver(broker.apply, broker.revision)
        await asyncio.sleep(0)
    return task.result()


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


async def test_segment_that_is_given_up_while_a_pass_runs_is_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows would be acknowledged into it. Found by seed 60 of `RealtimeWorld`."""
    world, node = await started()
    held = await opened(world, node)
    world.expire("a")
    world.deliver_all()
    await world.finished(node.own.renew())
    await world.finished(node.own.renew())
    record, delete = world.stored(held.name), node.own.delete
    assert record is not None

    async def delivering(names: Iterable[str]) -> None:
        world.deliver_all()
        await delete(names)

    monkeypatch.setattr(node.own, "delete", delivering)
    world.write(Txn((), (Put(record.segment.key, given_up(record, "ann", "lost", 1)[0].to_bytes()),)))
    announcing = asyncio.create_task(node.announcer.announce())
    await asyncio.sleep(0)
    await world.finished(announcing)
    assert not world.brokers["x"].nodes_of(held.name)
    with pytest.raises(NotIngesting):
        await node.ingester.append(held.name, [[1]], 0)


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


FAULTS: dict[str, tuple[Any, str, Callable[..., Any], bool, int]] = {
    "the tail is lost in a restart": (LogFiles, "sync", unsynced, True, 0),
    "handed off before it can be queried": (RealtimeHandOff, "_store", publish_first, False, 0),
    "replaced in two transactions": (RealtimeHandOff, "_publish", in_two_transactions, False, 0),
    "acknowledged without an announcement": (LeasedAnnouncements, "is_announced", always, True, 40),
}
"""What is replaced, by what, whether nodes die, and the first seed: on it or soon after it the fault shows."""


async def is_seen(with_deaths: bool, seeds: range = range(60), fault: str = "") -> bool:
    for seed in seeds:
        world = RealtimeWorld(seed, fault)
        try:
            await world.run(with_deaths=with_deaths)
            await world.heal()
        except Violation:
            return True
    return False


@pytest.mark.parametrize("fault", FAULTS)
async def test_planted_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, planted, with_deaths, first = FAULTS[fault]
    monkeypatch.setattr(owner, name, planted)
    assert await is_seen(with_deaths, range(first, first + 60))


async def test_planted_removal_before_the_withdrawal_is_released_is_seen() -> None:
    assert await is_seen(False, fault="answered_at_commit")


async def test_planted_log_that_is_dropped_when_it_is_closed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.segments.realtime_handoff.next_step", drops_at_once)
    assert await is_seen(False)
