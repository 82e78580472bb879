"""Invalid requests of an authenticated client are refused as usual and never an internal error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import ClientSession
from yarl import URL

from palisade.api.stream.server import StreamServer
from palisade.wire.credentials import Password, to_hello
from palisade.wire.stream_frames import FrameKind
from tests.service.authorization.test_stream import raw
from tests.support.permission_world import as_user

ROOT = Password("root", "roots password")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/catalog/tables/%ff%fe", None),
        ("GET", "/v1/catalog/nothing/x", None),
        ("GET", "/v1/catalog/tables?below=%ff", None),
        ("PUT", "/v1/catalog/users/%ff", b"{}"),
        ("POST", "/v1/catalog/operations/%00", b"{}"),
        ("POST", "/v1/catalog/operations/grant", b'{"subject": 1, "privilege": [], "prefix": {}}'),
        ("POST", "/v1/catalog/operations/revoke", b'{"prefix": "\\ud800"}'),
        ("POST", "/v1/catalog/operations/create-table", b'{"table": "\\ud800"}'),
        ("POST", "/v1/catalog/operations/drop-database", b'{"database": ["x"]}'),
        ("GET", "/v1/segments/%ff/1/2/3/4/file", None),
        ("GET", "/v1/leases/x", None),
        ("DELETE", "/v1/leases/99999999999999999999", None),
        ("GET", "/v1/kv?prefix=a&key=b", None),
        ("GET", "/v1/watch?prefix=a&key=b", None),
        ("POST", "/v1/txn", b'{"then": [{"txn": {"then": [{"put": {}}]}}]}'),
        ("POST", "/v1/range", b"{"),
        ("POST", "/v1/login", b'{"user": "\\ud800", "password": "\\ud800"}'),
        ("POST", "/v1/login", b'{"user": "root", "password": "\\ud800"}'),
        ("POST", "/v3/kv/txn", b'{"compare": [{}]}'),
        ("POST", "/v3/kv/range", b"["),
        ("POST", "/v3/lease/keepalive", b"{} x"),
        ("POST", "/v3/auth/authenticate", b'{"name": 1}'),
        ("PATCH", "/v1/kv/a", None),
        ("GET", "/v1/fenced/%ff", None),
        ("GET", "/v1/procedures/%ff", None),
    ],
)
async def test_malformed_http_request_of_a_known_user_is_refused(
    http: ClientSession, method: str, path: str, body: bytes | None
) -> None:
    headers = as_user("root") | ({"Content-Type": "application/json"} if body is not None else {})
    async with http.request(method, URL(str(http._base_url).rstrip("/") + path, encoded=True).relative(), data=body,
                            headers=headers) as answer:  # fmt: skip
        assert answer.status < 500 or answer.status == 503, await answer.text()
        if answer.status >= 400:
            assert json.loads(await answer.text())


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FrameKind.CALL, [1, ["status"], []]),
        (FrameKind.CALL, [1, {}, []]),
        (FrameKind.CALL, [1, "catalog_do", None]),
        (FrameKind.CALL, [1, "catalog_do", [{}, []]]),
        (FrameKind.CALL, [1, "catalog_objects", [["x"], 1]]),
        (FrameKind.CALL, [1, "catalog_object", [None, {}]]),
        (FrameKind.CALL, [1, "procedure", [{}]]),
        (FrameKind.CALL, [1, "lease_info", ["x"]]),
        (FrameKind.CALL, [1, "scan_count", [7, b"b", 0]]),
        (FrameKind.CALL, [1, "scan_rows", [b"a", b"b", 1, {}]]),
        (FrameKind.CALL, [1, "pin", [b"a", b"b", [], 1, 1]]),
        (FrameKind.READS, [1, [0, 1]]),
        (FrameKind.WRITES, [1, b"\xc1"]),
        (FrameKind.WRITES, [1, b"\x93\x01\xc0\xc0"]),
        (FrameKind.WRITES, [1, "text"]),
    ],
)
async def test_malformed_stream_call_of_a_known_user_is_refused(
    stream: StreamServer, kind: FrameKind, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with raw(stream, to_hello(ROOT)) as connection:
        connection.send(kind, body)
        answered, answer = await connection.frame()
        assert answered == FrameKind.FAILURES, answer
        assert answer[1][0] != "internal"
    assert "failed" not in caplog.text
