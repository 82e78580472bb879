"""Writes of announcements, one at a time: none is sent before the outcome of the previous one is known (issue 17).

An attempt that is delayed at a cut-off node may commit after later writes, such as an announcement after its
withdrawal, when the copy is gone. Thus each write has a request id, and a write with an unknown outcome is first sent
again under its id until the store returns its result. From then on, a delayed attempt changes nothing (M3).

The ids are those of one process. A write of an earlier process can commit while its lease is valid; the announcer then
withdraws the key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from palisade.base.errors import PalisadeError
from palisade.metastore.errors import MetastoreError
from palisade.metastore.requests import RequestId, Txn
from palisade.metastore.results import TxnResult
from palisade.raftgroup.errors import OutcomeUnknown
from palisade.wire.fencing_errors import ReleasePending

Send = Callable[[Txn, RequestId], Awaitable[TxnResult]]

_COMMITTED_OR_REFUSED = (MetastoreError, ReleasePending)


class SettledWrites:
    """`client`: identifies this process in request ids; must never be used twice. One `write` at a time."""

    def __init__(self, client: str, send: Send) -> None:
        self._client, self._transmit = client, send
        self._sequence = 0
        self._unsettled: tuple[Txn, RequestId] | None = None

    async def write(self, request: Txn) -> TxnResult:
        """Raises the errors of a write; OutcomeUnknown also if an earlier write could not be settled."""
        await self._settle()
        self._sequence += 1
        self._unsettled = request, RequestId(self._client, self._sequence)
        try:
            result = await self._transmit(*self._unsettled)
        except OutcomeUnknown:
            raise
        except PalisadeError:
            self._unsettled = None
            raise
        self._unsettled = None
        return result

    async def _settle(self) -> None:
        """Only a result or refusal by the store settles an earlier attempt; other errors are of this attempt only."""
        if self._unsettled is None:
            return
        try:
            await self._transmit(*self._unsettled)
        except _COMMITTED_OR_REFUSED:
            pass
        except PalisadeError as error:
            raise OutcomeUnknown(f"an earlier write of announcements has an unknown outcome: {error}") from error
        self._unsettled = None
