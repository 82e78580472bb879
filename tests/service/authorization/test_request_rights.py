"""The rights that a request needs are no fewer than it uses, whatever the store contains.

Each request is executed on two stores that differ in one key. If its result differs, it has read that key, and needs
READ on it; a key that it has changed needs WRITE. Thus no rule of `needs.py` is repeated here. What a client learns
from the number of keys that it deletes is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from palisade.catalog.permissions import Privilege
from palisade.metastore.errors import MetastoreError
from palisade.metastore.requests import (
    FROM_KEY,
    Compare,
    CompareResult,
    CompareTarget,
    CopyChunk,
    DeleteRange,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Put,
    Range,
    Txn,
    WatchRequest,
)
from palisade.metastore.results import DeleteRangeResult, DoneResult, PutResult, RangeResult, TxnResult
from palisade.metastore.staged_rows import pack_chunk
from palisade.service.authorization.needs import LeaseKeys, Need, Needs, needs_of, reading, writing
from tests.support.meta_driver import Driver
from tests.support.permission_world import covers

KEYS = (b"a", b"ab", b"b", b"c")
MANIFEST, CHUNK = b"m", b"n"
LEASE, OPENED = 7, 2 + 2 * len(KEYS)
LEASED = (b"a", b"c")
STAGED = pack_chunk([(b"a", b"4"), (b"ab", None)])
Content = Mapping[bytes, bytes | None]
"""None: the key does not exist."""
Rule = Callable[[Any, LeaseKeys], Needs]


def store_of(content: Content) -> Driver:
    """With a batch that was opened after the keys were written. Equal contents have equal revisions in every store."""
    driver = Driver()
    driver.do(LeaseGrant(60_000, LEASE))
    for key in KEYS:
        driver.do(Put(key, b"", LEASE if key in LEASED else 0))
    for key in KEYS:
        value = content[key]
        driver.do(DeleteRange(key) if value is None else Put(key, value, LEASE if key in LEASED else 0))
    driver.do(Put(MANIFEST))
    assert driver.store.revision == OPENED
    driver.do(Put(CHUNK, STAGED))
    if content[MANIFEST] is None:
        driver.do(DeleteRange(MANIFEST))
    return driver


def shown(result: Any) -> Any:
    """What a client learns about keys."""
    if isinstance(result, TxnResult):
        return result.succeeded, [shown(each) for each in result.results]
    if isinstance(result, RangeResult):
        return result.kvs, result.more, result.count
    if isinstance(result, DeleteRangeResult):
        return result.prev_kvs
    if isinstance(result, DoneResult):
        return bool(result.count)
    return result.prev_kv if isinstance(result, PutResult) else None


def run(driver: Driver, request: Any) -> Any:
    if isinstance(request, Range):
        return shown(driver.store.range(request))
    try:
        return shown(driver.do(request))
    except MetastoreError as error:
        return type(error)


def state(driver: Driver) -> dict[bytes, Any]:
    """By key, without revisions: those of a change depend on what else is deleted with it."""
    return {kv.key: (kv.value, kv.lease) for kv in driver.store.range(Range(FROM_KEY, FROM_KEY)).kvs}


def lacks(needs: tuple[Need, ...], privilege: Privilege, key: bytes) -> bool:
    return not any(need.privilege is privilege and covers(need, key) for need in needs)


def check(
    request: Any,
    content: Content,
    key: bytes,
    other: bytes | None,
    needs_of: Rule = needs_of,
) -> None:
    """`other`: what `key` is in the other store."""
    here, there = store_of(content), store_of({**content, key: other})
    needs = needs_of(request, lambda lease: here.store.lease_info(lease).keys)
    before = state(here)
    results = run(here, request), run(there, request)
    assert results[0] == results[1] or not lacks(needs, Privilege.READ, key), f"{request} reads {key!r} by {needs}"
    after = state(here)
    changed = {each for each in before.keys() | after.keys() if before.get(each) != after.get(each)}
    for each in changed:
        assert not lacks(needs, Privilege.WRITE, each), f"{request} writes {each!r} by {needs}"


OPERATIONS = (
    Range(b"a"),
    Range(b"a", b"b"),
    Range(b"b", FROM_KEY),
    Put(b"a", b"3"),
    Put(b"a", b"3", prev_kv=True),
    DeleteRange(b"a"),
    DeleteRange(b"a", b"b"),
    DeleteRange(b"a", b"b", prev_kv=True),
    DeleteRange(b"b", FROM_KEY),
)
COMPARES = tuple(
    Compare(b"a", CompareTarget.VALUE, result, b"1", range_end)
    for result in (CompareResult.EQUAL, CompareResult.NOT_EQUAL)
    for range_end in (b"", b"c")
)
REQUESTS = (
    *OPERATIONS,
    *(Txn((compare,)) for compare in COMPARES),
    *(Txn(COMPARES[:1], (each,)) for each in OPERATIONS),
    *(Txn(COMPARES[:1], (), (each,)) for each in OPERATIONS),
    *(Txn((), (Txn(COMPARES[:1], (each,), (each,)),)) for each in OPERATIONS),
    CopyChunk(MANIFEST, OPENED, CHUNK, b"a", b"b"),
    CopyChunk(MANIFEST, OPENED, CHUNK, b"a", FROM_KEY),
    LeaseRevoke(LEASE),
)
CONTENTS: tuple[Content, ...] = tuple(
    dict.fromkeys((*KEYS, MANIFEST), b"1") | missing for missing in ({}, {b"a": None}, {b"ab": None, b"c": None})
)
OTHERS: tuple[tuple[bytes, bytes | None], ...] = tuple(product((*KEYS, MANIFEST), (None, b"2")))


def check_all(request: Any, needs_of: Rule = needs_of) -> None:
    for content, (key, other) in product(CONTENTS, OTHERS):
        check(request, content, key, other, needs_of)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_request_needs_every_right_that_it_uses(request_: Any) -> None:
    check_all(request_)


def is_found(rule: Rule) -> bool:
    """Whether some request shows that this rule is wrong."""
    try:
        for each in REQUESTS:
            check_all(each, rule)
    except AssertionError:
        return True
    return False


def without_ends(request: Any, lease_keys: LeaseKeys) -> Needs:
    """Of a range, only its first key counts."""
    return tuple(Need(each.privilege, each.key) for each in needs_of(request, lease_keys))


def without_compares(request: Any, lease_keys: LeaseKeys) -> Needs:
    return needs_of(replace(request, compare=()) if isinstance(request, Txn) else request, lease_keys)


def without_previous_values(request: Any, lease_keys: LeaseKeys) -> Needs:
    return needs_of(replace(request, prev_kv=False) if isinstance(request, Put | DeleteRange) else request, lease_keys)


def without_the_second_branch(request: Any, lease_keys: LeaseKeys) -> Needs:
    return needs_of(replace(request, failure=()) if isinstance(request, Txn) else request, lease_keys)


def without_the_keys_of_leases(request: Any, lease_keys: LeaseKeys) -> Needs:
    return needs_of(request, lambda _: ())


def without_the_manifest(request: Any, lease_keys: LeaseKeys) -> Needs:
    return tuple(each for each in needs_of(request, lease_keys) if each.key != MANIFEST)


WRONG = (
    without_ends, without_compares, without_previous_values, without_the_second_branch, without_the_keys_of_leases,
    without_the_manifest,
)  # fmt: skip


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.__name__)
def test_planted_rule_that_forgets_a_right_is_found(rule: Rule) -> None:
    assert is_found(rule)


def test_lease_keep_alive_needs_the_right_to_write_every_key_of_the_lease() -> None:
    """No change of a key shows it: the keys stay after the time at which they should end."""
    assert needs_of(LeaseKeepAlive(LEASE), lambda _: (b"a", b"b")) == (writing(b"a"), writing(b"b"))


def test_watch_needs_the_right_to_read_its_whole_range() -> None:
    assert needs_of(WatchRequest(b"a", b"c"), lambda _: ()) == (reading(b"a", b"c"),)
