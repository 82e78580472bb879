"""Faults of data nodes: when they announce, move and remove copies, and how they keep and hand off rows."""

from __future__ import annotations

import asyncio

from palisade.client import segment_query
from palisade.journal.log import JournalLog
from palisade.metastore.requests import Put
from palisade.segments import realtime_handoff
from palisade.segments.holder import SegmentHolder
from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.segments.names import Wanted
from palisade.segments.realtime import Held
from palisade.segments.realtime_handoff import RealtimeHandOff, parquet
from palisade.segments.realtime_step import RealtimeStep, Situation
from palisade.segments.verification import version_of
from palisade.vault.vault import Vault
from palisade.wire.segment_errors import NoSuchSegment
from tests.sim.faults import Fault, Kind
from tests.sim.plants.plant import Patch, Stage, caught_by
from tests.sim.world import Settings


@caught_by("segment copies", on=Stage("segments", 1), says="lookups return it")
def removals_before_the_withdrawal_is_released(patch: Patch) -> None:
    """A copy is removed while its withdrawal is on its way."""
    withdraw = LeasedAnnouncements.withdraw

    async def at_once(self: LeasedAnnouncements, name: str, vault: Vault, *, even_if_needed: bool) -> bool:
        done = asyncio.ensure_future(withdraw(self, name, vault, even_if_needed=even_if_needed))
        await asyncio.sleep(0)
        return not done.done() or done.result()

    patch.setattr(LeasedAnnouncements, "withdraw", at_once)


@caught_by("segment copies", on=Stage("segments", 1), says="no other node has announced")
def withdrawals_of_the_last_copy(patch: Patch) -> None:
    """A withdrawal compares nothing: the node that the copy moves to may not have it."""
    patch.setattr(LeasedAnnouncements, "_guard", lambda self, name, vault: ())


@caught_by("segment copies", on=Stage("segments", 1), says="lookups return it")
def removals_without_a_withdrawal(patch: Patch) -> None:
    async def withdraw(self: LeasedAnnouncements, name: str, vault: Vault, *, even_if_needed: bool) -> bool:
        return True

    patch.setattr(LeasedAnnouncements, "withdraw", withdraw)


@caught_by("segment copies", on=Stage("segments", 1), says="without having it")
def announcements_before_the_copy_is_stored(patch: Patch) -> None:
    """While it is fetched."""
    original = SegmentHolder._bring

    async def bring(self: SegmentHolder, name: str, wanted: Wanted) -> None:
        self.segment_store.held[name] = wanted
        self.announcements.changed()
        await asyncio.sleep(0.5)
        del self.segment_store.held[name]
        await original(self, name, wanted)

    patch.setattr(SegmentHolder, "_bring", bring)


@caught_by("segment counts", on=Stage("segments", 2), says="UNAVAILABLE")
def nodes_that_do_not_find_their_copies(patch: Patch) -> None:
    """They announce copies, and answer that they do not have them."""

    async def read_recorded(self: SegmentHolder, name: str) -> tuple[bytes, Wanted]:
        raise NoSuchSegment(f"this node does not have segment {name}")

    patch.setattr(SegmentHolder, "read_recorded", read_recorded)


@caught_by("segment counts", on=Stage("segments", 17), says="rows are counted")
def counts_that_keep_the_positions_of_earlier_attempts(patch: Patch) -> None:
    """A growing segment is not asked again, although it may have been handed off since."""
    patch.setattr(segment_query, "unchanging", lambda known, recorded: known)


POWERLESS = tuple(Fault(at, Kind.POWER, "all", for_s=0.5) for at in (4.0, 9.0, 14.0, 19.0, 24.0))
CUT_OFF = tuple(Fault(at, Kind.ISOLATE, node, for_s=9.0) for at, node in ((2.0, "n1"), (12.0, "n2"), (22.0, "n3")))
"""From the other nodes; clients reach it."""


@caught_by("segment rows", on=Stage("segments", 1, POWERLESS, Settings()))
def rows_acknowledged_before_they_are_synced(patch: Patch) -> None:
    """The tail is lost with the power."""

    async def unsynced(self: JournalLog) -> None: ...

    patch.setattr(JournalLog, "sync", unsynced)


@caught_by("segment copies", on=Stage("segments", 2), says="which grows")
def logs_removed_when_they_are_closed(patch: Patch) -> None:
    step = realtime_handoff.next_step

    def drops(now: Situation) -> RealtimeStep:
        found = step(now)
        return RealtimeStep.DROP if now.closed and found is RealtimeStep.PUBLISH else found

    patch.setattr(realtime_handoff, "next_step", drops)


@caught_by("liveness", on=Stage("segments", 2), says="clients have not come to an end: segmenter")
def publications_without_a_copy(patch: Patch) -> None:
    """The record has a digest, and no node has a file with these rows."""

    async def only_computed(self: RealtimeHandOff, held: Held) -> Wanted:
        return version_of(parquet(held.log.header.columns, await held.log.values()))

    patch.setattr(RealtimeHandOff, "_store", only_computed)


@caught_by("segment rows", on=Stage("segments", 2), says="is marked unused")
def hand_offs_in_two_transactions(patch: Patch) -> None:
    """The growing segment ends in one transaction, and the published one begins in the next."""
    publish = RealtimeHandOff._publish

    async def in_two(self: RealtimeHandOff, held: Held) -> None:
        if (record := self._ingester.record(held.name)) is not None:
            await self._ingester.writes.write((), [Put(record.segment.key, record.marked_unused().to_bytes())])
            await self._ingester.writes.write((), [Put(record.segment.key, record.to_bytes())])
        await publish(self, held)

    patch.setattr(RealtimeHandOff, "_publish", in_two)


@caught_by("segment rows", on=Stage("segments", 11, CUT_OFF, Settings()), says="which was given up")
def rows_acknowledged_without_an_announcement(patch: Patch) -> None:
    patch.setattr(LeasedAnnouncements, "is_announced", lambda self, name: True)
