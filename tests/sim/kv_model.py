"""A key-value store with transactions, as a model for `linearizability`.

A request is executed by `store_rules` on what is known of the keys. An observed result that differs from that of the
rules is impossible; one that fits may add to the knowledge.

The state is the knowledge of each key: value, lease, and mod revision, or a bound of it as long as no result named the
revision. Mod revisions of a key only grow, which decides most orders at once. Only per key: the header revision of a
response may be ahead of what is released elsewhere, and proves no order between keys.

The expiry of leases is not visible to clients: a key with a lease may vanish at any time. Versions and create revisions
are not modelled, except whether they are 0: `lost_answers` drops writes that they depend on. Ranges have no order,
bounds or revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from palisade.metastore.errors import KeyNotFound
from palisade.metastore.requests import Range, Txn
from palisade.metastore.results import DeleteRangeResult, Event, KeyValue, PutResult, RangeResult, TxnResult
from tests.sim.kv_order import drawn_closer
from tests.sim.kv_spans import Resolved, grouped, spans_of, steps_of
from tests.sim.linearizability import Op
from tests.support.store_rules import Above, Execution, Taken, inside, taken

State = tuple[KeyValue, ...]
"""Of each key in order: `present` or `absent`."""
POSITIVE: Any = Above(0)


class Impossible(Exception):
    """A result that is impossible in this state."""


def present(key: bytes, value: bytes, mod_revision: Any, lease: int = 0) -> KeyValue:
    """`mod_revision`: a number, or `Above` one."""
    return KeyValue(key, value, POSITIVE, mod_revision, POSITIVE, lease)


def absent(key: bytes, since: int = 0) -> KeyValue:
    """`since`: it is written next at a later revision than this."""
    return KeyValue(key, b"", 0, since, 0, 0)


class KeyValues:
    """`keys`: all keys of the operations, sorted. Takes requests of `metastore`, with its results.

    `first`: initial values of keys, if there are any.
    """

    def __init__(self, keys: Sequence[bytes] = (), first: Mapping[bytes, KeyValue] | None = None) -> None:
        self._keys = tuple(keys)
        self._first = first or {}

    def parts(self, ops: Sequence[Op]) -> Iterable[tuple[KeyValues, Sequence[Op]]]:
        for keys, inside_group in grouped(ops, self._first):
            yield KeyValues(keys, self._first), drawn_closer(inside_group)

    def init(self) -> State:
        return tuple(self._first.get(key, absent(key)) for key in self._keys)

    def only_reads(self, op: Op) -> bool:
        if isinstance(op.asked, Txn):
            return isinstance(op.answered, TxnResult) and all(
                isinstance(asked, Range) for asked, _ in steps_of(op.asked, op.answered)
            )
        return isinstance(op.asked, Range)

    def describe(self, op: Op) -> str:
        return f"{op.asked} -> {'?' if op.answered is None else op.answered}"

    def step(self, state: State, op: Op) -> Iterator[State]:
        revision = getattr(op.answered, "revision", 0)
        result = None if isinstance(op.answered, Resolved) else op.answered
        for before in _vanished(state, op.asked):
            there = {row.key: row for row in before if row.version}
            for path in taken(there, op.asked):
                execution = Execution(there, 0, revision or POSITIVE)
                try:
                    for operation, answer in _answers(path, result):
                        expected = execution.run(operation)
                        if answer is not None:
                            _learn(execution.now, expected, answer)
                    after = _after(before, execution)
                except (Impossible, KeyNotFound):
                    continue
                yield after


def _vanished(state: State, request: Any) -> list[State]:
    """The state as it is, and without some of the keys that have leases and that the request is about."""
    leased = [row for row in state if row.lease]
    if not leased:
        return [state]
    spans = list(spans_of(request))
    leased = [row for row in leased if any(inside(row.key, start, end) for start, end in spans)]
    return [
        tuple(absent(row.key, _floor(row.mod_revision)) if row in gone else row for row in state)
        for many in range(len(leased) + 1)
        for gone in combinations(leased, many)
    ]


def _answers(path: Any, result: Any) -> list[tuple[Any, Any]]:
    """The operations in order, each with its result or None. Raises Impossible if another branch was taken."""
    if not isinstance(path, Taken):
        return [(path, result)]
    if result is not None and result.succeeded is not path.succeeded:
        raise Impossible
    results = (None,) * len(path.parts) if result is None else result.results
    return [each for part, answer in zip(path.parts, results, strict=True) for each in _answers(part, answer)]


def _learn(now: dict[bytes, KeyValue], expected: Any, answer: Any) -> None:
    """Raises Impossible if the results differ. A range also shows mod revisions that were not known."""
    if isinstance(expected, PutResult) and expected.prev_kv is None and answer.prev_kv is None:
        return
    (counts, rows), (counted, shown) = _content(expected), _content(answer)
    if counts != counted or len(rows) != len(shown):
        raise Impossible
    for row, kv in zip(rows, shown, strict=True):
        if row.key != kv.key or row.value != kv.value or row.lease != kv.lease:
            raise Impossible
        known: Any = row.mod_revision
        if not kv.mod_revision or kv.mod_revision == known:
            continue
        if not isinstance(known, Above) or kv.mod_revision <= known.floor:
            raise Impossible
        if isinstance(expected, RangeResult):
            now[row.key] = now[row.key]._replace(mod_revision=kv.mod_revision)


def _content(result: Any) -> tuple[Any, tuple[KeyValue, ...]]:
    """Its counts, and its rows."""
    match result:
        case RangeResult():
            return (result.more, result.count), result.kvs
        case DeleteRangeResult():
            return result.deleted, result.prev_kvs
    return None, () if result.prev_kv is None else (result.prev_kv,)


def _after(before: State, execution: Execution) -> State:
    now = execution.now
    if not execution.events:
        return tuple([now.get(row.key, row) for row in before])
    events = {event.kv.key: event for event in execution.events}
    return tuple(
        [_written(row, events[row.key], now) if row.key in events else now.get(row.key, row) for row in before]
    )


def _written(before: KeyValue, event: Event, now: Mapping[bytes, KeyValue]) -> KeyValue:
    """A key after its change. Raises Impossible unless that is later than the change before."""
    row: KeyValue = now.get(before.key, event.kv)
    mod: Any = row.mod_revision
    floor = _floor((event.prev_kv or before).mod_revision)
    is_known = not isinstance(mod, Above)
    if is_known and mod <= floor:
        raise Impossible
    if event.delete:
        return absent(row.key, mod if is_known else floor)
    return present(row.key, row.value, mod if is_known else Above(floor), row.lease)


def _floor(number: Any) -> int:
    return number.floor if isinstance(number, Above) else number
