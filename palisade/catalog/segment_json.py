"""Records of segments as JSON: what users publish and what they see. Pure.

{"from": "2013-03-01", "to": "2013-03-02", "version": 1, "partition": 0, "core_partitions": 1, "rows": 958,
 "size_bytes": 40110, "digest": "rows-sha256:...", "replicas": 2, "url": "file:///data/flights/2013-03-01.parquet"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from palisade.catalog.errors import BadField
from palisade.catalog.row_format import SHOWN, a_count, a_name, shown
from palisade.catalog.segment import Segment, SegmentRecord, moment_ms, parse_segment
from palisade.catalog.timeline import Interval, SegmentId

DEFAULTS = {"version": 1, "partition": 0, "core_partitions": 1, "replicas": 2, "url": ""}
NEEDED = ("from", "to", "rows", "size_bytes", "digest")


def record_from(data_source: str, given: Any) -> SegmentRecord:
    """Raises BadField."""
    if not isinstance(given, Mapping):
        raise BadField(f"segments: {shown(given)} is not an object with {', '.join(NEEDED)}")
    if unknown := given.keys() - {*DEFAULTS, *NEEDED}:
        raise BadField(f"segments: unknown field {shown(min(map(str, unknown)))}; known are {', '.join(_known())}")
    if missing := [name for name in NEEDED if name not in given]:
        raise BadField(f"segments: {_as_json(given)} has no field {missing[0]}; needed are {', '.join(NEEDED)}")
    fields = {**DEFAULTS, **given}
    if type(fields["digest"]) is not str:
        raise BadField(f"digest: {shown(fields['digest'])} is not a text")
    if type(fields["url"]) is not str:
        raise BadField(f"url: {shown(fields['url'])} is not a text")
    segment = Segment(
        a_name(data_source, "data_source"),
        SegmentId(interval_of(fields["from"], fields["to"]), from_0(fields, "version"), from_0(fields, "partition")),
    )
    return SegmentRecord(
        segment,
        a_count(fields["core_partitions"], "core_partitions"),
        from_0(fields, "rows"),
        from_0(fields, "size_bytes"),
        fields["digest"],
        from_0(fields, "replicas"),
        url=fields["url"],
    )


def _as_json(given: Mapping[str, Any]) -> str:
    text = json.dumps(dict(given), default=repr)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def _known() -> list[str]:
    return [*NEEDED, *DEFAULTS]


def from_0(fields: Mapping[str, Any], name: str) -> int:
    value = fields[name]
    return 0 if value == 0 and type(value) is int else a_count(value, name)


def interval_of(start: Any, end: Any) -> Interval:
    """Raises BadField."""
    if type(start) is not str or type(end) is not str:
        raise BadField("from, to: give times such as 2013-03-01")
    found = Interval(moment_ms(start), moment_ms(end))
    if found.start_ms >= found.end_ms:
        raise BadField(f"from, to: {start} is not before {end}")
    return found


def segments_of(names: Any) -> list[Segment]:
    """Raises BadField."""
    if type(names) is not list or not all(type(name) is str for name in names):
        raise BadField("segments: give a list of names")
    return [parse_segment(name) for name in names]


def record_shape(record: SegmentRecord) -> dict[str, Any]:
    return {
        "segment": str(record.segment),
        "rows": record.rows,
        "size_bytes": record.size_bytes,
        "digest": record.digest,
        "core_partitions": record.core_partitions,
        "replicas": record.replicas,
        "used": record.used,
        "loaded": record.loaded,
        "generation": record.generation,
        **({"url": record.url} if record.url else {}),
        **({"ingester": record.ingester} if record.ingester else {}),
    }
