"""The hand-off of realtime segments looks only at changes that can concern them (issue 16)."""

from __future__ import annotations

import pytest

from palisade.recovery.listeners import Notification
from palisade.vault.change import VaultEvent
from tests.support.realtime_world import RealtimeWorld


@pytest.mark.parametrize(
    ("key", "woken"),
    [
        (b"/app/config", False),
        (b"palisade/catalog/tables/a", False),
        (b"palisade/segments/records/clicks/a", True),
        (b"palisade/segments/assigned/n1/clicks/a", True),
    ],
)
async def test_hand_off_is_woken_by_keys_of_segments_only(key: bytes, woken: bool) -> None:
    """It was woken by each revision, and took three quarters of the processor time of a node that loaded keys."""
    node = RealtimeWorld(1).nodes["a"]
    await node.start()
    node.ingester.wakeup.clear()
    for listener in node.listeners.all:
        listener(Notification(9, [VaultEvent(key, 9, None)]))
    assert node.ingester.wakeup.is_set() is woken
