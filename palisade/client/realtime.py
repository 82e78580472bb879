"""Appends rows to realtime segments: they are counted as soon as they are acknowledged (docs/segments.md).

    async with client.realtime("sales", "2013-03-01", "2013-03-02", {"id": "int"}, node="n1", writer="w1") as writer:
        await writer.append([[1], [2]])

Rows go to one data node over HTTP. Each batch is sent with its position, and again until it is acknowledged, so it is
stored once. A segment that is full is closed, and the next one is opened. A program that starts again with the name of
its writer continues the segment; `rows` is the number of its stored rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from palisade.base.errors import PalisadeError
from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.client.node_addresses import addresses_in
from palisade.raftgroup.errors import OutcomeUnknown
from palisade.wire.credentials import Credentials, header_of
from palisade.wire.error_codes import error_of
from palisade.wire.segment_errors import NoSuchSegment, RealtimeFull

PAUSE_S = 0.1
REQUEST_S = 5.0
AGAIN = {429, 503, 504}
Topology = Callable[[], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class RealtimeTarget:
    """`node`: the data node; without one, the first that answers. `writer`: the name under which the segment is
    continued. `replicas`: of the published segment."""

    data_source: str
    start: str
    end: str
    columns: Mapping[str, str]
    node: str = ""
    writer: str = ""
    replicas: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.writer and not self.node:
            raise ValueError("writer: its segment is continued at the node that has it: give node, too")

    def body(self) -> dict[str, Any]:
        wanted = {"data_source": self.data_source, "from": self.start, "to": self.end, "columns": dict(self.columns)}
        return {**wanted, "writer": self.writer, "replicas": self.replicas}


class RealtimeWriter:
    """One open realtime segment at a time. `segment`, `rows`: its name and number of rows, after `open`.

    `timeout_s`: of each call, which is repeated until then.
    """

    def __init__(
        self, topology: Topology, target: RealtimeTarget, timeout_s: float, credentials: Credentials | None
    ) -> None:
        self.segment, self.rows, self.node = "", 0, target.node
        self._topology, self._target, self._timeout_s = topology, target, timeout_s
        self._requests = HttpRequests(header_of(credentials), timeout_s=REQUEST_S)

    async def __aenter__(self) -> RealtimeWriter:
        try:
            await self.open()
        except BaseException:
            await self._requests.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """The segment stays open, for a writer that continues it."""
        await self.release()

    async def release(self) -> None:
        """Close the connections."""
        await self._requests.close()

    async def open(self) -> str:
        """Returns the name of the segment. Raises the errors of the node, OutcomeUnknown at the deadline."""
        found = await self._ask("/v1/segments/realtime", self._target.body())
        self.node, self.segment, self.rows = found["node"], found["segment"], found["rows"]
        return self.segment

    async def append(self, rows: Sequence[Sequence[Any] | Mapping[str, Any]]) -> int:
        """Returns the number of rows of the segment. They are stored on the disk of the node, and counted from now on.

        Raises BadRows (nothing was stored), RealtimeRefused, and OutcomeUnknown at the deadline: repeat it.
        """
        body = {"rows": [plain_row(row) for row in rows], "position": self.rows}
        try:
            found = await self._ask(f"/v1/segments/{self.segment}/rows", body)
        except RealtimeFull:
            await self.close()
            await self.open()
            found = await self._ask(f"/v1/segments/{self.segment}/rows", {**body, "position": self.rows})
        self.rows = found["rows"]
        return self.rows

    async def close_of(self, segment: str, node: str) -> int:
        """Close a segment that another writer left open."""
        self.segment, self.node = segment, node
        return await self.close()

    async def close(self) -> int:
        """No more rows: the segment is published and handed off. Returns its number of rows."""
        found = await self._ask(f"/v1/segments/{self.segment}/close", {})
        return int(found["rows"])

    async def _ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        until = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            try:
                return await self._ask_once(path, body)
            except NotAnsweredYet as error:
                if asyncio.get_running_loop().time() >= until:
                    raise OutcomeUnknown(f"{error}; it may have been done: repeat it") from None
                await asyncio.sleep(PAUSE_S)

    async def _ask_once(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Raises NotAnsweredYet, and the errors of the node."""
        failures = []
        for name, address in (await self._addresses()).items():
            try:
                answer = await self._requests.json(address, path, "POST", body)
            except NoAnswer as error:
                failures.append(f"{name}: {error}")
                continue
            if answer.status < 400:
                found: dict[str, Any] = answer.content
                return found
            content = answer.content if isinstance(answer.content, dict) else {}
            refusal = error_of(str(content.get("code", "")), str(content.get("detail", answer.detail)))
            if answer.status not in AGAIN and not (self.node == "" and isinstance(refusal, NoSuchSegment)):
                raise refusal
            failures.append(f"{name}: {refusal}")
        raise NotAnsweredYet("; ".join(failures) or f"node {self.node or '?'} is not in the topology")

    async def _addresses(self) -> dict[str, str]:
        """Of the data node; of all nodes before it is chosen."""
        found = addresses_in(await self._topology())
        return found if not self.node else {name: each for name, each in found.items() if name == self.node}


def plain_row(row: Sequence[Any] | Mapping[str, Any]) -> Any:
    """As JSON has it: times as texts, bytes as hex digits."""
    if isinstance(row, Mapping):
        return {name: plain(value) for name, value in row.items()}
    return [plain(value) for value in row]


def plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else value


class NotAnsweredYet(PalisadeError):
    """The node did not answer, or may not answer now."""

    code = "no-answer"
    retry = True
