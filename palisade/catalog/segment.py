"""Segments: their names, keys and the coordinator's records of them. Pure (S1, S2, seed 003, issue 17).

    palisade/segments/records/<data source>/<start>/<end>/<version>/<partition>      the coordinator's record
    palisade/segments/manifests/<data source>                                        what is visible (`publication.py`)
    palisade/segments/assigned/<node>/<data source>/<start>/...                      the node stores it
    palisade/segments/announced/<node>/<data source>/<start>/...                     leased: the node serves it

Times are UTC with milliseconds, such as 2013-03-01T00:00:00.000Z, so keys are in the order of time. Versions and
partitions are padded with zeros for the same reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from palisade.base.identifier import ID
from palisade.catalog.errors import BadField, DamagedRow, NotAllowed
from palisade.catalog.row_format import a_count, a_flag, a_name, from_bytes, shown, to_bytes
from palisade.catalog.timeline import Interval, SegmentId, ServingState, TimelineSegment

ROOT = b"palisade/segments/"
RECORDS = ROOT + b"records/"
ASSIGNED = ROOT + b"assigned/"
ANNOUNCED = ROOT + b"announced/"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
VERSION_DIGITS, PARTITION_DIGITS = 16, 5
DIGEST = re.compile(r"[a-z0-9-]{1,16}:[0-9a-f]{64}", re.ASCII)
URL = re.compile(r"[a-z][a-z0-9+.-]*://[!-~]+", re.ASCII)
URL_CHARACTERS_MAX = 1024
REPLICAS_MAX = 64
EXAMPLE = "flights/2013-01-01T00:00:00.000Z/2013-01-02T00:00:00.000Z/0000000000000001/00000"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Segment(NamedTuple):
    data_source: str
    id: SegmentId

    def __str__(self) -> str:
        start_ms, end_ms = self.id.interval
        version, partition = f"{self.id.version:0{VERSION_DIGITS}}", f"{self.id.partition:0{PARTITION_DIGITS}}"
        return "/".join((self.data_source, time_text(start_ms), time_text(end_ms), version, partition))

    @property
    def key(self) -> bytes:
        return RECORDS + str(self).encode()

    def announcement_key(self, node: str) -> bytes:
        return ANNOUNCED + f"{node}/{self}".encode()


def time_text(moment_ms: int) -> str:
    """Raises BadField for a time outside of the years 1 to 9999."""
    try:
        return (EPOCH + moment_ms * MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        raise BadField(f"interval: {moment_ms} ms is outside of the years 1 to 9999") from None


def time_ms(text: str) -> int:
    """The inverse of `time_text`. Raises BadField."""
    try:
        if not TIME.fullmatch(text):
            raise ValueError(text)
        return (datetime.fromisoformat(text) - EPOCH) // MILLISECOND
    except ValueError:
        raise BadField(f"interval: {shown(text)} is no time such as 2013-03-01T00:00:00.000Z") from None


def moment_ms(text: str) -> int:
    """As `time_ms`, and also a day such as 2013-03-01, or a time without milliseconds or zone: UTC. Raises BadField."""
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise BadField(
            f"time: {shown(text)} is no day such as 2013-03-01 and no time such as 2013-03-01T06:00Z"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // MILLISECOND


def parse_segment(text: str) -> Segment:
    """Raises BadField. Only the canonical form is accepted, so one segment has one key."""
    parts = text.split("/")
    if len(parts) != 5:
        raise BadField(f"segment: {shown(text)} is not <data source>/<start>/<end>/<version>/<partition>")
    for name, part in zip(("version", "partition"), parts[3:], strict=True):
        if not (part.isascii() and part.isdigit()):
            raise BadField(f"segment: its {name} {shown(part)} is no number; an example of a segment is {EXAMPLE}")
    interval = Interval(time_ms(parts[1]), time_ms(parts[2]))
    found = Segment(a_name(parts[0], "data_source"), SegmentId(interval, int(parts[3]), int(parts[4])))
    if str(found) != text:
        raise BadField(f"segment: {shown(text)} is not in the canonical form, {found}")
    return found


def segment_of_record(key: bytes) -> Segment:
    """Raises DamagedRow."""
    return _segment_in(key, key.removeprefix(RECORDS))


def announced_by(key: bytes) -> tuple[str, Segment]:
    """The node and its segment, of the key of an announcement. Raises DamagedRow."""
    node, _, rest = key.removeprefix(ANNOUNCED).partition(b"/")
    return node.decode("utf-8", "backslashreplace"), _segment_in(key, rest)


def _segment_in(key: bytes, text: bytes) -> Segment:
    try:
        return parse_segment(text.decode("utf-8", "backslashreplace"))
    except BadField as error:
        name = key.decode("utf-8", "backslashreplace")[:200]
        raise DamagedRow(
            f"key {name} names no segment ({error}): delete it; segments are published by commands"
        ) from None


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """`loaded`: a data node has announced it, so queries count on it. Durable, and cleared with replication factor 0.

    `digest` is over the rows, so files of different writers count as equal. `generation`: of its publication
    (`publication.py`). `url`: where its file is, for data nodes and readers that can reach it; empty without one.
    `ingester`: the node that receives its rows, or received them; empty for a segment that was published as a file.
    While it grows, its rows are not known here: `rows` and `size_bytes` are 0, and `digest` is empty (`realtime.py`).
    """

    segment: Segment
    core_partitions: int
    rows: int
    size_bytes: int
    digest: str
    replicas: int
    used: bool = True
    loaded: bool = False
    generation: int = 1
    url: str = ""
    ingester: str = ""

    def __post_init__(self) -> None:
        """Raises BadField, NotAllowed."""
        self.for_timeline()
        if self.ingester and not ID.fullmatch(self.ingester):
            raise BadField(f"ingester: {shown(self.ingester)} is not the name of a node")
        if self.is_growing and (self.rows or self.size_bytes):
            raise BadField(f"segment {self.segment}: has rows and no digest: a growing segment has neither")
        if not self.is_growing and not DIGEST.fullmatch(self.digest):
            raise BadField(f"digest: {shown(self.digest)} is not <method>: and 64 hex digits")
        if not 0 <= self.replicas <= REPLICAS_MAX:
            raise BadField(f"replicas: {self.replicas} is not a number from 0 to {REPLICAS_MAX}")
        if self.url and not (len(self.url) <= URL_CHARACTERS_MAX and URL.fullmatch(self.url)):
            raise BadField(
                f"url: {shown(self.url)} is no URL of at most {URL_CHARACTERS_MAX} ASCII characters, such as "
                "file:///data/segments/2013-03-01.parquet"
            )
        if self.loaded and not (self.used and self.replicas):
            raise NotAllowed(
                f"segment {self.segment}: unused, or without replicas, it can't be loaded: see palisade segments show"
            )

    @property
    def is_growing(self) -> bool:
        """A realtime segment whose ingester may still receive rows."""
        return bool(self.ingester) and not self.digest

    def state(self) -> ServingState:
        if self.replicas == 0:
            return ServingState.UNSERVED
        return ServingState.QUERYABLE if self.loaded else ServingState.LOADING

    def for_timeline(self) -> TimelineSegment:
        """Raises BadField: an impossible interval, version or partition."""
        return TimelineSegment(self.segment.id, self.core_partitions, self.state())

    def with_replicas(self, replicas: int) -> SegmentRecord:
        """Queries stop counting on a segment in the same change that sets its replication factor to 0."""
        return replace(self, replicas=replicas, loaded=self.loaded and replicas > 0)

    def marked_unused(self) -> SegmentRecord:
        return replace(self, used=False, loaded=False)

    def not_loaded(self) -> SegmentRecord:
        """No query counts on it until a data node has announced it again."""
        return replace(self, loaded=False)

    def marked_loaded(self) -> SegmentRecord:
        """The transaction must compare that an announcement exists. Raises NotAllowed."""
        return replace(self, loaded=True)

    def to_bytes(self) -> bytes:
        fields = {"core_partitions": self.core_partitions, "rows": self.rows, "size_bytes": self.size_bytes}
        states = {"replicas": self.replicas, "used": self.used, "loaded": self.loaded}
        place = {"url": self.url} if self.url else {}
        place |= {"ingester": self.ingester} if self.ingester else {}
        return to_bytes({**fields, "digest": self.digest, **states, "generation": self.generation, **place})

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> SegmentRecord:
        """Raises DamagedRow."""
        segment = segment_of_record(key)

        def read(value: dict[str, object]) -> SegmentRecord:
            if type(value["digest"]) is not str:
                raise BadField(f"digest: {shown(value['digest'])} is not a text")
            url = value.get("url", "")
            if type(url) is not str:
                raise BadField(f"url: {shown(url)} is not a text")
            ingester = value.get("ingester", "")
            if type(ingester) is not str:
                raise BadField(f"ingester: {shown(ingester)} is not a text")
            return SegmentRecord(
                segment,
                a_count(value["core_partitions"], "core_partitions"),
                _from_0(value["rows"], "rows"),
                _from_0(value["size_bytes"], "size_bytes"),
                value["digest"],
                _from_0(value["replicas"], "replicas"),
                a_flag(value["used"], "used"),
                a_flag(value["loaded"], "loaded"),
                a_count(value["generation"], "generation"),
                url,
                ingester,
            )

        return from_bytes(key, packed, read)


def _from_0(value: object, field: str) -> int:
    return 0 if value == 0 and type(value) is int else a_count(value, field)
