"""A deletion of many keys is executed in portions, so that no request takes longer than an election timeout
(issue 16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from palisade.client import Client, Unavailable, bulk_deletes
from palisade.client.bulk_deletes import delete_in_portions
from palisade.metastore.results import DeleteRangeResult, RangeResult
from palisade.wire.auth_errors import PermissionDenied


@pytest.fixture(autouse=True)
def small_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_deletes, "PORTION", 3)


async def fill(client: Client, count: int) -> int:
    """The revision afterwards. A key before and one after the range stay in every test."""
    await client.put_many([("j", "stays"), *((f"k/{number}", str(number)) for number in range(count)), ("l", "stays")])
    return (await client.get("l")).mod_revision  # type: ignore[union-attr]


async def remaining(client: Client) -> list[bytes]:
    return [kv.key for kv in (await client.range("", prefix=True)).kvs]


@pytest.mark.parametrize(("count", "revisions"), [(0, 0), (2, 1), (3, 1), (4, 2), (8, 3)])
async def test_range_is_deleted_in_portions(client: Client, count: int, revisions: int) -> None:
    before = await fill(client, count)
    progress: list[tuple[int, int]] = []
    deleted = await delete_in_portions(
        client, b"k/", prefix=True, prev_kv=True, progress=lambda *counts: progress.append(counts)
    )
    assert (deleted.deleted, deleted.revision) == (count, before + revisions)
    assert [kv.value for kv in deleted.prev_kvs] == [str(number).encode() for number in range(count)]
    assert progress == [(done, count) for done in (3, 6) if done < count]
    assert await remaining(client) == [b"j", b"l"]


async def test_one_key_is_deleted_without_a_read() -> None:
    store = Store({})
    await delete_in_portions(store, b"k")
    assert store.requests == [("delete", b"k", b"")]


async def test_user_who_may_not_read_deletes_in_one_request() -> None:
    store = Store({"range": PermissionDenied("no right to read")})
    await delete_in_portions(store, b"k/", prefix=True)
    assert store.requests == [("range", b"k/", b"k0"), ("delete", b"k/", b"k0")]


async def test_portions_before_an_error_stay_deleted(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(client, 8)
    read = client.range

    async def failing(key: bytes, *arguments: Any, **options: Any) -> RangeResult:
        if key > b"k/4":
            raise Unavailable("no leader")
        return await read(key, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(client, "range", failing)
        with pytest.raises(Unavailable):
            await delete_in_portions(client, b"k/", prefix=True)
    assert await remaining(client) == [b"j", b"k/6", b"k/7", b"l"]
    assert (await delete_in_portions(client, b"k/", prefix=True)).deleted == 2


class Store:
    """Records requests. `errors`: by the name of the request."""

    def __init__(self, errors: Mapping[str, Exception]) -> None:
        self.requests: list[tuple[str, bytes, bytes]] = []
        self._errors = errors

    async def range(self, key: bytes, range_end: bytes = b"", **_: Any) -> RangeResult:
        self._ask("range", key, range_end)
        return RangeResult(1, (), False, 0)

    async def delete(self, key: bytes, range_end: bytes = b"", **_: Any) -> DeleteRangeResult:
        self._ask("delete", key, range_end)
        return DeleteRangeResult(1, 0)

    def _ask(self, name: str, key: bytes, range_end: bytes) -> None:
        self.requests.append((name, key, range_end))
        if name in self._errors:
            raise self._errors[name]
