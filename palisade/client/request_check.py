"""The numbers of a request are checked before it is sent. Pure.

A frame holds integers of 64 bits and carries the requests of one turn of the event loop. A request that cannot be
encoded would make the other requests of its frame fail, so it is refused before; its caller gets the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from palisade.metastore.command_codec import INT_MAX, INT_MIN, pack
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.requests import (
    Compact,
    Compare,
    CompareResult,
    CompareTarget,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Put,
    Range,
    SortOrder,
    SortTarget,
    Txn,
    WatchRequest,
)

T = TypeVar("T")


def checked(request: T) -> T:
    """The request. Raises InvalidRequest for a number that is negative or has more than 64 bits, TypeError for a
    value of a wrong type."""
    check = _CHECKS.get(type(request))
    if check is not None:
        check(request)
    return request


def whole(name: str, value: Any, low: int = 0) -> None:
    """`low`: the smallest number that is allowed."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if not low <= value <= INT_MAX:
        what = "is negative; give 0 or more" if INT_MIN <= value < 0 else "does not fit in 64 bits"
        raise InvalidRequest(f"{name} {_short(value)} {what}")


def each(name: str, given: Iterable[T], what: str) -> Iterable[T]:
    """`given`. Raises TypeError unless it can be iterated, and for text, bytes and mappings: likely mistakes."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a list of {what}, not {type(given).__name__}")
    return given


def pair_of(item: Any) -> tuple[Any, Any]:
    if not isinstance(item, str | bytes):  # A text of two characters is no pair.
        with suppress(TypeError, ValueError):
            key, value = item
            return key, value
    raise TypeError(f"every item must be a pair (key, value), not {repr(item)[:60]}")


def check_arguments(call: str, arguments: Iterable[Any]) -> None:
    """Raises InvalidRequest or TypeError if the arguments of a call cannot be encoded."""
    try:
        pack(list(arguments))
    except OverflowError:
        raise InvalidRequest(f"{call}: a number does not fit in 64 bits") from None
    except (TypeError, ValueError) as error:
        raise TypeError(f"{call}: an argument cannot be sent: {error}") from None


def _short(value: int) -> str:
    """Python refuses to write out a number of more than 4300 digits."""
    return str(value) if value.bit_length() <= 256 else f"of {value.bit_length()} bits"


def _numbers(*names: str, shown: str = "") -> Callable[[Any], None]:
    """`shown`: the name in messages, if it is not that of the field."""

    def check(request: Any) -> None:
        for name in names:
            whole(shown or name, getattr(request, name))

    return check


_RANGE_NUMBERS = _numbers(
    "limit", "revision", "min_mod_revision", "max_mod_revision", "min_create_revision", "max_create_revision"
)


def _check_range(request: Range) -> None:
    _RANGE_NUMBERS(request)
    _member("sort_order", request.sort_order, SortOrder)
    _member("sort_target", request.sort_target, SortTarget)


def _check_watch(request: WatchRequest) -> None:
    whole("start_revision", request.start_revision)
    for name in request.filters:
        if not isinstance(name, str):
            raise TypeError(f"filters must be names, put or delete, not {type(name).__name__}")


def _check_compare(compare: Compare) -> None:
    _member("the target of a compare", compare.target, CompareTarget)
    _member("the result of a compare", compare.result, CompareResult)
    if not isinstance(compare.operand, bytes):
        whole(f"the operand of {compare.target.name}", compare.operand, INT_MIN)


def _member(name: str, value: Any, kind: type[Any]) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")


def _check_txn(request: Txn) -> None:
    for compare in request.compare:
        _check_compare(compare)
    for operation in (*request.success, *request.failure):
        checked(operation)


_CHECKS: dict[type[Any], Callable[[Any], None]] = {
    Put: _numbers("lease"),
    Range: _check_range,
    Txn: _check_txn,
    Compact: _numbers("revision"),
    LeaseGrant: _numbers("id"),
    LeaseRevoke: _numbers("id", shown="lease"),
    LeaseKeepAlive: _numbers("id", shown="lease"),
    WatchRequest: _check_watch,
}
