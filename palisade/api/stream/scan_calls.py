"""The calls of readers of many rows (`service.scans`). Arguments and results are msgpack values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from palisade.metastore.errors import InvalidRequest
from palisade.metastore.lineage import Lineage
from palisade.service.key_values import KeyValues
from palisade.service.scans import Scans
from palisade.wire.scan_pages import ChangePosition


class ScanCalls:
    def __init__(self, service: KeyValues) -> None:
        self._scans = Scans(service)

    def by_name(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        return {
            "scan_count": self._count,
            "scan_windows": self._windows,
            "scan_rows": self._rows,
            "scan_changes": self._changes,
            "scan_since": self._since,
            "scan_bytes": self._bytes,
            "pin": self._pin,
            "unpin": self._unpin,
        }

    async def _count(self, key: Any, range_end: Any, revision: Any) -> list[Any]:
        _check((key, range_end), (revision,))
        counts = await self._scans.count(key, range_end, revision)
        revision, lineage, *rest = counts
        return [revision, [lineage.cluster_id, lineage.generation], *rest]

    async def _windows(self, key: Any, range_end: Any) -> list[Any]:
        _check((key, range_end), ())
        return [list(window) for window in await self._scans.windows(key, range_end)]

    async def _rows(self, key: Any, range_end: Any, revision: Any, lineage: Any, values: Any = True) -> list[Any]:
        _check((key, range_end), (revision,))
        return list(await self._scans.rows(_lineage(lineage), revision, key, range_end, values=_flag(values)))

    async def _changes(
        self, key: Any, range_end: Any, first: Any, last: Any, lineage: Any, values: Any = True
    ) -> list[Any]:
        """`first`: [revision, number of the change within it]."""
        if type(first) is not list or len(first) != 2:
            raise InvalidRequest("the first change is given as [revision, number]")
        _check((key, range_end), (last, *first))
        position, flag = ChangePosition(*first), _flag(values)
        return list(await self._scans.changes(_lineage(lineage), position, last, key, range_end, values=flag))

    async def _since(self, key: Any, range_end: Any, wall_ms: Any) -> int:
        _check((key, range_end), (wall_ms,))
        return await self._scans.first_since(wall_ms)

    async def _bytes(
        self, key: Any, range_end: Any, first: Any, last: Any, lineage: Any, bytes_max: Any
    ) -> tuple[int, int]:
        _check((key, range_end), (first, last, bytes_max))
        return await self._scans.end_of_bytes(_lineage(lineage), first, last, key, range_end, bytes_max)

    async def _pin(self, key: Any, range_end: Any, name: Any, revision: Any, ttl_ms: Any) -> int:
        """`key`, `range_end`: what will be read, for which the caller needs the right to read."""
        _check((key, range_end), (revision, ttl_ms))
        return await self._scans.pin(key, range_end, _name(name), revision, ttl_ms)

    async def _unpin(self, key: Any, range_end: Any, name: Any) -> None:
        _check((key, range_end), ())
        await self._scans.unpin(key, range_end, _name(name))


def _check(keys: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
    if any(type(key) is not bytes or not key for key in keys):
        raise InvalidRequest(r"a range is two byte strings, both not empty; [\0, \0) is every key")
    if any(type(number) is not int or not 0 <= number < 1 << 63 for number in numbers):
        raise InvalidRequest("revisions and times are numbers from 0 to 2^63 - 1")


def _lineage(value: Any) -> Lineage:
    if type(value) is not list or [type(part) for part in value] != [str, int]:
        raise InvalidRequest("a lineage is given as [cluster id, generation], as scan_count returns it")
    return Lineage(*value)


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise InvalidRequest("whether values are sent is true or false")
    return value


def _name(value: Any) -> str:
    if type(value) is not str or not value:
        raise InvalidRequest("a pin has a name, a text")
    return value
