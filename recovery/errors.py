"""Errors that end a recovery, or an attempt: one tree, each error with its remedy."""

from __future__ import annotations

from palisade.base.errors import PalisadeError
from palisade.recovery.decision import Refuse


class RecoveryError(PalisadeError):
    """Root. `retry`: whether the same start may succeed later without intervention."""

    code = "recovery-failed"
    retry = False


class RecoveryRefused(RecoveryError):
    """The node must not start on this vault in this cluster (case d, or another refusal of `decision.py`)."""

    def __init__(self, refusal: Refuse) -> None:
        super().__init__(f"{refusal.what} What to do: {refusal.remedy}.")
        self.refusal = refusal


class SourceUnavailable(RecoveryError):
    """The metadata store is unreachable, or has no majority. Recovery waits and continues."""

    retry = True


class SourceCompacted(RecoveryError):
    """The requested data can no longer be read: it is below MM, given in `minimal_revision`, or of a history that a
    restore has ended. Recovery decides again, and usually changes to a snapshot."""

    retry = True

    def __init__(self, message: str, minimal_revision: int) -> None:
        super().__init__(message)
        self.minimal_revision = minimal_revision


class PinRefused(RecoveryError):
    """MM cannot be held: too many pins, or this one has reached its maximum life. Recovery continues without it."""

    retry = True


class ResourceMissing(RecoveryError):
    """An assigned resource is not available now. Recovery continues without it; the owner of the resources retries."""

    retry = True


class ChunkDamaged(RecoveryError):
    """A chunk of a snapshot arrived altered several times (check the network), or was sent incomplete."""

    retry = True


class DifferenceFailed(RecoveryError):
    """Everything was fetched, but some bucket sums differ: this source is damaged; another one may be sound."""

    retry = True
