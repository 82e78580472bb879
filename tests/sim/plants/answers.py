"""Faults of results: reads, transactions, retries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from palisade.metastore import txn
from palisade.metastore.request_results import RequestResults
from palisade.metastore.requests import Compare, CompareResult, CompareTarget
from palisade.service.key_values import KeyValues
from tests.sim.plants.plant import MANY, MEMBER_CUT_OFF, Patch, Stage, caught_by


@caught_by("linearizable", "fenced reads", on=MEMBER_CUT_OFF)
def reads_without_a_barrier(patch: Patch) -> None:
    _asked(patch, lambda request: replace(request, serializable=True))


@caught_by("linearizable")
def compares_that_always_hold(patch: Patch) -> None:
    patch.setattr(txn, "choose", _taken_at_once(txn.choose))


@caught_by("linearizable", "answers")
def compares_of_versions_only(patch: Patch) -> None:
    choose = txn.choose

    def other(view: Any, request: Any) -> Any:
        kept = tuple(each for each in request.compare if each.target is CompareTarget.VERSION)
        return choose(view, replace(request, compare=kept))

    patch.setattr(txn, "choose", other)


def _taken_at_once(choose: Callable[..., Any]) -> Callable[..., Any]:
    return lambda view, request: choose(view, replace(request, compare=()))


@caught_by("linearizable writes", on=Stage("drift", 1))
def compares_that_never_hold(patch: Patch) -> None:
    never = Compare(b"e/a", CompareTarget.VERSION, CompareResult.GREATER, 1 << 40)
    choose = txn.choose

    def other(view: Any, request: Any) -> Any:
        return choose(view, replace(request, compare=(*request.compare, never)))

    patch.setattr(txn, "choose", other)


@caught_by("exactly once", on=MANY)
def retries_that_are_not_known(patch: Patch) -> None:
    patch.setattr(RequestResults, "find", lambda self, request: None)
    patch.setattr(RequestResults, "active", lambda self, name: None)


@caught_by("snapshots")
def ranges_without_their_last_row(patch: Patch) -> None:
    read = KeyValues.range

    async def short(self: KeyValues, request: Any, **more: Any) -> Any:
        result = await read(self, request, **more)
        return replace(result, kvs=result.kvs[:-1]) if len(result.kvs) > 3 else result

    patch.setattr(KeyValues, "range", short)


@caught_by("snapshots", on=MANY)
def reads_of_another_past(patch: Patch) -> None:
    _asked(patch, lambda request: replace(request, revision=request.revision and max(1, request.revision - 9)))


def _asked(patch: Patch, changed: Callable[[Any], Any]) -> None:
    """Clients' reads are replaced by other ones."""
    read = KeyValues.range

    async def asked(self: KeyValues, request: Any, **more: Any) -> Any:
        return await read(self, changed(request), **more)

    patch.setattr(KeyValues, "range", asked)
