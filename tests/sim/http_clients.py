"""A client of the HTTP port, over simulated sockets: the server is the product's, with fast path and aiohttp.

It keeps a connection to each node, sends writes with an Idempotency-Key, and repeats them at another member if there
was no response (M3). Fenced reads go to any node, followers too. An impossible response, a status of 500 or a body that
is no JSON, ends the run. HTTP servers cost time: `Settings.http` selects the runs in which nodes have one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from palisade.metastore.errors import KeyNotFound
from palisade.metastore.requests import Compare, CompareResult, DeleteRange, Put, Range, RequestId, Txn
from palisade.metastore.results import DeleteRangeResult, KeyValue, PutResult, RangeResult, TxnResult
from tests.sim.asking import STRICT, Asking
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.node import HTTP, Host
from tests.sim.outcomes import kind_of, outcome_from, problem_in
from tests.sim.seen import Ok, Outcome, Path, Request, Why

END_OF_HEAD = b"\r\n\r\n"
TRIES = 3
LOST = (OSError, EOFError, TimeoutError)
RELATIONS = {
    CompareResult.EQUAL: "=",
    CompareResult.NOT_EQUAL: "!=",
    CompareResult.GREATER: ">",
    CompareResult.LESS: "<",
}


class HttpClient:
    def __init__(self, client: Client, asking: Asking, going: Callable[[], bool], pause_s: float) -> None:
        self._client, self._asking, self._going, self._pause_s = client, asking, going, pause_s
        self._world, self._chance = client.world, client.world.chance
        self._connections: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def run(self) -> None:
        while self._going():
            await asyncio.sleep(self._pause_s * self._chance.random())
            if self._chance.random() < 0.35:
                host = self._chance.choice(list(self._world.hosts.values()))
                if self._world.is_asked(host.vault):
                    await self.ask(host, Path.FENCED_API, Range(self._chance.choice(STRICT)), None, 1)
            else:
                await self._once(self._asking.anything())

    async def _once(self, request: Request) -> None:
        rid = None
        if not isinstance(request, Range):
            self._client.sequence += 1
            rid = RequestId(self._client.name, self._client.sequence)
        for attempt in range(1, TRIES + 1):
            outcome = await self.ask(self._chance.choice(self._world.members), Path.HTTP, request, rid, attempt)
            if rid is None or isinstance(outcome, Ok) or getattr(outcome, "why", None) is Why.REJECTED:
                return
            await asyncio.sleep(0.3 * self._chance.random())

    async def ask(self, host: Host, path: Path, request: Request, rid: RequestId | None, attempt: int) -> Outcome:
        world, name = self._world, self._client.name
        number = world.history.begin(name, host.id, path, request, rid, attempt)
        outcome = await outcome_from(self._response(host, path, request, rid), request, lost=LOST)
        world.history.end(number, outcome)
        self._asking.observe(request, outcome)
        kind = kind_of(outcome)
        world.count(f"client http {path.value} {type(request).__name__}: {kind}")
        world.note(name, f"{number} http {path.value} at {host.id} {type(request).__name__} {kind}")
        return outcome

    async def _response(self, host: Host, path: Path, request: Request, rid: RequestId | None) -> Any:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._exchange(host, path, request, rid)
        except ConnectionRefusedError:
            raise
        except LOST:
            self._hang_up(host)
            raise

    async def _exchange(self, host: Host, path: Path, request: Request, rid: RequestId | None) -> Any:
        """Raises the error that the response stands for."""
        reader, writer = await self._connected(host)
        writer.write(fenced_question(request) if path is Path.FENCED_API else question(request, rid))
        head = (await reader.readuntil(END_OF_HEAD)).decode().split("\r\n")
        status = int(head[0].split(" ", 2)[1])
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        if headers.get("connection") == "close":
            self._hang_up(host)
        return result_in(host.id, path, request, status, body)

    async def _connected(self, host: Host) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        known = self._connections.get(host.id)
        if known is None or known[1].is_closing() or known[0].at_eof():
            self._hang_up(host)
            known = self._connections[host.id] = await asyncio.open_connection(host.address, HTTP)
        return known

    def _hang_up(self, host: Host) -> None:
        known = self._connections.pop(host.id, None)
        if known is not None:
            known[1].close()


# Requests and responses, as in docs/http-api.md


def question(request: Request, rid: RequestId | None) -> bytes:
    name, form = form_of(request)
    body = json.dumps(form).encode()
    once = f"Idempotency-Key: {rid.client}/{rid.sequence}\r\n" if rid is not None else ""
    head = f"POST /v1/{name} HTTP/1.1\r\nHost: sim\r\nContent-Type: application/json\r\n{once}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def fenced_question(request: Request) -> bytes:
    assert isinstance(request, Range)
    return b"GET /v1/fenced/%s HTTP/1.1\r\nHost: sim\r\n\r\n" % request.key


def form_of(request: Any) -> tuple[str, dict[str, Any]]:
    match request:
        case Put():
            kept = {name: True for name in ("prev_kv", "ignore_value", "ignore_lease") if getattr(request, name)}
            return "put", {"key": request.key.decode(), "value": request.value.decode(), **kept}
        case DeleteRange():
            return "delete", {**_where(request), "prev_kv": request.prev_kv}
        case Range():
            plain = {name: getattr(request, name) for name in ("limit", "revision", "serializable")}
            parts = {name: getattr(request, name) for name in ("keys_only", "count_only")}
            order = {name: getattr(request, name).name.lower() for name in ("sort_order", "sort_target")}
            return "range", {**_where(request), **plain, **parts, **order}
        case Txn():
            return "txn", {
                "compare": [_compare(each) for each in request.compare],
                "then": [dict([form_of(each)]) for each in request.success],
                "else": [dict([form_of(each)]) for each in request.failure],
            }
    raise TypeError(f"no HTTP client sends {request}")


def _where(request: DeleteRange | Range | Compare) -> dict[str, str]:
    end = {"range_end": request.range_end.decode()} if request.range_end else {}
    return {"key": request.key.decode(), **end}


def _compare(compare: Compare) -> dict[str, Any]:
    operand = compare.operand.decode() if isinstance(compare.operand, bytes) else compare.operand
    target, relation = compare.target.name.lower(), RELATIONS[compare.result]
    return {**_where(compare), "target": target, "relation": relation, "operand": operand}


def result_in(node: str, path: Path, request: Request, status: int, body: dict[str, Any]) -> Any:
    """Of a response. Raises the error that it stands for; AssertionError for one that a node must not send."""
    if status == 500 or (status >= 400 and "code" not in body):
        raise AssertionError(f"{node} answers {request} with {status}: {body}")
    if path is Path.FENCED_API and status == 404 and body["code"] == KeyNotFound.code:
        return RangeResult(0, (), False, 0)
    if status >= 400:
        raise problem_in(body)
    if path is not Path.FENCED_API:
        return result_from(request, body)
    kvs = tuple(map(kv_from, body["kvs"] if "kvs" in body else (body["kv"],)))
    return RangeResult(body["revision"] if "kvs" in body else 0, kvs, body.get("more", False), len(kvs))


def kv_from(shape: dict[str, Any]) -> KeyValue:
    made, changed = shape["create_revision"], shape["mod_revision"]
    lease = int(shape.get("lease", 0))
    return KeyValue(shape["key"].encode(), shape["value"].encode(), made, changed, shape["version"], lease)


def result_from(request: Any, body: dict[str, Any]) -> Any:
    match request:
        case Put():
            before = body.get("prev_kv")
            return PutResult(body["revision"], kv_from(before) if before else None)
        case DeleteRange():
            return DeleteRangeResult(body["revision"], body["deleted"], tuple(map(kv_from, body.get("prev_kvs", ()))))
        case Range():
            return RangeResult(body["revision"], tuple(map(kv_from, body["kvs"])), body["more"], body["count"])
    branch = request.success if body["succeeded"] else request.failure
    parts = zip(branch, body["results"], strict=True)
    results = tuple(result_from(part, *shape.values()) for part, shape in parts)
    return TxnResult(body["revision"], body["succeeded"], results)
