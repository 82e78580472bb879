"""The parts in which a client receives a large range."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.client import Client
from palisade.metastore.requests import SortOrder


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [3, 3, 3, 1]),
        ({"limit": 7}, [3, 3, 1]),
        ({"limit": 7, "exact_count": True}, [3, 3, 1]),
        ({"exact_count": True}, [10]),
        ({"limit": 6, "keys_only": True}, [3, 3]),
        ({"sort_order": SortOrder.DESCEND}, [10]),
        ({"min_mod_revision": 1}, [10]),
    ],
)
async def test_parts_of_a_range_have_a_maximum_number_of_keys(
    client: Client, monkeypatch: pytest.MonkeyPatch, options: Any, sizes: list[int]
) -> None:
    """A part of 400,000 small keys kept a command silent for four seconds (issue 16)."""
    monkeypatch.setattr("palisade.client.store_api.PART_KEYS", 3)
    await client.put_many((f"k/{number}", "v") for number in range(10))
    parts = [part async for part in client.range_pages("k/", prefix=True, **{"exact_count": False, **options})]
    assert [len(part.kvs) for part in parts] == sizes
    whole = await client.range("k/", prefix=True, **options)
    assert tuple(kv for part in parts for kv in part.kvs) == whole.kvs
    assert parts[0].count == whole.count or "exact_count" not in options
    assert len({part.revision for part in parts}) == 1
