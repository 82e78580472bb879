"""/v1: keys, ranges, transactions. Raw values on /v1/kv/{key}, JSON forms for everything."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from aiohttp import web

from palisade.api.http.authorization_header import caller_of
from palisade.api.http.problems import problem_of, refuse
from palisade.api.http.request_body import a_count, a_flag, a_number, query_of, read_body, read_json, request_id_of
from palisade.api.http.request_head import Hot, HttpReply
from palisade.api.http.v1_json_requests import (
    DELETE,
    PUT,
    RANGE,
    delete_from,
    put_from,
    range_from,
    txn_from,
    whereabouts,
)
from palisade.base.key_text import key_text
from palisade.metastore.errors import KeyNotFound, MetastoreError
from palisade.metastore.requests import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    Put,
    Range,
    RequestId,
    Txn,
    Write,
)
from palisade.metastore.results import KeyValue, RangeResult
from palisade.raftgroup.errors import RaftError
from palisade.service.authorization.callers import Access
from palisade.service.callers import Caller
from palisade.service.key_values import KeyValues
from palisade.wire import json_results as shapes
from palisade.wire.error_codes import BadRequest, PreconditionFailed

PATH = "/v1/kv/"
RAW_TYPE = "application/octet-stream"
EXPORT_PAGE = 500

KEY_QUERY = {name: read for name, read in RANGE.items() if name not in ("key", "range_end", "prefix")}
PUT_QUERY = {name: read for name, read in PUT.items() if name not in ("key", "value")}
EXPORT_QUERY = {"prefix": RANGE["key"], "revision": a_count}


def answer(shape: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status, body=json.dumps(shape).encode() + b"\n", content_type="application/json", headers=headers
    )


def key_of(request: web.Request) -> bytes:
    """The rest of the path, percent-decoded to bytes."""
    return unquote_to_bytes(request.rel_url.raw_path.removeprefix(PATH))


class KeyService(Protocol):
    """`service.key_values.KeyValues`, or a vault that is read without a cluster."""

    async def range(self, request: Range, *, caller: Caller) -> RangeResult: ...
    async def write(self, request: Write, request_id: RequestId | None, *, caller: Caller) -> Any: ...


class Keys:
    def __init__(self, service: KeyService) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/kv", self.list_keys),
            web.delete("/v1/kv", self.delete_many),
            web.get("/v1/kv/{key:.+}", self.get),
            web.put("/v1/kv/{key:.+}", self.put),
            web.delete("/v1/kv/{key:.+}", self.delete),
            web.post("/v1/put", self.put_form),
            web.post("/v1/range", self.range_form),
            web.post("/v1/delete", self.delete_form),
            web.post("/v1/txn", self.txn),
            web.get("/v1/export", self.export),
        ]

    # One key.

    async def get(self, request: web.Request) -> web.Response:
        read = Range(key=key_of(request), **query_of(request, KEY_QUERY))
        result = await self._range(request, read)
        if read.count_only:
            return answer(shapes.range_shape(result))
        if not result.kvs:
            raise KeyNotFound(
                f"the key {key_text(read.key)} does not exist at revision {read.revision or result.revision}"
            )
        (kv,) = result.kvs
        headers = headers_of(kv, result.revision)
        if wants_json(request):
            return answer({"revision": result.revision, "kv": shapes.key_value(kv)}, headers=headers)
        return web.Response(body=kv.value, content_type=RAW_TYPE, headers=headers)

    async def put(self, request: web.Request) -> web.Response:
        options = query_of(request, PUT_QUERY)
        put = Put(key=key_of(request), value=await read_body(request), **options)
        result = await self._conditionally(request, put.key, put)
        headers = {"ETag": f'"{result.revision}"'}
        return answer(shapes.put_shape(result), headers=headers)

    async def delete(self, request: web.Request) -> web.Response:
        options = query_of(request, {"prev_kv": a_flag})
        delete = DeleteRange(key=key_of(request), **options)
        return answer(shapes.delete_shape(await self._conditionally(request, delete.key, delete)))

    async def _conditionally(self, request: web.Request, key: bytes, write: Put | DeleteRange) -> Any:
        """If-Match: "<mod_revision>" or If-None-Match: *, checked in one transaction with the write."""
        compare = condition_of(request, key)
        if compare is None:
            return await self._write(request, write)
        result = await self._write(request, Txn((compare,), (write,), ()))
        if not result.succeeded:
            raise PreconditionFailed(
                f"precondition failed for the key {key_text(key)} at revision {result.revision}; nothing was changed"
            )
        return result.results[0]

    # Ranges and JSON forms.

    async def list_keys(self, request: web.Request) -> web.Response:
        found = query_of(request, {**RANGE, "prefix": prefix_parameter})
        return answer(shapes.range_shape(await self._range(request, Range(**interval_of(found)))))

    async def delete_many(self, request: web.Request) -> web.Response:
        found = query_of(request, {**DELETE, "prefix": prefix_parameter})
        return answer(shapes.delete_shape(await self._write(request, DeleteRange(**interval_of(found)))))

    async def put_form(self, request: web.Request) -> web.Response:
        return answer(shapes.put_shape(await self._write(request, put_from(await read_json(request)))))

    async def delete_form(self, request: web.Request) -> web.Response:
        return answer(shapes.delete_shape(await self._write(request, delete_from(await read_json(request)))))

    async def range_form(self, request: web.Request) -> web.Response:
        return answer(shapes.range_shape(await self._range(request, range_from(await read_json(request)))))

    async def txn(self, request: web.Request) -> web.Response:
        return answer(shapes.txn_shape(await self._write(request, txn_from(await read_json(request)))))

    async def _write(self, request: web.Request, write: Write) -> Any:
        return await self._service.write(write, request_id_of(request), caller=caller_of(request))

    async def _range(self, request: web.Request, read: Range) -> RangeResult:
        return await self._service.range(read, caller=caller_of(request))

    # Export.

    async def export(self, request: web.Request) -> web.StreamResponse:
        """Every key at one revision, one line of JSON each; the first line has the revision and the count.

        A last line `{"problem": ...}` means that the preceding lines are incomplete.
        """
        found = query_of(request, EXPORT_QUERY)
        prefix = found.get("prefix", b"")
        scan = Range(**whereabouts({"key": prefix, "prefix": True, "limit": EXPORT_PAGE}, "the query"))
        pages = self._pages(scan, found.get("revision", 0), caller_of(request))
        first = await anext(pages)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        await response.write(b"".join(map(json_line, first)))
        try:
            async for page in pages:
                await response.write(b"".join(map(json_line, page)))
        except (MetastoreError, RaftError) as error:
            await response.write(json_line({"problem": json.loads(problem_of(error).text or "{}")}))
        return response

    async def _pages(self, scan: Range, revision: int, caller: Caller) -> AsyncIterator[list[Any]]:
        page = await self._service.range(replace(scan, revision=revision), caller=caller)
        at = revision or page.revision
        yield [{"revision": at, "count": page.count}, *map(shapes.key_value, page.kvs)]
        while page.more:
            rest = replace(scan, key=page.kvs[-1].key + b"\0", revision=at, exact_count=False)
            page = await self._service.range(rest, caller=caller)
            yield list(map(shapes.key_value, page.kvs))


class KeyPuts:
    """PUT of one key on the fast path: a value without options and conditions. The response is that of `Keys.put`."""

    def __init__(self, service: KeyValues) -> None:
        self._service = service
        self.hot = Hot(f"PUT {PATH}", self.put, Access.PER_REQUEST, refuse, v1=True)

    def put(self, escaped: bytes, body: bytes, reply: HttpReply, caller: Caller) -> None:
        key = unquote_to_bytes(escaped) if b"%" in escaped else escaped
        try:
            self._service.submit(Put(key, body), partial(_answer_put, reply), caller=caller)
        except Exception as error:
            refuse(error, reply)


def _answer_put(reply: HttpReply, result: Any) -> None:
    if isinstance(result, Exception):
        refuse(result, reply)
    else:
        reply(200, b'{"revision": %d}\n' % result.revision, b'ETag: "%d"\r\n' % result.revision)


def json_line(shape: Any) -> bytes:
    return json.dumps(shape).encode() + b"\n"


def prefix_parameter(value: Any, name: str) -> bytes:
    """In a query, `prefix` is the prefix itself."""
    found: bytes = RANGE["key"](value, name)
    return found


def interval_of(found: dict[str, Any]) -> dict[str, Any]:
    if "prefix" not in found:
        if "key" not in found:
            raise BadRequest(
                "the query: give prefix, or key and optionally range_end; an empty prefix= selects every key"
            )
        return found
    if "key" in found:
        raise BadRequest("the query: give either prefix or key")
    prefix = found.pop("prefix")
    return whereabouts({**found, "key": prefix, "prefix": True}, "the query")


def wants_json(request: web.Request) -> bool:
    return "application/json" in request.headers.get("Accept", "")


def headers_of(kv: KeyValue, revision: int) -> dict[str, str]:
    headers = {
        "ETag": f'"{kv.mod_revision}"',
        "Palisade-Revision": str(revision),
        "Palisade-Create-Revision": str(kv.create_revision),
        "Palisade-Mod-Revision": str(kv.mod_revision),
        "Palisade-Version": str(kv.version),
    }
    return headers | ({"Palisade-Lease": str(kv.lease)} if kv.lease else {})


def condition_of(request: web.Request, key: bytes) -> Compare | None:
    match, none_match = request.headers.get("If-Match"), request.headers.get("If-None-Match")
    if none_match is not None:
        if match is not None or none_match.strip() != "*":
            raise BadRequest(
                "If-None-Match: only * is supported (the key must not exist), and not together with If-Match"
            )
        return Compare(key, CompareTarget.VERSION, CompareResult.EQUAL, 0)
    if match is None:
        return None
    if match.strip() == "*":
        return Compare(key, CompareTarget.VERSION, CompareResult.GREATER, 0)
    revision = a_number(match.strip().strip('"'), "If-Match")
    return Compare(key, CompareTarget.MOD, CompareResult.EQUAL, revision)
