"""Writes below palisade/segments/ on behalf of clients: checked row by row, and answered once released."""

from __future__ import annotations

from palisade.catalog.segment_writes import check_data_node, check_writes
from palisade.metastore.requests import LeaseGrant, LeaseKeepAlive, RequestId, Txn
from palisade.metastore.results import LeaseResult, TxnResult
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues


async def write_segments(service: KeyValues, request: Txn, request_id: RequestId | None = None) -> TxnResult:
    """The caller's rights must be checked before. Raises BadField, NotAllowed and the errors of a write."""
    check_writes(request)
    result: TxnResult = await service.write(request, request_id, caller=THIS_NODE)
    return result


async def announce(service: KeyValues, request: Txn, request_id: RequestId | None = None) -> TxnResult:
    """On behalf of a data node. Raises NotAllowed for other rows than announcements and those of its realtime segments,
    and as `write_segments`."""
    check_data_node(request)
    return await write_segments(service, request, request_id)


async def lease_of_announcements(service: KeyValues, lease: int, ttl_ms: int) -> int:
    """Renews a lease, or grants one if `lease` is 0. Returns its id. Raises LeaseNotFound, and as a write."""
    request = LeaseKeepAlive(lease) if lease else LeaseGrant(ttl_ms)
    result: LeaseResult = await service.write(request, caller=THIS_NODE)
    return result.id
