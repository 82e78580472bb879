"""The ports of the catalog: the metadata store, PROCEED, and a wall clock for its history."""

from __future__ import annotations

from typing import Protocol

from palisade.base.errors import PalisadeError
from palisade.metastore.requests import Range, Txn
from palisade.metastore.results import RangeResult, TxnResult


class ReleaseRefused(PalisadeError):
    """The verdict on a revision is FAIL: a node without leases does not answer. The text names it."""

    code = "release-refused"


class CatalogStore(Protocol):
    """Any other exception of a call means that its outcome is unknown: read again later."""

    async def range(self, request: Range) -> RangeResult:
        """Linearizable, and complete whatever its size."""
        ...

    async def txn(self, request: Txn) -> TxnResult: ...

    async def released(self, revision: int) -> None:
        """Returns on PROCEED: no node serves a value that a strict revision up to this one has replaced.

        Waits without a time limit. Raises ReleaseRefused.
        """
        ...

    def now_ms(self) -> int:
        """Wall clock time."""
        ...
