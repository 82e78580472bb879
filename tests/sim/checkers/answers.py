"""The result of a write matches its effect on the state before its revision: compares, branches, rows, counts (M2).

Every target, relation and range of a compare is judged here, by the naive model of the store, in the state that was
committed. `linearizable` checks that this state is the right one in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from palisade.metastore.requests import DeleteRange, Put, Txn
from palisade.metastore.results import DeleteRangeResult, PutResult, TxnResult
from tests.sim.checkers.exactly_once import all_puts_of
from tests.sim.history import History
from tests.sim.kv_spans import spans_of
from tests.sim.seen import Operation
from tests.sim.truth import Truth
from tests.support.meta_model import Model
from tests.support.store_rules import State, inside


def check(history: History) -> list[str]:
    truth = Truth(history)
    return [
        wrong
        for operation in history.operations()
        if isinstance(operation.request, Put | DeleteRange | Txn) and operation.result is not None
        for wrong in _wrong(operation, truth)
    ]


class Before(Model):
    """The store as of `revision`, with `state`; leases are added on demand."""

    def __init__(self, state: State, revision: int, request: Any) -> None:
        super().__init__()
        self.states = [state]
        self._revision = revision
        self.leases = {put.lease: (0, 0) for put in all_puts_of(request)}

    @property
    def revision(self) -> int:
        return self._revision


def _wrong(operation: Operation, truth: Truth) -> Iterator[str]:
    request, result = operation.request, operation.result
    revision = result.revision - _writes(result)
    if result.revision > truth.latest:
        return
    spans = list(spans_of(request))
    keys = [key for key in truth.keys if any(inside(key, start, end) for start, end in spans)]
    state = {key: kv for key in keys if (kv := truth.at(key, revision)) is not None}
    right = Before(state, revision, request).outcome(request)
    if right != result:
        yield (
            f"operation {operation.number} of {operation.client} ({operation.path.value} at {operation.node}), "
            f"{request}, was answered {result}, and is {right} at revision {revision}"
        )


def _writes(result: Any) -> bool:
    match result:
        case PutResult():
            return True
        case DeleteRangeResult():
            return result.deleted > 0
        case TxnResult():
            return any(map(_writes, result.results))
    return False
