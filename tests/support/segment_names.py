"""Names of segments of the demo's data sources."""

from __future__ import annotations

from palisade.catalog.demo.segments import DAY_MS, midnight_ms
from palisade.catalog.segment import Segment
from palisade.catalog.timeline import Interval, SegmentId


def segment(day: int, data_source: str = "flights", *, version: int = 1, month: int = 1) -> Segment:
    """Of one day of 2013."""
    start_ms = midnight_ms(2013, month, day)
    return Segment(data_source, SegmentId(Interval(start_ms, start_ms + DAY_MS), version, 0))


def name(day: int, data_source: str = "flights", *, version: int = 1, month: int = 1) -> str:
    return str(segment(day, data_source, version=version, month=month))
