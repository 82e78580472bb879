"""Errors that fencing returns instead of a result: each states whether the change is committed and whether a retry
helps.
"""

from __future__ import annotations

from palisade.fencing.errors import FencingError
from palisade.metastore.errors import InvalidRequest


class ReleaseError(FencingError):
    """A committed change is not released yet: it becomes visible without intervention, and the request may be sent
    again.
    """

    retry = True


class ReleasePending(ReleaseError):
    """The write is committed at `revision`; some nodes may still serve the old value (F8).

    It becomes visible at most T_proceed after the commit. A retry with the same request id is harmless.
    """

    code = "release-pending"

    def __init__(self, message: str, revision: int = 0) -> None:
        super().__init__(message)
        self.revision = revision

    @staticmethod
    def of(revision: int, waits_for: str) -> ReleasePending:
        return ReleasePending(
            f"the write is committed at revision {revision} and not released yet{waits_for}: it becomes visible "
            "without intervention. Read it, or use a longer deadline; do not repeat it without a request id",
            revision,
        )


class ReadPending(ReleaseError):
    """The read data has a strict change that was not released within the deadline. Nothing was returned; retry."""

    code = "read-pending"


class ReservedKey(InvalidRequest):
    """Keys under `palisade/` belong to the cluster: regions and the catalog have their own API."""

    code = "reserved-key"
