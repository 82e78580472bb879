"""Revisions, versions and tombstones (M1), as etcd counts them."""

from __future__ import annotations

import pytest

from palisade.metastore.errors import FutureRevision
from palisade.metastore.requests import DeleteRange, LeaseGrant, LeaseRevoke, Put, Range, Tick
from palisade.metastore.results import KeyValue
from tests.support.meta_driver import Driver


def test_empty_store_is_at_revision_one_and_the_first_put_is_two(driver: Driver) -> None:
    assert (driver.store.revision, driver.store.minimal_revision) == (1, 1)
    assert driver.do(Put(b"a", b"1")).revision == 2
    assert driver.get(b"a") == KeyValue(b"a", b"1", 2, 2, 1, 0)


def test_overwrite_keeps_the_create_revision_and_increments_the_version(driver: Driver) -> None:
    for value in (b"1", b"2", b"3"):
        driver.do(Put(b"a", value))
    assert driver.get(b"a") == KeyValue(b"a", b"3", 2, 4, 3, 0)


def test_recreated_key_starts_at_version_one(driver: Driver) -> None:
    driver.do(Put(b"a", b"1"))
    driver.do(DeleteRange(b"a"))
    assert driver.store.get(b"a") is None
    driver.do(Put(b"a", b"2"))
    assert driver.get(b"a") == KeyValue(b"a", b"2", 4, 4, 1, 0)


def test_every_retained_revision_can_be_read(driver: Driver) -> None:
    driver.do(Put(b"a", b"1"))
    driver.do(Put(b"a", b"2"))
    driver.do(DeleteRange(b"a"))
    driver.do(Put(b"a", b"3"))
    read = [driver.store.range(Range(b"a", revision=revision)).kvs for revision in range(1, 6)]
    assert [tuple(kv.value for kv in kvs) for kvs in read] == [(), (b"1",), (b"2",), (), (b"3",)]


def test_past_read_has_the_present_revision_in_its_header(driver: Driver) -> None:
    driver.do(Put(b"a", b"1"))
    driver.do(Put(b"a", b"2"))
    assert driver.store.range(Range(b"a", revision=2)).revision == 3


def test_future_revision_is_refused_and_named(driver: Driver) -> None:
    with pytest.raises(FutureRevision, match="revision 7 is a future revision: the store is at 1"):
        driver.store.range(Range(b"a", revision=7))


def test_command_without_key_changes_gets_no_revision(driver: Driver) -> None:
    assert driver.do(DeleteRange(b"nothing")).revision == 1
    lease = driver.do(LeaseGrant(10_000)).id
    driver.do(LeaseRevoke(lease))
    driver.do(Tick())
    assert driver.store.revision == 1


def test_batch_gives_each_put_its_own_revision_in_order(driver: Driver) -> None:
    assert [wire[1] for wire in driver.all(Put(b"a"), Put(b"a"), Put(b"b"))] == [2, 3, 4]


def test_delete_range_is_one_revision_and_returns_keys_in_order(driver: Driver) -> None:
    for key in (b"c", b"a", b"b", b"d"):
        driver.do(Put(key, key * 2))
    result = driver.do(DeleteRange(b"a", b"d", prev_kv=True))
    assert (result.revision, result.deleted) == (6, 3)
    assert [kv.value for kv in result.prev_kvs] == [b"aa", b"bb", b"cc"]
    assert driver.store.key_count == 1


def test_entry_without_commands_moves_only_the_applied_index(driver: Driver) -> None:
    driver.do(Put(b"a"))
    before = driver.contents()
    driver.store.skip(9, 4)
    assert driver.store.applied == (9, 4)
    assert driver.contents() == before
    assert driver.restarted().store.applied == (9, 4)


def test_applied_index_and_data_move_together(driver: Driver) -> None:
    """etcd #13766."""
    driver.do(Put(b"a", b"1"))
    again = driver.restarted()
    assert again.store.applied == driver.store.applied
    assert again.get(b"a") == driver.get(b"a")
    assert again.store.digest() == driver.store.digest()
