"""Writes below palisade/segments/ on behalf of clients: checked row by row, and answered once released."""

from __future__ import annotations

from palisade.catalog.segment_writes import check_writes
from palisade.metastore.requests import Txn
from palisade.metastore.results import TxnResult
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues


async def write_segments(service: KeyValues, request: Txn) -> TxnResult:
    """The caller's rights must be checked before. Raises BadField, NotAllowed and the errors of a write."""
    check_writes(request)
    result: TxnResult = await service.write(request, caller=THIS_NODE)
    return result
