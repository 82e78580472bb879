"""Realtime segments: partitions whose rows an ingesting node still receives, and their hand-off. Pure (seed 003).

A realtime segment has one name and one record from its first row to its last copy, so no lookup can count its rows
twice. Its life is that of its record:

    growing     the record names the ingester and has no digest; only the ingester announces it
    published   one transaction sets rows, size and digest; the ingester serves the same rows as a file
    given up    replication factor 0: lookups list it as not served

It is opened as loaded, in the transaction that announces it. Thus queries count on it from its first row on: without
its ingester, lookups report it as missing. After the publication it is a segment like any other, and its copies move to
the nodes that it is assigned to.

It belongs to the newest version of its interval, beside the partitions that exist, so its rows are added to theirs. A
newer version is refused while it grows (`publication.py`), and so is a change that would hide its version
(`check_beside`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from palisade.catalog.errors import BadField, NotAllowed
from palisade.catalog.publication import Manifest
from palisade.catalog.row_format import a_count, from_bytes, text_up_to, to_bytes
from palisade.catalog.segment import ROOT, Segment, SegmentRecord, parse_segment, time_text
from palisade.catalog.timeline import Interval, SegmentId, ServingState

GIVEN_UP = ROOT + b"given-up/"
REASON_CHARACTERS_MAX = 1024


def opening(
    manifest: Manifest, present: Mapping[Segment, SegmentRecord], interval: Interval, ingester: str, replicas: int
) -> tuple[Manifest, SegmentRecord]:
    """The manifest and the record to write, with compares of the manifest and of the records of the segment's interval
    and version. `present`: at least the records whose intervals overlap this one. Raises NotAllowed, BadField."""
    if not replicas:
        raise BadField("replicas: is 0, so no node would keep the rows: give at least 1")
    overlapping = [each for each in present.values() if each.segment.id.interval.overlaps(interval)]
    used = [each for each in overlapping if each.used]
    version = max((each.segment.id.version for each in used), default=0)
    core = 1
    if not used:
        version = 1 + max((each.segment.id.version for each in overlapping), default=0)
    else:
        core = _core_partitions(manifest, [each for each in used if each.segment.id.version == version], interval)
    taken = (each.segment.id.partition for each in overlapping if each.segment.id[:2] == (interval, version))
    segment = Segment(manifest.data_source, SegmentId(interval, version, 1 + max(taken, default=-1)))
    opened = manifest.with_visible()
    return opened, SegmentRecord(
        segment, core, 0, 0, "", replicas, loaded=True, generation=opened.last, ingester=ingester
    )


def _core_partitions(manifest: Manifest, chunk: Iterable[SegmentRecord], interval: Interval) -> int:
    """The number of core partitions of the newest version. Raises NotAllowed if no partition can be added to it."""
    core = {each.segment.id.partition: each for each in chunk}
    any_of_it = next(iter(core.values()))
    if any_of_it.segment.id.interval != interval:
        raise NotAllowed(
            f"{any_of_it.segment} overlaps {time_text(interval.start_ms)} to {time_text(interval.end_ms)}: give the "
            "same interval, so that the rows are added to it"
        )
    for number in range(any_of_it.core_partitions):
        each = core.get(number)
        if each is None or not manifest.is_visible(each) or each.state() is ServingState.LOADING:
            raise NotAllowed(
                f"version {any_of_it.segment.id.version} of {any_of_it.segment} is not loaded yet, so rows cannot be "
                "added to it: repeat when palisade segments list shows it as served"
            )
    return any_of_it.core_partitions


def published(record: SegmentRecord, rows: int, size_bytes: int, digest: str) -> SegmentRecord:
    """The transaction must compare the record and the announcement of its ingester. Raises NotAllowed, BadField."""
    check_growing(record, "open another one for its interval")
    if not digest:
        raise BadField(f"segment {record.segment}: is published without a digest")
    return replace(record, rows=rows, size_bytes=size_bytes, digest=digest)


def check_growing(record: SegmentRecord, advice: str) -> None:
    """Raises NotAllowed."""
    if not grows(record):
        state = "unused" if not record.used else "published" if not record.is_growing else "given up"
        raise NotAllowed(f"segment {record.segment} is {state}, so it does not grow: {advice}")


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The audit record of a realtime segment that was given up. `by`: the operator."""

    segment: Segment
    ingester: str
    by: str
    reason: str
    at_ms: int

    @property
    def key(self) -> bytes:
        return GIVEN_UP + f"{self.segment}/{self.at_ms:020d}".encode()

    def to_bytes(self) -> bytes:
        return to_bytes({"ingester": self.ingester, "by": self.by, "reason": self.reason, "at_ms": self.at_ms})

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> GiveUp:
        """Raises DamagedRow."""

        def read(value: dict[str, object]) -> GiveUp:
            name = key.removeprefix(GIVEN_UP).decode("utf-8", "backslashreplace").rpartition("/")[0]
            text = text_up_to(REASON_CHARACTERS_MAX)
            return GiveUp(
                parse_segment(name),
                text(value["ingester"], "ingester"),
                text(value["by"], "by"),
                text(value["reason"], "reason"),
                a_count(value["at_ms"], "at_ms"),
            )

        return from_bytes(key, packed, read)


def given_up(record: SegmentRecord, by: str, reason: str, at_ms: int) -> tuple[SegmentRecord, GiveUp]:
    """The record and the audit record to write in one transaction, which must compare the record, and that the ingester
    does not announce the segment. Raises NotAllowed, BadField: without a reason."""
    check_growing(record, "nothing can be given up")
    text_up_to(REASON_CHARACTERS_MAX, 1)(reason, "reason")
    return record.with_replicas(0), GiveUp(record.segment, record.ingester, by, reason, at_ms)


def grows(record: SegmentRecord) -> bool:
    """Whether its ingester may be acknowledging rows."""
    return record.used and record.is_growing and record.replicas > 0


def check_beside(before: SegmentRecord, after: SegmentRecord, chunk: Iterable[SegmentRecord]) -> None:
    """`chunk`: the records of its interval and version. Without one of its core partitions a chunk is in no lookup, nor
    are the rows that are added to it. Raises NotAllowed."""
    if not unsettles(before, after):
        return
    for each in chunk:
        if grows(each):
            raise NotAllowed(
                f"segment {before.segment}: without it, lookups would not return segment {each.segment}, whose rows "
                f"node {each.ingester} still receives: close that first (palisade segments realtime close)"
            )


def unsettles(before: SegmentRecord, after: SegmentRecord) -> bool:
    """Whether the change makes a core partition one that lookups do not count on, not even as unserved."""
    is_core = before.segment.id.partition < before.core_partitions
    was_settled = before.used and before.state() is not ServingState.LOADING
    return is_core and was_settled and (not after.used or after.state() is ServingState.LOADING)
