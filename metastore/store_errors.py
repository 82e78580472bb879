"""What goes wrong below the state machine. Not refusals: the node stops, or the snapshot is asked for again."""

from __future__ import annotations


class StoreFailed(Exception):
    """The file can't be used: disk full, I/O error, no permission, in use. Stops the node; the log loses nothing."""


class SnapshotInvalid(Exception):
    """A received snapshot is not whole or not of this format; it is thrown away and asked for again."""


class SnapshotGone(Exception):
    """A snapshot that is being sent had to be given up: open a new one and send that from its beginning."""


class BackupInvalid(Exception):
    """A file is no whole backup of a known format: which, where, and what to do. Nothing was made of it."""
