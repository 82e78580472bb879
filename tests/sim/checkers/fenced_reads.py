"""No read of a key is older than an earlier result: no stale read, no new-then-old, at any node (issue 4).

The checker of linearizability implies this, and more; this one is fast and names both sides: the result, and the newer
one that was returned, or acknowledged, before the request began. The order is that of commits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from palisade.metastore.requests import Range
from tests.sim.checkers.durable import revisions_of
from tests.sim.history import History
from tests.sim.seen import FENCED, Begun, Ended, Operation, Path
from tests.sim.truth import Truth
from tests.support.store_rules import inside


def check(history: History, strict: tuple[bytes, ...] = (b"s/",)) -> list[str]:
    """`strict`: the prefixes of which fenced reads are linearizable, all the time."""
    truth = Truth(history)
    operations = {operation.number: operation for operation in history.operations()}
    known = {key: (truth.changed(key, truth.base), "the backup") for key in truth.keys if truth.base}
    floors: dict[int, dict[bytes, tuple[int, str]]] = {}
    found: list[str] = []
    for event in history.events:
        if isinstance(event, Begun):
            floors[event.number] = dict(known)
        elif isinstance(event, Ended):
            operation = operations[event.number]
            for key, versions in _versions(operation, truth, strict):
                floor, by = floors[event.number].get(key, (0, ""))
                revision = _fitting(versions, floor)
                name = f"{operation.client} ({operation.path.value} at {operation.node}, operation {operation.number})"
                if not operation.is_read:
                    revision = versions[0]  # Perhaps the result of a retry of an old request.
                if revision is None:
                    found.append(f"{name} got {key!r} as of {versions[-1]}, {floor} had been returned by {by} before")
                elif revision > known.get(key, (0, ""))[0]:
                    known[key] = revision, name
    return found


def _fitting(revisions: list[int], floor: int) -> int | None:
    """The oldest that is not too old: a missing key may have been deleted several times."""
    place = bisect_left(revisions, floor)
    return revisions[place] if place < len(revisions) else None


def _versions(operation: Operation, truth: Truth, strict: tuple[bytes, ...]) -> Iterator[tuple[bytes, list[int]]]:
    """(key, the revisions that the result may be of) of results that must be the newest."""
    request, result = operation.request, operation.result
    if result is None:
        return
    if not operation.is_read:
        for revision in revisions_of(operation):
            committed = truth.revisions.get(revision)
            for event in committed.events if committed else ():
                yield event.kv.key, [revision]
    if isinstance(request, Range) and operation.path is not Path.LOCAL and _is_whole(request):
        rows = {kv.key: kv.mod_revision for kv in result.kvs}
        for key in _keys(request, rows, truth):
            if rows.get(key) == 0 or (operation.path in FENCED and not key.startswith(strict)):
                continue
            yield key, [rows[key]] if key in rows else truth.gone(key)


def _is_whole(request: Range) -> bool:
    plain = Range(request.key, request.range_end, keys_only=request.keys_only)
    return request == plain


def _keys(request: Range, rows: Iterable[bytes], truth: Truth) -> list[bytes]:
    return sorted({*rows, *(key for key in truth.keys if inside(key, request.key, request.range_end))})
