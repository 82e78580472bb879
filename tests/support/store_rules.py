"""The store's rules of keys, as plainly as possible: compares, branches of transactions, puts, deletes, ranges.

The tests hold them once. `meta_model` executes requests on the whole state; `sim/kv_model` on what results have shown,
where a revision or version may be `Above` a number. Then a compare may be undecided, and a transaction may take either
branch.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from palisade.metastore.errors import KeyNotFound
from palisade.metastore.requests import (
    FROM_KEY,
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    Put,
    Range,
    SortOrder,
    SortTarget,
    Txn,
)
from palisade.metastore.results import DeleteRangeResult, Event, KeyValue, PutResult, RangeResult, TxnResult

State = dict[bytes, KeyValue]
"""The keys that exist."""


class Above(NamedTuple):
    """A number that is only known to be greater than `floor`."""

    floor: int

    def __add__(self, more: Any) -> Any:
        return Above(self.floor + more)


def inside(key: bytes, start: bytes, end: bytes) -> bool:
    """Whether a key is in a range, in etcd's notation."""
    return key == start if not end else key >= start and (end == FROM_KEY or key < end)


def rows(state: State, start: bytes, end: bytes) -> list[KeyValue]:
    """Those of a range, in the order of keys."""
    if not end:
        return [state[start]] if start in state else []
    return [state[key] for key in sorted(key for key in state if inside(key, start, end))]


# Compares


FIELDS = {
    CompareTarget.VERSION: "version",
    CompareTarget.CREATE: "create_revision",
    CompareTarget.MOD: "mod_revision",
    CompareTarget.VALUE: "value",
    CompareTarget.LEASE: "lease",
}
RELATIONS = {
    CompareResult.EQUAL: operator.eq,
    CompareResult.NOT_EQUAL: operator.ne,
    CompareResult.GREATER: operator.gt,
    CompareResult.LESS: operator.lt,
}
_LAST = 1 << 63


def verdict(state: State, compare: Compare) -> bool | None:
    """Whether it holds; None if the knowledge of the keys does not decide it."""
    found = rows(state, compare.key, compare.range_end)
    if not found and compare.target is CompareTarget.VALUE:
        return False
    return _all([_compared(row, compare) for row in found or [KeyValue(compare.key, b"", 0, 0, 0, 0)]])


def _compared(row: KeyValue, compare: Compare) -> bool | None:
    actual: Any = getattr(row, FIELDS[compare.target])
    relation, operand = RELATIONS[compare.result], compare.operand
    if not isinstance(actual, Above):
        return bool(relation(actual, operand))
    least: Any = actual.floor + 1
    possible = {relation(number, operand) for number in (least, max(least, operand), _LAST)}
    return possible.pop() if len(possible) == 1 else None


def _all(verdicts: list[bool | None]) -> bool | None:
    return False if False in verdicts else None if None in verdicts else True


# Transactions


@dataclass(frozen=True, slots=True)
class Undecided(Txn):
    """A transaction with further compares, of keys of which nothing is known: those may fail."""


class Taken(NamedTuple):
    """A transaction with the branch that it takes: its operations, and `Taken` of nested transactions."""

    succeeded: bool
    parts: tuple[Any, ...]


def taken(state: State, request: Any) -> list[Any]:
    """Each possibility of a transaction as `Taken`; any other request as it is.

    Every compare, those of nested transactions too, is of the state before the whole.
    """
    if not isinstance(request, Txn):
        return [request]
    holds = _all([verdict(state, compare) for compare in request.compare])
    if holds and isinstance(request, Undecided):
        holds = None
    return [
        Taken(succeeded, parts)
        for succeeded in ((True, False) if holds is None else (holds,))
        for parts in product(*(taken(state, part) for part in (request.success if succeeded else request.failure)))
    ]


def operations(path: Any) -> list[Any]:
    """In order, those of nested transactions too. `path`: of `taken`."""
    return [each for part in path.parts for each in operations(part)] if isinstance(path, Taken) else [path]


# Operations


def check_kept(state: State, request: Put) -> None:
    """A put that keeps a value or a lease needs an existing key."""
    if (request.ignore_value or request.ignore_lease) and request.key not in state:
        raise KeyNotFound("")


class Execution:
    """One request. `now`: the state, at first that `before` it. The store has `revision` before it; `new` is that of
    its writes. `past`: the state of each earlier revision."""

    def __init__(self, before: State, revision: int, new: Any, past: Sequence[State] = ()) -> None:
        self.now = dict(before)
        self.events: list[Event] = []
        self._revision = revision
        self._new = new
        self._past = past

    @property
    def header(self) -> int:
        return self._new if self.events else self._revision

    def run(self, path: Any) -> Any:
        """The result. `path`: of `taken`."""
        match path:
            case Range():
                return self._read(path)
            case Put():
                return self._put(path)
            case DeleteRange():
                return self._delete(path)
        results = tuple(map(self.run, path.parts))
        return TxnResult(self.header, path.succeeded, results)

    def drop(self, key: bytes) -> None:
        old = self.now.pop(key)
        self.events.append(Event(True, KeyValue(key, b"", 0, self._new, 0, 0), old))

    def _put(self, request: Put) -> PutResult:
        check_kept(self.now, request)
        old, new = self.now.get(request.key), self._new
        value = old.value if request.ignore_value and old else request.value
        lease = old.lease if request.ignore_lease and old else request.lease
        kv = KeyValue(
            request.key, value, old.create_revision if old else new, new, old.version + 1 if old else 1, lease
        )
        self.now[request.key] = kv
        self.events.append(Event(False, kv, old))
        return PutResult(new, old if request.prev_kv else None)

    def _delete(self, request: DeleteRange) -> DeleteRangeResult:
        gone = rows(self.now, request.key, request.range_end)
        for kv in gone:
            self.drop(kv.key)
        return DeleteRangeResult(self.header, len(gone), tuple(gone) if request.prev_kv else ())

    def _read(self, request: Range) -> RangeResult:
        state = self._past[request.revision] if request.revision > 0 else self.now
        every = rows(state, request.key, request.range_end)
        if request.count_only:
            return RangeResult(self.header, (), False, len(every))
        found = _selected(request, every)
        more = 0 < request.limit < len(found)
        chosen = found[: request.limit] if more else found
        if request.keys_only:
            chosen = [kv._replace(value=b"") for kv in chosen]
        return RangeResult(self.header, tuple(chosen), more, len(every))


def _selected(request: Range, every: list[KeyValue]) -> list[KeyValue]:
    """Filtered and sorted. A limit applies after that; if there is neither, no more than one row above it is read."""
    found = every
    mod, create = request.min_mod_revision, request.min_create_revision
    mod_max, create_max = request.max_mod_revision, request.max_create_revision
    if mod or mod_max or create or create_max:
        found = [
            kv
            for kv in every
            if _within(kv.mod_revision, mod, mod_max) and _within(kv.create_revision, create, create_max)
        ]
    elif request.limit > 0 and request.sort_order is SortOrder.NONE:
        found = every[: request.limit + 1]
    if request.sort_order is not SortOrder.NONE or request.sort_target is not SortTarget.KEY:
        name = ["key", "version", "create_revision", "mod_revision", "value"][request.sort_target]
        found = sorted(found, key=lambda kv: getattr(kv, name), reverse=request.sort_order is SortOrder.DESCEND)
    return found


def _within(revision: int, low: int, high: int) -> bool:
    return low <= revision and (not high or revision <= high)
