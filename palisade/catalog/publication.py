"""Publication of segments: all of them become visible at one revision, or none does. Pure (S1, issue 17).

Each data source has a *manifest*. A publication takes the next generation, and each of its records carries it. Records
of a generation that the manifest lists as pending are invisible.

A publication that fits one transaction writes its records and the manifest together. A larger one lists its generation
as pending first, writes its records in parts, and becomes visible by one write of the manifest. If it is abandoned, its
records are deleted and then its generation is taken off the list.

Every transaction compares the revision of the manifest, so publications of one data source are serialized.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from palisade.catalog.errors import BadField, NotAllowed
from palisade.catalog.row_format import a_count, a_name, from_bytes, list_of, shown, to_bytes
from palisade.catalog.segment import ROOT, Segment, SegmentRecord
from palisade.catalog.timeline import Timeline

MANIFESTS = ROOT + b"manifests/"
PENDING_MAX = 64
OPERATIONS_MAX, BYTES_MAX = 1_000, 1 << 20
"""Of one transaction: below the metadata store's limits, with room for the manifest, its compares and the frame."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """`last`: the highest generation that was taken. `pending`: generations that are not visible yet, ascending."""

    data_source: str
    last: int = 0
    pending: tuple[int, ...] = ()

    @property
    def key(self) -> bytes:
        return MANIFESTS + self.data_source.encode()

    def is_visible(self, record: SegmentRecord) -> bool:
        """Whether readers see the record. One of a generation that was never taken is not visible either."""
        return record.generation <= self.last and record.generation not in self.pending

    def with_visible(self) -> Manifest:
        """The next generation, visible at once."""
        return replace(self, last=self.last + 1)

    def with_pending(self) -> Manifest:
        """Raises NotAllowed: too many publications are pending."""
        if len(self.pending) >= PENDING_MAX:
            raise NotAllowed(
                f"data source {self.data_source} has {PENDING_MAX} pending publications: wait until the leader has "
                "removed those that were abandoned, about a minute after their last write"
            )
        return replace(self, last=self.last + 1, pending=(*self.pending, self.last + 1))

    def without_pending(self, generation: int) -> Manifest:
        """It is published; or it is abandoned and has no records any more. Raises NotAllowed: it is not pending."""
        if generation not in self.pending:
            raise NotAllowed(
                f"generation {generation} of data source {self.data_source} is not pending: it is published, or was "
                "abandoned and removed; palisade segments list shows which"
            )
        return replace(self, pending=tuple(each for each in self.pending if each != generation))

    def to_bytes(self) -> bytes:
        return to_bytes({"last": self.last, "pending": list(self.pending)})

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> Manifest:
        """Raises DamagedRow."""

        def read(value: dict[str, object]) -> Manifest:
            name = a_name(key.removeprefix(MANIFESTS).decode("utf-8", "backslashreplace"), "data_source")
            last = a_count(value["last"], "last")
            pending = tuple(list_of(a_count, PENDING_MAX, least=0)(value["pending"], "pending"))
            if list(pending) != sorted(set(pending)) or (pending and pending[-1] > last):
                raise BadField(f"pending: {shown(value['pending'])} is not ascending, up to {last}")
            return Manifest(name, last, pending)

        return from_bytes(key, packed, read)


Put = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """`opening` is written first if there are several parts. Then each part; `closing` goes with the last part.

    Every write of the manifest is in a transaction that compares the manifest's revision.
    """

    generation: int
    opening: Manifest | None
    parts: tuple[tuple[Put, ...], ...]
    closing: Manifest


def plan(
    manifest: Manifest, present: Mapping[Segment, SegmentRecord], wanted: Sequence[SegmentRecord]
) -> PublicationPlan:
    """`present`: at least the records whose intervals overlap those of `wanted`. Raises BadField, NotAllowed."""
    check(manifest, present, wanted)
    generation = manifest.last + 1
    puts = [(each.segment.key, replace(each, generation=generation).to_bytes()) for each in wanted]
    parts = tuple(_parts(puts))
    if len(parts) == 1:
        return PublicationPlan(generation, None, parts, manifest.with_visible())
    opening = manifest.with_pending()
    return PublicationPlan(generation, opening, parts, opening.without_pending(generation))


def abandoned(manifest: Manifest, present: Mapping[Segment, SegmentRecord], generation: int) -> list[bytes]:
    """The keys to delete before the generation is taken off the list. Raises NotAllowed: it is not pending."""
    manifest.without_pending(generation)
    return sorted(segment.key for segment, record in present.items() if record.generation == generation)


def check(manifest: Manifest, present: Mapping[Segment, SegmentRecord], wanted: Sequence[SegmentRecord]) -> None:
    """Raises BadField, NotAllowed: what would make the timeline ambiguous or turn it back."""
    if not wanted:
        raise BadField("segments: is empty; publish at least one")
    used = (record.for_timeline() for record in present.values() if record.used)
    timeline, seen = Timeline(used), set[Segment]()
    for record in wanted:
        segment = record.segment
        if segment.data_source != manifest.data_source:
            raise BadField(f"segment {segment}: is not of data source {manifest.data_source}")
        if segment in present or segment in seen:
            raise NotAllowed(f"segment {segment} exists already: publish changed data under a higher version")
        seen.add(segment)
        _check_version(timeline, segment)
        _check_growing(present.values(), segment)
        timeline.put(record.for_timeline())
    _check_whole(present.keys() | seen, wanted)


def _check_version(timeline: Timeline, segment: Segment) -> None:
    interval, version, _ = segment.id
    highest = timeline.highest_version(interval)
    if highest is not None and version < highest:
        raise NotAllowed(
            f"segment {segment}: version {highest} is published for an overlapping interval: use a higher one"
        )
    if (other := timeline.contradicting(interval, version)) is not None:
        raise NotAllowed(
            f"segment {segment}: its version has an overlapping interval of {other.start_ms} to {other.end_ms} ms, "
            "so neither is newer: use a higher version"
        )


def _check_growing(present: Iterable[SegmentRecord], segment: Segment) -> None:
    """A newer version would hide rows that an ingester still receives and acknowledges."""
    interval, version, _ = segment.id
    for old in present:
        hidden = old.used and old.is_growing and old.replicas and version > old.segment.id.version
        if hidden and old.segment.id.interval.overlaps(interval):
            raise NotAllowed(
                f"segment {segment}: node {old.ingester} still receives rows of segment {old.segment} in its interval: "
                "close that first (palisade segments realtime close), or append a partition to its version"
            )


def _check_whole(known: Collection[Segment], wanted: Sequence[SegmentRecord]) -> None:
    """Core partitions are published together: a chunk without one of them would never become visible."""
    for record in wanted:
        segment = record.segment
        for partition in range(record.core_partitions):
            if Segment(segment.data_source, segment.id._replace(partition=partition)) not in known:
                raise NotAllowed(
                    f"segment {segment}: core partition {partition} of {record.core_partitions} is not published: "
                    "publish all core partitions together"
                )


def _parts(puts: Sequence[Put]) -> Iterator[tuple[Put, ...]]:
    part: list[Put] = []
    size_bytes = 0
    for key, value in puts:
        if part and (len(part) == OPERATIONS_MAX or size_bytes + len(key) + len(value) > BYTES_MAX):
            yield tuple(part)
            part, size_bytes = [], 0
        part.append((key, value))
        size_bytes += len(key) + len(value)
    yield tuple(part)
