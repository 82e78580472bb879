"""Detects the reuse of a request id for a request of another kind.

The store compares ids and not requests (M3), so the result it has stored for an id may belong to another kind of
request.
"""

from __future__ import annotations

from typing import Any

from palisade.metastore.errors import InvalidRequest
from palisade.metastore.requests import (
    Command,
    Compact,
    CopyChunk,
    DeleteRange,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Put,
    RequestId,
    Txn,
)
from palisade.metastore.results import CompactResult, DeleteRangeResult, DoneResult, LeaseResult, PutResult, TxnResult

ANSWERS: dict[type, type] = {
    Put: PutResult,
    DeleteRange: DeleteRangeResult,
    Txn: TxnResult,
    Compact: CompactResult,
    LeaseGrant: LeaseResult,
    LeaseKeepAlive: LeaseResult,
    LeaseRevoke: LeaseResult,
    CopyChunk: DoneResult,
}


def check_answers(result: Any, request: Command, request_id: RequestId) -> None:
    """Raises InvalidRequest if it is the result of a request of another kind."""
    expected = ANSWERS.get(type(request))
    if expected is not None and not isinstance(result, expected):
        raise InvalidRequest(
            f"the request id {request_id.client}/{request_id.sequence} was used before for a request of another kind: "
            "nothing was done. Use a new sequence number for each write"
        )
