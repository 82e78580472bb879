"""After the recovery: live changes; a node that falls below MM receives the difference (issue 3; scenarios.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from palisade.metastore.requests import BeginGeneration, DeleteRange, Put
from palisade.recovery.decision import Case, RefusalReason
from palisade.recovery.errors import RecoveryRefused, SourceUnavailable
from palisade.recovery.report import RecoveryOutcome
from palisade.vault.memory_tables import MemoryBackend
from tests.support.recovery_world import Node, Shelf, founded
from tests.support.vault_feed import compact, full


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


class Running:
    """A node that follows, in the background."""

    def __init__(self) -> None:
        self.cluster = founded(full((b"/k/%02d" % n, b"") for n in range(30)))
        self.node = Node(self.cluster, MemoryBackend(), Shelf())
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Running:
        await self.node.recover()
        self.task = asyncio.create_task(self.node.follower.follow())
        return self

    async def __aexit__(self, *_: Any) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def caught_up(self) -> None:
        await until(lambda: self.node.vault.revision == self.cluster.store.revision)
        self.node.check()


async def test_live_changes_arrive_one_by_one() -> None:
    async with Running() as running:
        for number in range(40):
            running.cluster.do(Put(b"/k/%02d" % (number % 35), b"%d" % number))
            if number % 7 == 0:
                await running.caught_up()
        await running.caught_up()
        assert running.node.recorded.revisions == list(range(2, running.cluster.store.revision + 1))


async def test_node_paused_past_mm_receives_every_change_of_the_difference() -> None:
    """The system behind the seed takes the snapshot and skips them."""
    async with Running() as running:
        await running.caught_up()
        paused_at = running.node.vault.revision
        do = running.cluster.do
        do(Put(b"/k/05", b"changed"))
        do(Put(b"/new", b"there"))
        do(Put(b"/short", b"lived"))
        do(DeleteRange(b"/k/09"))
        do(DeleteRange(b"/short"))
        do(Put(b"/assigned/p", b"1"))
        compact(running.cluster, running.cluster.store.revision)
        await running.caught_up()
        await until(lambda: len(running.node.follower.reports) == 2)
        recorded = running.node.recorded
        assert [event.key for event in recorded.differences] == [b"/assigned/p", b"/k/05", b"/k/09", b"/new"]
        assert [event.item is None for event in recorded.differences] == [False, False, True, False]
        assert max(recorded.revisions) == paused_at
        first, second = running.node.follower.reports
        assert (first.case, second.case, second.first_case) == (Case.B, Case.C, Case.C)
        assert running.node.states == [True, False, True, False]
        do(Put(b"/after", b""))
        await running.caught_up()
        assert recorded.revisions[-1] == running.cluster.store.revision


@pytest.mark.parametrize("generation", [1, 2])
async def test_running_node_notices_another_history(generation: int) -> None:
    """A cluster restored from a backup has no new revision for a node that is ahead of it, perhaps for long."""
    async with Running() as running:
        await running.caught_up()
        restored = founded(full([(b"/k/00", b"")]))
        if generation > 1:
            restored.do(BeginGeneration(generation))
        running.node.cluster = restored
        running.node.source.connect(restored)
        assert running.task is not None
        with pytest.raises(RecoveryRefused) as refused:
            await running.task
        expected = RefusalReason.AHEAD if generation == 1 else RefusalReason.OLDER_HISTORY
        assert refused.value.refusal.reason is expected
        report = running.node.follower.reports[-1]
        assert (report.outcome, report.case, report.reason) == (RecoveryOutcome.REFUSED, Case.D, expected.value)


@pytest.mark.parametrize("place", ["difference", "evict", "rows"])
async def test_cancelled_recovery_of_a_running_node_skips_no_notification(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, the node was dropped from the topology: the next recovery of the same process completes the rest."""
    monkeypatch.setattr("palisade.recovery.recovery.DIFFERENCE_EVENTS", 3)
    running = Running()
    node, cluster = running.node, running.cluster
    await node.recover()
    node.shelf.there["left over"] = "1"
    for number in range(10):
        cluster.do(Put(b"/k/%02d" % number, b"changed"))
    compact(cluster, cluster.store.revision)
    recorded, evict = node.recorded.difference, node.resources.evict

    async def record_few(revision: int, events: Any, last: bool) -> None:
        if len(node.recorded.differences) > 5:
            raise asyncio.CancelledError
        await recorded(revision, events, last)

    async def never(*_: Any) -> None:
        raise asyncio.CancelledError

    if place == "difference":
        monkeypatch.setattr(node.recorded, "difference", record_few)
    elif place == "evict":
        monkeypatch.setattr(node.resources, "evict", never)
    else:
        node.source.before["rows"] = raiser(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await node.recover(running=True)
    monkeypatch.setattr(node.recorded, "difference", recorded)
    monkeypatch.setattr(node.resources, "evict", evict)
    node.source.before.clear()
    await node.recover(running=True)
    node.check()
    assert [event.key for event in node.recorded.differences] == [b"/k/%02d" % number for number in range(10)]


async def test_node_keeps_the_newest_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.recovery.follower.REPORTS_MAX", 3)
    node = Running().node
    await node.recover()
    for _ in range(5):
        await node.recover(running=True)
    assert [report.case for report in node.follower.reports] == [Case.A] * 3


async def test_follower_waits_for_a_lost_majority() -> None:
    async with Running() as running:
        running.node.source.before["changes"] = raiser(SourceUnavailable("no majority"))
        running.cluster.do(Put(b"/k/01", b"1"))
        recorded = len(running.node.progress)
        for _ in range(50):
            await asyncio.sleep(0)
        assert running.node.vault.revision < running.cluster.store.revision
        assert len(running.node.progress) == recorded, "it follows, and is not reported as recovering"
        del running.node.source.before["changes"]
        await running.caught_up()


async def test_failing_listener_stops_the_node_and_the_revision_is_repeated() -> None:
    async with Running() as running:
        running.node.recorded.on_revision = lambda revision: raiser(RuntimeError(f"{revision.number}"))()
        running.cluster.do(Put(b"/k/01", b"1"))
        assert running.task is not None
        with pytest.raises(RuntimeError):
            await running.task
        again = Node(running.cluster, running.node.disk, running.node.shelf)
        await again.recover()
        again.check()
        assert again.recorded.revisions == [running.cluster.store.revision]


def raiser(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail
