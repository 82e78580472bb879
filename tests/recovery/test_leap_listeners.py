"""Listeners of a prefix: the vault of a member may leap, and they receive what has changed there (issue 17, S4)."""

from __future__ import annotations

import asyncio

import pytest

from palisade.metastore.record import LINK_BYTES
from palisade.metastore.requests import DeleteRange, Put
from palisade.recovery.flush_follower import FlushBatch
from palisade.recovery.lifecycle import Lifecycle
from palisade.recovery.listeners import Listeners, Notification
from palisade.recovery.vault_component import ComponentPort
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.position import VaultPosition
from palisade.vault.vault import Vault
from tests.support.vault_feed import full, revision_at

MINE, OTHER = b"mine/a", b"other/b"


def test_listener_of_a_prefix_needs_no_single_revisions() -> None:
    listeners = Listeners()
    listeners.listen("broker", lambda notification: None, below=b"mine/")
    assert listeners
    assert not listeners.each_revision
    assert listeners.prefixes == (b"mine/",)
    listeners.listen("holder", lambda notification: None)
    assert listeners.each_revision
    assert listeners.prefixes == (b"",)


async def ready() -> tuple[ComponentPort, list[Notification], list[str]]:
    """A port with one listener, what it has received, and in which order it and the vault were called."""
    received: list[Notification] = []
    order: list[str] = []

    def listener(notification: Notification) -> None:
        received.append(notification)
        order.append("listener")

    inner = Lifecycle([])
    inner.listeners.listen("broker", listener, below=b"mine/")
    port = ComponentPort(inner, lambda: Vault(MemoryBackend()))
    await port.start()
    return port, received, order


async def test_single_revisions_are_reduced_to_the_prefix() -> None:
    port, received, _ = await ready()
    cluster = full([(MINE, b"1"), (OTHER, b"2")])
    for number in (2, 3):
        await port.revision(revision_at(cluster, number))
    assert [[event.key for event in notification.events] for notification in received] == [[MINE], []]


async def test_leap_arrives_as_one_difference_in_the_turn_of_its_commit() -> None:
    port, received, order = await ready()
    cluster = full([(MINE, b"1"), (OTHER, b"2"), (b"mine/gone", b"3")])
    cluster.do(DeleteRange(b"mine/gone"))
    cluster.do(Put(MINE, b"4"))
    bodies = {revision_at(cluster, number).bodies[0] for number in (3, 5, 6)}
    keys = {6: MINE, 3: OTHER, 5: b"mine/gone"}
    rows = {key: bytes(LINK_BYTES) + revision_at(cluster, number).bodies[0] for number, key in keys.items()}
    assert len(bodies) == len(rows)

    async def take() -> None:
        await asyncio.sleep(0)
        order.append("vault")
        asyncio.get_running_loop().call_soon(order.append, "another task")

    leap = FlushBatch(1, VaultPosition(6, bytes(16), 2), [], list(rows), rows)
    await port.leap(leap, take)
    assert order == ["vault", "listener"]
    assert {event.key: event.item and event.item.value for event in received[0].events} == {
        MINE: b"4",
        b"mine/gone": None,
    }
    assert (received[0].revision, received[0].last) == (6, True)


async def test_failed_leap_notifies_no_listener() -> None:
    port, received, _ = await ready()

    async def take() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await port.leap(FlushBatch(1, VaultPosition(6, bytes(16), 2), [], [], {}), take)
    assert not received
