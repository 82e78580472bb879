"""Ranges in another order than that of the keys, or with filters: read in pages, with the result of one read."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from palisade.client import Client
from palisade.metastore.range_read import needs_all
from palisade.metastore.requests import Range, SortOrder, SortTarget
from palisade.metastore.results import RangeResult
from palisade.metastore.state_machine import MetaStore
from palisade.service import range_pages
from palisade.service.range_pages import read_arranged
from tests.support.fake_group import FakeGroup

KEYS = 60
FILTERS = ({}, {"min_mod_revision": 20}, {"max_create_revision": 40}, {"min_mod_revision": 1000})


@pytest.fixture(autouse=True)
async def _some_keys(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, versions and revisions in other orders than the keys, some of them equal."""
    for name, value in (("PAGE_KEYS_FIRST", 2), ("PAGE_KEYS_MAX", 4), ("ARRANGED_BYTES", 10)):
        monkeypatch.setattr(range_pages, name, value)
    for number in range(KEYS):
        await client.put(f"/k/{number * 37 % KEYS:02}", f"v{number % 7}")
        if number % 3 == 0:
            await client.put(f"/k/{number * 37 % KEYS:02}", f"w{number % 5}")


async def test_result_is_that_of_one_read(group: FakeGroup) -> None:
    whole = Range(b"/k/", b"/k0")
    count = 0
    for order, target, limit, filters, keys_only in itertools.product(
        SortOrder, SortTarget, (0, 1, 5, KEYS, KEYS + 1), FILTERS, (False, True)
    ):
        request = replace(
            whole, sort_order=order, sort_target=target, limit=limit, keys_only=keys_only, exact_count=False, **filters
        )
        if not needs_all(request):
            continue
        for revision in (0, group.store.revision - 20):
            asked = replace(request, revision=revision)
            assert await read_arranged(group.store, asked) == group.store.range(asked), asked
            count += 1
    assert count > 1000


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
