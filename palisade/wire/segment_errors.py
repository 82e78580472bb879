"""Errors of segments: of copies on data nodes, of lookups and of publications."""

from __future__ import annotations

from collections.abc import Sequence

from palisade.base.counted import agreeing, counted
from palisade.base.errors import PalisadeError

MISSING_SHOWN = 5
"""In the text of an error; the error itself has all."""


class SegmentError(PalisadeError):
    """Root of the errors of segments. `retry`: the same call may succeed later without intervention."""

    code = "segment-refused"
    retry = False


class BadSegment(SegmentError):
    """An invalid name, assignment or content of a segment."""

    code = "bad-request"


class NoSuchSegment(SegmentError):
    """This node does not have the segment with the requested digest. Another node may."""

    code = "no-such-segment"
    retry = True


class UnknownSegment(SegmentError):
    """The cluster has no record of the segment."""

    code = "unknown-segment"


class NoRows(SegmentError):
    """The segment is no Parquet file, so its rows cannot be counted."""

    code = "segment-without-rows"


class FolderUnreadable(SegmentError):
    """The folder of the segments cannot be read. The node does not start."""


class NotFetched(SegmentError):
    """No source has the segment in this version, or it cannot be stored. The fetch is retried."""

    retry = True


class NotRemoved(SegmentError):
    """A file cannot be removed or moved. The operation is retried."""

    retry = True


class SegmentsUnavailable(SegmentError):
    """A query needs segments that no node serves. `missing`: all of them, by name."""

    code = "segments-unavailable"
    retry = True

    def __init__(self, missing: Sequence[str]) -> None:
        if isinstance(missing, str):
            missing = (missing,)
        shown = ", ".join(missing[:MISSING_SHOWN])
        more = f" and {len(missing) - MISSING_SHOWN} more" if len(missing) > MISSING_SHOWN else ""
        has = agreeing(len(missing), "has", "have")
        super().__init__(
            f"{counted(len(missing), 'segment')} {has} no server: {shown}{more}. Start the nodes that hold them, or "
            "query with on_missing=warn for what is left"
        )
        self.missing = tuple(missing)


class BrokerNotSynced(SegmentError):
    """The broker has not read the records and announcements yet. It answers after its first sync."""

    code = "broker-not-synced"
    retry = True


class NoSuchDataSource(SegmentError):
    code = "no-such-data-source"


class PublicationOvertaken(SegmentError):
    """Other publications of the data source were first, repeatedly. Nothing of this one is visible."""

    code = "publication-overtaken"
    retry = True


class NoMemberKnown(SegmentError):
    """A data node knows no member of the cluster yet, so it cannot announce its copies."""

    retry = True


class RealtimeRefused(SegmentError):
    """An ingester does not accept these rows, or this position."""

    code = "realtime-refused"


class RealtimeFull(SegmentError):
    """The segment has as many rows as a segment may have. Close it and open the next one."""

    code = "realtime-full"


class RealtimeNotStored(SegmentError):
    """The disk of the ingester has failed, is full, or cannot be read. Rows that were sent may be stored: when its node
    has started again, repeat them with their position."""

    code = "realtime-not-stored"


class RealtimeDamaged(SegmentError):
    """Stored rows of a realtime segment cannot be read. Its node stores and serves none of it any more, so queries
    report it as missing until an operator decides."""

    code = "realtime-damaged"


class RealtimeOpening(SegmentError):
    """A realtime segment is not open yet, and its node continues to open it: repeat the request with the same writer,
    at the same node."""

    code = "realtime-opening"
    retry = True


class NotIngesting(SegmentError):
    """The ingester cannot acknowledge rows or open segments now. Rows that were sent may have been stored: repeat them
    with their position. A refused opening has opened nothing."""

    code = "realtime-not-announced"
    retry = True
