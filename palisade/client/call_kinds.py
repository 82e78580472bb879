"""Which calls of the stream change something, and which of these may be sent twice.

A call that is missing here cannot be made; `tests/client/test_call_kinds.py` compares the table with the node's calls.
"""

from __future__ import annotations

import enum


class CallKind(enum.Enum):
    """`READ` changes nothing. `CHANGE` must not be sent twice. `REPEATABLE_CHANGE` has an id of its own, by which the
    node finds it when it is sent again, or has the same effect twice."""

    READ = enum.auto()
    CHANGE = enum.auto()
    REPEATABLE_CHANGE = enum.auto()

    @property
    def repeatable(self) -> bool:
        return self is not CallKind.CHANGE

    @property
    def writes(self) -> bool:
        return self is not CallKind.READ


READ, CHANGE, REPEATABLE_CHANGE = CallKind

CALL_KINDS: dict[str, CallKind] = {
    "ping": READ,
    "status": READ,
    "members": READ,
    "topology": READ,
    "fencing": READ,
    "regions": READ,
    "digest": READ,
    "lease_info": READ,
    "leases": READ,
    "catalog_objects": READ,
    "catalog_object": READ,
    "procedures": READ,
    "procedure": READ,
    "scan_count": READ,
    "scan_windows": READ,
    "scan_rows": READ,
    "scan_changes": READ,
    "scan_since": READ,
    "scan_bytes": READ,
    "pin": REPEATABLE_CHANGE,
    "unpin": REPEATABLE_CHANGE,
    "segments_lookup": READ,
    "segments_list": READ,
    "segment": READ,
    "catalog_do": REPEATABLE_CHANGE,
    "procedure_cancel": CHANGE,
    "member_add": CHANGE,
    "member_promote": CHANGE,
    "member_remove": CHANGE,
    "transfer": CHANGE,
    "region_set": CHANGE,
    "region_change": CHANGE,
    "region_delete": CHANGE,
    "segments_txn": REPEATABLE_CHANGE,
    "segments_announce": REPEATABLE_CHANGE,
    "segments_lease": CHANGE,
}
