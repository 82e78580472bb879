"""Ranges are read and counted in short turns of the event loop, with the result of one read."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest

from palisade.client import Client
from palisade.metastore.requests import Range, SortOrder, SortTarget
from palisade.metastore.results import RangeResult
from palisade.metastore.state_machine import MetaStore
from palisade.service import range_pages
from palisade.service.range_pages import read_in_turns
from tests.support.fake_group import FakeGroup

KEYS = 60
FILTERS = ({}, {"min_mod_revision": 20}, {"max_create_revision": 40}, {"min_mod_revision": 1000})


@pytest.fixture(autouse=True)
async def _some_keys(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, versions and revisions in other orders than the keys, some of them equal."""
    for name, value in (("PAGE_KEYS_FIRST", 2), ("PAGE_KEYS_MAX", 4), ("COUNTED_KEYS", 3), ("ARRANGED_BYTES", 10)):
        monkeypatch.setattr(range_pages, name, value)
    for number in range(KEYS):
        await client.put(f"/k/{number * 37 % KEYS:02}", f"v{number % 7}")
        if number % 3 == 0:
            await client.put(f"/k/{number * 37 % KEYS:02}", f"w{number % 5}")


async def test_result_is_that_of_one_read(group: FakeGroup) -> None:
    count = 0
    for order, target, limit, filters, keys_only in itertools.product(
        SortOrder, SortTarget, (0, 1, 5, KEYS, KEYS + 1), FILTERS, (False, True)
    ):
        request = Range(
            b"/k/", b"/k0", sort_order=order, sort_target=target, limit=limit, keys_only=keys_only, **filters
        )
        for exact, revision in itertools.product((False, True), (0, group.store.revision - 20)):
            asked = replace(request, exact_count=exact, revision=revision)
            found, expected = await read_in_turns(group.store, asked, None), group.store.range(asked)
            assert found == replace(expected, count=found.count), asked
            assert found.count == expected.count or (not exact and found.count == limit + 1), asked
            count += 1
    assert count > 2000


@pytest.mark.parametrize(("start", "end"), [(b"/k/", b"/k0"), (b"/k/07", b"/k/31"), (b"/k/3", b"\0"), (b"\0", b"\0")])
async def test_count_is_that_of_one_read(client: Client, group: FakeGroup, start: bytes, end: bytes) -> None:
    await client.delete("/k/1", prefix=True)
    await client.put("/k/13", "again")
    for revision, limit, only in itertools.product((0, *range(2, group.store.revision + 1, 7)), (0, 4), (False, True)):
        asked = Range(start, end, revision=revision, limit=limit, count_only=only)
        assert await read_in_turns(group.store, asked, None) == group.store.range(asked), asked


async def test_count_that_ends_at_the_bytes_is_of_all_keys(group: FakeGroup) -> None:
    found = await read_in_turns(group.store, Range(b"/k/", b"/k0", limit=50), 10)
    assert (len(found.kvs) < 10, found.more, found.count) == (True, True, KEYS)


@pytest.mark.parametrize("options", [{"count_only": True}, {"limit": 3}, {"limit": 3, "sort_target": SortTarget.VALUE}])
async def test_large_range_is_counted_in_short_turns_at_one_revision(
    client: Client, group: FakeGroup, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """A count of 400,000 keys was one turn, in which the node answered nothing else."""
    part, read, examined, counted = MetaStore.count_part, MetaStore.range, list[int](), list[Range]()

    def recorded(store: MetaStore, key: bytes, end: bytes, revision: int, rows: int, blocks: int) -> Any:
        examined.append(rows)
        return part(store, key, end, revision, rows, blocks)

    def ranged(store: MetaStore, request: Range) -> RangeResult:
        counted.extend([request] if request.count_only or (request.limit and request.exact_count) else [])
        return read(store, request)

    monkeypatch.setattr(MetaStore, "count_part", recorded)
    monkeypatch.setattr(MetaStore, "range", ranged)
    reading = asyncio.create_task(client.range("/k/", prefix=True, **options))
    writes = 0
    while not reading.done():
        await client.put(f"/k/{writes}/new", "v")
        await client.delete(f"/k/{59 - writes}")
        writes += 1
    assert writes > 1
    assert len(examined) > KEYS / range_pages.COUNTED_KEYS / 2
    assert max(examined) == range_pages.COUNTED_KEYS
    assert counted == []
    found = reading.result()
    before = read(group.store, Range(b"/k/", b"/k0", revision=found.revision, count_only=True))
    assert found.count == before.count


async def test_large_range_is_read_in_short_turns_at_one_revision(
    client: Client, group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of 400,000 keys sorted by value took seconds in one turn, and another node became the leader."""
    before = group.store.range(Range(b"/k/", b"/k0", sort_order=SortOrder.DESCEND, sort_target=SortTarget.VALUE))
    read, sizes = MetaStore.range, list[int]()

    def recorded(store: MetaStore, request: Range) -> RangeResult:
        found = read(store, request)
        sizes.append(len(found.kvs))
        return found

    monkeypatch.setattr(MetaStore, "range", recorded)
    reading = asyncio.create_task(
        client.range("/k/", prefix=True, sort_order=SortOrder.DESCEND, sort_target=SortTarget.VALUE)
    )
    writes = 0
    while not reading.done():
        await client.put("/k/00", f"z{writes}")
        writes += 1
    found = reading.result()
    assert writes > 1
    assert max(sizes) <= range_pages.PAGE_KEYS_MAX
    assert {kv.key: kv.mod_revision for kv in found.kvs if kv.key != b"/k/00"} == {
        kv.key: kv.mod_revision for kv in before.kvs if kv.key != b"/k/00"
    }
    assert max(kv.mod_revision for kv in found.kvs) <= found.revision
