"""What can go wrong with partitions: one tree, each with what to do."""

from __future__ import annotations

from base.errors import PalisadeError


class PartitionError(PalisadeError):
    """Root. `retry` says whether the same may succeed later, with nothing changed by hand."""

    retry = False


class BadPartition(PartitionError):
    """A name or an assignment that can't be read."""

    code = "bad-request"


class NoSuchPartition(PartitionError):
    """This node does not hold it, or not in that version. Another one may."""

    code = "no-such-partition"
    retry = True


class FolderUnreadable(PartitionError):
    """What is here can't be listed. The node does not start on it."""


class NotFetched(PartitionError):
    """Nobody who was asked has it in this version, or there is no room for it. It is tried again."""

    retry = True


class NotRemoved(PartitionError):
    """The disk refuses to let go of a file. It is tried again."""

    retry = True
