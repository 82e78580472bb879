"""The requests that are traced, each over a connection that stays open."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

from palisade.client.client import Client
from palisade.wire.credentials import header_of
from tests.paths.cluster import PREFIX, STRICT_PREFIX, Disturbed, TracedCluster
from tests.support.processes import NodeProcess
from tests.support.raw_http import RawHttp

EVENTUAL_KEY, STRICT_KEY = PREFIX + "key", STRICT_PREFIX + "key"
PUT_EFFECTS_S, READ_EFFECTS_S = 0.15, 0.03
VALUE = "value of a key"

Send = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Journey:
    """`roles`: the nodes to report, beginning with the one that receives the request. `effects_s`: how long after the
    answer the effects of the request may take, on all nodes."""

    name: str
    text: str
    roles: tuple[str, ...]
    effects_s: float = PUT_EFFECTS_S


JOURNEYS = (
    Journey("v3-put", "POST /v3/kv/put at the leader, eventual key", ("leader", "follower")),
    Journey("strict-put", "PUT /v1/kv at the leader, strict key", ("leader", "follower")),
    Journey("follower-put", "PUT /v1/kv at a follower, eventual key", ("follower", "leader")),
    Journey("stream-put", "put over the stream at the leader, eventual key", ("leader",)),
    Journey("fenced-get", "GET /v1/fenced at a follower, hot path", ("follower",), READ_EFFECTS_S),
)


@asynccontextmanager
async def senders(cluster: TracedCluster) -> AsyncIterator[dict[str, Send]]:
    """For each journey a function that sends the request once and waits for the answer."""
    leader, follower = cluster.leader, cluster.follower
    headers = "".join(f"{name}: {value}\r\n" for name, value in header_of(cluster.token).items())
    v3_body = json.dumps({"key": in_base64(EVENTUAL_KEY), "value": in_base64(VALUE)})
    async with AsyncExitStack() as stack:

        async def over_http(node: NodeProcess, line: str, body: str = "") -> Send:
            connection = await stack.enter_async_context(RawHttp(int(node.http.rpartition(":")[2])))
            head = f"{line} HTTP/1.1\r\nHost: {node.http}\r\n{headers}"
            length = f"Content-Length: {len(body)}\r\n" if body else ""
            return http_sender(connection, f"{head}{length}\r\n{body}".encode())

        client = Client([leader.stream], follow_leader=False, credentials=cluster.token)
        await stack.enter_async_context(client)

        async def put() -> None:
            await client.put(EVENTUAL_KEY, VALUE)

        yield {
            "v3-put": await over_http(leader, "POST /v3/kv/put", v3_body),
            "strict-put": await over_http(leader, f"PUT /v1/kv/{in_path(STRICT_KEY)}", VALUE),
            "follower-put": await over_http(follower, f"PUT /v1/kv/{in_path(EVENTUAL_KEY)}", VALUE),
            "stream-put": put,
            "fenced-get": await over_http(follower, f"GET /v1/fenced/{in_path(STRICT_KEY)}"),
        }


def http_sender(connection: RawHttp, request: bytes) -> Send:
    async def send() -> None:
        connection.send(request)
        status, body = await connection.answer()
        if status != 200:
            raise Disturbed(f"{request!r}: {status} {body!r}")

    return send


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def in_path(key: str) -> str:
    return quote(key, safe="")
