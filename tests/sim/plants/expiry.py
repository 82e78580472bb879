"""Faults of data nodes whose segments expire or are damaged, whose queries take long, whose volumes are full."""

from __future__ import annotations

from collections.abc import Sequence

from palisade.journal import log
from palisade.node.config import FenceTimes
from palisade.segments.fenced_rules import FencedRules
from palisade.segments.names import SIZE_BYTES_MAX, Wanted
from palisade.segments.readers import Readers
from palisade.segments.realtime_log import RealtimeLog
from palisade.segments.retention_worker import RetentionWorker
from palisade.segments.segment_store import SegmentStore, file_of
from palisade.wire.segment_errors import NoSuchSegment, NotFetched
from tests.sim.faults import Fault, Kind
from tests.sim.plants.plant import Patch, Stage, caught_by
from tests.sim.world import Settings
from tests.support.retention_world import PlainCache

FULL = tuple(Fault(at, Kind.FULL_SEGMENTS, "all", for_s=5.0) for at in (12.0, 28.0))
"""Long after a start, so that announcements are those of the running node."""
DAMAGED = tuple(
    Fault(at + later, Kind.DAMAGED_SEGMENTS, node, for_s=0.5, amount=amount)
    for at, amount in ((6.0, 0.9), (10.0, 0.1), (16.0, 0.9), (20.0, 0.1), (25.0, 0.1))
    for later, node in enumerate(("n1", "n2", "n3"))
)
"""Of each node in turn; low amounts kill it."""
RULES_BEHIND_A_CUT = Stage(
    "expiry",
    5,
    tuple(
        Fault(2.0 + 4.5 * number, Kind.ISOLATE, node, for_s=3.5)
        for number, member in enumerate(("n1", "n2", "n3") * 2)
        for node in ("f1", member)
    ),
    Settings(fences=FenceTimes(lease_s=1.0, renewals=4), rule_pause_s=1.0, rule_s=3.0),
)
"""The follower and a member are cut off again and again, so briefly that the assignment of a copy often stays, and
longer than their leases. Rules change so often that one is taken back meanwhile."""


@caught_by("segment copies", on=Stage("expiry", 6))
def expiry_by_the_rules_of_the_pass(patch: Patch) -> None:
    """They are not read again directly before the removal, and may have been taken back."""
    patch.setattr(RetentionWorker, "_still", lambda self, name, rules: True)


@caught_by("segment copies", on=RULES_BEHIND_A_CUT, says="which no ")
def expiry_by_the_rules_of_a_plain_cache(patch: Patch) -> None:
    """Those of the vault, whether or not it may be trusted (seed 000). A copy leaves the trash, or the last one is
    moved there, although its rule was taken back."""
    patch.setattr(FencedRules, "over", staticmethod(lambda vault, now: PlainCache(lambda: vault)))


@caught_by("segment copies", on=Stage("expiry", 17), says="while a query reads it")
def removals_while_queries_read(patch: Patch) -> None:
    async def at_once(self: Readers, name: str) -> None: ...

    patch.setattr(Readers, "until_none", at_once)


@caught_by("segment copies", on=Stage("expiry", 1, FULL, Settings()), says="without having it")
def copies_that_a_full_volume_has_not_stored(patch: Patch) -> None:
    """The error of the write is swallowed."""
    put = SegmentStore.put

    async def swallowing(
        self: SegmentStore, name: str, wanted: Wanted, content: bytes, *, synced: bool = False
    ) -> None:
        try:
            await put(self, name, wanted, content, synced=synced)
        except NotFetched:
            self.held[name] = wanted

    patch.setattr(SegmentStore, "put", swallowing)


@caught_by("segment rows", on=Stage("expiry", 6, FULL, Settings()))
def rows_that_a_full_volume_has_not_stored(patch: Patch) -> None:
    """They are acknowledged all the same."""
    store = RealtimeLog._store

    async def swallowing(self: RealtimeLog, entries: Sequence[bytes]) -> None:
        try:
            await store(self, entries)
        except OSError:
            self.failed = False

    patch.setattr(RealtimeLog, "_store", swallowing)


@caught_by("segment copies", on=Stage("expiry", 6, DAMAGED, Settings()), says="not that of its record")
def reads_of_copies_without_a_check(patch: Patch) -> None:
    """The bytes of a file are not compared with those that were verified."""

    async def read(self: SegmentStore, name: str, digest: str | None = None) -> tuple[bytes, Wanted]:
        held = self.held.get(name)
        if held is None or (digest is not None and held.digest != digest):
            raise NoSuchSegment(f"this node does not have segment {name}")
        return await self.disk.read(file_of(name), SIZE_BYTES_MAX), held

    patch.setattr(SegmentStore, "read", read)


@caught_by("segment rows", on=Stage("expiry", 8, DAMAGED, Settings()))
def damage_of_a_log_that_counts_as_a_torn_end(patch: Patch) -> None:
    """A start removes the rows from there on, which were acknowledged."""
    patch.setattr(log, "check_torn", lambda data, offset, name, *, replica=False: None)
