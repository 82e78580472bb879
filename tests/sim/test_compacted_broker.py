"""A broker whose position in the change feed was compacted reads everything again, and then answers correctly (S4; seed
003: full sync, delta, full again). On a node that runs, and on one that restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from palisade.base.errors import PalisadeError
from palisade.metastore.requests import Compact
from palisade.recovery.listeners import Notification
from palisade.segments.broker import SegmentBroker
from palisade.segments.broker_view import OnMissing
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.node import Host
from tests.sim.scripted import Script, scripted
from tests.support.segment_writer import ALWAYS, SOURCE, SegmentWriter

CHANGES = 60
LOOK_S = 0.01
ANSWERS = 10


class Ground:
    """`answers`: lookups at the follower that were answered. The checker records those that are wrong."""

    def __init__(self, script: Script, follower: Host) -> None:
        self.script, self.follower = script, follower
        self.checker = SegmentLookups(script.world)
        script.world.checkers = [*script.world.checkers, self.checker]
        script.world.goes_on = True
        self.writer = SegmentWriter(Random(5))
        self.answers = 0

    def change(self) -> None:
        """Publications, announcements, marks, removals; each valid after the one before."""
        for _ in range(CHANGES):
            if (command := self.writer.command()).success:
                self.script.write(command)

    def look_up(self) -> None:
        """All the time, in the process of the node."""
        self.script.process(self.follower).start(self._look_up())

    async def _look_up(self) -> None:
        while True:
            since, broker = self.checker.released, self.follower.node.broker
            try:
                answer = await broker.lookup(SOURCE, ALWAYS, OnMissing.ALLOW)
            except PalisadeError:
                pass
            else:
                self.checker.looked_up(self.follower, since, answer, answer.revision)
                self.answers += 1
            await asyncio.sleep(LOOK_S)

    def compact(self) -> None:
        """Everything that the follower has missed."""
        assert self.follower.vault is not None
        latest = self.script.leader.store.revision
        assert self.follower.vault.revision < latest - CHANGES / 2
        self.script.write(Compact(latest))

    def is_current_again(self) -> None:
        """By a snapshot; it answers as of the latest state or later."""
        latest, before = self.script.leader.store.revision, self.answers
        self.script.run_until(lambda: self.follower.is_active and self.follower.node.broker.revision >= latest, 30)
        self.script.run_until(lambda: self.answers >= before + ANSWERS, 5)
        assert self.script.world.coverage["recovered c done"] == 1


@contextmanager
def ground() -> Iterator[Ground]:
    with scripted(followers=1) as script:
        (follower,) = (host for host in script.world.hosts.values() if host.follows)
        made = Ground(script, follower)
        made.change()
        yield made


def compacted_during_a_pause(ground: Ground) -> None:
    process, broker = ground.script.process(ground.follower), ground.follower.node.broker
    ground.look_up()
    ground.script.run_until(lambda: ground.answers >= ANSWERS, within_s=5)
    process.pause()
    ground.change()
    ground.compact()
    process.resume()
    ground.is_current_again()
    assert ground.follower.node.broker is broker, "it is the same process"


def test_broker_of_a_running_node_whose_position_was_compacted_is_synced_again() -> None:
    with ground() as made:
        compacted_during_a_pause(made)
        assert made.script.world.violations == []


def test_broker_of_a_restarted_node_whose_position_was_compacted_is_synced_again() -> None:
    with ground() as made:
        made.follower.kill()
        made.change()
        made.compact()
        made.follower.start()
        made.script.run_until(lambda: made.follower.is_active, within_s=30)
        made.look_up()
        made.is_current_again()
        assert made.script.world.violations == []


def test_planted_broker_that_continues_after_a_gap_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the end of the gap for its position, without the changes in between."""
    on_change = SegmentBroker._on_change

    def continues(self: SegmentBroker, notification: Notification) -> None:
        gap = notification.revision > self.revision + 1
        on_change(self, notification._replace(events=()) if gap else notification)

    monkeypatch.setattr(SegmentBroker, "_on_change", continues)
    with ground() as made:
        compacted_during_a_pause(made)
        found = made.script.world.violations
        assert any("answers a lookup as of revision" in str(each) for each in found), found
