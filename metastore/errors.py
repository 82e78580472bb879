"""The refusals of the metadata store: cause, limit, remedy. A refused request changes nothing (M8).

`code` is stable and sent on the wire; `retry` states whether the same request may succeed later. The text of a refusal
in `apply` is part of the replicated result, so all releases that run in one cluster must use the same text.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class MetastoreError(PalisadeError):
    """Root of the refusals."""

    code = "refused"
    retry = False


class KeyEmpty(MetastoreError):
    code = "key-empty"


class KeyTooLarge(MetastoreError):
    code = "key-too-large"


class ValueTooLarge(MetastoreError):
    code = "value-too-large"


class RequestTooLarge(MetastoreError):
    code = "request-too-large"


class TooManyOperations(MetastoreError):
    code = "too-many-operations"


class DuplicateKey(MetastoreError):
    """A transaction would write the same key twice in one revision."""

    code = "duplicate-key"


class InvalidRequest(MetastoreError):
    """Contradictory options, an unknown compare target, a wrong type."""

    code = "invalid-request"


class KeyNotFound(MetastoreError):
    """`ignore_value` or `ignore_lease` for a key that does not exist."""

    code = "key-not-found"


class SystemConflict(MetastoreError):
    """A system record has changed since the decision on which the write is based."""

    code = "system-conflict"
    retry = True


class Compacted(MetastoreError):
    """The requested revision is below MM, the minimal revision (in the text and in `minimal_revision`)."""

    code = "compacted"

    def __init__(self, message: str, minimal_revision: int = 0) -> None:
        super().__init__(message)
        self.minimal_revision = minimal_revision


class FutureRevision(MetastoreError):
    code = "future-revision"


class LeaseNotFound(MetastoreError):
    code = "lease-not-found"


class LeaseExists(MetastoreError):
    code = "lease-exists"


class LeaseTtlInvalid(MetastoreError):
    code = "lease-ttl-invalid"


class QuotaExceeded(MetastoreError):
    """The store has reached its quota: only reads, deletes, lease revokes and compaction are accepted."""

    code = "quota-exceeded"


class TooManyPins(MetastoreError):
    """The maximum number of pins is in use (M6)."""

    code = "too-many-pins"
    retry = True


class ResultEvicted(MetastoreError):
    """A retry whose first result is no longer stored: refused, not executed again (M3)."""

    code = "result-evicted"


class StoreCorrupt(MetastoreError):
    """Stored bytes do not match their checksum; they are never served. The text names the place and the remedy."""

    code = "corrupt"
