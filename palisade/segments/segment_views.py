"""The answers of a broker as JSON, for the APIs and the command line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palisade.base.counted import counted
from palisade.catalog.segment import Segment, time_text
from palisade.catalog.segment_json import record_shape
from palisade.segments.broker_view import OnMissing, SegmentAnswer, SegmentState


def answer_view(data_source: str, answer: SegmentAnswer, on_missing: OnMissing) -> dict[str, Any]:
    """Shape `SegmentLookup` of the API."""
    found: dict[str, Any] = {
        "data_source": data_source,
        "revision": answer.revision,
        "complete": not answer.missing,
        "segments": [
            {
                "segment": str(part.segment),
                "from": time_text(part.start_ms),
                "to": time_text(part.end_ms),
                "nodes": list(part.nodes),
                "realtime": part.realtime,
            }
            for part in answer.parts
        ],
        "missing": names(answer.missing),
        "unserved": names(answer.unserved),
    }
    if answer.missing and on_missing is OnMissing.WARN:
        found["warning"] = f"the answer is not complete: {counted(len(answer.missing), 'segment')} without a server"
    return found


def names(segments: Sequence[Segment]) -> list[str]:
    return [str(segment) for segment in segments]


def state_view(state: SegmentState) -> dict[str, Any]:
    """Shape `SegmentState` of the API."""
    return {**record_shape(state.record), "state": state.phase.value, "nodes": list(state.nodes)}
