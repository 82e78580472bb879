"""Unflushed writes are readable at every moment, also while a flush sorts them (M1)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.ordered_map import Table
from palisade.metastore.write_overlay import Layer


def written(layer: Layer, keys: list[bytes]) -> None:
    for key in keys:
        layer.values[key] = b"v"


@pytest.mark.parametrize("run_keys", [1, 3, 7, 1000])
@pytest.mark.parametrize("sorted_before", [0, 5, 40])
def test_layer_is_in_order_between_any_two_sorting_slices(
    run_keys: int, sorted_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palisade.metastore.write_overlay.RUN_KEYS", run_keys)
    chance = random.Random(7)
    keys = [b"%04d" % number for number in range(100)]
    chance.shuffle(keys)
    for looks_from in range(6):
        layer = Layer()
        written(layer, keys[:sorted_before])
        layer.keys()
        written(layer, keys[sorted_before:])
        for turn, _ in enumerate(layer.sort_in_slices()):
            if turn >= looks_from:
                assert list(layer.keys()) == sorted(keys)
                assert layer.touches(b"0003", b"0004")
        assert list(layer.keys()) == sorted(keys)


async def test_scans_during_a_flush_see_everything(tmp_path: Path) -> None:
    """A DELETE of a range that missed rows at that moment made replicas differ permanently, because each flushes at its
    own times.
    """
    store = LmdbStore(tmp_path)
    for number in range(100, 200):
        store.put(Table.KEY, b"k%04d" % number, b"v")
    assert len(list(store.scan(Table.KEY, b"k", b"l"))) == 100
    for number in range(100):
        store.put(Table.KEY, b"k%04d" % number, b"v")
    flushing = asyncio.ensure_future(store.flush())
    expected = [b"k%04d" % number for number in range(200)]
    turns = 0
    while not flushing.done():
        assert [key for key, _ in store.scan(Table.KEY, b"k0000", b"k0010")] == expected[:10]
        assert [key for key, _ in store.scan(Table.KEY, b"k", b"l")] == expected
        turns += 1
        await asyncio.sleep(0)
    assert turns > 3
    store.close()
