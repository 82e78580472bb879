"""The fast path of HTTP returns the same responses as aiohttp's handlers, and no client delays another."""

from __future__ import annotations

import asyncio
import base64
import json
import time

import pytest
from aiohttp import ClientSession

from palisade.api.http.fast_path import HttpConnection, LastHeaders
from palisade.api.http.request_head import Hot, KeyPaths, RequestPlan, make_plan
from palisade.api.http.server import HttpServer
from palisade.metastore.requests import Range
from palisade.service.authorization.callers import Access
from tests.support.fake_group import FakeGroup
from tests.support.raw_http import RawHttp
from tests.support.waiting import until

PUT = b'{"key": "YQ==", "value": "Yg=="}'
HOT_PUT = Hot("POST /v3/kv/put", lambda *_: None, Access.PER_REQUEST, lambda *_: None)
HOT_KEYS = KeyPaths(
    Hot(action, lambda *_: None, Access.PER_REQUEST, lambda *_: None) for action in ("PUT /v1/kv/", "GET /v1/fenced/")
)
TOKEN, PASSWORD = b"Bearer t1", b"Basic cm9vdDpw"
BODIES = [
    ("/v3/kv/put", PUT),
    ("/v3/kv/put", b"{"),
    ("/v3/kv/range", b'{"key": "YQ=="}'),
    ("/v3/kv/range", b'{"key": "YQ==", "range_end": "eg==", "count_only": true}'),
    ("/v3/kv/range", b'{"key": "YQ==", "revision": 99}'),
    ("/v3/kv/txn", b'{"success": [{"request_range": {"key": "YQ=="}}]}'),
    ("/v3/kv/deleterange", b'{"key": "eHk="}'),
    ("/v3/lease/grant", b'{"ID": 5, "TTL": 60}'),
    ("/v3/lease/timetolive", b'{"ID": 5, "keys": true}'),
    ("/v3/lease/timetolive", b'{"ID": 6}'),
    ("/v3/lease/leases", b""),
    ("/v3/lease/revoke", b'{"ID": 5}'),
    ("/v3/kv/compaction", b'{"revision": 99}'),
    ("/v3/maintenance/status", b"{}"),
    ("/v3/cluster/member/list", b"{}"),
]


def divided(head: str) -> tuple[bytes, bytes]:
    """The request line, and the headers with the CRLF before and after them."""
    line, *headers = head.encode("latin-1").split(b"\n")
    return line, b"".join(b"\r\n" + header for header in headers) + b"\r\n"


def plan_of_put(head: str) -> RequestPlan | None:
    return make_plan(*divided(head), {b"/v3/kv/put": HOT_PUT})


async def test_fast_path_and_aiohttp_return_the_same_responses(server: HttpServer) -> None:
    """After a header that the fast path does not support, aiohttp handles the connection for good."""
    async with RawHttp(server.port) as hot, RawHttp(server.port) as plain:
        for path, body in BODIES:
            hot.post(path, body)
            first = await hot.json()
            plain.post(path, body, "X-Other: 1\r\n")
            second = await plain.json()
            if path == "/v3/kv/put" and first[0] == 200:
                second[1]["header"]["revision"] = str(int(second[1]["header"]["revision"]) - 1)
            if path == "/v3/lease/grant":
                assert second[1]["message"] == "etcdserver: lease already exists"
            elif path == "/v3/lease/revoke":
                assert second[1]["message"] == "etcdserver: requested lease not found"
            elif path == "/v3/maintenance/status":
                assert first[1].keys() == second[1].keys()
            else:
                assert first == second, path


async def test_pipelined_requests_are_answered_in_their_order(server: HttpServer) -> None:
    async with RawHttp(server.port) as connection:
        for _ in range(50):
            connection.post("/v3/kv/put", PUT)
            connection.post("/v3/kv/range", b'{"key": "YQ=="}')
        revisions = [(await connection.json())[1]["header"]["revision"] for _ in range(100)]
    assert revisions == [str(number) for number in range(2, 52) for _ in (1, 2)]


async def test_request_in_small_pieces_is_one_request(server: HttpServer) -> None:
    async with RawHttp(server.port) as connection:
        whole = b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(PUT), PUT)
        for at in range(0, len(whole), 7):
            connection.send(whole[at : at + 7])
            await connection.writer.drain()
            await asyncio.sleep(0)
        assert (await connection.json())[0] == 200


async def test_slow_body_costs_no_more_than_its_length(server: HttpServer) -> None:
    """For each piece the body was copied and its head parsed again: 3 MiB in pieces of 64 bytes took 3.4 s of the event
    loop, 0.02 s since then (docs/bugs-found.md)."""
    value = b"x" * (1 << 19)
    body = b'{"key": "YQ==", "value": "%b"}' % base64.b64encode(value)
    request = b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    assert server.listener.fast_path is not None
    connection, sent = HttpConnection(server.listener.fast_path), SentTo()
    connection.connection_made(sent)
    began = time.process_time()
    for at in range(0, len(request), 8):
        connection.data_received(request[at : at + 8])
    took = time.process_time() - began
    await until(lambda: b" 200 " in sent.written)
    connection.connection_lost(None)
    assert took < 1.0, f"{took:.1f} s of the loop"


class SentTo(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None: ...

    def abort(self) -> None: ...


async def test_connection_switches_from_fast_path_to_aiohttp(server: HttpServer) -> None:
    async with RawHttp(server.port) as connection:
        connection.post("/v3/kv/put", PUT)
        assert (await connection.json())[0] == 200
        connection.send(b"GET /v1/kv/a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await connection.answer() == (200, b"b")
        connection.post("/v3/kv/put", PUT)
        assert (await connection.json())[1]["header"]["revision"] == "3"


@pytest.mark.parametrize(
    "header",
    [
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "Connection: close",
        "Content-Encoding: gzip",
        "Origin: http://evil",
        "Content-Length: 5",
        "Content-Length: -1",
        " folded: yes",
        "no colon",
    ],
)
def test_request_with_unusual_headers_is_left_to_aiohttp(header: str) -> None:
    head = "POST /v3/kv/put HTTP/1.1\nHost: x\nContent-Length: 5"
    assert plan_of_put(head) is not None
    assert plan_of_put(f"{head}\n{header}") is None


def test_head_without_a_length_or_of_another_version_is_left_to_aiohttp() -> None:
    assert plan_of_put("POST /v3/kv/put HTTP/1.1\nHost: x") is None
    assert plan_of_put("POST /v3/kv/put HTTP/1.0\nContent-Length: 5") is None
    assert plan_of_put("GET /v3/kv/put HTTP/1.1\nContent-Length: 5") is None


def test_credentials_are_divided_from_the_headers_that_all_connections_share() -> None:
    for host in ("a", "b"):
        headers = LastHeaders()
        for _ in ("divided", "repeated"):
            _, whole = divided(f"\nHost: {host}\nAuthorization: {TOKEN.decode()}\nAccept: */*")
            assert headers.divide(whole, TOKEN) == (b"\r\nHost: %b\r\nAccept: */*\r\n" % host.encode(), TOKEN)
        assert headers.divide(b"\r\n", TOKEN) == (b"\r\n", None)


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize(
    "unusual",
    [
        "authorization: Bearer t1",
        "Authorization: a\nAuthorization: b",
        "Authorization: a\nb",
        "Authorization: a\rb",
        "Authorization: a\0",
        "Authorization: \xff",
    ],
)
def test_headers_with_unusual_credentials_are_left_to_aiohttp(unusual: str, token: bytes | None) -> None:
    line, whole = divided(f"POST /v3/kv/put HTTP/1.1\nContent-Length: 5\n{unusual}")
    plain, _ = LastHeaders().divide(whole, token)
    assert make_plan(line, plain, {b"/v3/kv/put": HOT_PUT}) is None


@pytest.mark.parametrize("token", [None, TOKEN])
def test_passwords_are_not_kept_with_the_headers(token: bytes | None) -> None:
    headers = LastHeaders()
    assert headers.divide(divided(f"\nAuthorization: {PASSWORD.decode()}")[1], token) == (b"\r\n", PASSWORD)
    assert PASSWORD.decode() not in repr([getattr(headers, name) for name in LastHeaders.__slots__])


# PUT of one key.


@pytest.mark.parametrize("key", ["a", "a/b", "/a", "%2Fa%20b", "%C3%A4", "%ff", "a+b", "a%zz", "a.b/../c", "x" * 5000])
async def test_put_of_a_key_has_the_same_response_on_both_paths(server: HttpServer, key: str) -> None:
    async with RawHttp(server.port) as hot, RawHttp(server.port) as other:
        answers = []
        for connection, header in ((hot, b""), (other, b"X-Other: 1\r\n")):
            connection.send(
                b"PUT /v1/kv/%b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n%b\r\n\x00b" % (key.encode(), header)
            )
            answers.append(await connection.answer_with_head())
    (status, headers, body), (other_status, other_headers, other_body) = answers
    assert status == other_status == (413 if len(key) > 4096 else 200)
    assert headers["content-type"] == other_headers["content-type"]
    if status == 200:
        assert (headers["etag"], body) == ('"2"', b'{"revision": 2}\n')
        assert (other_headers["etag"], other_body) == ('"3"', b'{"revision": 3}\n')
        assert len(server._service.store.range(Range(b"\0", b"\0")).kvs) == 1
    else:
        assert body == other_body


async def test_put_of_a_key_is_handled_without_aiohttp(server: HttpServer) -> None:
    async with RawHttp(server.port) as connection:
        for body in (b"", b"one", b"another"):
            connection.send(b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            assert (await connection.answer())[0] == 200
            kept = server._service.store.get(b"a")
            assert kept is not None
            assert kept.value == body
        assert server.listener.fast_path is not None
        assert {each._delegate for each in server.listener.fast_path.connections} == {None}


@pytest.mark.parametrize(
    "head",
    [
        "PUT /v1/kv/a HTTP/1.1\nHost: x",
        "PUT /v1/kv/a HTTP/1.1\nContent-Length: 1\nIf-Match: *",
        "PUT /v1/kv/a HTTP/1.1\nContent-Length: 1\nIdempotency-Key: c/1",
        "PUT /v1/kv/a HTTP/1.1\nContent-Length: 1\nOrigin: http://evil",
        "PUT /v1/kv/a?lease=5 HTTP/1.1\nContent-Length: 1",
        "PUT /v1/kv/ HTTP/1.1\nContent-Length: 1",
        "PUT /v1/kv/\xff HTTP/1.1\nContent-Length: 1",
        "PUT /v1/fenced/a HTTP/1.1\nContent-Length: 1",
        "GET /v1/kv/a HTTP/1.1",
        "GET /v1/fenced/a HTTP/1.1\nContent-Length: 1",
    ],
)
def test_other_requests_for_a_key_are_left_to_aiohttp(head: str) -> None:
    assert HOT_KEYS.plan(*divided(head)) is None


def test_plain_requests_for_a_key_are_hot() -> None:
    for _ in ("parsed", "kept"):
        put = HOT_KEYS.plan(*divided("PUT /v1/kv/a%2Fb HTTP/1.1\nHost: x\nContent-Length: 7"))
        assert put is not None
        assert (put.length, put.key, str(put)) == (7, b"a%2Fb", "PUT /v1/kv/a%2Fb")
        get = HOT_KEYS.plan(*divided("GET /v1/fenced/a HTTP/1.1\nHost: x"))
        assert get is not None
        assert (get.length, str(get)) == (0, "GET /v1/fenced/a")


# Bad clients.


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10 + b"\r\n\r\n",
        b"\0" * 100 + b"\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
    ids=["tls", "zeros", "words"],
)
async def test_garbage_is_a_bad_request(server: HttpServer, group: FakeGroup, garbage: bytes) -> None:
    async with RawHttp(server.port) as connection:
        connection.send(garbage)
        assert b" 400 " in (await connection.end()).split(b"\r\n", 1)[0]
    assert group.store.revision == 1


async def test_head_without_end_is_refused(server: HttpServer) -> None:
    async with RawHttp(server.port) as connection:
        connection.send(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 40_000)
        assert b" 400 " in (await connection.end()).split(b"\r\n", 1)[0]


async def test_incomplete_head_times_out(server: HttpServer) -> None:
    """Slow-loris: a byte now and then does not keep a connection open."""
    async with RawHttp(server.port) as connection:
        connection.send(b"POST /v3/kv/put HTTP/1.1\r\n")
        answer = asyncio.ensure_future(connection.end())
        while not answer.done():
            connection.send(b"X")
            await asyncio.sleep(0.05)
        assert b" 408 " in (await answer).split(b"\r\n", 1)[0]


async def test_incomplete_body_times_out(server: HttpServer) -> None:
    async with RawHttp(server.port) as connection:
        connection.send(b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in (await connection.end()).split(b"\r\n", 1)[0]


async def test_incomplete_body_on_v1_times_out(server: HttpServer) -> None:
    async with RawHttp(server.port) as connection:
        connection.send(b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
        status, problem = await connection.json()
    assert (status, problem["code"]) == (408, "request-timeout")


async def test_incomplete_second_head_times_out(server: HttpServer) -> None:
    async with RawHttp(server.port) as connection:
        connection.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await connection.answer())[0] == 200
        connection.send(b"GET /livez HTTP/1.1\r\nHost:")
        assert await connection.end() == b""


async def test_long_watch_is_not_treated_as_slow_client(server: HttpServer, http: ClientSession) -> None:
    async with http.get("/v1/watch?key=a") as answer:
        await asyncio.sleep(1.2)
        await http.put("/v1/kv/a", data=b"1")
        lines = [json.loads(line) async for line in _some(answer.content, 20) if b"events" in line]
    assert lines[0]["revision"] == 2


async def _some(content: object, most: int):  # type: ignore[no-untyped-def]
    async for line in content:  # type: ignore[attr-defined]
        yield line
        most -= 1
        if b"events" in line or not most:
            return


async def test_idle_connections_do_not_slow_others(server: HttpServer) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(300)]
    async with RawHttp(server.port) as connection:
        connection.post("/v3/kv/put", PUT)
        assert (await connection.json())[0] == 200
    for _, writer in idle:
        writer.close()


async def test_body_above_the_size_limit_is_refused_unread(server: HttpServer, group: FakeGroup) -> None:
    for path in ("/v3/kv/put", "/v1/put"):
        for sent in (0, 4_000_000):
            async with RawHttp(server.port) as connection:
                kind = "Content-Type: application/json\r\n"
                connection.send(f"POST {path} HTTP/1.1\r\nHost: x\r\n{kind}Content-Length: 99999999\r\n\r\n".encode())
                connection.send(b"x" * sent)
                assert (await connection.answer())[0] == 413
    assert group.store.revision == 1


async def test_invalid_requests_are_answered_and_not_logged(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that floods the port with invalid requests must not fill the disk."""
    for nonsense in (b"\xff" * 64 + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 9_000 + b"\r\n\r\n"):
        async with RawHttp(server.port) as connection:
            connection.send(nonsense)
            assert (await connection.answer())[0] == 400
    assert caplog.text == ""


async def test_close_finishes_pending_requests_and_ends_streams(
    server: HttpServer, http: ClientSession, group: FakeGroup
) -> None:
    watch = await http.get("/v1/watch?key=a")
    await watch.content.readline()
    group.held = True
    async with RawHttp(server.port) as connection:
        connection.post("/v3/kv/put", PUT)
        await until(lambda: group.submitted == 1)
        closing = asyncio.ensure_future(server.close())
        await asyncio.sleep(0.01)
        group.release()
        assert (await connection.json())[0] == 200
        async with asyncio.timeout(5):
            await closing
    assert group.store.revision == 2
