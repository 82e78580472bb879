"""Puts, deletes and transactions: first everything that may be refused, then all writes (M2).

A transaction first chooses its path, nested ones included, by compares that all see the state before it. Then the
requests of the path are checked against the same state. Then its operations run in order, each seeing the writes before
it, all in one revision. After the first write nothing can be refused, so nothing has to be undone. (etcd uses the same
order, which is visible in its answers.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from palisade.base.key_text import key_text
from palisade.metastore.errors import KeyNotFound, QuotaExceeded
from palisade.metastore.lease import LeaseBook
from palisade.metastore.limits import Limits
from palisade.metastore.mvcc import Found, StoreView, find_range, read_revision
from palisade.metastore.range_read import read_range
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from palisade.metastore.results import DeleteRangeResult, KeyValue, PutResult, RangeResult, TxnResult
from palisade.metastore.revision_writer import RevisionWriter
from palisade.metastore.state import StoreState

OperationResult = PutResult | DeleteRangeResult | RangeResult | TxnResult


@dataclass(frozen=True, slots=True)
class Path:
    """The branch that a transaction takes, and the path of each nested one."""

    succeeded: bool
    steps: tuple[Put | DeleteRange | Range | Path, ...]

    def operations(self) -> Iterator[Put | DeleteRange | Range]:
        for step in self.steps:
            if isinstance(step, Path):
                yield from step.operations()
            else:
                yield step


class Executor:
    """Runs single operations and transactions, each as one revision."""

    __slots__ = ("_leases", "_limits", "_state", "_view", "_writer")

    def __init__(self, view: StoreView, leases: LeaseBook, writer: RevisionWriter, limits: Limits) -> None:
        self._view = view
        self._state = view.state
        self._leases = leases
        self._writer = writer
        self._limits = limits

    def run(self, request: Put | DeleteRange | Txn) -> OperationResult:
        """After `check_request`. Raises the refusals that depend on the state, before anything is written."""
        if isinstance(request, Txn):
            path = choose(self._view, request)
            self._admit_path(path)
            result: OperationResult = self._run_path(path)
        else:
            if isinstance(request, Put) and request.lease:
                require_room(self._state, self._limits)
                self._leases.require(request.lease)
            self.admit(request)
            result = self._run_operation(request)
        self._writer.close()
        return result

    def read(self, request: Txn) -> TxnResult:
        """A transaction without writes in either branch, at the latest state. Nothing is proposed for it."""
        path = choose(self._view, request)
        self._admit_path(path)
        return self._run_path(path)

    def _admit_path(self, path: Path) -> None:
        """Of several refusals, those of puts precede those of ranges, as in etcd."""
        operations = list(path.operations())
        for operation in operations:
            if not isinstance(operation, Range):
                self.admit(operation)
        for operation in operations:
            if isinstance(operation, Range):
                self.admit(operation)

    def admit(self, request: Put | DeleteRange | Range) -> None:
        """Raises Compacted, FutureRevision, QuotaExceeded, KeyNotFound, LeaseNotFound."""
        if isinstance(request, Range):
            read_revision(self._state, request.revision)
        elif isinstance(request, Put):
            self._admit_put(request)

    def _admit_put(self, put: Put) -> None:
        require_room(self._state, self._limits)
        if (put.ignore_value or put.ignore_lease) and not self._writer.exists(put.key):
            raise KeyNotFound(
                f"the key {key_text(put.key)} does not exist: there is no value or lease to keep, give both"
            )
        if put.lease:
            self._leases.require(put.lease)

    def _run_path(self, path: Path) -> TxnResult:
        results = tuple(
            self._run_path(step) if isinstance(step, Path) else self._run_operation(step) for step in path.steps
        )
        return TxnResult(self._writer.revision, path.succeeded, results)

    def _run_operation(self, request: Put | DeleteRange | Range) -> OperationResult:
        if isinstance(request, Put):
            return self._put(request)
        if isinstance(request, DeleteRange):
            return self._delete_range(request)
        return read_range(self._view, request, self._writer.revision)

    def _put(self, put: Put) -> PutResult:
        previous = self._live(put.key) if put.prev_kv or put.ignore_value or put.ignore_lease else None
        value = previous.value if put.ignore_value and previous else put.value
        lease = previous.lease if put.ignore_lease and previous else put.lease
        self._writer.put(put.key, value, lease)
        return PutResult(self._writer.revision, previous if put.prev_kv else None)

    def _live(self, key: bytes) -> KeyValue | None:
        found = next(find_range(self._view, key, b"", None), None)
        return found.as_key_value() if found else None

    def _delete_range(self, delete: DeleteRange) -> DeleteRangeResult:
        found = list(find_range(self._view, delete.key, delete.range_end, None))
        previous = tuple(item.as_key_value() for item in found) if delete.prev_kv else ()
        for item in found:
            self._writer.delete(item.key)
        return DeleteRangeResult(self._writer.revision, len(found), previous)


def require_room(state: StoreState, limits: Limits) -> None:
    """Raises QuotaExceeded while the alarm is on: only commands that need no space are accepted (M8)."""
    if state.alarm:
        raise QuotaExceeded(
            f"the store holds {state.size} bytes, its quota is {limits.quota_bytes}: delete keys and compact, then"
            " writes go on by themselves"
        )


def choose(view: StoreView, txn: Txn) -> Path:
    """The path by the present state."""
    succeeded = all(holds(view, compare) for compare in txn.compare)
    branch = txn.success if succeeded else txn.failure
    return Path(succeeded, tuple(choose(view, step) if isinstance(step, Txn) else step for step in branch))


def holds(view: StoreView, compare: Compare) -> bool:
    """Whether it holds for every live key of its range; if there is none, for a key with 0 everywhere and no value."""
    found = None
    for found in find_range(view, compare.key, compare.range_end, None):
        if not ordered(compare, operand_of(compare.target, found)):
            return False
    if found is not None:
        return True
    return compare.target is not CompareTarget.VALUE and ordered(compare, 0)


def operand_of(target: CompareTarget, found: Found) -> int | bytes:
    match target:
        case CompareTarget.VERSION:
            return found.version
        case CompareTarget.CREATE:
            return found.create_revision
        case CompareTarget.MOD:
            return found.mod_revision
        case CompareTarget.LEASE:
            return found.lease
        case CompareTarget.VALUE:
            return found.value


def ordered(compare: Compare, actual: int | bytes) -> bool:
    """Whether the comparison holds. `check_request` has verified that both have the same type."""
    operand = compare.operand
    match compare.result:
        case CompareResult.EQUAL:
            return actual == operand
        case CompareResult.NOT_EQUAL:
            return actual != operand
        case CompareResult.GREATER:
            return actual > operand  # type: ignore[operator]
        case CompareResult.LESS:
            return actual < operand  # type: ignore[operator]
