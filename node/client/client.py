"""The client of a cluster, over the pipelined stream."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any

from metastore.codec import encode_command, encode_plain_put, operation_fields
from metastore.requests import Command, Range, RequestId, WatchRequest
from metastore.result_codec import decode_result
from metastore.results import PutResult, RangeResult
from node.api import Content, StoreApi
from node.client.route import Route
from node.client.session import Session
from node.client.watch import Watch
from node.stream.protocol import Kind

CLIENT_ID_BYTES = 8


class Client(StoreApi):
    """Use it with `async with`. Any number of requests may be under way at a time; each is retried, safely, over
    reconnects and changes of leader, until its deadline.

    `endpoints`: 'host:port' of the streams of one or more nodes. `timeout_s`: the deadline of requests that name none.
    `client_id`: names this client in request ids; never give the same one to two clients, not one after the other
    either. `exactly_once` False leaves request ids out: then a write whose connection breaks ends as OutcomeUnknown.
    `follow_leader` False stays with the endpoints as they are given, and never goes to the leader by itself.
    """

    def __init__(
        self,
        endpoints: Iterable[str],
        *,
        timeout_s: float = 5.0,
        client_id: str | None = None,
        exactly_once: bool = True,
        follow_leader: bool = True,
    ) -> None:
        self._session = Session(Route(endpoints, follow_leader=follow_leader), timeout_s)
        self._id = client_id or secrets.token_hex(CLIENT_ID_BYTES)
        self._exactly_once = exactly_once
        self._sequence = 0

    async def __aenter__(self) -> Client:
        self._session.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End what is under way, and the connection."""
        await self._session.close()

    async def _write(self, request: Command, timeout_s: float | None = None) -> Any:
        if self._session.is_full():
            await self._session.admit()
        rid = self._next_request_id()
        return decode_result(await self._propose(encode_command(request, rid and RequestId(*rid)), timeout_s))

    async def _put(self, key: bytes, value: bytes, timeout_s: float | None) -> PutResult:
        if self._session.is_full():
            await self._session.admit()
        command = encode_plain_put(key, value, self._next_request_id())
        result: PutResult = decode_result(await self._propose(command, timeout_s))
        return result

    def _next_request_id(self) -> tuple[str, int] | None:
        """(client, sequence). Nothing may be awaited before it is sent: a node remembers the newest ones only."""
        if not self._exactly_once:
            return None
        self._sequence += 1
        return self._id, self._sequence

    def _propose(self, command: bytes, timeout_s: float | None) -> asyncio.Future[Any]:
        once = self._exactly_once
        return self._session.send(Kind.WRITES, command, len(command), timeout_s, repeatable=once, writes=True)

    async def _read(self, request: Range, timeout_s: float | None = None) -> RangeResult:
        await self._session.admit()
        fields = operation_fields(request)
        size = len(request.key) + len(request.range_end) + 64
        answer = self._session.send(Kind.READS, fields, size, timeout_s, repeatable=True, writes=False)
        result: RangeResult = decode_result(await answer)
        return result

    async def _call(self, name: str, *arguments: Any) -> Any:
        await self._session.admit()
        changes = name.startswith(("member_", "transfer"))
        content = (name, list(arguments))
        return await self._session.send(Kind.CALL, content, 64, None, repeatable=not changes, writes=changes)

    def _watch(self, request: WatchRequest, progress_s: float | None) -> Watch:
        return self._session.watch(request, progress_s)

    async def put_many(
        self,
        items: Iterable[tuple[Content, Content]] | AsyncIterable[tuple[Content, Content]],
        *,
        outstanding: int = 1024,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Put every pair, at most `outstanding` at a time; returns how many. The first error ends it.

        `progress` hears the number of puts that are done, after each. Pairs of one key are written in no certain order.
        """
        done, under_way = 0, set[asyncio.Task[Any]]()

        async def finish(least: int) -> None:
            nonlocal done
            while len(under_way) > least:
                ended, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                under_way.difference_update(ended)
                for task in ended:
                    task.result()
                    done += 1
                    if progress is not None:
                        progress(done)

        try:
            async for key, value in _each(items):
                under_way.add(asyncio.ensure_future(self.put(key, value)))
                if len(under_way) >= outstanding:
                    await finish(outstanding // 2)
            await finish(0)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        return done


async def _each(items: Any) -> Any:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
