"""What the catalog needs of the world: the meta storage, PROCEED, and a wall clock for its history."""

from __future__ import annotations

from typing import Protocol

from palisade.base.errors import PalisadeError
from palisade.metastore.requests import Range, Txn
from palisade.metastore.results import RangeResult, TxnResult


class ReleaseRefused(PalisadeError):
    """The verdict on a revision is FAIL: a node that can't fence itself does not answer. The text names it."""

    code = "release-refused"


class CatalogStore(Protocol):
    """Whatever else a call raises means that nothing is known: look again, later."""

    async def range(self, request: Range) -> RangeResult:
        """As committed, linearizable; whole, however large it is."""
        ...

    async def txn(self, request: Txn) -> TxnResult: ...

    async def released(self, revision: int) -> None:
        """Returns on PROCEED: no node shows anything any more that a strict revision up to this one has replaced.

        However long that takes. Raises ReleaseRefused.
        """
        ...

    def now_ms(self) -> int:
        """Of the wall clock."""
        ...
