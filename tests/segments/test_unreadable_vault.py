"""A running node that has fallen behind compaction gets a snapshot: until that is complete, its vault cannot be read.

The parts that follow segments wait meanwhile. The simulator found that a node with a realtime segment stopped then
(scenario expiry)."""

from __future__ import annotations

import pytest

from palisade.catalog.segment import ANNOUNCED
from palisade.recovery.listeners import Notification
from palisade.segments.names import Wanted
from palisade.segments.realtime_handoff import parquet, state_in
from palisade.segments.realtime_step import RealtimeState
from palisade.segments.verification import version_of
from palisade.vault.change import VaultEvent
from palisade.vault.errors import VaultRecovering
from tests.segments.test_realtime import opened, started
from tests.support.announcing_world import Replica
from tests.support.realtime_nodes import IngestingNode
from tests.support.realtime_world import COLUMNS, RealtimeWorld


async def unreadable(patch: pytest.MonkeyPatch) -> tuple[RealtimeWorld, IngestingNode, str]:
    """A node with a realtime segment, and the name of that."""
    world, node = await started()
    held = await opened(world, node)

    def refused(self: Replica, *_: object) -> None:
        raise VaultRecovering("the vault is between revision 37 and 92")

    patch.setattr(Replica, "get", refused)
    patch.setattr(Replica, "range", refused)
    return world, node, held.name


async def test_hand_off_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    world, node, name = await unreadable(monkeypatch)
    assert await world.finished(node.hand_off.work()) is False
    assert state_in(node.ingester, node.ingester.held[name]) is RealtimeState.REALTIME
    monkeypatch.undo()
    await world.finished(node.hand_off.work())
    assert node.ingester.held[name].error == ""


async def test_announcements_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    world, node, name = await unreadable(monkeypatch)
    node.own.wakeup.clear()
    lost = VaultEvent(ANNOUNCED + f"{node.name}/{name}".encode(), 92, None)
    node.announcer._on_change(Notification(92, [lost]))
    assert node.own.wakeup.is_set()
    key = lost.key
    item = next(item for key_, item in world.brokers["x"].items.items() if key_ == key)
    node.own.wakeup.clear()
    node.announcer._on_change(Notification(93, [VaultEvent(key, item.mod_revision, item)]))
    assert node.own.wakeup.is_set()
    assert await world.finished(node.announcer.announce()) is False


async def test_copy_that_arrives_is_stored_and_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the only one: whether it has an origin is not known."""
    world, node, name = await unreadable(monkeypatch)
    content = parquet(COLUMNS, [[1], [2]])
    wanted: Wanted = version_of(content)
    assert node.holder._has_no_origin(name)
    await world.finished(node.holder.keep(name, wanted, content))
    assert node.holder.segment_store.has(name, wanted.digest)
