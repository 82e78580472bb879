"""Guarantees of authorization: a revoke applies at once, a fenced node admits no request, secrets stay secret."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession

from palisade.catalog import keys
from palisade.catalog.passwords import fits, sealed
from palisade.metastore.requests import CopyChunk, Put
from palisade.service.authorization.attempts import Attempts, pause_s
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.needs import EVERYTHING, needs_of, reading, writing
from palisade.service.authorization.rights import PermissionRow
from palisade.service.callers import UNRESTRICTED
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import (
    NoCredentials,
    PermissionDenied,
    PermissionsUnknown,
    TooManyLogins,
    Unauthenticated,
    WrongPassword,
)
from palisade.wire.credentials import Password, Token, from_header, header_of
from tests.support.fake_group import FakeGroup
from tests.support.hand_clock import Clock
from tests.support.permission_world import PROOF, FenceableRows, Users, as_user, gate_over

ALICE = Password("alice", "alices password")


async def may_read(authorizer: Authorizer, identity: Any, key: bytes = b"/a/k") -> None:
    (await authorizer.rights(identity)).check((reading(key),))


# Revokes.


async def test_revoked_right_is_refused_in_the_next_request(authorizer: Authorizer, users: Users) -> None:
    identity = await authorizer.identify(ALICE, "here")
    await may_read(authorizer, identity)
    await users.regrant("alice")
    with pytest.raises(PermissionDenied, match="alice needs read on /a/k:"):
        await may_read(authorizer, identity)


async def test_right_revoked_from_a_role_is_refused(authorizer: Authorizer, users: Users) -> None:
    await users.regrant("alice", roles=("readers",))
    await users.role("readers", ("read", "/a/"))
    identity = await authorizer.identify(ALICE, "here")
    await may_read(authorizer, identity)
    await users.role("readers")
    with pytest.raises(PermissionDenied):
        await may_read(authorizer, identity)


async def test_dropped_user_and_changed_password_invalidate_sessions(authorizer: Authorizer, users: Users) -> None:
    alice, bob = (
        await authorizer.identify(ALICE, "here"),
        await authorizer.identify(Password("bob", "bobs password"), ""),
    )
    await users.drop("bob")
    await users.password("alice", "another password")
    for identity in (alice, bob):
        with pytest.raises(Unauthenticated):
            await authorizer.rights(identity)
    with pytest.raises(WrongPassword):
        await authorizer.identify(ALICE, "here")
    await authorizer.identify(Password("alice", "another password"), "here")


async def test_recreated_user_has_no_rights_of_the_old_one(authorizer: Authorizer, users: Users) -> None:
    old = await authorizer.identify(ALICE, "here")
    await users.drop("alice")
    await users.make("alice", ("read", "/a/"))
    with pytest.raises(Unauthenticated):
        await authorizer.rights(old)


async def test_planted_cached_right_is_found(
    authorizer: Authorizer, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: rights are cached by user and not by the rows from which they were derived."""
    kept: dict[Any, Any] = {}

    def lazily(self: Authorizer, identity: Any) -> Any:
        if identity not in kept:
            kept[identity] = real(self, identity)
        return kept[identity]

    real = Authorizer.try_rights
    monkeypatch.setattr(Authorizer, "try_rights", lazily)
    identity = await authorizer.identify(ALICE, "here")
    await may_read(authorizer, identity)
    await users.regrant("alice")
    await may_read(authorizer, identity)


async def test_roles_are_never_mixed_from_two_moments(
    authorizer: Authorizer, rows: FenceableRows, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """alice loses the role before it gets more rights: at no moment was she permitted to write /b/."""
    identity = await authorizer.identify(ALICE, "here")
    real, asked = rows.read, []

    async def changing(key: bytes) -> PermissionRow | None:
        row = await real(key)
        asked.append(key)
        if len(asked) == 2:
            await users.regrant("alice", ("read", "/a/"))
            await users.role("writers", ("write", ""))
        return row

    rows.fenced = True
    monkeypatch.setattr(rows, "read", changing)
    rights = await authorizer.rights(identity)
    assert len(asked) > 4
    with pytest.raises(PermissionDenied):
        rights.check(needs_of(Put(b"/b/k"), lambda _: ()))


def test_copy_of_a_chunk_needs_the_right_to_write_its_keys() -> None:
    needs = needs_of(CopyChunk(b"q/m", 2, b"q/c", b"p/", b"p0"), lambda _: ())
    assert set(needs) == {reading(b"q/m"), writing(b"q/c"), writing(b"p/", b"p0")}


# Policy deny.


async def test_fenced_node_asks_the_cluster_and_denies_where_that_fails(
    authorizer: Authorizer, rows: FenceableRows
) -> None:
    identity = await authorizer.identify(ALICE, "here")
    rows.fenced = True
    assert authorizer.try_rights(identity) is None
    await may_read(authorizer, identity)
    assert rows.asked_later
    rows.cut_off = True
    with pytest.raises(PermissionsUnknown):
        await authorizer.rights(identity)
    with pytest.raises(PermissionsUnknown):
        await authorizer.identify(ALICE, "here")


async def test_planted_cached_right_of_a_fenced_node_is_found(
    http: ClientSession, authorizer: Authorizer, rows: FenceableRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: while the permissions cannot be read, the last known ones are used."""
    assert await status(http, "/v1/kv?prefix=/a/", "alice") == 200
    rows.fenced = rows.cut_off = True
    assert await status(http, "/v1/kv?prefix=/a/", "alice") == 503
    rows.fenced = rows.cut_off = False
    identity = await authorizer.identify(ALICE, "here")
    last = await authorizer.rights(identity)
    rows.fenced = rows.cut_off = True
    monkeypatch.setattr(Authorizer, "try_rights", lambda self, identity: last)

    async def known(self: Authorizer, shown: Any, where: str, patience_s: float | None = None) -> Any:
        return identity

    monkeypatch.setattr(Authorizer, "identify", known)
    assert await status(http, "/v1/kv?prefix=/a/", "alice") == 200


async def test_requests_are_refused_without_majority(http: ClientSession, group: FakeGroup) -> None:
    group.lease_valid = group.majority = False
    async with http.get("/v1/status", headers=as_user("root")) as answer:
        assert answer.status == 503
        assert (await answer.json())["code"] == "permissions-unknown"
        assert (await answer.json())["retry"] is True
    async with http.get("/livez") as answer:
        assert answer.status == 200


async def status(http: ClientSession, path: str, user: str) -> int:
    async with http.get(path, headers=as_user(user)) as answer:
        return answer.status


# Passwords.


async def test_password_is_hashed_once_for_each_version_of_its_row(
    service: KeyValues, users: Users, clock: Clock
) -> None:
    tried: list[str] = []

    def counted(password: str, credential: Any) -> bool:
        tried.append(password)
        return fits(password, credential)

    await service.write(
        Put(keys.at(keys.CREDENTIALS, "alice"), json.dumps(sealed("correct horse", b"s" * 16)).encode()),
        caller=UNRESTRICTED,
    )
    authorizer = gate_over(FenceableRows(service), clock, fits=counted)
    shown = Password("alice", "correct horse")
    for _ in range(5):
        await authorizer.identify(shown, "here")
    assert tried == ["correct horse"]
    with pytest.raises(WrongPassword):
        await authorizer.identify(Password("alice", "wrong horse"), "here")
    assert len(tried) == 2
    await users.password("alice", "x")
    with pytest.raises(WrongPassword):
        await authorizer.identify(shown, "here")
    authorizer.close()


async def test_unknown_user_takes_as_long_as_a_known_one(service: KeyValues, users: Users, clock: Clock) -> None:
    tried = []
    authorizer = gate_over(FenceableRows(service), clock, fits=lambda *given: bool(tried.append(given)))
    with pytest.raises(WrongPassword) as unknown:
        await authorizer.identify(Password("nobody", "a password"), "here")
    with pytest.raises(WrongPassword) as wrong:
        await authorizer.identify(Password("alice", "a password"), "here")
    with pytest.raises(WrongPassword):
        await authorizer.identify(Password("../roles/writers", "a password"), "here")
    assert len(tried) == 3
    assert str(unknown.value) == str(wrong.value)
    authorizer.close()


def test_wrong_passwords_delay_only_their_source() -> None:
    attempts, who, other = Attempts(), ("root", "10.0.0.1"), ("root", "10.0.0.2")
    waits = []
    now = 0.0
    for _ in range(9):
        waits.append(attempts.wait_s(who, now))
        now += waits[-1]
        attempts.failed(who, now)
    assert waits == [0.0, 0.0, 0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
    assert attempts.wait_s(other, now) == 0.0
    assert attempts.wait_s(who, now) + pause_s(9) == attempts.wait_s(who, now)
    attempts.succeeded(who)
    assert attempts.wait_s(who, now) == 0.0


async def test_too_many_concurrent_sign_ins_are_refused(service: KeyValues, users: Users, clock: Clock) -> None:
    authorizer = gate_over(FenceableRows(service), clock, fits=lambda *_: False)
    for _ in range(12):
        authorizer._attempts.failed(("alice", "here"), clock.now())
    authorizer._attempts.wait_s(("alice", "here"), clock.now())
    with pytest.raises(TooManyLogins):
        await authorizer.identify(ALICE, "here")
    authorizer.close()


async def test_log_contains_no_secret(http: ClientSession, users: Users, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = (await login(http))["token"]
    for headers in (as_user("alice", "a wrong secret"), {"Authorization": f"Bearer {token}x"}, header_of(PROOF)):
        async with http.delete("/v1/kv/%2Fz", headers=headers) as answer:
            assert answer.status in (401, 403)
    async with http.post("/v1/login", json={"user": "alice", "password": "another wrong secret"}) as answer:
        assert answer.status == 401
    text = caplog.text
    assert "refused: user alice from 127.0.0.1: DELETE /v1/kv/%2Fz: wrong user name or password" in text
    for secret in ("secret", token, PROOF.text, "alices password"):
        assert secret not in text
    assert "alices password" not in repr(ALICE) + repr(Token(token))


async def test_refusals_are_logged_on_one_line_each_at_a_bounded_rate(
    authorizer: Authorizer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(200):
        authorizer.refused(NoCredentials("no"), "nobody", "here", "GET /\nforged: line")
    clock.advance(2)
    authorizer.refused(NoCredentials("no"), "nobody", "here", "GET /")
    lines = [record.getMessage() for record in caplog.records if record.name == "palisade.audit"]
    assert len(lines) == 52
    assert all("\n" not in line for line in lines)
    assert lines[-2] == "refused: 150 more requests, not logged"
    assert authorizer.refusals == {"no-credentials": 201}


# Tokens.


async def login(http: ClientSession, **more: Any) -> dict[str, Any]:
    body = {"user": "alice", "password": "alices password", **more}
    async with http.post("/v1/login", json=body) as answer:
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "no-store"
        found: dict[str, Any] = await answer.json()
    return found


async def test_token_is_accepted_until_it_expires(http: ClientSession, clock: Clock) -> None:
    found = await login(http, ttl_s=60)
    headers = {"Authorization": f"Bearer {found['token']}"}
    async with http.get("/v1/kv?prefix=/a/", headers=headers) as answer:
        assert answer.status == 200
    async with http.get("/v1/kv?prefix=/b/", headers=headers) as answer:
        assert answer.status == 403
    clock.advance(60)
    async with http.get("/v1/kv?prefix=/a/", headers=headers) as answer:
        assert answer.status == 401


async def test_token_of_one_node_is_accepted_by_another(
    http: ClientSession, service: KeyValues, clock: Clock, users: Users
) -> None:
    token = (await login(http))["token"]
    other = gate_over(FenceableRows(service), clock)
    await may_read(other, await other.identify(Token(token), "here"))
    await users.password("alice", "another password")
    with pytest.raises(Unauthenticated):
        await other.rights(await other.identify(Token(token), "here"))
    other.close()


async def test_etcd_authenticate_returns_a_token(http: ClientSession) -> None:
    async with http.post("/v3/auth/authenticate", json={"name": "alice", "password": "alices password"}) as answer:
        token = (await answer.json())["token"]
    async with http.post("/v3/kv/range", json={"key": "L2Ev"}, headers={"Authorization": token}) as answer:
        assert answer.status == 200
    async with http.post("/v3/kv/range", json={"key": "L2Iv"}, headers={"Authorization": token}) as answer:
        assert answer.status == 403
        assert (await answer.json())["code"] == 7
        assert (await answer.json())["error"] == "etcdserver: permission denied"
    async with http.post("/v3/kv/range", json={"key": "L2Ev"}, headers={"Authorization": token + "x"}) as answer:
        assert answer.status == 401
        assert (await answer.json())["code"] == 16
    async with http.post("/v3/auth/authenticate", json={"name": "alice", "password": "x"}) as answer:
        assert answer.status == 400
        assert "invalid user ID or password" in (await answer.json())["error"]


@pytest.mark.parametrize(
    "header",
    ["Basic", "Basic !!", "Basic YWxpY2U=", "Bearer", "Digest x", "Bearer pt1.x.y", "pt1.e30.x", "Palisade-Node 00",
     "Basic /w==", "x" * 3000, "Palisade-Node \xe9", "Bearer pt1.\xe9.x"],
)  # fmt: skip
async def test_bad_credentials_are_refused(http: ClientSession, header: str) -> None:
    async with http.get("/v1/status", headers={"Authorization": header}) as answer:
        assert answer.status == 401
        assert (await answer.json())["code"] == "unauthenticated"


async def test_browser_and_curl_authenticate_by_basic(http: ClientSession) -> None:
    async with http.get("/v1/status", headers={"Authorization": "basic YWxpY2U6YWxpY2VzIHBhc3N3b3Jk"}) as answer:
        assert answer.status == 200
    assert from_header(header_of(ALICE)["Authorization"]) == ALICE


@pytest.mark.parametrize("body", [{}, {"user": "alice"}, {"user": 1, "password": "x"}, [], {"user": "a", "extra": 1},
                                  {"user": "alice", "password": "alices password", "ttl_s": 10**9}])  # fmt: skip
async def test_invalid_login_is_refused(http: ClientSession, body: Any) -> None:
    async with http.post("/v1/login", json=body) as answer:
        assert answer.status == 400


# Watches.


async def next_line(answer: ClientResponse) -> dict[str, Any]:
    async with asyncio.timeout(5):
        found: dict[str, Any] = json.loads(await answer.content.readline())
    return found


@asynccontextmanager
async def watching(http: ClientSession) -> AsyncIterator[ClientResponse]:
    async with http.get("/v1/watch?prefix=/a/", headers=as_user("alice")) as answer:
        assert (await next_line(answer))["watching"]
        yield answer


async def test_watch_ends_before_an_event_that_its_caller_must_not_read(
    http: ClientSession, service: KeyValues, users: Users
) -> None:
    async with watching(http) as answer:
        await service.write(Put(b"/a/k", b"seen"), caller=UNRESTRICTED)
        while "events" not in (line := await next_line(answer)):
            assert "progress" in line
        await users.regrant("alice")
        await service.write(Put(b"/a/k", b"secret"), caller=UNRESTRICTED)
        while "problem" not in (line := await next_line(answer)):
            assert "progress" in line
        assert line["problem"]["code"] == "permission-denied"
        assert await answer.content.read() == b""


async def test_token_that_runs_out_ends_its_watch(http: ClientSession, service: KeyValues, clock: Clock) -> None:
    headers = {"Authorization": f"Bearer {(await login(http, ttl_s=60))['token']}"}
    async with http.get("/v1/watch?prefix=/a/", headers=headers) as answer:
        assert (await next_line(answer))["watching"]
        clock.advance(60)
        await service.write(Put(b"/a/k", b"secret"), caller=UNRESTRICTED)
        while "problem" not in (line := await next_line(answer)):
            assert "progress" in line
        assert line["problem"]["code"] == "unauthenticated"
        assert await answer.content.read() == b""


async def test_token_that_runs_out_ends_its_watch_of_etcd(
    http: ClientSession, service: KeyValues, clock: Clock
) -> None:
    headers = {"Authorization": (await login(http, ttl_s=60))["token"]}
    create = {"create_request": {"key": "L2Ev", "range_end": "L2Ew"}}
    async with http.post("/v3/watch", json=create, headers=headers) as answer:
        assert (await next_line(answer))["result"]["created"]
        clock.advance(60)
        await service.write(Put(b"/a/k", b"secret"), caller=UNRESTRICTED)
        ended = (await next_line(answer))["result"]
        assert ended["canceled"]
        assert "events" not in ended


async def test_etcd_watch_is_cancelled_with_the_text_of_etcd(
    http: ClientSession, service: KeyValues, users: Users
) -> None:
    create = {"create_request": {"key": "L2Ev", "range_end": "L2Ew"}}
    async with http.post("/v3/watch", json=create, headers=as_user("bob")) as answer:
        refused = (await next_line(answer))["result"]
        assert refused["canceled"]
        assert "PermissionDenied" in refused["cancel_reason"]
    async with http.post("/v3/watch", json=create, headers=as_user("alice")) as answer:
        assert (await next_line(answer))["result"]["created"]
        await users.regrant("alice")
        await service.write(Put(b"/a/k", b"secret"), caller=UNRESTRICTED)
        ended = (await next_line(answer))["result"]
        assert ended["canceled"]
        assert "events" not in ended


def test_cluster_operations_need_admin_on_everything() -> None:
    assert str(EVERYTHING) == "admin on every key"
