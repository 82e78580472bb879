"""The hot paths of HTTP with authorization on: the same program, with a caller (issue 15, H2)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from aiohttp import ClientSession

from palisade.api.http.request_head import without_authorization
from palisade.api.http.server import HttpServer
from palisade.catalog.permissions import PermissionGrant, Permissions, Subject
from palisade.metastore.requests import Put
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.login import Login
from palisade.service.authorization.needs import needs_of
from palisade.service.authorization.rights import PermissionRow, UserRights
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import PermissionDenied, Unauthenticated
from palisade.wire.credentials import Password, Token, header_of
from tests.support.permission_world import Clock, FenceableRows, Users, as_user, gate_over

PUT = {"key": base64.b64encode(b"/a/x/k").decode(), "value": base64.b64encode(b"v").decode()}
OTHER = {**PUT, "key": base64.b64encode(b"/b/k").decode()}


async def put(http: ClientSession, user: str, body: Any) -> int:
    async with http.post("/v3/kv/put", json=body, headers=as_user(user)) as answer:
        await answer.read()
        return answer.status


async def test_hot_put_is_authorized_without_aiohttp(
    http: ClientSession, server: HttpServer, service: KeyValues, authorizer: Authorizer
) -> None:
    before = service.store.revision
    assert await put(http, "alice", PUT) == 200
    assert await put(http, "alice", OTHER) == 403
    assert await put(http, "bob", PUT) == 403
    assert service.store.revision == before + 1
    assert server._front is not None
    assert {connection._delegate for connection in server._front.connections} == {None}
    assert authorizer.refusals == {"permission-denied": 2}


async def test_hot_put_of_a_key_is_authorized_as_by_aiohttp(
    http: ClientSession, server: HttpServer, service: KeyValues
) -> None:
    before, answers = service.store.revision, []
    for user, key, headers in (
        ("alice", "/a/x/k", {}), ("alice", "/b/k", {}), ("alice", "/b/k", {"X-Other": "1"}), ("bob", "/a/x/k", {}),
    ):  # fmt: skip
        async with http.put(f"/v1/kv/{key}", data=b"v", headers=as_user(user) | headers) as answer:
            answers.append((answer.status, (await answer.json(content_type=None)).get("code")))
    assert answers == [(200, None), *[(403, "permission-denied")] * 3]
    assert service.store.revision == before + 1


async def test_hot_put_sees_a_revoke_at_once(http: ClientSession, users: Users) -> None:
    assert await put(http, "alice", PUT) == 200
    await users.regrant("alice")
    assert await put(http, "alice", PUT) == 403


async def test_hot_get_of_a_stranger_is_refused_as_by_aiohttp(http: ClientSession) -> None:
    answers = []
    for path in ("/v1/fenced//a/k", "/v1/fenced//a/k?revision=1"):
        async with http.get(path) as answer:
            challenge, code = answer.headers["WWW-Authenticate"], (await answer.json())["code"]
            answers.append((answer.status, answer.content_type, challenge, code))
    assert answers[0] == answers[1]
    assert answers[0][0] == 401


def test_kept_heads_hold_no_credentials() -> None:
    head = b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nAuthorization: Basic c2VjcmV0\r\nContent-Length: 5\r\n\r\n"
    assert without_authorization(head) == (
        b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
        "Basic c2VjcmV0",
    )


async def test_front_keeps_no_credentials(http: ClientSession, server: HttpServer) -> None:
    assert await put(http, "alice", PUT) == 200
    assert server._front is not None
    assert server._front._plans
    assert not any(b"uthorization" in head for head in server._front._plans)


@pytest.mark.parametrize("key", [b"/a/k", b"/b/k", b"palisade/x", b"palisade/catalog/permissions/users/u"])
def test_write_that_is_allowed_at_first_sight_is_allowed_by_its_needs(key: bytes) -> None:
    grants = (PermissionGrant("write", "/a/"), PermissionGrant("write", "palisade/"))
    rights = UserRights("u", Permissions([Subject("user", "u", grants)]))
    allowed = True
    try:
        rights.check(needs_of(Put(key), lambda _: ()))
    except PermissionDenied:
        allowed = False
    assert rights.may_write(key) is allowed is (key == b"/a/k")


# Cached rights of a header.


class StatefulRows(FenceableRows):
    """`known`: the source of the rows; the same object as long as none has changed."""

    known: object | None = "first"
    read = 0

    def state(self) -> object | None:
        return self.known

    def try_read(self, key: bytes) -> PermissionRow | None:
        self.read += 1
        return super().try_read(key)


@pytest.fixture
async def stateful(service: KeyValues) -> StatefulRows:
    return StatefulRows(service)


ALICE = header_of(Password("alice", "alices password"))["Authorization"]


async def test_rights_of_a_header_are_cached_while_no_row_can_have_changed(
    stateful: StatefulRows, clock: Clock, users: Users
) -> None:
    authorizer = gate_over(stateful, clock)
    await authorizer.identify(Password("alice", "alices password"), "here")
    first = authorizer.try_authenticate(ALICE)
    read = stateful.read
    assert authorizer.try_authenticate(ALICE) is first
    assert stateful.read == read
    await users.regrant("alice")
    stateful.known = "second"
    found = authorizer.try_authenticate(ALICE)
    assert found is not None
    with pytest.raises(PermissionDenied):
        found[1].check(needs_of(Put(b"/a/x/k"), lambda _: ()))


@pytest.mark.parametrize("after", [None, "moved"])
async def test_rights_are_kept_while_the_rows_that_they_follow_from_are_unchanged(
    stateful: StatefulRows, clock: Clock, users: Users, after: object | None
) -> None:
    """The vault moves with every write; rights follow from few rows of it."""
    authorizer = gate_over(stateful, clock)
    await authorizer.identify(Password("alice", "alices password"), "here")
    first = authorizer.try_authenticate(ALICE)
    assert first is not None
    stateful.known = after
    assert authorizer.try_authenticate(ALICE) is first
    await users.role("writers", ("write", "/c/"))
    stateful.known = after and "moved again"
    found = authorizer.try_authenticate(ALICE)
    assert found is not None
    assert not found[1].may_write(b"/b/k")
    assert found[1].may_write(b"/c/k")


async def test_rights_are_not_cached_where_rows_may_change_unseen(
    stateful: StatefulRows, clock: Clock, users: Users
) -> None:
    authorizer = gate_over(stateful, clock)
    stateful.known = None
    await authorizer.identify(Password("alice", "alices password"), "here")
    assert authorizer.try_authenticate(ALICE) is not None
    await users.drop("alice")
    assert authorizer.try_authenticate(ALICE) is None


async def test_cached_token_expires(stateful: StatefulRows, clock: Clock, users: Users, service: KeyValues) -> None:
    authorizer = gate_over(stateful, clock)
    token, _ = await Login(service, authorizer).token(Password("alice", "alices password"), "here", 60)
    header = header_of(Token(token))["Authorization"]
    stateful.known = "after the login"
    assert authorizer.try_authenticate(header) is authorizer.try_authenticate(header)
    clock.advance(61)
    with pytest.raises(Unauthenticated):
        authorizer.try_authenticate(header)
