"""Every refusal of the meta storage: what, which limit, what to do. A refused request changes nothing (M8).

`code` is stable and travels on the wire; `retry` says whether the same request may help later.
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
    """Options that contradict each other, an unknown compare target, a bad type."""

    code = "invalid-request"


class KeyNotFound(MetastoreError):
    """`ignore_value` or `ignore_lease` of a key that does not exist."""

    code = "key-not-found"


class SystemConflict(MetastoreError):
    """A system record is not the one that the write was decided on."""

    code = "system-conflict"
    retry = True


class Compacted(MetastoreError):
    """The revision asked for is below MM, the minimal revision, which the text and `minimal_revision` name."""

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
    """The store has reached its quota: only reads, deletes, lease revokes and compaction go on."""

    code = "quota-exceeded"


class TooManyPins(MetastoreError):
    """As many pins as there may be hold MM already (M6)."""

    code = "too-many-pins"
    retry = True


class ResultEvicted(MetastoreError):
    """A retry so late that its first result is forgotten: refused, not executed again (M3)."""

    code = "result-evicted"


class StoreCorrupt(MetastoreError):
    """Stored bytes fail their checksum; never served. The text names the place and the remedy."""

    code = "corrupt"
