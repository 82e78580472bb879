"""What fencing answers instead of a result: each says whether the change is committed and whether a retry helps."""

from __future__ import annotations

from palisade.fencing.errors import FencingError
from palisade.metastore.errors import InvalidRequest


class ReleaseError(FencingError):
    """Something committed is not released yet: it becomes visible by itself, and the same request may be sent again."""

    retry = True


class ReleasePending(ReleaseError):
    """The write is committed at `revision` and stays so; not every node has stopped showing what it replaces (F8).

    It becomes visible by itself, at most T_proceed after the commit. A retry with the same request id is harmless.
    """

    code = "release-pending"

    def __init__(self, message: str, revision: int = 0) -> None:
        super().__init__(message)
        self.revision = revision

    @staticmethod
    def of(revision: int, waits_for: str) -> ReleasePending:
        return ReleasePending(
            f"the write is committed at revision {revision}, and not released yet{waits_for}: it stays, and becomes "
            "visible by itself. Read it, or ask with a longer deadline; do not write it again without a request id",
            revision,
        )


class ReadPending(ReleaseError):
    """What was read has a strict change that is not released yet, and was not in time. Nothing was answered; retry."""

    code = "read-pending"


class ReservedKey(InvalidRequest):
    """Keys under `palisade/` belong to the cluster: regions and the catalog have their own API."""

    code = "reserved-key"
