"""The segment components of a node, for its API."""

from __future__ import annotations

from dataclasses import dataclass

from palisade.segments.holder import SegmentHolder
from palisade.segments.realtime import RealtimeIngester


@dataclass(frozen=True, slots=True)
class LocalSegments:
    """Empty for a node without --segments."""

    holder: SegmentHolder | None = None
    realtime: RealtimeIngester | None = None
