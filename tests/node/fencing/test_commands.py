"""Which requests touch strict regions, and which write the cluster's own keys."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.metastore.requests import (
    Compact,
    Compare,
    CompareResult,
    CompareTarget,
    CopyChunk,
    DeleteRange,
    LeaseGrant,
    LeaseRevoke,
    Put,
    Range,
    Txn,
)
from palisade.service.strict_commands import is_strict, writes_own

PREFIXES = (b"palisade/", b"s/")
COMPARE = Compare(b"s/a", CompareTarget.VERSION, CompareResult.EQUAL, 0)


@pytest.mark.parametrize(
    ("request_", "strict"),
    [
        (Put(b"s/a"), True),
        (Put(b"s"), False),
        (DeleteRange(b"s/a"), True),
        (DeleteRange(b"a", b"z"), True),
        (DeleteRange(b"q", b"s/"), False),
        (DeleteRange(b"a", b"s/"), True),
        (DeleteRange(b"t", b"\0"), False),
        (DeleteRange(b"a", b"\0"), True),
        (DeleteRange(b"s/m", b"s/n"), True),
        (Range(b"s/"), True),
        (Txn(success=(Put(b"x"), Put(b"s/x"))), True),
        (Txn(failure=(Txn(success=(DeleteRange(b"s/x"),)),)), True),
        (Txn(compare=(COMPARE,), success=(Put(b"x"),)), True),
        (Txn(success=(Put(b"x"),)), False),
        (LeaseRevoke(1), True),
        (LeaseGrant(5_000), False),
        (Compact(5), False),
        (CopyChunk(b"q/m", 2, b"q/c", b"p/", b"p0"), False),
        (CopyChunk(b"q/m", 2, b"q/c", b"s/", b"s0"), True),
        (CopyChunk(b"q/m", 2, b"s/c", b"p/", b"p0"), True),
        (CopyChunk(b"q/m", 2, b"q/c", b"\0", b"\0"), True),
    ],
    ids=str,
)
def test_is_strict_for_each_request(request_: Any, strict: bool) -> None:
    assert is_strict(request_, PREFIXES) is strict


@pytest.mark.parametrize(
    ("request_", "there", "key"),
    [
        (Put(b"palisade/regions/x"), False, b"palisade/regions/x"),
        (Put(b"palisade"), False, None),
        (DeleteRange(b"palisade/a"), False, b"palisade/a"),
        (DeleteRange(b"a", b"\0"), False, None),
        (DeleteRange(b"a", b"\0"), True, b"palisade/"),
        (DeleteRange(b"q", b"\0"), True, None),
        (Txn(success=(Put(b"x"),), failure=(Put(b"palisade/x"),)), False, b"palisade/x"),
        (Range(b"palisade/"), True, None),
        (LeaseRevoke(1), True, None),
        (CopyChunk(b"q/m", 2, b"q/c", b"q/", b"\0"), True, None),
        (CopyChunk(b"q/m", 2, b"q/c", b"a", b"\0"), False, b"palisade/"),
        (CopyChunk(b"q/m", 2, b"palisade/c", b"q/", b"\0"), False, b"palisade/c"),
    ],
    ids=str,
)
def test_writes_own_for_each_request(request_: Any, there: bool, key: bytes | None) -> None:
    assert writes_own(request_, lambda: there) == key
