"""Errors below the state machine. Not refusals: the node stops, or the snapshot is requested again."""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class StoreFailed(PalisadeError):
    """The file cannot be used: disk full, I/O error, no permission, in use. Stops the node; the log loses nothing."""

    code = "store-failed"


class BackupInvalid(PalisadeError):
    """Not a complete backup of a known format: cause, place, remedy. Nothing was created from it."""

    code = "bad-backup"
