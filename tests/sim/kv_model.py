"""A key-value store with transactions, as a model for `linearizability`.

It follows `metastore`: puts, deletes, transactions with compares, ranges. Its state is the knowledge of each key:
value, lease, and mod revision, or a bound of it as long as no result named the revision. Mod revisions of a key only
grow, which decides most orders at once. Only per key: the header revision of a response may be ahead of what is
released elsewhere, and proves no order between keys.

The expiry of leases is not visible to clients: a key with a lease may vanish at any time. Versions and create revisions
are not modelled, except whether they are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any, NamedTuple

from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from palisade.metastore.results import KeyValue, RangeResult, TxnResult
from tests.sim.kv_order import drawn_closer
from tests.sim.kv_spans import Resolved, grouped, inside, spans_of
from tests.sim.linearizability import Op


class Entry(NamedTuple):
    """The knowledge of a key. `value` None: it is absent. `mod` is its revision if `exact`, else that is later."""

    value: bytes | None = None
    mod: int = 0
    exact: bool = True
    lease: int = 0


ABSENT = Entry()
State = tuple[Entry, ...]
_LAST = 1 << 63


class Impossible(Exception):
    """A result that is impossible in this state."""


@dataclass(frozen=True, slots=True)
class Undecided(Txn):
    """A transaction with further compares, of keys that are not in this part: those may fail."""


class KeyValues:
    """`keys`: all keys of the operations, sorted. Takes requests of `metastore`, with its results.

    `first`: initial values of keys, if there are any.
    """

    def __init__(self, keys: Sequence[bytes] = (), first: Mapping[bytes, Entry] | None = None) -> None:
        self._keys = tuple(keys)
        self._first = first or {}
        self._place = {key: number for number, key in enumerate(self._keys)}

    def parts(self, ops: Sequence[Op]) -> Iterable[tuple[KeyValues, Sequence[Op]]]:
        for keys, inside_group in grouped(ops, self._first):
            yield KeyValues(keys, self._first), drawn_closer(inside_group)

    def init(self) -> State:
        return tuple(self._first.get(key, ABSENT) for key in self._keys)

    def only_reads(self, op: Op) -> bool:
        if isinstance(op.asked, Txn):
            return isinstance(op.answered, TxnResult) and not _has_writes(op.asked, op.answered)
        return isinstance(op.asked, Range)

    def describe(self, op: Op) -> str:
        return f"{op.asked} -> {'?' if op.answered is None else op.answered}"

    def step(self, state: State, op: Op) -> Iterator[State]:
        touched = [place for place in self._places(op.asked) if state[place].lease]
        for many in range(len(touched) + 1):
            for gone in combinations(touched, many):
                entries = {
                    key: ABSENT._replace(mod=entry.mod) if place in gone else entry
                    for place, (key, entry) in enumerate(zip(self._keys, state, strict=True))
                }
                revision = getattr(op.answered, "revision", 0)
                result = None if isinstance(op.answered, Resolved) else op.answered
                for after in run(entries, op.asked, result, revision):
                    yield tuple(after.values())

    def _places(self, request: Any) -> list[int]:
        found = set()
        for start, end in spans_of(request):
            if not end:
                found.add(self._place[start])
            else:
                found.update(place for key, place in self._place.items() if inside(key, start, end))
        return sorted(found)


Entries = Mapping[bytes, Entry]


def run(entries: Entries, request: Any, result: Any, revision: int) -> Iterator[Entries]:
    """The possible states afterwards, if the result was `result` (None: unknown). Keeps the keys in order.

    `revision`: of its writes; 0 if unknown.
    """
    try:
        match request:
            case Put():
                yield {**entries, request.key: _put(entries[request.key], request, result, revision)}
            case DeleteRange():
                yield _deleted(entries, request, result, revision)
            case Range():
                yield entries if result is None else _read(entries, request, result)
            case Txn():
                for path in _paths(entries, request, result):
                    yield from _run_all(entries, path, revision)
    except Impossible:
        return


Path = tuple[tuple[Any, Any], ...]
"""The operations of a transaction in order: (operation, its result or None)."""


def _paths(entries: Entries, request: Txn, result: TxnResult | None) -> Iterator[Path]:
    """All compares, those of nested transactions too, are of the state before all of it."""
    for succeeded in _branches(entries, request, result):
        branch = request.success if succeeded else request.failure
        results = (None,) * len(branch) if result is None else result.results
        steps = [
            tuple(_paths(entries, part, answered)) if isinstance(part, Txn) else (((part, answered),),)
            for part, answered in zip(branch, results, strict=True)
        ]
        yield from (tuple(chain(*each)) for each in product(*steps))


def _run_all(entries: Entries, path: Path, revision: int) -> Iterator[Entries]:
    if not path:
        yield entries
        return
    request, result = path[0]
    for after in run(entries, request, result, revision):
        yield from _run_all(after, path[1:], revision)


def _put(old: Entry, request: Put, result: Any, revision: int) -> Entry:
    if revision and revision <= old.mod:
        raise Impossible
    if request.prev_kv and result is not None:
        _seen(old, result.prev_kv)
    if (request.ignore_value or request.ignore_lease) and old.value is None:
        raise Impossible
    value = old.value if request.ignore_value else request.value
    lease = old.lease if request.ignore_lease else request.lease
    return Entry(value, revision or old.mod, bool(revision), lease)


def _deleted(entries: Entries, request: DeleteRange, result: Any, revision: int) -> Entries:
    gone = [
        key for key, entry in entries.items() if entry.value is not None and inside(key, request.key, request.range_end)
    ]
    if result is not None:
        if result.deleted != len(gone):
            raise Impossible
        if request.prev_kv:
            if [kv.key for kv in result.prev_kvs] != gone:
                raise Impossible
            for key, kv in zip(gone, result.prev_kvs, strict=True):
                _seen(entries[key], kv)
    if revision and any(entries[key].mod >= revision for key in gone):
        raise Impossible
    return {**entries, **{key: Entry(mod=revision or entries[key].mod) for key in gone}}


def _read(entries: Entries, request: Range, result: RangeResult) -> Entries:
    present = [
        key for key, entry in entries.items() if entry.value is not None and inside(key, request.key, request.range_end)
    ]
    if request.count_only:
        if result.count != len(present):
            raise Impossible
        return entries
    shown = present[: request.limit] if request.limit > 0 else present
    rows = [kv.key for kv in result.kvs]
    if rows != shown or result.more != (len(present) > len(shown)) or result.count != len(present):
        raise Impossible
    returned = {kv.key: _seen(entries[kv.key], kv, keys_only=request.keys_only) for kv in result.kvs}
    return {**entries, **returned}


def _seen(entry: Entry, kv: KeyValue | None, *, keys_only: bool = False) -> Entry:
    """The knowledge of a key from the result `kv`."""
    if kv is None or entry.value is None:
        if kv is None and entry.value is None:
            return entry
        raise Impossible
    if (kv.value != entry.value and not keys_only) or kv.lease != entry.lease:
        raise Impossible
    if not kv.mod_revision:
        return entry
    if kv.mod_revision < entry.mod or (kv.mod_revision == entry.mod) is not entry.exact:
        raise Impossible
    return Entry(entry.value, kv.mod_revision, True, entry.lease)


def _branches(entries: Entries, request: Txn, result: TxnResult | None) -> tuple[bool, ...]:
    """Whether the compares hold: the possibilities that fit the result."""
    verdicts = [_holds(entries, compare) for compare in request.compare]
    undecided = isinstance(request, Undecided)
    holds = False if False in verdicts else None if undecided or None in verdicts else True
    possible = (True, False) if holds is None else (holds,)
    if result is None:
        return possible
    if result.succeeded not in possible:
        raise Impossible
    return (result.succeeded,)


def _holds(entries: Entries, compare: Compare) -> bool | None:
    """None: the knowledge of the key does not decide it."""
    found = [
        entry
        for key, entry in entries.items()
        if entry.value is not None and inside(key, compare.key, compare.range_end)
    ]
    if not found and compare.target is CompareTarget.VALUE:
        return False
    verdicts = [_compared(entry, compare) for entry in found or [ABSENT]]
    return False if False in verdicts else None if None in verdicts else True


def _compared(entry: Entry, compare: Compare) -> bool | None:
    low: Any
    high: Any
    match compare.target:
        case CompareTarget.VALUE:
            low, high = entry.value, entry.value
        case CompareTarget.LEASE:
            low, high = entry.lease, entry.lease
        case _ if entry.value is None:
            low, high = 0, 0
        case CompareTarget.MOD:
            low, high = (entry.mod, entry.mod) if entry.exact else (entry.mod + 1, _LAST)
        case _:
            low, high = 1, _LAST
    operand: Any = compare.operand
    match compare.result:
        case CompareResult.EQUAL | CompareResult.NOT_EQUAL:
            same = None if low != high and low <= operand <= high else low == operand
            return same if same is None or compare.result is CompareResult.EQUAL else not same
        case CompareResult.GREATER:
            return True if low > operand else False if high <= operand else None
        case _:
            return True if high < operand else False if low >= operand else None


def _has_writes(request: Any, result: Any) -> bool:
    branch = request.success if result.succeeded else request.failure
    return any(
        _has_writes(part, answered) if isinstance(part, Txn) else not isinstance(part, Range)
        for part, answered in zip(branch, result.results, strict=True)
    )
