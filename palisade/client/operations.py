"""The operations of a transaction as programs write them: keys and values are text or bytes.

Each class derives from one of `metastore.requests` and only changes its constructor; `plain` converts it into that
class, which the codec encodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from palisade.base.content import Content, as_bytes
from palisade.client.request_check import each
from palisade.metastore import requests
from palisade.metastore.requests import CompareResult, CompareTarget, SortOrder, SortTarget, prefix_end

Operation = requests.Put | requests.DeleteRange | requests.Range | requests.Txn
T = TypeVar("T")


class Put(requests.Put):
    """Write `key`. `prev_kv` returns the replaced key and value; `lease` 0 means none."""

    __slots__ = ()

    def __init__(
        self,
        key: Content,
        value: Content = b"",
        lease: int = 0,
        prev_kv: bool = False,
        ignore_value: bool = False,
        ignore_lease: bool = False,
    ) -> None:
        super().__init__(as_bytes(key), as_bytes(value), lease, prev_kv, ignore_value, ignore_lease)


class Delete(requests.DeleteRange):
    """Delete `key`, [key, range_end), or with `prefix` every key that begins with `key`."""

    __slots__ = ()

    def __init__(self, key: Content, range_end: Content = b"", prev_kv: bool = False, *, prefix: bool = False) -> None:
        super().__init__(*interval(key, range_end, prefix), prev_kv)


class Get(requests.Range):
    """Read `key`, [key, range_end), or with `prefix` every key that begins with `key`."""

    __slots__ = ()

    def __init__(
        self,
        key: Content,
        range_end: Content = b"",
        *,
        prefix: bool = False,
        limit: int = 0,
        sort_order: SortOrder = SortOrder.NONE,
        sort_target: SortTarget = SortTarget.KEY,
        keys_only: bool = False,
        count_only: bool = False,
    ) -> None:
        super().__init__(
            *interval(key, range_end, prefix),
            limit=limit,
            sort_order=sort_order,
            sort_target=sort_target,
            keys_only=keys_only,
            count_only=count_only,
        )


class Compare(requests.Compare):
    """A condition on one key, or with `range_end` on every key of a range. An `operand` for a value is text or bytes.

    An absent key has version, revisions and lease 0, and no value.
    """

    __slots__ = ()

    def __init__(
        self,
        key: Content,
        target: CompareTarget,
        result: CompareResult,
        operand: int | Content,
        range_end: Content = b"",
    ) -> None:
        if not isinstance(operand, int | str | bytes | bytearray | memoryview):
            raise TypeError(f"an operand must be a whole number, bytes or text, not {type(operand).__name__}")
        bound = operand if isinstance(operand, int) else as_bytes(operand)
        super().__init__(as_bytes(key), target, result, bound, as_bytes(range_end))

    @classmethod
    def absent(cls, key: Content) -> Compare:
        """The key does not exist."""
        return cls(key, CompareTarget.VERSION, CompareResult.EQUAL, 0)

    @classmethod
    def exists(cls, key: Content) -> Compare:
        return cls(key, CompareTarget.VERSION, CompareResult.GREATER, 0)

    @classmethod
    def value_is(cls, key: Content, value: Content) -> Compare:
        return cls(key, CompareTarget.VALUE, CompareResult.EQUAL, value)

    @classmethod
    def revision_is(cls, key: Content, mod_revision: int) -> Compare:
        """The key was last written at `mod_revision`, which a read returned: it has not changed since."""
        return cls(key, CompareTarget.MOD, CompareResult.EQUAL, mod_revision)

    @classmethod
    def created_at(cls, key: Content, create_revision: int) -> Compare:
        """The key exists and was created at `create_revision`: it has not been deleted since, but may have changed."""
        return cls(key, CompareTarget.CREATE, CompareResult.EQUAL, create_revision)


class Txn(requests.Txn):
    """`success` if every compare holds, else `failure`. May be an operation of another transaction."""

    __slots__ = ()

    def __init__(
        self,
        compare: Iterable[requests.Compare] = (),
        success: Iterable[Operation] = (),
        failure: Iterable[Operation] = (),
    ) -> None:
        super().__init__(
            tuple(each("compare", compare, "Compare")),
            tuple(each("success", success, "operations")),
            tuple(each("failure", failure, "operations")),
        )


def plain_txn(
    compare: Iterable[requests.Compare], success: Iterable[Operation], failure: Iterable[Operation]
) -> requests.Txn:
    """The request of a transaction, in the classes that the codec encodes."""
    return requests.Txn(
        tuple(map(_plain_compare, each("compare", compare, "Compare"))),
        tuple(map(plain, each("success", success, "operations"))),
        tuple(map(plain, each("failure", failure, "operations"))),
    )


def plain(operation: Operation) -> Operation:
    """Raises TypeError for anything that is not an operation."""
    if isinstance(operation, requests.Txn):
        return plain_txn(operation.compare, operation.success, operation.failure)
    if isinstance(operation, requests.Put):
        return _copied(requests.Put, operation, requests.Put.__slots__)
    if isinstance(operation, requests.DeleteRange):
        return _copied(requests.DeleteRange, operation, requests.DeleteRange.__slots__)
    if isinstance(operation, requests.Range):
        return _copied(requests.Range, operation, requests.Range.__slots__)
    raise TypeError(f"an operation must be a Put, Get, Delete or Txn, not {type(operation).__name__}")


def _plain_compare(compare: requests.Compare) -> requests.Compare:
    if not isinstance(compare, requests.Compare):
        raise TypeError(f"a condition must be a Compare, not {type(compare).__name__}")
    return _copied(requests.Compare, compare, requests.Compare.__slots__)


def _copied(kind: Callable[..., T], of: T, fields: Iterable[str]) -> T:
    """The same fields in the class that the codec encodes."""
    return of if type(of) is kind else kind(*(getattr(of, name) for name in fields))


def interval(key: Content, range_end: Content, prefix: bool) -> tuple[bytes, bytes]:
    """(key, range_end) of the request. The prefix b"" means every key."""
    start, end = as_bytes(key), as_bytes(range_end)
    if not prefix:
        return start, end
    if end:
        raise ValueError("give prefix or range_end, not both")
    return start or b"\0", prefix_end(start)
