"""Errors of partitions. One tree."""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class PartitionError(PalisadeError):
    """Root. `retry`: the same call may succeed later without intervention."""

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
