"""The broker of a node: what it calls complete is complete as of its revision, whatever interrupts it (S2 to S5)."""

from __future__ import annotations

import pytest

from palisade.recovery.listeners import Notification
from palisade.segments.broker import SegmentBroker, ViewFeed
from tests.support.broker_world import BrokerWorld, Violation

WALKS = 20


def walks(seeds: range) -> int:
    """The number of answered lookups. Raises Violation."""
    return sum(BrokerWorld(seed).walk() for seed in seeds)


@pytest.mark.parametrize("block", range(4))
def test_every_answer_is_the_released_state_of_its_revision(block: int) -> None:
    assert walks(range(block * WALKS, (block + 1) * WALKS)) > 10 * WALKS


class NoRecentChanges(SegmentBroker):
    """Answers from the view alone, which a drop may have overtaken."""

    async def _current(self) -> ViewFeed:
        return self._feed


class StaleState(SegmentBroker):
    """Trusts its last fenced read for as long as the node serves."""

    async def _current(self) -> ViewFeed:
        state = self._reads().segments_state()
        if state is not None and self._seen is not None:
            return self._feed
        return await super()._current()


class MissedNotifications(SegmentBroker):
    """Does not wait for notifications of what the vault has committed."""

    def _on_change(self, notification: Notification) -> None:
        if notification.revision % 3:
            super()._on_change(notification)

    async def _reach(self, lv: int) -> None:
        """Skipped."""


class UnreleasedView(SegmentBroker):
    """Forgets that a fenced node applies changes before their release."""

    def _on_change(self, notification: Notification) -> None:
        super()._on_change(notification)
        self._unreleased_to = 0


@pytest.mark.parametrize("planted", [NoRecentChanges, StaleState, MissedNotifications, UnreleasedView])
def test_planted_fault_is_found(planted: type[SegmentBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerWorld, "broker_kind", planted)
    with pytest.raises(Violation):
        walks(range(300))
