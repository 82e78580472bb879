"""What ends a recovery, or a try of it: one tree, each error with what to do."""

from __future__ import annotations

from palisade.base.errors import PalisadeError
from palisade.recovery.decision import Refuse


class RecoveryError(PalisadeError):
    """Root. `retry` says whether the same start may succeed later, with nothing changed by hand."""

    code = "recovery-failed"
    retry = False


class RecoveryRefused(RecoveryError):
    """The node must not start on this vault in this cluster (case d and its relatives)."""

    def __init__(self, refusal: Refuse) -> None:
        super().__init__(f"{refusal.what} What to do: {refusal.remedy}.")
        self.refusal = refusal


class SourceUnavailable(RecoveryError):
    """The meta storage can't be reached, or has no majority, now. Recovery waits and goes on."""

    retry = True


class SourceCompacted(RecoveryError):
    """What was asked for can't be read any more: it is below MM, which `minimal_revision` says, or of a history that a
    restore has ended. Recovery decides anew, and mostly goes over to a snapshot."""

    retry = True

    def __init__(self, message: str, minimal_revision: int) -> None:
        super().__init__(message)
        self.minimal_revision = minimal_revision


class PinRefused(RecoveryError):
    """MM can't be held: too many pins, or this one has lived as long as one may. Recovery goes on without it."""

    retry = True


class ResourceMissing(RecoveryError):
    """What is assigned here can't be had now. Recovery goes on without it; whoever holds resources tries it again."""

    retry = True


class ChunkDamaged(RecoveryError):
    """A chunk of a snapshot is not what was sent, again and again (check the network), or was sent half."""

    retry = True


class DifferenceFailed(RecoveryError):
    """Everything was fetched, and some buckets still do not add up: this source is damaged; another may be sound."""

    retry = True
