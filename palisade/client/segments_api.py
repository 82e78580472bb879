"""Lookups, publication and changes of segments (docs/segments.md): a part of `client.store_api`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from palisade.base.counted import agreeing, counted
from palisade.base.errors import PalisadeError, without_retry_advice
from palisade.catalog.errors import CatalogError
from palisade.catalog.publication import Manifest
from palisade.catalog.replacement import Same, same_rows_and_place
from palisade.catalog.segment import SegmentRecord, parse_segment
from palisade.catalog.segment_json import interval_of, record_from
from palisade.client.first_answer import first_answer
from palisade.client.operations import Operation, plain_txn
from palisade.client.publishing import publish, read_records, replace_intervals
from palisade.client.realtime import RealtimeTarget, RealtimeWriter
from palisade.client.realtime_changes import Closed, before_close, give_up, given_up_records, given_up_shape
from palisade.client.record_choice import Choice, everything, in_interval, named
from palisade.client.segment_changes import mark_unused, reset_loaded, set_replicas
from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.requests import Command, Compare, RequestId, Txn
from palisade.metastore.results import RangeResult, TxnResult
from palisade.raftgroup.errors import Unavailable
from palisade.vault.errors import VaultError
from palisade.wire.credentials import Credentials
from palisade.wire.fencing_errors import ReadPending
from palisade.wire.segment_errors import BrokerNotSynced, NoSuchSegment, SegmentError, SegmentsUnavailable

WAIT_S, PAUSE_S = 5.0, 0.05
"""How long a lookup is repeated by default: longer than a change waits for the lease of a dead node (3.31 s)."""

TEMPORARY = (VaultError, BrokerNotSynced, ReadPending)
"""This node cannot answer at the moment; another one may."""
ANSWERS = (CatalogError, SegmentError)
"""Refusals that hold at every node."""


class NotAnsweredThere(PalisadeError):
    """Another node could not answer a lookup. Internal: `first_answer` ignores it."""

    code = "no-answer"
    retry = True


class SegmentsApi(ABC):
    """Times are texts such as 2013-03-01 or 2013-03-01T06:00Z, in UTC."""

    _credentials: Credentials | None = None
    _deadline_s: float = WAIT_S
    writer_waits_for: str = ""
    """What a realtime writer of this client waits for at a data node, for messages."""
    _refused_now: str | None = None
    """The node that refused the last lookup, and why, while it is repeated."""

    @property
    def connected_to(self) -> str:
        """The node that the requests are sent to, with its address, for messages."""
        return "the node"

    @property
    def _connection_trouble(self) -> str | None:
        """Why no answer can arrive at the moment, such as no leader; None if one can."""
        return None

    def _other_nodes(self) -> Sequence[AbstractAsyncContextManager[SegmentsApi]]:
        """An unopened client for each node other than the connected one."""
        return ()

    @abstractmethod
    async def _call(self, name: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """Execute one of `api.stream.calls`."""

    async def _call_once(self, name: str, request: Command) -> Any:
        """Execute a call that takes a command. If it can be sent twice, it has a request id."""
        return await self._call(name, encode_command(request))

    @abstractmethod
    async def topology(self) -> dict[str, Any]: ...

    @abstractmethod
    async def members(self) -> list[dict[str, Any]]: ...

    @abstractmethod
    async def range(self, key: bytes, *, prefix: bool = False, revision: int = 0) -> RangeResult: ...

    async def segments_txn(self, compare: Iterable[Compare] = (), success: Iterable[Operation] = ()) -> TxnResult:
        """A transaction of rows below palisade/segments/, which `txn` refuses; each row is checked."""
        result: TxnResult = decode_result(await self._call_once("segments_txn", plain_txn(compare, success, ())))
        return result

    async def segments_announce(self, request: Txn, request_id: RequestId) -> TxnResult:
        """A transaction of announcements; for data nodes. It is executed once, however often it is sent."""
        packed = encode_command(request, request_id)
        result: TxnResult = decode_result(await self._call("segments_announce", packed))
        return result

    async def segments_lease(self, lease: int, ttl_ms: int) -> int:
        """Renew the lease of a data node's announcements; 0 grants one. Returns its id. Raises LeaseNotFound."""
        found: int = await self._call("segments_lease", lease, ttl_ms)
        return found

    async def _look_up(self, name: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """A lookup. While this node is fenced, is starting or has not applied a release, the request is repeated here
        and sent to the other nodes, until `timeout_s` (None: the timeout of this client). Raises Unavailable with the
        cause if the node is fenced because there is no leader."""
        limit_s = self._deadline_s if timeout_s is None else timeout_s
        until = asyncio.get_running_loop().time() + limit_s
        try:
            return await self._call(name, *arguments, timeout_s=max(limit_s, PAUSE_S))
        except TEMPORARY as error:
            self._refused_now = self._refusal(error)
        beside = [self._look_up_at(other, name, arguments, until) for other in self._other_nodes()]
        return await first_answer(self._retry_here(name, arguments, until), beside, ANSWERS)

    async def _look_up_at(
        self, node: AbstractAsyncContextManager[SegmentsApi], name: str, arguments: tuple[Any, ...], until: float
    ) -> Any:
        """Raises one of `ANSWERS`, NotAnsweredThere if the node cannot answer now, or an error of the connection."""
        async with node as other:
            try:
                return await other._retry_here(name, arguments, until)
            except TEMPORARY as error:
                raise NotAnsweredThere(str(error)) from error

    async def _retry_here(self, name: str, arguments: tuple[Any, ...], until: float) -> Any:
        """Repeats the lookup at this node until `until`. Then raises the latest of the `TEMPORARY` errors, or
        Unavailable with the cause if no answer can arrive. Raises the errors of `_call` at once."""
        now = asyncio.get_running_loop().time
        try:
            while True:
                try:
                    return await self._call(name, *arguments, timeout_s=max(until - now(), PAUSE_S))
                except TEMPORARY as error:
                    if now() >= until:
                        if (trouble := self._connection_trouble) is not None:
                            raise Unavailable(f"the deadline passed; nothing was done: {trouble}") from None
                        raise type(error)(f"{self.connected_to}: {error}") from None
                    self._refused_now = self._refusal(error)
                    await asyncio.sleep(PAUSE_S)
        finally:
            self._refused_now = None

    def _refusal(self, error: PalisadeError) -> str:
        return f"{self.connected_to}: {without_retry_advice(error)}"

    async def segments_lookup(
        self, data_source: str, start: str, end: str, *, on_missing: str = "fail", timeout_s: float | None = None
    ) -> dict[str, Any]:
        """What answers a query: `segments` with their nodes, `missing`, `unserved`, `revision`, `complete`.

        Linearizable. `timeout_s`: seconds during which it is repeated while a node may not answer; None: the timeout of
        the client. Raises SegmentsUnavailable with the exact list if segments have no server, unless `on_missing` is
        "warn" or "allow"; NoSuchDataSource, BrokerNotSynced.
        """
        if on_missing not in ("fail", "warn", "allow"):
            raise ValueError(f"on_missing: {on_missing!r:.60} is not fail, warn or allow")
        found: dict[str, Any] = await self._look_up("segments_lookup", data_source, start, end, timeout_s=timeout_s)
        if found["missing"] and on_missing == "fail":
            raise SegmentsUnavailable(found["missing"])
        if found["missing"] and on_missing == "warn":
            number = len(found["missing"])
            has = agreeing(number, "has", "have")
            found["warning"] = f"{counted(number, 'segment')} {has} no server: the answer is not complete"
        return found

    async def segments_list(self, data_source: str = "", *, timeout_s: float | None = None) -> dict[str, Any]:
        """`data_sources`; or with a data source, `segments`: every record, its state and its nodes. `timeout_s`: as in
        `segments_lookup`."""
        found: dict[str, Any] = await self._look_up("segments_list", data_source, timeout_s=timeout_s)
        return found

    async def segment(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._look_up("segment", name)
        return found

    async def segments_publish(self, data_source: str, segments: Sequence[dict[str, Any]]) -> int:
        """All of them become visible at one revision. A segment whose rows are already published is skipped; one with
        changed rows gets a higher version. Returns how many were published."""
        return await publish(self, data_source, [record_from(data_source, each) for each in segments])

    async def segments_replace(
        self,
        data_source: str,
        records: Sequence[SegmentRecord],
        *,
        condition: Sequence[Compare] = (),
        same: Same = same_rows_and_place,
    ) -> list[SegmentRecord]:
        """Replace all segments in the intervals of these records, at one revision; intervals whose segments are the
        same already are omitted. Returns what was published. Every transaction compares `condition`."""
        return await replace_intervals(self, data_source, records, condition=condition, same=same)

    async def segments_records(self, data_source: str) -> tuple[Manifest, dict[SegmentRecord, int]]:
        """The manifest of a data source, and all records with their revisions: also those that are unused, or that the
        manifest shows as not visible yet."""
        manifest, _, records = await read_records(self, data_source, everything)
        return manifest, dict(records)

    async def segments_mark_unused(
        self, data_source: str, *, segments: Sequence[str] = (), start: str = "", end: str = ""
    ) -> list[str]:
        """Those that are named, or those that lie in the interval. Returns the changed ones."""
        return texts(await mark_unused(self, data_source, _choice(segments, start, end)))

    async def segments_set_replicas(
        self, data_source: str, replicas: int, *, segments: Sequence[str] = (), start: str = "", end: str = ""
    ) -> list[str]:
        """With neither names nor an interval: all used segments. Returns the changed ones."""
        choice = everything if not (segments or start or end) else _choice(segments, start, end)
        return texts(await set_replicas(self, data_source, replicas, choice))

    async def segments_reset_loaded(self, data_source: str) -> list[str]:
        """Queries count on a segment again once a node announces it. Returns the changed ones."""
        return texts(await reset_loaded(self, data_source))

    async def realtime_give_up(self, segment: str, *, by: str, reason: str, at_ms: int) -> dict[str, Any]:
        """Give up a realtime segment whose ingester is lost: lookups list it as not served, and do not count its rows.
        `at_ms`: wall time, for the audit record. Raises NotAllowed while its ingester serves it."""
        return given_up_shape(await give_up(self, parse_segment(segment), by, reason, at_ms))

    async def realtime_given_up(self) -> list[dict[str, Any]]:
        """The audit records of realtime segments that were given up."""
        return [given_up_shape(each) for each in await given_up_records(self)]

    async def realtime_close(self, segment: str, timeout_s: float = 30.0) -> int:
        """Close a realtime segment: it is published and handed off. Returns its number of rows, also if it is closed
        already."""
        return (await self.realtime_closed(segment, timeout_s)).rows

    async def realtime_closed(self, segment: str, timeout_s: float = 30.0) -> Closed:
        """As `realtime_close`. Raises NotAllowed, UnknownSegment, and as `RealtimeWriter.close`."""
        found = await self._before_close(segment)
        if isinstance(found, Closed):
            return found
        writer = self.realtime(parse_segment(segment).data_source, "", "", {}, node=found, timeout_s=timeout_s)
        try:
            return Closed(await writer.close_of(segment, found), before=False)
        except NoSuchSegment:
            if isinstance(now := await self._before_close(segment), Closed):
                return now  # handed off meanwhile
            raise
        finally:
            await writer.release()

    async def _before_close(self, segment: str) -> str | Closed:
        return before_close(await self.segment(segment))

    def realtime(
        self,
        data_source: str,
        start: str,
        end: str,
        columns: Mapping[str, str],
        *,
        node: str = "",
        writer: str = "",
        replicas: int = 1,
        timeout_s: float = 30.0,
    ) -> RealtimeWriter:
        """Appends rows that are counted at once; use it with `async with`, or `with` in a blocking program.

        `columns`: {"id": "int", "at": "timestamp"}. `node`: the data node that receives the rows; without one, the
        first that opens the segment. `writer`: a name, under which the segment is continued after a restart of the
        program; then `node` is needed. Without one, the segment is closed at the end of the block. `replicas`: of the
        published segment. `timeout_s`: of each call. Raises ValueError: a writer without a node.
        """
        target = RealtimeTarget(data_source, start, end, columns, node, writer, replicas)
        trouble = lambda: self._connection_trouble  # noqa: E731
        return RealtimeWriter(
            self.topology, target, timeout_s, self._credentials, self._writer_waits, trouble, self.members
        )

    def _writer_waits(self, what: str) -> None:
        self.writer_waits_for = what


def _choice(segments: Sequence[str], start: str, end: str) -> Choice:
    """Raises ValueError, BadField."""
    if bool(segments) == bool(start or end):
        raise ValueError("give either names of segments, or start and end")
    return named([parse_segment(name) for name in segments]) if segments else in_interval(interval_of(start, end))


def texts(segments: Iterable[object]) -> list[str]:
    return [str(segment) for segment in segments]
