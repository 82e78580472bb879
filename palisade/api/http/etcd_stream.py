"""The streaming paths of etcd v3 over HTTP: /v3/watch and /v3/lease/keepalive.

Requests are JSON values one after the other in the body, answers are lines `{"result": ...}`. As in etcd's gateway both
go on at the same time: a client may send further requests in chunks while it reads. A watch ends when the client
closes the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from palisade.api.http.etcd_api import EtcdApi
from palisade.api.http.etcd_errors import refused
from palisade.api.http.etcd_leases import decode_lease_id, lease_fields
from palisade.api.http.etcd_watch import WatchStream
from palisade.api.http.etcd_watch_messages import decode_watch, result_line
from palisade.api.http.json_objects import ObjectCutter
from palisade.api.http.open_streams import endless
from palisade.api.http.protobuf_json import BadJson, read_text, read_value
from palisade.api.http.reauthorize import reauthorize_of
from palisade.api.http.request_body import encoding_mismatch
from palisade.metastore.errors import LeaseNotFound
from palisade.metastore.requests import LeaseKeepAlive
from palisade.metastore.results import LeaseResult
from palisade.service.authorization.needs import needs_of
from palisade.service.callers import UNRESTRICTED
from palisade.service.key_values import KeyValues

MESSAGE_BYTES_MAX = 1024 * 1024


class EtcdStreams:
    def __init__(self, service: KeyValues, api: EtcdApi, *, progress_s: float) -> None:
        self._service = service
        self._api = api
        self._progress_s = progress_s

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v3/watch", self.watch),
            web.post("/v3/lease/keepalive", self.keep_alive),
        ]

    async def watch(self, request: web.Request) -> web.StreamResponse:
        lines = EtcdLines(request)
        stream = WatchStream(self._service, self._api.header, lines.write, self._progress_s, reauthorize_of(request))
        try:
            async for message in messages_of(request):
                asked = decode_watch(message)
                if asked is not None:
                    await stream.handle(asked)
            with endless(request):
                await asyncio.get_running_loop().create_future()
        except BadJson as error:
            return await lines.refuse(error)
        finally:
            await stream.close()
        return await lines.finish()

    async def keep_alive(self, request: web.Request) -> web.StreamResponse:
        lines, reauthorize, lease_keys = EtcdLines(request), reauthorize_of(request), self._service.lease_keys
        try:
            async for message in messages_of(request):
                lease_id = decode_lease_id(message)
                await reauthorize(needs_of(LeaseKeepAlive(lease_id), lease_keys))
                await lines.write(await self._keep_alive(lease_id))
        except ConnectionResetError:
            raise
        except Exception as error:
            return await lines.refuse(error)
        return await lines.finish()

    async def _keep_alive(self, lease_id: int) -> bytes:
        """The caller has just been authorized again, by its current rights."""
        try:
            result = await self._service.write(LeaseKeepAlive(lease_id), caller=UNRESTRICTED)
        except LeaseNotFound:
            result = LeaseResult(self._service.store.revision, lease_id, 0)
        header = self._api.header.text(result.revision, self._api.term)
        return result_line(lease_fields(result, header))


class EtcdLines:
    """The answer of a stream. It begins with the first line, so that a bad first request gets a status of its own."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response: web.StreamResponse | None = None
        self._lock = asyncio.Lock()

    async def write(self, line: bytes) -> None:
        """Waits while the client does not read. Raises ConnectionResetError when it is gone."""
        async with self._lock:
            response = self._response or await self._begin()
            await response.write(line)

    async def _begin(self) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(self._request)
        self._response = response
        return response

    async def refuse(self, error: Exception) -> web.StreamResponse:
        status, body = refused(error)
        if self._response is None:
            return web.Response(status=status, body=body, content_type="application/json")
        await self.write(b'{"error":' + body + b"}\n")
        return await self.finish()

    async def finish(self) -> web.StreamResponse:
        response = self._response or await self._begin()
        await response.write_eof()
        return response


async def messages_of(request: web.Request) -> AsyncIterator[Any]:
    """The JSON values of the body as they arrive. Raises BadJson."""
    cutter = ObjectCutter()
    async for chunk in chunks_of(request):
        for piece in cutter.feed(chunk):
            yield whole_value(piece)
        if len(cutter.rest) > MESSAGE_BYTES_MAX:
            raise BadJson(f"a message of the stream has more than {MESSAGE_BYTES_MAX} bytes")
    if cutter.rest.strip():
        yield whole_value(bytes(cutter.rest))


def whole_value(piece: bytes) -> Any:
    text = read_text(piece).strip()
    value, end = read_value(text)
    if end != len(text):
        raise BadJson(f"invalid character {text[end]!r} after top-level value")
    return value


async def chunks_of(request: web.Request) -> AsyncIterator[bytes]:
    try:
        async for chunk in request.content.iter_any():
            yield chunk
    except web.RequestPayloadError as error:
        raise BadJson(encoding_mismatch(error)) from None
