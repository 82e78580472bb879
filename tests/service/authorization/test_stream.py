"""The stream authenticates its clients, and authorizes every frame (issue 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from palisade.api.stream.connection_state import StreamState
from palisade.api.stream.server import StreamServer
from palisade.api.stream.session_auth import SessionAuth
from palisade.base.frames import FrameParser, encode
from palisade.catalog import keys
from palisade.catalog.errors import NotAllowed
from palisade.catalog.segment import SegmentRecord
from palisade.client import Client
from palisade.metastore.command_codec import encode_command, operation_fields
from palisade.metastore.put_series import encode_series
from palisade.metastore.requests import Compact, DeleteRange, Pin, Put, Range, RequestId, Txn, WatchRequest
from palisade.raftgroup.errors import Unavailable
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.login import Login
from palisade.service.authorization.rights import PermissionRow
from palisade.service.callers import UNRESTRICTED
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import PermissionDenied, PermissionsUnknown, Unauthenticated
from palisade.wire.credentials import Credentials, Password, Token, to_hello
from palisade.wire.stream_frames import PROTOCOL, FrameKind
from tests.support.fake_group import FakeGroup
from tests.support.hand_clock import Clock
from tests.support.permission_world import PROOF, FenceableRows, Users
from tests.support.segment_names import segment
from tests.support.waiting import until

ALICE, BOB, ROOT = (Password(name, f"{name}s password") for name in ("alice", "bob", "root"))


@asynccontextmanager
async def client_of(stream: StreamServer, shown: Credentials | None, timeout_s: float = 3) -> AsyncIterator[Client]:
    address = [f"127.0.0.1:{stream.port}"]
    async with Client(address, follow_leader=False, timeout_s=timeout_s, credentials=shown) as client:
        yield client


class Raw:
    """A connection with an arbitrary HELLO."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._parser, self._frames = FrameParser(), list[Any]()

    def send(self, kind: int, body: Any) -> None:
        self.writer.write(encode(kind, body))

    async def frame(self) -> tuple[int, Any]:
        async with asyncio.timeout(5):
            while not self._frames:
                data = await self.reader.read(65536)
                if not data:
                    return -1, None
                self._frames += self._parser.feed(data)
        kind, body = self._frames.pop(0)
        return kind, body


@asynccontextmanager
async def raw(stream: StreamServer, hello: dict[str, Any], greeted: bool = True) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", stream.port)
    connection = Raw(reader, writer)
    connection.send(FrameKind.HELLO, {"protocol": PROTOCOL, "timeout_ms": 3000, **hello})
    if greeted:
        assert (await connection.frame())[0] == FrameKind.WELCOME
    try:
        yield connection
    finally:
        writer.close()


async def test_node_writes_announcements_and_no_other_rows_of_segments(stream: StreamServer) -> None:
    """Issue 17: data nodes announce by the join token; users need ADMIN."""
    record = SegmentRecord(segment(1), 1, 2, 10, "sha256:" + "ab" * 32, 1)
    row = Put(segment(1).key, record.to_bytes())
    async with client_of(stream, PROOF) as node:
        lease = await node.segments_lease(0, 10_000)
        assert await node.segments_lease(lease, 10_000) == lease
        announcement = Txn((), (Put(segment(1).announcement_key("n1"), b"", lease),))
        assert (await node.segments_announce(announcement, RequestId("n1", 1))).succeeded
        with pytest.raises(NotAllowed):
            await node.segments_announce(Txn((), (row,)), RequestId("n1", 2))
        with pytest.raises(PermissionDenied):
            await node.segments_txn((), [row])
    async with client_of(stream, ALICE) as user:
        with pytest.raises(PermissionDenied):
            await user.segments_announce(announcement, RequestId("alice", 1))
        with pytest.raises(PermissionDenied):
            await user.segments_txn((), [row])


async def test_late_attempt_of_an_announcement_changes_nothing_after_its_withdrawal(stream: StreamServer) -> None:
    """Issue 17: the client repeats it over another node, so both attempts may arrive."""
    key = segment(1).announcement_key("n1")
    async with client_of(stream, PROOF) as node, client_of(stream, ROOT) as root:
        lease = await node.segments_lease(0, 10_000)
        put, delete = (Txn((), (each,)) for each in (Put(key, b"", lease), DeleteRange(key)))
        first = await node.segments_announce(put, RequestId("n1", 1))
        await node.segments_announce(delete, RequestId("n1", 2))
        assert await node.segments_announce(put, RequestId("n1", 1)) == first
        assert await root.get(key) is None


async def test_node_that_cannot_read_the_permissions_gives_the_reason_before_clients_give_up(
    stream: StreamServer, rows: FenceableRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three members were frozen: the client wrote "no answer in time" of the member that ran (issue 16)."""

    async def never(_: bytes) -> None:
        await asyncio.sleep(3600)

    rows.fenced = True
    monkeypatch.setattr(rows, "read", never)
    monkeypatch.setattr("palisade.api.stream.session_auth.GREETING_S", 0.05)
    reason = r"could not read the permissions in time: its cluster does not answer; .*leases"
    for shown in (ALICE, Token("pt1.WyJhIl0.x")):
        async with raw(stream, to_hello(shown), greeted=False) as connection:
            kind, body = await connection.frame()
            assert (kind, body["code"]) == (FrameKind.REFUSED, "permissions-unknown")
    async with client_of(stream, ALICE, timeout_s=0.5) as client:
        with pytest.raises(Unavailable, match=reason):
            await client.get("/a/k")


async def test_node_that_cannot_read_the_grants_of_a_user_gives_the_reason_before_clients_give_up(
    stream: StreamServer, rows: FenceableRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cluster lost the leader between the two reads: identity first, grants after it (issue 16)."""
    read = rows.read

    async def credentials_alone(key: bytes) -> PermissionRow | None:
        return await read(key) if key.startswith(keys.CREDENTIALS) else await asyncio.sleep(3600)

    rows.fenced = True
    monkeypatch.setattr(rows, "read", credentials_alone)
    monkeypatch.setattr("palisade.api.stream.session_auth.GREETING_S", 0.05)
    async with raw(stream, to_hello(ALICE), greeted=False) as connection:
        kind, body = await connection.frame()
    assert (kind, body["code"]) == (FrameKind.REFUSED, "permissions-unknown")


async def test_user_executes_only_permitted_requests(stream: StreamServer) -> None:
    async with client_of(stream, ALICE) as client:
        await client.put("/a/x/k", "v")
        assert (await client.get("/a/x/k")).value == b"v"
        for refused in (
            client.put("/a/k", "v"),
            client.get("/b/k"),
            client.range("/", prefix=True),
            client.delete("/a/", prefix=True),
            client.put("/b/x", "v", prev_kv=True),
            client.compact(1),
            client.txn([], success=[Put(b"/a/x/k", b"")], failure=[Put(b"/a/k", b"")]),
            client.catalog_do("create-role", {"role": "r"}, procedure="p", wait_s=0),
            client.procedures(open_only=False, limit=1),
        ):
            with pytest.raises(PermissionDenied):
                await refused
        await client.status()


@pytest.mark.parametrize("shown", [None, Password("alice", "wrong"), Token("pt1.x.y")])
async def test_unauthenticated_client_is_refused_at_hello(stream: StreamServer, shown: Credentials | None) -> None:
    """And not only at the deadline, as if no node were reachable."""
    async with client_of(stream, shown, timeout_s=60) as client, asyncio.timeout(5):
        with pytest.raises(Unauthenticated):
            await client.get("/a/k")


async def test_client_without_work_does_not_try_a_wrong_password_again(
    stream: StreamServer, authorizer: Authorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palisade.client.session.BACKOFF_S", (0.0, 0.0))
    async with client_of(stream, Password("alice", "wrong")) as client:
        for tries in (1, 2):
            with pytest.raises(Unauthenticated):
                await client.get("/a/k")
            for _ in range(500):
                await asyncio.sleep(0)
            assert authorizer.logins["wrong"] <= 2 * tries


async def test_token_grants_the_same_rights_as_the_password(
    stream: StreamServer, service: KeyValues, authorizer: Authorizer
) -> None:
    token, _ = await Login(service, authorizer).token(ALICE, "here")
    async with client_of(stream, Token(token)) as client:
        await client.put("/a/x/k", "v")


@pytest.mark.parametrize("fenced", [False, True])
async def test_token_that_runs_out_ends_what_its_open_connection_may(
    stream: StreamServer, service: KeyValues, authorizer: Authorizer, clock: Clock, rows: FenceableRows, fenced: bool
) -> None:
    """Also where the rights have to be waited for (issue 16)."""
    token, _ = await Login(service, authorizer).token(ALICE, "here", 60)
    async with client_of(stream, Token(token)) as client:
        clock.advance(59)
        await client.put("/a/x/k", "v")
        rows.fenced = fenced
        clock.advance(1)
        with pytest.raises(Unauthenticated):
            await client.get("/a/x/k")
        with pytest.raises(Unauthenticated):
            await client.put("/a/x/k", "w")
    kept = service.store.get(b"/a/x/k")
    assert kept is not None
    assert kept.value == b"v"


@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.parametrize("fenced", [False, True])
async def test_write_on_an_expired_token_is_refused_as_not_executed(
    *,
    stream: StreamServer,
    service: KeyValues,
    authorizer: Authorizer,
    clock: Clock,
    rows: FenceableRows,
    fenced: bool,
    repeatable: bool,
) -> None:
    """It ended as OutcomeUnknown, although the node had executed nothing (issue 16). Both writes are refused, the
    second one of them in a frame of its own."""
    token, _ = await Login(service, authorizer).token(ALICE, "here", 60)
    address = [f"127.0.0.1:{stream.port}"]
    async with Client(address, credentials=Token(token), exactly_once=repeatable) as client:
        await client.put("/a/x/k", "v")
        rows.fenced = fenced
        clock.advance(60)
        first = asyncio.ensure_future(client.put("/a/x/k", "w"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(client.txn([], success=[Put(b"/a/x/k", b"x")]))
        for each in (first, second):
            with pytest.raises(Unauthenticated, match="expired"):
                await each
    kept = service.store.get(b"/a/x/k")
    assert kept is not None
    assert kept.value == b"v"


async def test_writes_in_flight_are_answered_before_an_expired_token_ends_the_connection(
    stream: StreamServer, service: KeyValues, authorizer: Authorizer, clock: Clock, group: FakeGroup
) -> None:
    token, _ = await Login(service, authorizer).token(ALICE, "here", 60)
    async with raw(stream, to_hello(Token(token))) as connection:
        group.held, before = True, group.submitted
        connection.send(FrameKind.WRITES, [1, encode_command(Put(b"/a/x/1", b""), None)])
        await until(lambda: group.submitted > before)
        clock.advance(60)
        connection.send(FrameKind.WRITES, [2, encode_command(Put(b"/a/x/2", b""), None)])
        connection.send(FrameKind.READS, [3, operation_fields(Range(b"/a/x/1"))])
        await until(lambda: any(each._state is StreamState.SIGNED_OUT for each in stream.connections))
        group.release()
        kind, body = await connection.frame()
        assert (kind, body[::2]) == (FrameKind.RESULTS, [1])
        kind, body = await connection.frame()
        assert (kind, body["code"], body["unanswered_not_executed"]) == (FrameKind.REFUSED, "unauthenticated", True)
        assert (await connection.frame())[0] == -1
    assert service.store.get(b"/a/x/2") is None


async def test_token_that_runs_out_ends_its_watch(
    stream: StreamServer, service: KeyValues, authorizer: Authorizer, clock: Clock
) -> None:
    ended = await watched_after_the_token(stream, service, authorizer, clock)
    assert ended == (FrameKind.WATCH_ENDED, "unauthenticated")


async def test_planted_watch_that_is_not_reauthorized_is_found(
    stream: StreamServer, service: KeyValues, authorizer: Authorizer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: only the watch continues."""

    async def passes(self: SessionAuth, watched: WatchRequest) -> None:
        """Whatever the token."""

    monkeypatch.setattr(SessionAuth, "reauthorize", passes)
    kind, content = await watched_after_the_token(stream, service, authorizer, clock)
    assert kind == FrameKind.EVENTS
    assert "secret" in content


async def watched_after_the_token(
    stream: StreamServer, service: KeyValues, authorizer: Authorizer, clock: Clock
) -> tuple[int, str]:
    """The frame that a change causes after the token has run out, and the code or value in it. The client sends
    nothing then, so only the watch itself is authorized."""
    token, _ = await Login(service, authorizer).token(ALICE, "here", 60)
    async with raw(stream, to_hello(Token(token))) as connection:
        connection.send(FrameKind.WATCH, [1, b"/a/", b"/a0", 0, False, [], 60_000, 8])
        assert (await connection.frame())[0] == FrameKind.WATCHING
        await service.write(Put(b"/a/k", b"seen"), caller=UNRESTRICTED)
        assert (await connection.frame())[0] == FrameKind.EVENTS
        clock.advance(60)
        await service.write(Put(b"/a/k", b"secret"), caller=UNRESTRICTED)
        kind, body = await connection.frame()
        return kind, body[1] if kind == FrameKind.WATCH_ENDED else str(body)


async def test_revoke_applies_to_open_connections(stream: StreamServer, users: Users) -> None:
    async with client_of(stream, ALICE) as client:
        await client.put("/a/x/k", "v")
        await users.regrant("alice", ("read", "/a/"))
        with pytest.raises(PermissionDenied):
            await client.put("/a/x/k", "w")
        assert (await client.get("/a/x/k")).value == b"v"
        await users.drop("alice")
        with pytest.raises(Unauthenticated):
            await client.get("/a/x/k")


async def test_watch_ends_with_the_right_to_read(stream: StreamServer, service: KeyValues, users: Users) -> None:
    async with client_of(stream, ALICE) as client:
        async with client.watch("/a/", prefix=True) as changes:
            first = asyncio.ensure_future(anext(changes))
            await until(lambda: service.metrics.watchers)
            await service.write(Put(b"/a/k", b"seen"), caller=UNRESTRICTED)
            assert (await first).events[0].kv.value == b"seen"
            await users.regrant("alice")
            await service.write(Put(b"/a/k", b"secret"), caller=UNRESTRICTED)
            with pytest.raises(PermissionDenied):
                await anext(changes)
        with pytest.raises(PermissionDenied):
            async with client.watch("/b/", prefix=True) as changes:
                await anext(changes)


async def test_permitted_puts_of_a_series_are_executed(stream: StreamServer, service: KeyValues) -> None:
    contents = [b"/a/x/1", b"v", b"/a/2", b"v", b"/a/x/3", b"v"]
    async with raw(stream, to_hello(ALICE)) as connection:
        connection.send(FrameKind.WRITES, [10, encode_series(None, contents)])
        answered = dict([await numbers(connection), await numbers(connection)])
    assert answered == {FrameKind.FAILURES: [11], FrameKind.RESULTS: [10, 12]}
    assert service.store.range(Range(b"/a/2")).kvs == ()
    assert service.store.range(Range(b"/a/x/3")).kvs


async def numbers(connection: Raw) -> tuple[int, list[int]]:
    kind, body = await connection.frame()
    return kind, sorted(body[::2])


async def test_commands_that_the_client_does_not_send_need_admin(stream: StreamServer) -> None:
    async with raw(stream, to_hello(ALICE)) as connection:
        for request in (Compact(1), Pin("x", 1, 1000), DeleteRange(b"\0", b"\0")):
            connection.send(FrameKind.WRITES, [1, encode_command(request, None)])
            kind, body = await connection.frame()
            assert (kind, body[1][0]) == (FrameKind.FAILURES, "permission-denied")


async def test_request_before_welcome_is_not_executed(stream: StreamServer, service: KeyValues) -> None:
    async with raw(stream, to_hello(ROOT), greeted=False) as connection:
        connection.send(FrameKind.WRITES, [1, encode_command(Put(b"/early", b""), None)])
        kinds = [kind async for kind, _ in frames(connection)]
    assert kinds == [FrameKind.REFUSED, -1]
    assert service.store.range(Range(b"/early")).kvs == ()


async def frames(connection: Raw) -> AsyncIterator[tuple[int, Any]]:
    while True:
        found = await connection.frame()
        yield found
        if found[0] == -1:
            return


async def test_frames_keep_their_order_while_rights_are_fetched(
    stream: StreamServer, rows: FenceableRows, service: KeyValues
) -> None:
    async with client_of(stream, ALICE) as client:
        await client.status()
        rows.fenced = True
        await asyncio.gather(*(client.put("/a/x/k", str(number)) for number in range(20)))
        assert (await client.get("/a/x/k")).value == b"19"
        assert rows.asked_later


async def test_node_without_permissions_refuses_until_it_can_read_them(
    stream: StreamServer, rows: FenceableRows
) -> None:
    """The client retries until shortly before its deadline, since a lease may come back."""
    async with client_of(stream, ALICE, timeout_s=0.4) as client:
        await client.put("/a/x/k", "v")
        rows.fenced = rows.cut_off = True
        with pytest.raises(PermissionsUnknown):
            await client.put("/a/x/k", "w")
        later = asyncio.ensure_future(client.put("/a/x/k", "v"))
        rows.fenced = False
        await later
        assert (await client.get("/a/x/k")).value == b"v"


async def test_join_token_permits_reads_only(stream: StreamServer) -> None:
    async with raw(stream, to_hello(PROOF)) as connection:
        connection.send(FrameKind.READS, [1, operation_fields(Range(b"/a/k"))])
        assert (await connection.frame())[0] == FrameKind.RESULTS
        connection.send(FrameKind.WRITES, [2, encode_command(Put(b"/a/k", b""), None)])
        assert (await connection.frame())[0] == FrameKind.FAILURES


@pytest.mark.parametrize("hello", [{"user": "alice"}, {"user": 1, "password": "x"}, {"token": "x", "user": "y"},
                                   {"node": "00"}, {"password": "x" * 5000, "user": "alice"}])  # fmt: skip
async def test_hello_with_bad_credentials_is_refused(stream: StreamServer, hello: dict[str, Any]) -> None:
    async with raw(stream, hello, greeted=False) as connection:
        kind, body = await connection.frame()
        assert kind == FrameKind.REFUSED
        assert body["code"] == "unauthenticated"
        assert (await connection.frame())[0] == -1


async def test_planted_connection_without_authorization_is_found(
    stream: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: writes are not authorized."""
    monkeypatch.setattr(SessionAuth, "caller", lambda self, action: UNRESTRICTED)
    async with client_of(stream, BOB) as client:
        await client.put("/b/k", "v")


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("scan_count", [0]),
        ("scan_rows", [1, ["", 1]]),
        ("scan_changes", [[1, 0], 1, ["", 1]]),
        ("pin", ["job", 1, 1000]),
        ("unpin", ["job"]),
    ],
)
async def test_scan_needs_the_right_to_read_its_whole_range(
    stream: StreamServer, users: Users, call: str, arguments: list[Any]
) -> None:
    async with client_of(stream, ALICE) as client:
        for end in (b"/a/y", b"/a0"):
            await client._call(call, b"/a/x", end, *arguments)
        for start, end in ((b"/b/", b"/b0"), (b"/a/", b"/a1"), (b"/a/", b"\0")):
            with pytest.raises(PermissionDenied):
                await client._call(call, start, end, *arguments)
