"""The hot paths of HTTP with authorization on: the same program, with a caller (issue 15, H2)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from aiohttp import ClientSession

from palisade.api.http.authorization_header import HttpCallers
from palisade.api.http.fast_path import FastPathServer, HttpConnection, HttpLimits
from palisade.api.http.request_head import Hot, HttpReply
from palisade.api.http.server import HttpServer
from palisade.base.connection_limit import ConnectionLimit
from palisade.base.metrics import Metrics
from palisade.catalog.permissions import PermissionGrant, Permissions, Subject
from palisade.metastore.requests import Put, Range
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.callers import Access, AuthenticatedCaller, TokenCaller
from palisade.service.authorization.login import Login
from palisade.service.authorization.needs import Need, needs_of
from palisade.service.authorization.rights import PermissionRow, UserIdentity, UserRights
from palisade.service.callers import Caller
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import PermissionDenied, PermissionsUnknown, Unauthenticated
from palisade.wire.credentials import Password, Token, header_of
from tests.support.hand_clock import Clock
from tests.support.permission_world import AS_NODE, FenceableRows, Users, as_user, gate_over
from tests.support.waiting import until

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
    assert server.listener.fast_path is not None
    assert {connection._delegate for connection in server.listener.fast_path.connections} == {None}
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


async def test_front_keeps_no_credentials(http: ClientSession, server: HttpServer) -> None:
    assert await put(http, "alice", PUT) == 200
    assert server.listener.fast_path is not None
    heads = [b"".join(head) for head in server.listener.fast_path._plans]
    assert heads
    assert not any(b"uthorization" in head for head in heads)


class OnlyByPrefix(UserRights):
    """Every key about which the prefixes do not decide is refused."""

    def check(self, needs: Iterable[Need]) -> None:
        raise PermissionDenied("undecided")


@pytest.mark.parametrize("key", [b"/a/k", b"/b/k", b"palisade/x", b"palisade/catalog/permissions/users/u"])
def test_key_that_is_allowed_by_its_prefix_is_allowed_by_its_needs(key: bytes, authorizer: Authorizer) -> None:
    grants = [PermissionGrant(each, prefix) for each in ("read", "write") for prefix in ("/a/", "palisade/")]
    permissions = Permissions([Subject("user", "u", tuple(grants))])
    for kind in (OnlyByPrefix, UserRights):
        rights = kind("u", permissions)
        caller = AuthenticatedCaller(authorizer, UserIdentity("u", 1), rights, "here", "a test")
        writes, reads = partial(caller.require_write, key), partial(caller.require_read, key)
        assert is_allowed(writes) is is_allowed(partial(caller.require_writes, (b"/a/1", key))) is (key == b"/a/k")
        assert is_allowed(reads) is (key == b"/a/k" or (kind is UserRights and key == b"palisade/x"))
    assert allows(rights, Put(key)) is (key == b"/a/k")
    assert allows(rights, Range(key)) is (key in (b"/a/k", b"palisade/x"))


def is_allowed(check: Callable[[], None]) -> bool:
    try:
        check()
    except PermissionDenied:
        return False
    return True


def allows(rights: UserRights, request: Put | Range) -> bool:
    return is_allowed(partial(rights.check, needs_of(request, lambda _: ())))


# Cached rights of a header.


class StatefulRows(FenceableRows):
    """`known`: the source of the rows; the same object as long as none has changed."""

    known: object | None = "first"
    reads = 0

    def state(self) -> object | None:
        return self.known

    def try_read(self, key: bytes) -> PermissionRow | None:
        self.reads += 1
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
    read = stateful.reads
    assert authorizer.try_authenticate(ALICE) is first
    assert stateful.reads == read
    await users.regrant("alice")
    stateful.known = "second"
    found = authorizer.try_authenticate(ALICE)
    assert found is not None
    with pytest.raises(PermissionDenied):
        found.value[1].check(needs_of(Put(b"/a/x/k"), lambda _: ()))


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
    assert not b"/b/k".startswith(found.value[1].writable)
    assert b"/c/k".startswith(found.value[1].writable)


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


# Cached rights of a connection.


class StoppedFastPath(FastPathServer):
    def now(self) -> float:
        return 0.0


class Ignored(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None: ...


class Connection:
    """One connection on the fast path. `answers`: what its requests were answered with."""

    def __init__(self, authorizer: Authorizer, access: Access = Access.PER_REQUEST) -> None:
        hot = Hot("POST /v3/test", self._called, access, self._refused)
        metrics, callers = Metrics(), HttpCallers(authorizer)
        room = ConnectionLimit(metrics)
        fast_path = StoppedFastPath({"/v3/test": hot}, asyncio.Protocol, HttpLimits(), metrics, room, callers=callers)
        self.answers: list[object] = []
        self._connection = HttpConnection(fast_path)
        self._connection.connection_made(Ignored())

    @property
    def token(self) -> bytes | None:
        """The credentials that the connection keeps."""
        client = self._connection._client
        return client.caller.header if client and client.caller else None

    def post(self, header: str | None) -> object:
        """The caller that the request ran with, or its refusal."""
        line = "" if header is None else f"Authorization: {header}\r\n"
        self._connection.data_received(f"POST /v3/test HTTP/1.1\r\n{line}Content-Length: 0\r\n\r\n".encode())
        return self.answers[-1]

    def _called(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        self.answers.append(caller)
        reply(200, b"{}")

    def _refused(self, error: Exception, reply: HttpReply) -> None:
        self.answers.append(error)
        reply(403, b"{}")


async def token_of(service: KeyValues, authorizer: Authorizer) -> str:
    token, _ = await Login(service, authorizer).token(Password("alice", "alices password"), "here", 60)
    return header_of(Token(token))["Authorization"]


async def test_connection_keeps_its_token_and_neither_password_nor_join_token(
    stateful: StatefulRows, clock: Clock, users: Users, service: KeyValues
) -> None:
    authorizer = gate_over(stateful, clock)
    connection, token = Connection(authorizer), await token_of(service, authorizer)
    for header, kept in (
        (token, token.encode()),
        (ALICE, None),
        (token, token.encode()),
        (AS_NODE["Authorization"], None),
    ):
        assert isinstance(connection.post(header), AuthenticatedCaller)
        assert connection.token == kept


async def test_connection_checks_its_token_again_once_a_row_may_have_changed(
    stateful: StatefulRows, clock: Clock, users: Users, service: KeyValues
) -> None:
    authorizer = gate_over(stateful, clock)
    connection, token = Connection(authorizer), await token_of(service, authorizer)
    stateful.known = "after the login"
    for _ in range(2):
        caller = connection.post(token)
    read = stateful.reads
    caller = connection.post(token)
    assert isinstance(caller, AuthenticatedCaller)
    caller.require_write(b"/a/x/k")
    assert stateful.reads == read
    await users.regrant("alice")
    stateful.known = "after the revoke"
    caller = connection.post(token)
    assert isinstance(caller, AuthenticatedCaller)
    with pytest.raises(PermissionDenied):
        caller.require_write(b"/a/x/k")
    await users.drop("alice")
    stateful.known = "after the drop"
    assert isinstance(connection.post(token), Unauthenticated)


@pytest.mark.parametrize("header", [None, "Bearer pt1.another.token", "Basic YTpi"])
async def test_connection_never_lends_its_token_to_another_header(
    stateful: StatefulRows, clock: Clock, users: Users, service: KeyValues, header: str | None
) -> None:
    authorizer = gate_over(stateful, clock)
    connection, token = Connection(authorizer), await token_of(service, authorizer)
    assert isinstance(connection.post(token), AuthenticatedCaller)
    before = len(connection.answers)
    connection.post(header)
    assert not any(isinstance(each, AuthenticatedCaller) for each in connection.answers[before:])


async def test_connection_refuses_its_token_once_it_expires(
    stateful: StatefulRows, clock: Clock, users: Users, service: KeyValues
) -> None:
    authorizer = gate_over(stateful, clock)
    connection, token = Connection(authorizer), await token_of(service, authorizer)
    assert isinstance(connection.post(token), AuthenticatedCaller)
    clock.advance(61)
    assert isinstance(connection.post(token), Unauthenticated)


async def test_connection_of_a_fenced_node_reads_the_rights_from_the_cluster(
    stateful: StatefulRows, clock: Clock, users: Users, service: KeyValues
) -> None:
    """The state is unknown: nothing that was known before may be used."""
    authorizer = gate_over(stateful, clock)
    connection, token = Connection(authorizer), await token_of(service, authorizer)
    assert isinstance(connection.post(token), AuthenticatedCaller)
    stateful.known, stateful.fenced, stateful.cut_off = None, True, True
    before = len(connection.answers)
    connection.post(token)
    await until(lambda: len(connection.answers) > before)
    assert isinstance(connection.answers[-1], PermissionsUnknown)


async def test_token_that_a_connection_keeps_is_checked_for_the_route_of_each_request(
    stateful: StatefulRows, clock: Clock, users: Users, service: KeyValues
) -> None:
    authorizer = gate_over(stateful, clock)
    connection, token = Connection(authorizer, Access.ADMINS), await token_of(service, authorizer)
    for _ in range(3):
        assert isinstance(connection.post(token), PermissionDenied)
        assert connection.token == token.encode()
    assert authorizer.refusals == {"permission-denied": 3}


async def test_refusal_in_the_audit_log_names_the_request_and_not_the_first_of_its_token(
    http: ClientSession, service: KeyValues, authorizer: Authorizer, caplog: pytest.LogCaptureFixture
) -> None:
    token = {"Authorization": await token_of(service, authorizer)}
    for key in ("/a/x/first", "/b/second", "/b/third"):
        async with http.put(f"/v1/kv/{key}", data=b"v", headers=token) as answer:
            assert answer.status == (200 if key.startswith("/a/") else 403)
    assert "/b/second" in caplog.text
    assert "/b/third" in caplog.text
    assert "/a/x/first" not in caplog.text


@pytest.mark.parametrize("fault", ["state", "expiry", "header"])
async def test_planted_connection_that_trusts_its_token_is_found(
    stateful: StatefulRows, clock: Clock, users: Users, service: KeyValues, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Planted: a part of the comparison is left out."""
    is_of = TokenCaller.is_of
    left_out: dict[str, Callable[[TokenCaller, bytes | None], bool]] = {
        "state": lambda self, header: header == self.header and self._expires_ms > self._authorizer.wall_s() * 1000,
        "expiry": lambda self, header: header == self.header and self._state is self._authorizer.state(),
        "header": lambda self, header: is_of(self, self.header),
    }
    monkeypatch.setattr(TokenCaller, "is_of", left_out[fault])
    tests = {
        "state": test_connection_checks_its_token_again_once_a_row_may_have_changed(stateful, clock, users, service),
        "expiry": test_connection_refuses_its_token_once_it_expires(stateful, clock, users, service),
        "header": test_connection_never_lends_its_token_to_another_header(stateful, clock, users, service, None),
    }
    chosen = tests.pop(fault)
    for other in tests.values():
        other.close()
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await chosen
