"""When a data node may withdraw the announcement of a copy. Pure (S2, S5, issue 17).

The transaction that withdraws a copy which is still needed compares that every other assigned node announces the
segment. Thus a move never leaves a segment without a server: if two nodes withdraw at the same time, the second
transaction fails, because the announcement of the first node is gone. The withdrawal has a later revision than the
other announcements, and revisions are released in order. Thus once it is released, every broker has the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Protocol

from palisade.catalog.segment import Segment, SegmentRecord
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put
from palisade.metastore.results import TxnResult

Guard = tuple[Compare, ...]


class AnnouncementStore(Protocol):
    """How a data node writes its announcements. Every method raises the errors of `palisade.Client`."""

    async def lease(self, lease: int, ttl_ms: int) -> int:
        """Renew the lease, or grant one if it is 0. Returns its id. Raises LeaseNotFound."""
        ...

    async def announce(self, compare: Iterable[Compare], writes: Iterable[Put | DeleteRange]) -> TxnResult:
        """Returns once it is released."""
        ...

    async def close(self) -> None: ...


def is_needed(record: SegmentRecord | None) -> bool:
    """Whether queries may count on copies of the segment."""
    return record is not None and record.used and record.replicas > 0


def withdrawal_guard(
    node: str, segment: Segment, found: tuple[SegmentRecord, int] | None, assigned: Set[str], announced: Set[str]
) -> Guard | None:
    """The compares of the transaction that withdraws a copy of `node`; None: it must not be withdrawn yet.

    `found`: the record and its revision. `assigned`, `announced`: the nodes that have or announce the segment.
    """
    if found is None:
        return (Compare(segment.key, CompareTarget.CREATE, CompareResult.EQUAL, 0),)
    record, revision = found
    if not is_needed(record):
        return (Compare(segment.key, CompareTarget.MOD, CompareResult.EQUAL, revision),)
    others = assigned - {node}
    if not others or not others <= announced:
        return None
    return tuple(
        Compare(segment.announcement_key(other), CompareTarget.CREATE, CompareResult.GREATER, 0)
        for other in sorted(others)
    )


def is_known(segment: Segment) -> Compare:
    """An announcement of a segment without a record is refused."""
    return Compare(segment.key, CompareTarget.CREATE, CompareResult.GREATER, 0)
