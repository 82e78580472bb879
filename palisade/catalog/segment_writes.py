"""Which writes below palisade/segments/ are accepted: each row must be one that its key allows. Pure.

Clients write these rows by transactions of their own, since planning needs the whole manifest and its compare. Thus the
check is made for each row, and a client that is out of date or wrong cannot leave a row that no node can read.
"""

from __future__ import annotations

import json

from palisade.base.key_text import key_text
from palisade.catalog.errors import BadField, DamagedRow, NotAllowed
from palisade.catalog.publication import MANIFESTS, Manifest
from palisade.catalog.realtime import GIVEN_UP, GiveUp
from palisade.catalog.segment import ANNOUNCED, ASSIGNED, DIGEST, RECORDS, ROOT, SegmentRecord, announced_by
from palisade.metastore.requests import DeleteRange, Put, Txn


def check_writes(request: Txn) -> None:
    """Raises NotAllowed for an operation of another kind or key, BadField for a row that its key does not allow."""
    if request.failure:
        raise NotAllowed("a transaction of segments has no failure branch: leave it out")
    for operation in request.success:
        if isinstance(operation, Put):
            check_row(operation)
        elif not isinstance(operation, DeleteRange) or operation.range_end or not operation.key.startswith(ROOT):
            raise NotAllowed(f"a transaction of segments puts and deletes single keys below {ROOT.decode()}")


def check_row(row: Put) -> None:
    """Raises NotAllowed, BadField."""
    key, value = row.key, row.value
    if key.startswith(ANNOUNCED) != bool(row.lease):
        raise NotAllowed("announcements, and no other rows of segments, need a lease: without it they never end")
    try:
        if key.startswith(RECORDS):
            SegmentRecord.from_bytes(key, value)
        elif key.startswith(MANIFESTS):
            Manifest.from_bytes(key, value)
        elif key.startswith(ANNOUNCED):
            announced_by(key)
        elif key.startswith(ASSIGNED):
            check_assignment(value)
        elif key.startswith(GIVEN_UP):
            GiveUp.from_bytes(key, value)
        elif key != ASSIGNED[:-1]:
            raise NotAllowed(f"key {key_text(key)} is none of segments: see docs/segments.md")
    except DamagedRow as error:
        raise BadField(str(error)) from None


def check_data_node(request: Txn) -> None:
    """A data node writes announcements; and in the transaction that opens or publishes a realtime segment, its record,
    the manifest of its data source and its assignments. Raises NotAllowed, BadField."""
    rows = [each for each in request.success if isinstance(each, Put | DeleteRange)]
    others = [each for each in rows if not each.key.startswith(ANNOUNCED)]
    record = next((each for each in others if isinstance(each, Put) and each.key.startswith(RECORDS)), None)
    if not others:
        return
    try:
        found = None if record is None else SegmentRecord.from_bytes(record.key, record.value)
    except DamagedRow as error:
        raise BadField(str(error)) from None
    if found is None or not found.ingester:
        raise NotAllowed("a data node writes announcements, and the records of its realtime segments only")
    ending, allowed = f"/{found.segment}".encode(), {found.segment.key, Manifest(found.segment.data_source).key}
    for each in others:
        is_assignment = each.key.startswith(ASSIGNED) and each.key.endswith(ending)
        if not isinstance(each, Put) or not (each.key in allowed or is_assignment):
            raise NotAllowed(f"a data node that writes segment {found.segment} does not write {each.key[:100]!r}")


def check_assignment(value: bytes) -> None:
    """Raises BadField."""
    try:
        if DIGEST.fullmatch(json.loads(value)["digest"]):
            return
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise BadField(f"assignment: {key_text(value)} has no digest")
