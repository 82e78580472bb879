"""What the revisions in results imply about when an operation took effect: its times, narrowed.

A write of a key is ordered after every write, and every read, of a smaller mod revision of that key; so it took effect
after those began, and they before it ended. This is no new rule: it follows from the model, and spares the search some
attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from palisade.metastore.requests import DeleteRange, Put
from tests.sim.kv_spans import rows_of, steps_of
from tests.sim.linearizability import Op

WRITES, READS = 0, 1


def drawn_closer(ops: Sequence[Op]) -> list[Op]:
    """The same operations in the same order, each with the earliest and latest possible times."""
    begins = [float(op.began) for op in ops]
    ends = [inf if op.ended is None else float(op.ended) for op in ops]
    for places in _places(ops).values():
        _draw(places, begins, ends)
    return [
        op
        if op.ended is None
        else replace(op, began=int(begins[number]), ended=int(ends[number]), places=(op.began, op.ended))
        for number, op in enumerate(ops)
    ]


def _places(ops: Sequence[Op]) -> dict[bytes, list[tuple[int, int, int]]]:
    """For each key: (mod revision, writes or reads it, number of the operation), in this order."""
    found: dict[bytes, list[tuple[int, int, int]]] = {}
    for number, op in enumerate(ops):
        for kv in rows_of(op.answered):
            if kv.mod_revision:
                found.setdefault(kv.key, []).append((kv.mod_revision, READS, number))
        for key, revision in written_by(op):
            found.setdefault(key, []).append((revision, WRITES, number))
    return {key: sorted(places) for key, places in found.items()}


def written_by(op: Op) -> Iterator[tuple[bytes, int]]:
    """Each key that it is known to have written, with the revision in its result."""
    for asked, answered in steps_of(op.asked, op.answered):
        revision = getattr(answered, "revision", 0)
        is_write = isinstance(asked, Put) or (
            isinstance(asked, DeleteRange) and not asked.range_end and getattr(answered, "deleted", 0)
        )
        if revision and is_write:
            yield asked.key, revision


def _draw(places: list[tuple[int, int, int]], begins: list[float], ends: list[float]) -> None:
    latest, pending, at = -inf, -inf, (0, 0)
    for revision, kind, number in places:
        if (revision, kind) != at:
            latest, at = max(latest, pending), (revision, kind)
        begins[number] = max(begins[number], latest)
        pending = max(pending, begins[number])
    earliest, pending, at = inf, inf, (0, 0)
    for revision, kind, number in reversed(places):
        if (revision, kind) != at:
            earliest, at = min(earliest, pending), (revision, kind)
        ends[number] = min(ends[number], earliest)
        pending = min(pending, ends[number])
