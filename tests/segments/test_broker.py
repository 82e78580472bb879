"""The broker in an order of events that the simulator hardly reaches; `sim/segmenting.py` covers all others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from palisade.catalog.segment import ANNOUNCED
from palisade.metastore.requests import DeleteRange, Put, Txn
from palisade.recovery.listeners import Notification
from palisade.segments.broker import SegmentBroker
from palisade.segments.broker_view import SegmentAnswer
from palisade.vault.errors import Fenced, Pending
from tests.support.broker_ground import BrokerGround
from tests.support.segment_writer import SOURCE, SegmentWriter


def changes() -> Iterator[Txn]:
    writer = SegmentWriter(Random(3))
    while True:
        if (command := writer.command()).success:
            yield command


async def lookup_of_a_node_fenced_meanwhile() -> SegmentAnswer:
    """A leap of the vault is readable before its notification, so a lookup waits. Meanwhile the node is fenced, and its
    vault and the broker get an unreleased change."""
    ground, coming = await BrokerGround().begin(), changes()
    for _ in range(20):
        await ground.write(next(coming))
    ground.commit(next(coming))
    ground.release()
    ground.apply()
    lookup = asyncio.create_task(ground.look_up())
    await asyncio.sleep(0)
    assert not lookup.done()
    ground.page.refuse()
    ground.commit(next(coming))
    await ground.notify()
    ground.apply()
    return await lookup


async def states_after_a_snapshot_without_what_came_and_went() -> tuple[object, object]:
    """A lookup takes an announcement that the vault has not applied. It ends, and the node gets a snapshot: neither its
    vault nor the snapshot has the key, so the difference does not name it. All segments with their nodes then, and
    those of a new broker."""
    ground, coming = await BrokerGround().begin(), changes()
    while True:
        command = next(coming)
        (first, *_) = command.success
        key = first.key if isinstance(first, Put) else b""
        if key.startswith(ANNOUNCED) and ground.vault.get(key) is None:
            ground.commit(command)
            ground.release()
            assert (await ground.look_up()).revision > ground.vault.revision
            break
        await ground.write(command)
    ground.commit(Txn((), (DeleteRange(key),)))
    ground.release()
    await ground.leap()
    again = BrokerGround()
    again.driver, again.vault = ground.driver, ground.vault
    await again.begin()
    return await ground.broker.segments(SOURCE), await again.broker.segments(SOURCE)


async def test_lookup_after_a_snapshot_returns_no_server_that_came_and_went_before_it() -> None:
    """The simulator found it (scenario expiry)."""
    found, expected = await states_after_a_snapshot_without_what_came_and_went()
    assert found == expected


async def test_planted_view_that_keeps_what_came_and_went_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentBroker, "_drop_keys_deleted_meanwhile", lambda self, revision: None)
    found, expected = await states_after_a_snapshot_without_what_came_and_went()
    assert found != expected


async def test_lookup_beside_an_unreleased_change_is_refused_with_what_it_waits_for() -> None:
    """A node that does not acknowledge the change delays its release: the error says for how long, and which command
    names the node."""
    ground, coming = await BrokerGround().begin(), changes()
    for _ in range(20):
        await ground.write(next(coming))
    ground.commit(next(coming))
    ground.stage()
    began = ground.now_s
    with pytest.raises(Pending, match=r"within a few seconds; 'palisade fencing' names them"):
        await ground.look_up()
    assert ground.now_s - began < 1.5
    ground.release()
    assert (await ground.look_up()).revision == ground.driver.store.revision


async def test_new_cluster_without_any_write_has_no_data_sources() -> None:
    """Revision 1 has no changes, so listeners are not notified of it. Every lookup waited for that, and failed."""
    ground = await BrokerGround().begin(empty=True)
    assert ground.vault.revision == 1
    assert await ground.broker.data_sources() == (1, [])


async def test_lookup_returns_no_unreleased_change_of_a_node_fenced_meanwhile() -> None:
    with pytest.raises(Fenced):
        await lookup_of_a_node_fenced_meanwhile()


async def test_planted_view_that_forgets_what_is_unreleased_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    on_change = SegmentBroker._on_change

    def forgets(self: SegmentBroker, notification: Notification) -> None:
        on_change(self, notification)
        self._unreleased_to = 0

    monkeypatch.setattr(SegmentBroker, "_on_change", forgets)
    assert await lookup_of_a_node_fenced_meanwhile()
