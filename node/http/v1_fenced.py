"""/v1/fenced/{key}: a linearizable read of a strict key from the vault of whichever node is asked (N6 over HTTP).

The front answers them without aiohttp, where the request is plain; here are both ways, and they answer alike.
"""

from __future__ import annotations

import asyncio
import json
from urllib.parse import unquote_to_bytes

from aiohttp import web

from metastore.errors import KeyNotFound, MetastoreError
from metastore.results import KeyValue
from node import shapes
from node.fencing.errors import FencingError, ReadPending
from node.fencing.fenced_reads import FencedReads
from node.http.body import query_of
from node.http.head import Reply, Unary
from node.http.problems import problem_of
from vault.change import Item
from vault.errors import VaultError

PATH = "/v1/fenced/"


def fenced_key_of(request: web.Request) -> bytes:
    """The rest of the path, percent-decoded to bytes."""
    return unquote_to_bytes(request.rel_url.raw_path.removeprefix(PATH))


class FencedRoutes:
    def __init__(self, reads: FencedReads) -> None:
        self._reads = reads
        self._tasks: set[asyncio.Task[None]] = set()
        self.gets: dict[str, Unary] = {PATH: self.get_plain}

    def routes(self) -> list[web.RouteDef]:
        return [web.get(PATH + "{key:.+}", self.get, allow_head=False)]

    async def get(self, request: web.Request) -> web.Response:
        query_of(request, {})
        key = fenced_key_of(request)
        return web.Response(body=body_of(key, *await self._reads.wait_and_get(key)), content_type="application/json")

    def get_plain(self, escaped: bytes, reply: Reply) -> None:
        key = unquote_to_bytes(escaped) if b"%" in escaped else escaped
        try:
            reply(200, body_of(key, *self._reads.get(key)))
        except ReadPending:
            task = asyncio.get_running_loop().create_task(self._later(key, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        except (FencingError, MetastoreError, VaultError) as error:
            refuse(error, reply)

    async def _later(self, key: bytes, reply: Reply) -> None:
        try:
            payload = body_of(key, *await self._reads.wait_and_get(key))
        except Exception as error:
            refuse(error, reply)
        else:
            reply(200, payload)


def refuse(error: Exception, reply: Reply) -> None:
    problem = problem_of(error)
    reply(problem.status, bytes(problem.body or b""))  # type: ignore[arg-type]


def body_of(key: bytes, released: int, item: Item | None) -> bytes:
    """Raises KeyNotFound."""
    if item is None:
        raise KeyNotFound(f"{key[:64]!r} does not exist, as far as everything up to revision {released} is released")
    kv = KeyValue(item.key, item.value, item.create_revision, item.mod_revision, item.version, item.lease)
    return json.dumps({"revision": released, "kv": shapes.key_value(kv)}).encode() + b"\n"
