"""Compare, then, else (M2)."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.metastore.errors import Compacted, DuplicateKey, FutureRevision, KeyNotFound, LeaseNotFound
from palisade.metastore.requests import (
    Compact,
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    LeaseGrant,
    Put,
    Range,
    Txn,
)
from palisade.metastore.results import DeleteRangeResult, PutResult, TxnResult
from tests.support.meta_driver import Driver

EQUAL, GREATER, LESS, NOT_EQUAL = CompareResult
VERSION, CREATE, MOD, VALUE, LEASE = CompareTarget


def outcome(driver: Driver, *compare: Compare) -> bool:
    succeeded: bool = driver.do(Txn(compare)).succeeded
    return succeeded


def test_writes_of_a_transaction_share_one_revision(driver: Driver) -> None:
    driver.do(Put(b"old"))
    result = driver.do(Txn(success=(Put(b"a"), Put(b"b"), DeleteRange(b"old"))))
    assert result == TxnResult(3, True, (PutResult(3), PutResult(3), DeleteRangeResult(3, 1)))
    assert {driver.get(b"a").mod_revision, driver.get(b"b").mod_revision} == {3}


def test_failed_compare_takes_the_other_branch(driver: Driver) -> None:
    compare = Compare(b"a", VERSION, GREATER, 0)
    result = driver.do(Txn((compare,), (Put(b"then"),), (Put(b"else"),)))
    assert not result.succeeded
    assert driver.store.get(b"then") is None
    assert driver.get(b"else").version == 1


@pytest.mark.parametrize(
    ("compare", "expected"),
    [
        (Compare(b"a", VERSION, EQUAL, 2), True),
        (Compare(b"a", VERSION, NOT_EQUAL, 2), False),
        (Compare(b"a", CREATE, LESS, 3), True),
        (Compare(b"a", MOD, GREATER, 2), True),
        (Compare(b"a", MOD, GREATER, 3), False),
        (Compare(b"a", VALUE, EQUAL, b"2"), True),
        (Compare(b"a", VALUE, GREATER, b"1"), True),
        (Compare(b"a", LEASE, EQUAL, 77), True),
        (Compare(b"none", VERSION, EQUAL, 0), True),
        (Compare(b"none", CREATE, EQUAL, 0), True),
        (Compare(b"none", MOD, LESS, 1), True),
        (Compare(b"none", LEASE, EQUAL, 0), True),
        (Compare(b"none", VALUE, EQUAL, b""), False),
        (Compare(b"none", VALUE, NOT_EQUAL, b"x"), False),
    ],
)
def test_each_compare_decides_as_in_etcd(driver: Driver, compare: Compare, expected: bool) -> None:
    driver.do(LeaseGrant(60_000, 77))
    driver.do(Put(b"a", b"1"))
    driver.do(Put(b"a", b"2", lease=77))
    assert outcome(driver, compare) is expected


def test_range_compare_must_hold_for_every_key(driver: Driver) -> None:
    driver.all(Put(b"p1", b"x"), Put(b"p2", b"x"), Put(b"p3", b"y"))
    assert outcome(driver, Compare(b"p1", VALUE, EQUAL, b"x", b"p3"))
    assert not outcome(driver, Compare(b"p1", VALUE, EQUAL, b"x", b"p4"))
    assert outcome(driver, Compare(b"q", CREATE, EQUAL, 0, b"r"))
    assert not outcome(driver, Compare(b"q", VALUE, EQUAL, b"x", b"r"))


def test_range_in_a_transaction_sees_only_earlier_writes_of_it(driver: Driver) -> None:
    driver.do(Put(b"a", b"old"))
    read = Range(b"a", b"c")
    result = driver.do(Txn(success=(read, Put(b"a", b"new"), read)))
    first, _, second = result.results
    assert [kv.value for kv in first.kvs] == [b"old"]
    assert [(kv.value, kv.mod_revision, kv.version) for kv in second.kvs] == [(b"new", 3, 2)]
    assert (first.revision, second.revision) == (2, 3)


def test_range_in_a_transaction_can_read_the_past(driver: Driver) -> None:
    driver.do(Put(b"a", b"1"))
    result = driver.do(Txn(success=(Put(b"a", b"2"), Range(b"a", revision=2))))
    assert result.results[1].kvs[0].value == b"1"


def test_nested_transactions_choose_their_path_before_any_write(driver: Driver) -> None:
    nested = Txn((Compare(b"a", VERSION, EQUAL, 0),), (Put(b"was-missing"),), (Put(b"was-there"),))
    result = driver.do(Txn(success=(Put(b"a"), nested)))
    assert result.results[1].succeeded
    assert driver.get(b"was-missing").mod_revision == driver.get(b"a").mod_revision == 2


@pytest.mark.parametrize(
    "operations",
    [
        (Put(b"a"), Put(b"a")),
        (Put(b"b"), DeleteRange(b"a", b"c")),
        (DeleteRange(b"b"), Put(b"b")),
        (DeleteRange(b"a", b"\0"), Put(b"zzz")),
        (Put(b"a"), Txn(success=(Put(b"a"),))),
        (Put(b"a"), Txn(failure=(DeleteRange(b"a"),))),
        (Txn(success=(Put(b"a"),)), Txn(failure=(Put(b"a"),))),
        (Txn(success=(Put(b"a"),)), Txn(success=(DeleteRange(b"a"),))),
    ],
)
def test_duplicate_key_is_refused_and_named(driver: Driver, operations: tuple[Any, ...]) -> None:
    before = driver.contents()
    with pytest.raises(DuplicateKey, match="duplicate key b'"):
        driver.do(Txn(success=operations))
    assert driver.contents() == before


@pytest.mark.parametrize(
    "txn",
    [
        Txn(success=(Put(b"a"),), failure=(Put(b"a"),)),
        Txn(success=(Txn(success=(Put(b"a"),), failure=(DeleteRange(b"a"),)),)),
        Txn(success=(DeleteRange(b"a", b"c"), DeleteRange(b"b"))),
        Txn(success=(Put(b"c"), DeleteRange(b"a", b"c"))),
    ],
)
def test_branches_exclude_each_other_and_deletes_may_overlap(driver: Driver, txn: Txn) -> None:
    driver.do(Put(b"b"))
    driver.do(txn)


def test_delete_after_a_delete_in_the_same_transaction_finds_nothing(driver: Driver) -> None:
    driver.all(Put(b"a"), Put(b"b"))
    result = driver.do(Txn(success=(DeleteRange(b"a", b"c"), DeleteRange(b"b"))))
    assert [part.deleted for part in result.results] == [2, 0]


def test_transaction_without_writes_has_no_revision(driver: Driver) -> None:
    driver.do(Put(b"a"))
    assert driver.do(Txn(success=(Range(b"a"), DeleteRange(b"none")))).revision == 2


def test_reads_of_compacted_and_future_revisions_are_refused_before_any_write(driver: Driver) -> None:
    """etcd #18667: such a read in a transaction must not take the server down, nor leave half of it."""
    driver.all(Put(b"a"), Put(b"a"), Put(b"a"))
    driver.do(Compact(3))
    before = driver.contents()
    with pytest.raises(Compacted) as refused:
        driver.do(Txn(success=(Put(b"b"), Range(b"a", revision=2))))
    assert refused.value.minimal_revision == 3
    with pytest.raises(FutureRevision):
        driver.do(Txn(success=(Put(b"b"), Range(b"a", revision=5))))
    assert driver.contents() == before


def test_refusal_in_a_nested_transaction_changes_nothing(driver: Driver) -> None:
    driver.do(Put(b"a", b"1"))
    before = driver.contents()
    with pytest.raises(LeaseNotFound, match="lease 9 does not exist"):
        driver.do(Txn(success=(Put(b"b"), DeleteRange(b"a"), Txn(success=(Put(b"c", lease=9),)))))
    with pytest.raises(KeyNotFound, match="the key none does not exist"):
        driver.do(Txn(success=(Put(b"b"), Put(b"none", ignore_value=True))))
    assert driver.contents() == before


def test_only_the_chosen_path_can_be_refused(driver: Driver) -> None:
    assert driver.do(Txn(success=(Put(b"a"),), failure=(Put(b"b", lease=9),))).succeeded


def test_ignore_value_keeps_the_value_and_increments_the_version(driver: Driver) -> None:
    driver.do(LeaseGrant(60_000, 5))
    driver.do(Put(b"a", b"1", lease=5))
    result = driver.do(Put(b"a", ignore_value=True, prev_kv=True))
    assert result.prev_kv.lease == 5
    assert (driver.get(b"a").value, driver.get(b"a").version, driver.get(b"a").lease) == (b"1", 2, 0)


def test_ignore_lease_keeps_the_lease(driver: Driver) -> None:
    driver.do(LeaseGrant(60_000, 5))
    driver.do(Put(b"a", b"1", lease=5))
    driver.do(Put(b"a", b"2", ignore_lease=True))
    assert (driver.get(b"a").value, driver.get(b"a").lease) == (b"2", 5)
    assert driver.store.lease_info(5).keys == (b"a",)


def test_read_only_transaction_needs_no_entry(driver: Driver) -> None:
    driver.do(Put(b"a", b"1"))
    txn = Txn((Compare(b"a", VERSION, EQUAL, 1),), (Range(b"a"),), ())
    before = driver.contents()
    assert driver.store.read_txn(txn) == driver.do(txn)
    assert driver.contents() == before


def test_transaction_refused_after_its_first_write_stops_the_node(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a refusal that comes after the first write must never look like a refusal."""
    from palisade.base.invariant import InvariantViolated
    from palisade.metastore.txn import Executor

    def late(*_: Any) -> None:
        raise KeyNotFound("planted")

    monkeypatch.setattr(Executor, "_delete_range", late)
    with pytest.raises(InvariantViolated, match="refused half-way"):
        driver.do(Txn(success=(Put(b"a"), DeleteRange(b"b"))))
