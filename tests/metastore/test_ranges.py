"""Range reads with etcd's options and etcd's order of steps (M1)."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.metastore.requests import DeleteRange, Put, Range, SortOrder, SortTarget, prefix_end
from palisade.metastore.results import RangeResult
from tests.support.meta_driver import Driver

ALL = (b"\0", b"\0")


@pytest.fixture
def five(driver: Driver) -> Driver:
    """a to e at 2 to 6, then a again at 7; values fall as keys rise."""
    for number, key in enumerate((b"a", b"b", b"c", b"d", b"e")):
        driver.do(Put(key, bytes([ord("z") - number])))
    driver.do(Put(b"a", b"m"))
    return driver


def read(driver: Driver, **options: Any) -> RangeResult:
    return driver.store.range(Range(*ALL, **options))


def keys(result: RangeResult) -> bytes:
    return b"".join(kv.key for kv in result.kvs)


def test_range_is_half_open_and_ordered(five: Driver) -> None:
    assert keys(five.store.range(Range(b"b", b"d"))) == b"bc"


def test_range_end_zero_byte_means_no_upper_bound(five: Driver) -> None:
    assert keys(five.store.range(Range(b"c", b"\0"))) == b"cde"


def test_range_with_its_end_before_the_start_is_empty(five: Driver) -> None:
    assert five.store.range(Range(b"d", b"b")) == RangeResult(7, (), False, 0)


def test_prefix_is_a_range(driver: Driver) -> None:
    for key in (b"p", b"p/1", b"p/2", b"p0"):
        driver.do(Put(key))
    assert driver.store.range(Range(b"p/", prefix_end(b"p/"))).count == 2


def test_limit_sets_more_and_count_covers_the_whole_range(five: Driver) -> None:
    result = read(five, limit=2)
    assert (keys(result), result.more, result.count) == (b"ab", True, 5)
    exact = read(five, limit=5)
    assert (keys(exact), exact.more) == (b"abcde", False)


def test_limited_read_without_exact_count_may_stop_counting(five: Driver) -> None:
    result = read(five, limit=2, exact_count=False)
    assert (keys(result), result.more, result.count) == (b"ab", True, 3)


def test_count_only_returns_no_keys_and_no_more(five: Driver) -> None:
    assert read(five, count_only=True, limit=1) == RangeResult(7, (), False, 5)
    assert five.store.range(Range(b"a", count_only=True)).count == 1


def test_keys_only_omits_values(five: Driver) -> None:
    result = read(five, keys_only=True)
    assert {kv.value for kv in result.kvs} == {b""}
    assert result.kvs[0].mod_revision == 7


@pytest.mark.parametrize(
    ("target", "ascending"),
    [
        (SortTarget.KEY, b"abcde"),
        (SortTarget.VERSION, b"bcdea"),
        (SortTarget.CREATE, b"abcde"),
        (SortTarget.MOD, b"bcdea"),
        (SortTarget.VALUE, b"aedcb"),
    ],
)
def test_sort_by_each_target(five: Driver, target: SortTarget, ascending: bytes) -> None:
    assert keys(read(five, sort_order=SortOrder.ASCEND, sort_target=target)) == ascending


def test_descending_sort_keeps_key_order_of_ties(five: Driver) -> None:
    result = read(five, sort_order=SortOrder.DESCEND, sort_target=SortTarget.VERSION)
    assert keys(result) == b"abcde"


def test_sort_precedes_limit(five: Driver) -> None:
    result = read(five, sort_order=SortOrder.DESCEND, limit=2)
    assert (keys(result), result.more) == (b"ed", True)


def test_sort_target_without_order_sorts_after_the_limit(five: Driver) -> None:
    """etcd fetches limit + 1 keys before it falls back to ascending."""
    assert keys(read(five, sort_target=SortTarget.VALUE, limit=2)) == b"ac"


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"min_mod_revision": 5}, b"ade"),
        ({"max_mod_revision": 4}, b"bc"),
        ({"min_create_revision": 4}, b"cde"),
        ({"max_create_revision": 3}, b"ab"),
        ({"min_mod_revision": 4, "max_mod_revision": 5}, b"cd"),
    ],
)
def test_filters_do_not_change_the_count(five: Driver, options: dict[str, int], left: bytes) -> None:
    result = read(five, **options)
    assert (keys(result), result.count) == (left, 5)


def test_filter_precedes_limit(five: Driver) -> None:
    result = read(five, min_mod_revision=5, limit=1)
    assert (keys(result), result.more, result.count) == (b"a", True, 5)


def test_filter_applies_to_a_single_key(five: Driver) -> None:
    result = five.store.range(Range(b"b", min_mod_revision=5))
    assert (result.kvs, result.count) == ((), 1)


def test_past_revision_is_read_with_the_same_options(five: Driver) -> None:
    five.do(DeleteRange(b"b", b"d"))
    assert keys(read(five)) == b"ade"
    assert keys(read(five, revision=4, sort_order=SortOrder.DESCEND)) == b"cba"
    assert read(five, revision=7, count_only=True).count == 5
