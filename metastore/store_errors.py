"""What goes wrong below the state machine. Not refusals: the node stops, or the snapshot is asked for again."""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class StoreFailed(PalisadeError):
    """The file can't be used: disk full, I/O error, no permission, in use. Stops the node; the log loses nothing."""

    code = "store-failed"


class BackupInvalid(PalisadeError):
    """A file is no whole backup of a known format: which, where, and what to do. Nothing was made of it."""

    code = "bad-backup"
