"""/v1/fenced: linearizable reads of strict keys from the local vault of any node (N6 over HTTP).

The fast path serves a plain GET of a key without aiohttp if that requires no waiting; both ways are implemented here
and give the same responses. A fenced node responds according to the policy of the region (F7). `Palisade-Answered-By`
names the source: `vault`, `quorum` (the cluster was asked) or `default` (of the region).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from aiohttp import web

from palisade.api.http.authorization_header import caller_of
from palisade.api.http.problems import refuse
from palisade.api.http.request_body import Spec, a_count, a_flag, a_number, content, query_of
from palisade.api.http.request_head import Hot, HttpReply
from palisade.api.http.v1_keys import interval_of, prefix_parameter
from palisade.base.key_text import key_text
from palisade.metastore.errors import KeyNotFound, MetastoreError
from palisade.metastore.requests import FROM_KEY
from palisade.service.authorization.callers import Access
from palisade.service.authorization.needs import reading
from palisade.service.callers import Caller
from palisade.service.fenced_reads import FencedReads
from palisade.vault.errors import VaultError
from palisade.vault.snapshot_reads import ReadOrigin, Rows, ShownPage
from palisade.wire import json_results as shapes
from palisade.wire.auth_errors import AuthorizationError
from palisade.wire.error_codes import BadRequest

PATH = "/v1/fenced/"
ANSWERED_BY = "Palisade-Answered-By"
WAIT_MS, WAIT_MS_MAX = 1000, 60_000
SLICE_ROWS = 500
"""Rows of a large response after which other tasks get a turn."""

NOT_OLDER: Spec = {"revision": a_count, "timeout_ms": a_number}
RANGE: Spec = {
    "prefix": prefix_parameter,
    "key": content,
    "range_end": content,
    "limit": a_number,
    "keys_only": a_flag,
    **NOT_OLDER,
}
_HEADERS = {origin: f"{ANSWERED_BY}: {origin.value}\r\n".encode() for origin in ReadOrigin}
_OF_VAULT = _HEADERS[ReadOrigin.VAULT]


def fenced_key_of(request: web.Request) -> bytes:
    """The rest of the path, percent-decoded to bytes."""
    return unquote_to_bytes(request.rel_url.raw_path.removeprefix(PATH))


def fenced_range_of(request: web.Request) -> dict[str, Any]:
    """`key` and `range_end` (FROM_KEY: to the last; absent: the key alone), and the other parameters."""
    found = interval_of(query_of(request, RANGE))
    if found.get("limit", 0) < 0:
        raise BadRequest(f"limit: {found['limit']} is negative; 0 is no limit")
    return found


class FencedRoutes:
    def __init__(self, reads: FencedReads) -> None:
        self._reads = reads
        self._tasks: set[asyncio.Task[None]] = set()
        self.hot = Hot(f"GET {PATH}", self.get_plain, Access.PER_REQUEST, refuse, v1=True)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(PATH.rstrip("/"), self.list_keys, allow_head=False),
            web.get(PATH + "{key:.+}", self.get, allow_head=False),
        ]

    async def get(self, request: web.Request) -> web.Response:
        found, key = query_of(request, NOT_OLDER), fenced_key_of(request)
        caller_of(request).require_read(key)
        await self._reach(found)
        shown = self._reads.at_once(key) or await self._reads.read(key)
        return response(body_of(key, shown), shown.origin)

    async def list_keys(self, request: web.Request) -> web.Response:
        found = fenced_range_of(request)
        start, end = found["key"], found.get("range_end", b"")
        caller_of(request).require((reading(start, end),))
        await self._reach(found)
        rows = await self._reads.range(
            b"" if start == FROM_KEY else start,
            None if end == FROM_KEY else end or start + b"\0",
            found.get("limit", 0),
        )
        return response(await body_of_range(rows, keys_only=found.get("keys_only", False)), rows.origin)

    async def _reach(self, found: Mapping[str, Any]) -> None:
        """Waits until the vault has applied `revision`. Raises NotReached, BadRequest."""
        if "revision" not in found:
            if "timeout_ms" in found:
                raise BadRequest("timeout_ms: needs revision, for which the request waits")
            return
        timeout_ms = found.get("timeout_ms", WAIT_MS)
        if not 0 <= timeout_ms <= WAIT_MS_MAX:
            raise BadRequest(f"timeout_ms: {timeout_ms} is out of range; give a number from 0 to {WAIT_MS_MAX}")
        await self._reads.wait_for(found["revision"], timeout_ms / 1000)

    def get_plain(self, escaped: bytes, _: bytes, reply: HttpReply, caller: Caller) -> None:
        key = unquote_to_bytes(escaped) if b"%" in escaped else escaped
        try:
            if caller.is_limited:
                caller.require_read(key)
            shown = self._reads.at_once(key)
            if shown is None:
                task = asyncio.get_running_loop().create_task(self._later(key, reply))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                reply(200, body_of(key, shown), _OF_VAULT)
        except (MetastoreError, VaultError, AuthorizationError) as error:
            refuse(error, reply)

    async def _later(self, key: bytes, reply: HttpReply) -> None:
        try:
            shown = await self._reads.read(key)
            payload = body_of(key, shown)
        except Exception as error:
            refuse(error, reply)
        else:
            reply(200, payload, _HEADERS[shown.origin])


def response(body: bytes, origin: ReadOrigin) -> web.Response:
    return web.Response(body=body, content_type="application/json", headers={ANSWERED_BY: origin.value})


def body_of(key: bytes, shown: ShownPage) -> bytes:
    """Raises KeyNotFound."""
    if shown.item is None:
        raise KeyNotFound(
            f"the key {key_text(key)} does not exist at revision {shown.revision}, the newest released one"
        )
    answer = {"revision": shown.revision, "answered_by": shown.origin.value, "kv": shapes.key_value(shown.item)}
    return json.dumps(answer).encode() + b"\n"


async def body_of_range(rows: Rows, *, keys_only: bool) -> bytes:
    """Yields to other tasks while it is built."""
    pieces = []
    for start in range(0, len(rows.items), SLICE_ROWS):
        items = rows.items[start : start + SLICE_ROWS]
        if keys_only:
            items = tuple(item._replace(value=b"") for item in items)
        pieces.append(", ".join(json.dumps(shapes.key_value(item)) for item in items))
        await asyncio.sleep(0)
    head = {"revision": rows.revision, "answered_by": rows.origin.value, "more": rows.more}
    return f'{json.dumps(head)[:-1]}, "kvs": [{", ".join(pieces)}]}}\n'.encode()
