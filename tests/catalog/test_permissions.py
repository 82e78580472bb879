"""What grants allow, and how long data is kept: decisions that others rest on (issue 4; seed 000: deny, infinite)."""

from __future__ import annotations

import pytest

from palisade.catalog import keys
from palisade.catalog.permissions import PermissionGrant, Permissions, Privilege, Subject
from palisade.catalog.ttl import INFINITE, SAFE_DEFAULT, TtlRule, has_expired, places_of, ttl_of
from palisade.metastore.requests import FROM_KEY, prefix_end

READ, WRITE, CATALOG, ADMIN = Privilege

ALICE = Subject("user", "alice", (PermissionGrant("read", "/config/"),), ("ops",))
BOB = Subject(
    "user", "bob", (PermissionGrant("read", ""), PermissionGrant("write", ""), PermissionGrant("catalog", ""))
)
ROOT = Subject("user", "root", (PermissionGrant("admin", ""),))
OPS = Subject(
    "role",
    "ops",
    (PermissionGrant("write", "/config/ops/"), PermissionGrant("catalog", "palisade/catalog/tables/plant/")),
)
ALL = Permissions([ALICE, BOB, ROOT, OPS])


@pytest.mark.parametrize(
    ("user", "action", "key", "range_end", "allowed"),
    [
        ("alice", READ, b"/config/mode", b"", True),
        ("alice", READ, b"/config", b"", False),
        ("alice", READ, b"/configs", b"", False),
        ("alice", WRITE, b"/config/mode", b"", False),
        ("alice", WRITE, b"/config/ops/x", b"", True),
        ("alice", READ, b"/config/", prefix_end(b"/config/"), True),
        ("alice", READ, b"/config/a", b"/config/b", True),
        ("alice", READ, b"/config/a", b"/d", False),
        ("alice", READ, b"/config/a", FROM_KEY, False),
        ("alice", READ, b"/", prefix_end(b"/"), False),
        ("alice", CATALOG, b"palisade/catalog/tables/plant/readings", b"", True),
        ("alice", CATALOG, b"palisade/catalog/tables/plants/readings", b"", False),
        ("nobody", READ, b"/config/mode", b"", False),
        ("", READ, b"/config/mode", b"", False),
        ("bob", READ, b"anything", FROM_KEY, False),
        ("bob", READ, b"anything", b"b", True),
        ("bob", WRITE, b"anything", b"", True),
        ("bob", READ, keys.USERS + b"bob", b"", False),
        ("bob", READ, keys.CREDENTIALS + b"root", b"", False),
        ("bob", READ, keys.PROCEDURES + b"0123", b"", False),
        ("bob", READ, b"palisade/catalog/", prefix_end(b"palisade/catalog/"), False),
        ("bob", READ, keys.TABLES, prefix_end(keys.TABLES), True),
        ("bob", WRITE, keys.TABLES + b"a/b", b"", False),
        ("bob", WRITE, b"p", b"q", False),
        ("bob", CATALOG, keys.TABLES + b"a/b", b"", True),
        ("bob", CATALOG, keys.USERS + b"bob", b"", False),
        ("bob", ADMIN, b"x", b"", False),
        ("root", ADMIN, b"x", b"", True),
        ("root", READ, keys.CREDENTIALS + b"bob", b"", True),
        ("root", WRITE, b"\0", FROM_KEY, True),
        ("root", CATALOG, keys.USERS + b"bob", b"", True),
    ],
)
def test_access_without_a_grant_is_denied(
    user: str, action: Privilege, key: bytes, range_end: bytes, allowed: bool
) -> None:
    decision = ALL.may(user, action, key, range_end)
    assert decision.allowed is allowed
    assert decision.reason


@pytest.mark.parametrize("user", ["alice", "bob", "root", "nobody", ""])
@pytest.mark.parametrize(
    "key",
    [b"", b"/config/ops/x", b"/config/ops/", b"/config/ops", b"/config/mode", b"palisade", b"palisade.data/x", b"\xff"],
)
def test_writable_prefixes_decide_as_may_does(user: str, key: bytes) -> None:
    assert key.startswith(ALL.prefixes(user, WRITE)) is ALL.may(user, WRITE, key).allowed


def test_last_prefix_covers_ranges_to_the_end_of_the_key_space() -> None:
    last = Permissions([Subject("user", "eve", (PermissionGrant("read", "\U0010ffff"),))])
    prefix = "\U0010ffff".encode()
    assert last.may("eve", READ, prefix, prefix_end(prefix)).allowed
    assert not last.may("eve", READ, prefix, FROM_KEY).allowed


def test_damaged_or_misplaced_rows_grant_nothing() -> None:
    rows = {
        keys.USERS + b"alice": ALICE.to_bytes(),
        keys.USERS + b"mallory": ROOT.to_bytes(),
        keys.USERS + b"bob": b"{",
        keys.ROLES + b"ops": OPS.to_bytes(),
        keys.TABLES + b"a/b": b"{}",
    }
    found = Permissions.of(rows)
    assert found.may("alice", READ, b"/config/x").allowed
    assert found.may("alice", WRITE, b"/config/ops/x").reason == "role:ops has write on '/config/ops/'"
    for user in ("mallory", "root", "bob"):
        assert not found.may(user, READ, b"/config/x").allowed


def test_dropped_role_grants_nothing() -> None:
    assert not Permissions([ALICE]).may("alice", WRITE, b"/config/ops/x").allowed


# TTL.


def rules(*given: tuple[str, int]) -> dict[bytes, bytes]:
    return {keys.at(keys.TTL, path): TtlRule(path, ttl_ms).to_bytes() for path, ttl_ms in given}


def test_ttl_rule_of_the_longest_path_applies() -> None:
    rows = rules(("plant", 1000), ("plant.line1", 50), ("plant.line1.pump7", 9))
    assert ttl_of("plant.readings", rows.get) == 1000
    assert ttl_of("plant.line1.pump8", rows.get) == 50
    assert ttl_of("plant.line1.pump7", rows.get) == 9
    assert ttl_of("plant.line10", rows.get) == 1000
    assert places_of("a.b") == [keys.TTL + b"a/b", keys.TTL + b"a"]


def test_missing_or_unreadable_ttl_rule_keeps_data_forever() -> None:
    assert ttl_of("plant.readings", {}.get) is INFINITE
    assert ttl_of("plant.readings", lambda _: SAFE_DEFAULT) is INFINITE
    fenced = rules(("plant", 5)).get
    assert ttl_of("plant.readings", lambda key: SAFE_DEFAULT if key.endswith(b"readings") else fenced(key)) is INFINITE
    damaged = rules(("plant", 5)) | {keys.at(keys.TTL, "plant.readings"): b"garbage"}
    assert ttl_of("plant.readings", damaged.get) is INFINITE
    assert not has_expired(0, INFINITE, 1 << 60)


def test_data_expires_after_its_time_and_not_at_it() -> None:
    assert not has_expired(100, 50, 150)
    assert has_expired(100, 50, 151)
    assert not has_expired(200, 50, 100)
