"""Errors of partitions, and of segments."""

from __future__ import annotations

from collections.abc import Sequence

from palisade.base.errors import PalisadeError

MISSING_SHOWN = 5
"""In the text of an error; the error itself has all."""


class PartitionError(PalisadeError):
    """Root of the errors of partitions. `retry`: the same call may succeed later without intervention."""

    retry = False


class BadPartition(PartitionError):
    """An invalid name, assignment or content of a partition."""

    code = "bad-request"


class NoSuchPartition(PartitionError):
    """This node does not have the partition in the requested version. Another node may."""

    code = "no-such-partition"
    retry = True


class FolderUnreadable(PartitionError):
    """The folder of the partitions cannot be read. The node does not start."""


class NotFetched(PartitionError):
    """No source has the partition in this version, or it cannot be stored. The fetch is retried."""

    retry = True


class NotRemoved(PartitionError):
    """A file cannot be removed or moved. The operation is retried."""

    retry = True


class SegmentError(PalisadeError):
    """Root of the errors of lookups and publications of segments."""

    code = "segment-refused"


class SegmentsUnavailable(SegmentError):
    """A query needs segments that no node serves. `missing`: all of them, by name."""

    code = "segments-unavailable"
    retry = True

    def __init__(self, missing: Sequence[str]) -> None:
        shown = ", ".join(missing[:MISSING_SHOWN])
        more = f" and {len(missing) - MISSING_SHOWN} more" if len(missing) > MISSING_SHOWN else ""
        super().__init__(
            f"{len(missing)} segments have no server: {shown}{more}. Start the nodes that hold them, or query with "
            "on_missing=warn for what is left"
        )
        self.missing = tuple(missing)


class BrokerNotSynced(SegmentError):
    """The broker has not read the records and announcements yet. It answers after its first sync."""

    code = "broker-not-synced"
    retry = True


class NoSuchDataSource(SegmentError):
    code = "no-such-data-source"
