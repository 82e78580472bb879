"""Limits and refusals (M8): each has a clear text, and none changes anything."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.errors import (
    InvalidRequest,
    KeyEmpty,
    KeyNotFound,
    KeyTooLarge,
    MetastoreError,
    QuotaExceeded,
    RequestTooLarge,
    TooManyOperations,
    ValueTooLarge,
)
from palisade.metastore.limits import Limits
from palisade.metastore.requests import (
    Command,
    Compact,
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    DisarmAlarm,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Pin,
    Put,
    Range,
    RequestId,
    Txn,
)
from palisade.metastore.validation import check_request
from tests.support.meta_driver import Driver

LIMITS = Limits()
COMPARE = Compare(b"a", CompareTarget.VERSION, CompareResult.EQUAL, 0)


def nested(depth: int) -> Txn:
    txn = Txn()
    for _ in range(depth):
        txn = Txn(success=(txn,))
    return txn


REFUSED: list[tuple[Any, type[MetastoreError], str]] = [
    (Put(b""), KeyEmpty, "key is empty"),
    (Put(b"k" * 4097), KeyTooLarge, "4097 bytes, the limit is 4096"),
    (Put(b"k", bytes(2**20 + 1)), ValueTooLarge, "1048577 bytes, the limit is 1048576"),
    (Put(b"k", b"v", ignore_value=True), InvalidRequest, "ignore_value"),
    (Put(b"k", lease=3, ignore_lease=True), InvalidRequest, "ignore_lease"),
    (Put(b"k", lease=-1), InvalidRequest, "lease id -1"),
    (Put(b"k", ignore_value=True), KeyNotFound, "the key k does not exist"),
    (DeleteRange(b"", b"z"), KeyEmpty, "key is empty"),
    (DeleteRange(b"a", b"z" * 5000), KeyTooLarge, "range end"),
    (Txn(success=(Put(b""),)), KeyEmpty, "key is empty"),
    (Txn((Compare(b"", CompareTarget.MOD, CompareResult.LESS, 1),)), KeyEmpty, "key is empty"),
    (Txn((Compare(b"a", CompareTarget.VALUE, CompareResult.LESS, 1),)), InvalidRequest, "bytes for VALUE"),
    (Txn((Compare(b"a", CompareTarget.MOD, CompareResult.LESS, b"1"),)), InvalidRequest, "a number for all others"),
    (Txn(success=tuple(Range(b"a") for _ in range(1025))), TooManyOperations, "1025 operations"),
    (Txn(success=(nested(1), *(Txn(success=(Range(b"a"),) * 300) for _ in range(4)))), TooManyOperations, "nested"),
    (Txn((COMPARE,) * 1025), TooManyOperations, "1025"),
    (nested(16), TooManyOperations, "too deep"),
    (Txn(success=tuple(Put(b"k%d" % n, bytes(2**20)) for n in range(2))), RequestTooLarge, "limit is 2097152"),
    (LeaseGrant(10_000, -5), InvalidRequest, "lease id -5"),
    (LeaseRevoke(5), MetastoreError, "lease 5 does not exist"),
    (LeaseKeepAlive(5), MetastoreError, "lease 5 does not exist"),
    (Compact(100), MetastoreError, "future revision"),
    (Pin("", 1, 1), InvalidRequest, "id of a pin"),
    (Pin("p", 1, 0), InvalidRequest, "a pin lives"),
]


@pytest.mark.parametrize(("request_", "kind", "text"), REFUSED)
def test_refusal_gives_the_reason_and_changes_nothing(
    driver: Driver, request_: Command, kind: type[MetastoreError], text: str
) -> None:
    driver.all(Put(b"a", b"1"), Put(b"b", b"2"), LeaseGrant(60_000, 7))
    before, digest = driver.contents(), driver.store.digest()
    with pytest.raises(kind, match=text):
        driver.do(request_)
    assert driver.contents() == before
    assert driver.store.digest() == digest
    assert driver.restarted().store.digest() == digest


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        b"\xff" * 40,
        b"\x81\x93\x01\x02\x03\x04",
        b"\xa5hello",
        b"\x90",
        b"\x92\x63\xc0",
        b"\x94\x01\xc0\xc4\x01a\xa1b",
        b"\x94\x01\xc0\x01\x02",
        b"\x94\x01\x92\xa1c\xa1d\xc4\x01a\xc4\x01b",
        b"\x94\x01\x01\xc4\x01a\xc4\x01b",
        b"\x92\xc3\xc0",
        b"\x93\x06\xc0\xcf" + b"\xff" * 8,
        b"\x93\x06\xc0\xcb" + bytes(8),
        b"\x95\x05\xc0\x90\x91\x92\x06\x01\x90",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 600,
        b"\xd7\xff" + b"\xff" * 8,
    ],
)
def test_garbage_is_refused_equally_on_all_replicas_and_changes_nothing(driver: Driver, garbage: bytes) -> None:
    before = driver.contents()
    twin = driver.copied()
    assert driver.batch(garbage) == twin.batch(garbage)
    with pytest.raises(InvalidRequest):
        decode_result(twin.batch(garbage)[0])
    assert driver.contents() == before == twin.contents()


def test_garbage_between_valid_commands_affects_neither(driver: Driver) -> None:
    results = driver.batch(encode_command(Put(b"a")), b"\xc1", encode_command(Put(b"b")))
    assert [result[0] for result in results] == [1, 0, 1]
    assert driver.store.revision == 3


@pytest.mark.parametrize(
    "request_",
    [
        Put(b"k" * 4096, bytes(2**20)),
        Txn(success=tuple(Range(b"a") for _ in range(1024))),
        Txn((COMPARE,) * 1024, (Range(b"a"),) * 1024, (Range(b"a"),) * 1024),
        nested(15),
        Range(b"\0", b"\0"),
    ],
)
def test_requests_at_the_limits_are_accepted(request_: Any) -> None:
    check_request(request_, LIMITS)


def test_different_limits_have_different_fingerprints() -> None:
    assert Limits().fingerprint() == Limits().fingerprint()
    assert Limits(quota_bytes=1).fingerprint() != Limits().fingerprint()


# The quota


@pytest.fixture
def small() -> Driver:
    """A quota of 10,000 bytes, exceeded by a part of what is in it."""
    driver = Driver(limits=Limits(quota_bytes=10_000))
    driver.do(LeaseGrant(60_000, 7))
    driver.do(Put(b"leased", bytes(3_000), lease=7))
    driver.do(Put(b"a", bytes(4_000)))
    assert not driver.store.alarm
    driver.do(Put(b"b", bytes(4_000)))
    assert driver.store.alarm
    return driver


@pytest.mark.parametrize(
    "request_", [Put(b"c"), Put(b"a"), Txn(success=(DeleteRange(b"a"), Put(b"c"))), LeaseGrant(5_000)]
)
def test_full_store_refuses_writes_that_need_space(small: Driver, request_: Command) -> None:
    before = small.contents()
    with pytest.raises(QuotaExceeded, match="quota is 10000: delete keys and compact"):
        small.do(request_)
    assert small.contents() == before


def test_full_store_still_reads_deletes_revokes_renews_and_compacts(small: Driver) -> None:
    assert small.store.range(Range(b"a")).count == 1
    small.do(LeaseKeepAlive(7))
    assert small.do(Txn((COMPARE,), (Put(b"c"),), (DeleteRange(b"a"),))).results[0].deleted == 1
    small.do(DeleteRange(b"b"), RequestId("c", 1))
    small.do(LeaseRevoke(7))
    small.do(Compact(small.store.revision))
    assert small.store.key_count == 0


def test_alarm_ends_when_there_is_space_again(small: Driver) -> None:
    with pytest.raises(QuotaExceeded, match="still holds"):
        small.do(DisarmAlarm())
    small.do(DeleteRange(b"a", b"c"))
    assert DisarmAlarm() not in small.store.due_commands(small.clock_ms)
    small.do(Compact(small.store.revision))
    assert DisarmAlarm() in small.store.due_commands(small.clock_ms)
    small.do(DisarmAlarm())
    small.do(Put(b"c"))


def test_alarm_is_replicated_state(small: Driver) -> None:
    for replica in (small.copied(), small.restarted()):
        with pytest.raises(QuotaExceeded):
            replica.do(Put(b"c"))


def test_quota_is_exceeded_by_at_most_one_request(small: Driver) -> None:
    assert small.store.size_bytes <= 10_000 + 4_000 + 2 * 10 + 300


def test_overwriting_without_compaction_fills_the_store() -> None:
    driver = Driver(limits=Limits(quota_bytes=10_000))
    for _ in range(100):
        try:
            driver.do(Put(b"a", bytes(900)))
        except QuotaExceeded:
            break
    assert driver.store.alarm
    driver.do(Compact(driver.store.revision))
    assert driver.store.size_bytes == 2 + 900 + 200
