"""The HTTP port of a real node of each kind, as bytes: half requests, requests that are damaged, bodies that are not
what their head says, values that make no sense (issue 5, "Fuzzing"; scenarios.md, "Everywhere").

The API behind it is fuzzed from its own document in test_http_api.py; here are what no client library would send, the
paths that answer without end, and the ones that no document can describe.
"""

from __future__ import annotations

import asyncio
import json
import re
from random import Random
from typing import Any

import msgpack
import pytest

from palisade.recovery import feed_messages as wire
from tests.support.fuzz_ground import FUZZ, Ground, say, watched
from tests.support.fuzzing import INTERESTING, Rounds, anything, changed, damaged
from tests.support.processes import NodeProcess

pytestmark = pytest.mark.e2e

CONTENT_TYPE = wire.CONTENT_TYPE.encode()
KINDS = ["member", "follower", "standalone", "waiting"]
BESIDE = 20
KEY, KEY64 = FUZZ + "k", "ZnV6ei9r"
BODIES: dict[str, Any] = {
    "/v1/put": {"key": KEY, "value": "v", "lease": 0, "prev_kv": True},
    "/v1/range": {"key": KEY, "range_end": "fuzz0", "limit": 3, "revision": 1, "sort_order": "descend"},
    "/v1/delete": {"key": KEY, "prev_kv": True},
    "/v1/txn": {"compare": [{"key": KEY, "target": "version", "result": "equal", "value": 0}],
                "then": [{"put": {"key": KEY, "value_base64": "dg=="}}], "else": [{"range": {"key": KEY}}]},
    "/v1/leases": {"ttl_s": 5, "id": 77},
    "/v1/members": {"id": "n9", "incarnation": "x", "addresses": {"http": "127.0.0.1:1"}},
    "/v1/leader/transfer": {"target": "n9"},
    "/v1/cluster/init": {"members": ["n7", "n8"]},
    "/v1/init/prepare": {"cluster": "e2e", "members": ["n7=127.0.0.1:1:2:3"]},
    "/v1/init/commit": {"cluster": "other", "members": []},
    "/v1/topology/join": {"cluster": "e2e", "protocol": 1, "token": "", "name": "x9", "role": "follower",
                          "instance": "i", "attempt": 1, "addresses": {}, "cluster_id": ""},
    "/v1/topology/recovered": {"name": "x9", "instance": "i", "incarnation": 1, "revision": 1},
    "/v1/topology/leave": {"name": "x9", "instance": "i"},
    "/v1/login": {"user": "root", "password": "p"},
    "/v1/catalog/operations/create-table": {"table": "fuzz.t", "columns": [{"name": "a", "type": "string"}]},
    "/v1/catalog/operations/create-database": {"database": "fuzz"},
    "/v1/catalog/operations/grant": {"subject": "user:fuzz", "privilege": "read", "prefix": "fuzz/"},
    "/v3/kv/put": {"key": KEY64, "value": "dg==", "lease": "0"},
    "/v3/kv/range": {"key": KEY64, "range_end": "AA==", "limit": "3", "revision": 1},
    "/v3/kv/deleterange": {"key": KEY64},
    "/v3/kv/txn": {"compare": [{"key": KEY64, "target": "VERSION", "result": "EQUAL", "version": "0"}],
                   "success": [{"requestPut": {"key": KEY64, "value": "dg=="}}]},
    "/v3/lease/grant": {"TTL": "5", "ID": "78"},
    "/v3/lease/timetolive": {"ID": "78", "keys": True},
    "/v3/lease/keepalive": {"ID": "78"},
    "/v3/watch": {"create_request": {"key": KEY64, "start_revision": "1", "filters": ["NOPUT"]}},
    "/v3/maintenance/alarm": {"action": "GET"},
}  # fmt: skip
BITMAP = bytes(511) + b"\x07"
FEED: dict[str, list[Any]] = {
    "state": [2],
    "changes": [2, 3, None],
    "pin": ["fuzz", 2, 5000],
    "unpin": ["fuzz"],
    "sums": [2, None],
    "rows": [2, BITMAP, 0, b"", None, None],
    "spans": [2, b"", None],
    "fingerprints": [2, BITMAP, b"", b"z", None],
}
GETS = [
    "/v1/kv/fuzz%2Fk", "/v1/kv?prefix=fuzz/&limit=2", "/v1/fenced/a", "/v1/watch?prefix=fuzz/&start_revision=1",
    "/v1/export?prefix=fuzz/", "/v1/backup", "/v1/status", "/v1/topology", "/v1/topology/nodes/n1", "/v1/init",
    "/v1/segments/flights/1/2/3/4/file", "/v1/catalog/tables?below=a&after=b&limit=2", "/v1/procedures/x?wait_s=0.01",
    "/v1/regions/palisade", "/v1/leases/77", "/livez", "/readyz", "/metrics", "/openapi.json",
]  # fmt: skip
HEADERS = [
    b"Content-Type: application/json", b"Accept: application/json", b"Connection: keep-alive", b"Connection: close",
    b"Expect: 100-continue", b"Transfer-Encoding: chunked", b"Content-Length: 5", b"Idempotency-Key: fuzz/1",
    b"If-Match: \"2\"", b"If-None-Match: *", b"Last-Event-ID: 3", b"Origin: http://x", b"Upgrade: websocket",
    b"Authorization: Basic cm9vdDpw", b"Authorization: Bearer \xff", b"Accept-Encoding: gzip", b"Range: bytes=0-",
    b"Content-Encoding: gzip", b"Content-Encoding: deflate", b"X: " + b"y" * 9000, b"Host: other", b"\x00: \x01",
]  # fmt: skip


def request(
    dice: Random, body: bytes | None = None, path: str | None = None, kind: bytes = b"application/json"
) -> bytes:
    """A whole request; a head that is not quite right now and then."""
    if body is None and dice.random() < 0.5:
        chosen = path or dice.choice(GETS)
        method, body = dice.choice([b"GET", b"GET", b"DELETE", b"HEAD", b"PUT", b"PATCH", b"OPTIONS"]), b""
    else:
        method, chosen = b"POST", path or dice.choice(list(BODIES))
        body = json.dumps(BODIES[chosen]).encode() if body is None else body
    if (method, chosen.partition("/k")[0]) == (b"DELETE", "/v1"):
        method = b"GET"
    lines = [b"%b %b HTTP/1.1" % (method, chosen.encode()), b"Host: x", b"Content-Type: " + kind]
    if dice.random() < 0.3:
        lines.insert(dice.randrange(1, len(lines) + 1), dice.choice(HEADERS))
    length = len(body) if dice.random() < 0.9 else dice.choice([0, 1, len(body) + 1, *INTERESTING])
    lines.append(b"Content-Length: %d" % length)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize("kind", KINDS)
async def test_damaged_requests_are_answered_or_refused(ground: Ground, kind: str, rounds: Rounds) -> None:
    """Several on a connection, the first ones sound, cut and damaged anywhere; one may still be a request."""
    node: NodeProcess = getattr(ground, kind)
    async with watched(node, ground.member, unchanged=False):
        for dice in rounds:
            talks = []
            for _ in range(BESIDE):
                sent = b"".join(request(dice) for _ in range(dice.choice([1, 1, 2, 4])))
                talks.append(say(node.http, sent if dice.random() < 0.2 else damaged(sent, dice), dice, 0.05))
            for heard in await asyncio.gather(*talks):
                has_no_fault(heard, rounds)


@pytest.mark.parametrize("kind", KINDS)
async def test_announced_gigabytes_are_not_waited_for(ground: Ground, kind: str, rounds: Rounds) -> None:
    node: NodeProcess = getattr(ground, kind)
    async with watched(node, ground.member):
        for dice in rounds:
            path = dice.choice(list(BODIES)).encode()
            head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % path
            lie = dice.choice([b"Content-Length: 2147483647\r\n\r\n", b"Content-Length: %d\r\n\r\n" % (1 << 40),
                               b"Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n",
                               b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"])  # fmt: skip
            talks = [say(node.http, head + lie + b"{" * 200_000, dice, 0.1) for _ in range(BESIDE)]
            for heard in await asyncio.gather(*talks):
                has_no_fault(heard, rounds)


async def test_values_that_make_no_sense_are_answered_or_refused(ground: Ground, rounds: Rounds) -> None:
    """The forms of /v1 and /v3, each with something in it that should not be there, or that is as good as another."""
    async with watched(ground.member, ground.member, unchanged=False):
        for dice in rounds:
            talks = []
            for _ in range(BESIDE):
                path = dice.choice(list(BODIES))
                body = changed(BODIES[path], dice, json=True) if dice.random() < 0.9 else anything(dice, json=True)
                talks.append(say(ground.member.http, request(dice, harmless(body), path), dice, 0.05))
            for heard in await asyncio.gather(*talks):
                has_no_fault(heard, rounds)


async def test_questions_of_the_feed_that_make_no_sense_are_refused(ground: Ground, rounds: Rounds) -> None:
    """They are msgpack, which the document can't describe."""
    async with watched(ground.member, ground.member):
        for dice in rounds:
            talks = []
            for _ in range(BESIDE):
                question = dice.choice(list(FEED))
                try:
                    body = msgpack.packb(changed(FEED[question], dice))
                except (ValueError, OverflowError):
                    continue
                sent = damaged(body, dice) if dice.random() < 0.3 else body
                asked = request(dice, sent, f"/v1/feed/{question}", CONTENT_TYPE)
                talks.append(say(ground.member.http, asked, dice, 0.05))
            for heard in await asyncio.gather(*talks):
                has_no_fault(heard, rounds)


def harmless(body: Any) -> bytes:
    """As JSON, perhaps not quite; nothing that would delete what others have written."""
    text = json.dumps(body).encode()
    return b"{}" if b'"AA=="' in text else text


def has_no_fault(heard: bytes, rounds: Rounds) -> None:
    """No response reports an internal error; 503 and similar ones are correct."""
    faults = re.findall(rb"HTTP/1\.[01] 500[^\r]*\r\nContent-Type: application/[^\r]*\r\n", heard)
    assert not faults, (rounds, heard[-2000:])
